//! Every outside crate of the workspace has a reason in CONTRIBUTING.md.

use anyhow::Context as _;

use crate::tools;

/// What is missing, a line each.
pub fn check() -> anyhow::Result<Vec<String>> {
    let read =
        |file: &str| std::fs::read_to_string(tools::root().join(file)).with_context(|| file.to_owned());
    let manifest: toml::Table = toml::from_str(&read("Cargo.toml")?)?;
    let listed =
        manifest.get("workspace").and_then(|it| it.get("dependencies")).and_then(toml::Value::as_table);
    let listed = listed.context("Cargo.toml has no workspace dependencies")?;
    let outside =
        listed.iter().filter(|(_, value)| value.get("path").is_none()).map(|(name, _)| name.as_str());
    Ok(missing(outside, &read("CONTRIBUTING.md")?))
}

fn missing<'a>(names: impl Iterator<Item = &'a str>, page: &str) -> Vec<String> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let known: Vec<&str> = rows.flat_map(|cell| cell.split(", ")).collect();
    let unexplained = names.filter(|name| !known.contains(name));
    unexplained.map(|name| format!("CONTRIBUTING.md gives no reason for {name}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_without_a_reason_is_seen() {
        let page = "| crate | why |\n|---|---|\n| serde, toml | data |\n";
        assert!(missing(["serde", "toml"].into_iter(), page).is_empty());
        assert_eq!(missing(["sled"].into_iter(), page).len(), 1);
    }
}
