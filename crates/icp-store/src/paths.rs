//! Which paths a package may hold. Uploads come from anywhere: a path is taken only if it means the same file on
//! every node and can never leave the package.

use std::collections::HashMap;

use thiserror::Error;

use crate::limits::{MAX_DEPTH, MAX_PART_BYTES, MAX_PATH_BYTES};

/// Why a path is refused. The path is quoted with its odd characters escaped.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("path {path:?} is refused: {why}")]
pub struct PathError {
    /// The path.
    pub path: String,
    /// The reason.
    pub why: String,
}

/// Checks one path: relative, `/` between parts, at most 255 bytes a part, no `.`, `..`, empty part, backslash,
/// colon, control character, trailing dot or space, or Windows device name.
pub fn check_path(path: &str) -> Result<(), PathError> {
    let refuse = |why: String| Err(PathError { path: shorten(path), why });
    if path.is_empty() {
        return refuse("it is empty".into());
    }
    if path.len() > MAX_PATH_BYTES {
        return refuse(format!("it is longer than {MAX_PATH_BYTES} bytes"));
    }
    if path.starts_with('/') {
        return refuse("it is absolute".into());
    }
    if path.split('/').count() > MAX_DEPTH + 1 {
        return refuse(format!("it is deeper than {MAX_DEPTH} directories"));
    }
    for part in path.split('/') {
        if let Err(why) = check_part(part) {
            return refuse(why);
        }
    }
    Ok(())
}

/// Checks one part of a path; also used for package names and versions before they become directories.
pub fn check_part(part: &str) -> Result<(), String> {
    if part.is_empty() {
        return Err("it has an empty part".into());
    }
    if part == "." || part == ".." {
        return Err(format!("it has a part `{part}`"));
    }
    if part.len() > MAX_PART_BYTES {
        return Err(format!("it has a part longer than {MAX_PART_BYTES} bytes"));
    }
    if let Some(c) = part.chars().find(|c| c.is_control() || matches!(c, '\\' | ':' | '/')) {
        return Err(format!("it has the character {c:?}"));
    }
    if part.ends_with('.') || part.ends_with(' ') {
        return Err("it has a part that ends with a dot or a space".into());
    }
    if is_windows_device(part) {
        return Err(format!("`{part}` is a Windows device name"));
    }
    Ok(())
}

/// `CON`, `con.txt`, `COM1`, `lpt¹`: Windows opens a device for any of them, whatever the extension.
fn is_windows_device(part: &str) -> bool {
    let stem = part.split('.').next().unwrap_or(part).trim_end().to_ascii_uppercase();
    if matches!(stem.as_str(), "CON" | "PRN" | "AUX" | "NUL" | "CONIN$" | "CONOUT$") {
        return true;
    }
    let Some(number) = stem.strip_prefix("COM").or_else(|| stem.strip_prefix("LPT")) else { return false };
    let mut chars = number.chars();
    matches!((chars.next(), chars.next()), (Some('0'..='9' | '¹' | '²' | '³'), None))
}

fn shorten(path: &str) -> String {
    match path.char_indices().nth(100) {
        Some((at, _)) => format!("{}...", &path[..at]),
        None => path.to_owned(),
    }
}

/// Checks the paths of a whole package: each by itself, no path twice, none that differ only in case (directories
/// too), none that is a file here and a directory there.
pub fn check_tree<'a>(paths: impl IntoIterator<Item = &'a str>) -> Result<(), PathError> {
    let mut tree = Tree::default();
    paths.into_iter().try_for_each(|path| tree.add(path))
}

/// The paths of a package as they come, checked one by one: an upload is refused at its first bad path.
#[derive(Debug, Default)]
pub struct Tree {
    /// Lower-case prefix -> the prefix as first seen, and whether it is a file.
    seen: HashMap<String, (String, bool)>,
}

impl Tree {
    /// Takes one more file.
    pub fn add(&mut self, path: &str) -> Result<(), PathError> {
        check_path(path)?;
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        for end in ends {
            self.add_prefix(path, end)?;
        }
        Ok(())
    }

    fn add_prefix(&mut self, path: &str, end: usize) -> Result<(), PathError> {
        let prefix = &path[..end];
        let is_file = end == path.len();
        let Some((other, other_is_file)) = self.seen.get(&prefix.to_lowercase()) else {
            self.seen.insert(prefix.to_lowercase(), (prefix.to_owned(), is_file));
            return Ok(());
        };
        let why = if other != prefix {
            format!("it differs from `{}` only in case", shorten(other))
        } else if is_file && *other_is_file {
            "it is there twice".into()
        } else if is_file || *other_is_file {
            format!("`{}` is a file and a directory", shorten(prefix))
        } else {
            return Ok(());
        };
        Err(PathError { path: shorten(path), why })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_trees_are_taken() {
        check_tree([
            "a/b/c.jar",
            "a/b/d.jar",
            "d.jar",
            "META-INF/x",
            "ü/é.txt",
            "console",
            "com10",
            ".hidden",
        ])
        .unwrap();
    }

    #[test]
    fn hostile_paths_are_refused() {
        let long = "x".repeat(256);
        let deep = "a/".repeat(65) + "f";
        for bad in [
            "",
            "/",
            "/etc/passwd",
            "..",
            "../x",
            "a/../b",
            "a/./b",
            ".",
            "a//b",
            "a/",
            "a\\b",
            "C:x",
            "a\0b",
            "a\nb",
            "con",
            "CON.txt",
            "a/Aux",
            "nul.tar.gz",
            "COM1",
            "lpt9.log",
            "com¹",
            "x.",
            "x ",
            "con .txt",
            &long,
            &deep,
            &"p/".repeat(600),
        ] {
            assert!(check_path(bad).is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn clashing_paths_are_refused() {
        for clash in [
            &["a", "a"][..],
            &["A", "a"],
            &["lib/x", "Lib/y"],
            &["a", "a/b"],
            &["a/b", "a"],
            &["Straße", "STRAßE"],
        ] {
            assert!(check_tree(clash.iter().copied()).is_err(), "{clash:?} was taken");
        }
    }
}
