//! Rules on the text of files.

use crate::tools;

/// Longest Rust file, in lines.
const LONGEST: usize = 700;
/// Longest README, in lines: it is for newcomers.
const LONGEST_README: usize = 150;
/// Words that must not stay in code. Written in two halves so that this file passes.
const LEFTOVERS: &[&str] =
    &[concat!("todo", "!("), concat!("unimplemented", "!("), concat!("#[", "ignore"), concat!("FIX", "ME")];

/// Ends of a statement that keeps a look at a watched value in a variable.
const KEPT_LOOKS: &[&str] = &[".borrow();", ".borrow_and_update();"];

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
    if file.starts_with("crates/") {
        kept_looks(file, text, broken);
    }
}

/// Whoever keeps a look at a watched value (`tokio::sync::watch`) and looks again, while the writer waits for the first
/// look to end, waits for ever, and all others with it.
fn kept_looks(file: &str, text: &str, broken: &mut Vec<String>) {
    for (number, line) in text.lines().enumerate() {
        let kept = KEPT_LOOKS.iter().any(|end| line.ends_with(end));
        if kept && line.trim_start().starts_with("let ") && !line.contains("= *") {
            broken.push(format!(
                "{file}:{}: a look at a watched value is kept; clone it, or give it to a function",
                number + 1
            ));
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

    #[test]
    fn a_look_that_is_kept_is_seen() {
        let mut broken = Vec::new();
        let looks = |end: &str| format!("//! Looks.\nfn f() {{\n    let status = context.status{end}\n}}\n");
        for good in [".borrow().clone();", ".borrow().is_leader();"] {
            rust("crates/a/src/good.rs", &looks(good), &mut broken);
        }
        rust("crates/a/src/good.rs", "//! Looks.\nlet applied = *self.applied.borrow();\n", &mut broken);
        assert!(broken.is_empty(), "{broken:?}");
        for bad in KEPT_LOOKS {
            rust("crates/a/src/bad.rs", &looks(bad), &mut broken);
        }
        assert_eq!(broken.len(), KEPT_LOOKS.len(), "{broken:?}");
    }
}
