//! `cargo xtask conf`: the annotated files in conf/ are written from the config structs, and docs/openapi.json from the
//! annotations of the REST handlers, never by hand.

use anyhow::bail;

use crate::tools;

/// What metastored prints, and where it goes.
const FILES: [(&[&str], &str); 5] = [
    (&["conf", "replica"], "conf/replica.toml"),
    (&["conf", "dispatcher"], "conf/dispatcher.toml"),
    (&["conf", "jobmaster"], "conf/jobmaster.toml"),
    (&["conf", "standalone"], "conf/standalone.toml"),
    (&["openapi"], "docs/openapi.json"),
];

/// Writes each file, or says which are stale.
pub fn run(check: bool) -> anyhow::Result<()> {
    let mut stale = Vec::new();
    for (words, file) in FILES {
        let args =
            [&["run", "--quiet", "--package", "metastored", "--bin", "metastored", "--"], words].concat();
        let wanted = tools::output(&mut tools::cargo(&args))?;
        let path = tools::root().join(file);
        if std::fs::read_to_string(&path).unwrap_or_default() == wanted {
            continue;
        }
        stale.push(file);
        if !check {
            std::fs::write(&path, wanted)?;
        }
    }
    if check && !stale.is_empty() {
        bail!("stale: {}; run cargo xtask conf", stale.join(", "));
    }
    Ok(())
}
