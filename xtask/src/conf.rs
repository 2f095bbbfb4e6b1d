//! `cargo xtask conf`: the annotated files in conf/ are written from the config structs, never by hand.

use anyhow::bail;

use crate::tools;

const ROLES: [&str; 4] = ["replica", "dispatcher", "jobmaster", "standalone"];

/// Writes conf/ROLE.toml for each role, or says which are stale.
pub fn run(check: bool) -> anyhow::Result<()> {
    let mut stale = Vec::new();
    for role in ROLES {
        let args = ["run", "--quiet", "--package", "metastored", "--bin", "metastored", "--", "conf", role];
        let wanted = tools::output(&mut tools::cargo(&args))?;
        let path = tools::root().join("conf").join(format!("{role}.toml"));
        if std::fs::read_to_string(&path).unwrap_or_default() == wanted {
            continue;
        }
        stale.push(role);
        if !check {
            std::fs::write(&path, wanted)?;
        }
    }
    if check && !stale.is_empty() {
        bail!("conf/ is stale ({}): run cargo xtask conf", stale.join(", "));
    }
    Ok(())
}
