//! `cargo xtask tidy`: taste that the compiler does not know.

mod arrows;
pub mod controls;
mod reasons;
mod text;

use anyhow::bail;

use crate::tools;

/// Runs every rule and prints all that is broken.
pub fn run() -> anyhow::Result<()> {
    let mut broken = arrows::check()?;
    broken.extend(reasons::check()?);
    broken.extend(controls::check()?);
    let files = files()?;
    broken.extend(text::check(&files)?);
    for line in &broken {
        eprintln!("tidy: {line}");
    }
    if !broken.is_empty() {
        bail!("tidy: {} rules broken", broken.len());
    }
    Ok(())
}

/// Every file of the project, relative to its root: what git knows, and what it would know after `git add`.
pub fn files() -> anyhow::Result<Vec<String>> {
    let args = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let listed = tools::output(&mut tools::program("git", &args))?;
    let exists = |file: &&str| tools::root().join(file).is_file();
    Ok(listed.lines().filter(exists).map(str::to_owned).collect())
}
