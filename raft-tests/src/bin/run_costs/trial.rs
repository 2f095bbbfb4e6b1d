//! The Java program that the measured jobs run, built when it is needed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The program's main class.
pub const CLASS: &str = "Trial";

/// Compiles it into a JAR in `directory`.
pub fn build(directory: &Path) -> Result<PathBuf> {
    let source = directory.join("Trial.java");
    std::fs::write(&source, include_str!("Trial.java"))?;
    run(Command::new("javac").arg("-d").arg(directory).arg(&source))?;
    let jar = directory.join("trial.jar");
    run(Command::new("jar")
        .args(["--create", "--file"])
        .arg(&jar)
        .arg("-C")
        .arg(directory)
        .arg("Trial.class"))?;
    Ok(jar)
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?}: is a JDK installed?"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}
