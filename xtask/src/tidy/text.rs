//! Rules on the text of files.

use crate::tools;

/// Longest Rust file, in lines.
const LONGEST: usize = 700;
/// Longest README, in lines: it is for newcomers.
const LONGEST_README: usize = 150;
/// Words that must not stay in code. Written in two halves so that this file passes.
const LEFTOVERS: &[&str] =
    &[concat!("todo", "!("), concat!("unimplemented", "!("), concat!("#[", "ignore"), concat!("FIX", "ME")];

/// What is broken, a line each.
pub fn check(files: &[String]) -> anyhow::Result<Vec<String>> {
    let mut broken = Vec::new();
    for file in files {
        let Ok(text) = std::fs::read_to_string(tools::root().join(file)) else { continue };
        if file.ends_with(".rs") {
            rust(file, &text, &mut broken);
        }
        if file == "README.md" && text.lines().count() > LONGEST_README {
            broken.push(format!("{file}: more than {LONGEST_README} lines"));
        }
    }
    Ok(broken)
}

fn rust(file: &str, text: &str, broken: &mut Vec<String>) {
    let lines = text.lines().count();
    if lines > LONGEST {
        broken.push(format!("{file}: {lines} lines, {LONGEST} is the limit"));
    }
    if !text.starts_with("//!") {
        broken.push(format!("{file}: does not open with a //! line that says what it is for"));
    }
    for word in LEFTOVERS {
        if let Some(line) = text.lines().position(|line| line.contains(word)) {
            broken.push(format!("{file}:{}: {word} must not stay", line + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_on_a_file_is_seen() {
        let mut broken = Vec::new();
        rust("good.rs", "//! Good.\n", &mut broken);
        assert!(broken.is_empty());
        rust("bad.rs", &format!("fn main() {{}}\n{}", "\n".repeat(LONGEST)), &mut broken);
        rust("left.rs", &format!("//! Left.\nfn f() {{ {}); }}\n", LEFTOVERS[0]), &mut broken);
        assert_eq!(broken.len(), 3, "{broken:?}");
    }
}
