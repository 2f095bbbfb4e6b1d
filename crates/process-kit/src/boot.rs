//! The flags every server process has, and what they do before it starts.

use std::{io::Write as _, path::PathBuf};

use anyhow::Context as _;
use clap::Args;

use crate::config::{Config, Loaded, Sources, load};

/// Prefix of environment variables that are config: `METASTORED_LOG_LEVEL` sets `log.level`.
pub const ENV_PREFIX: &str = "METASTORED_";

/// The flags every server process has.
#[derive(Debug, Clone, Default, Args)]
pub struct BootArgs {
    /// The config file (TOML); conf/ has an annotated one for each role.
    #[arg(long, value_name = "FILE", env = "METASTORED_CONFIG")]
    pub config: Option<PathBuf>,
    /// Sets one key, over the environment and the file. May be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
    /// Reads and checks the config, says so, and exits.
    #[arg(long)]
    pub check_config: bool,
    /// Prints every key with its value and where it comes from, and exits.
    #[arg(long)]
    pub print_config: bool,
}

impl BootArgs {
    /// Loads the config. `None`: the caller asked only to check or print it, which is done.
    pub fn load<C: Config>(&self) -> anyhow::Result<Option<Loaded<C>>> {
        let sources = Sources {
            file: self.config.clone(),
            env: std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
                .collect(),
            env_prefix: ENV_PREFIX,
            sets: self.sets.clone(),
        };
        let loaded = load::<C>(&sources)?;
        if self.print_config {
            // A closed pipe is no error of ours.
            let _ = std::io::stdout().write_all(loaded.print().as_bytes());
        }
        if self.check_config {
            println!("config ok");
        }
        Ok(if self.print_config || self.check_config { None } else { Some(loaded) })
    }
}

/// Reads and checks the config, and starts logging with its log section.
pub fn start<C: Config + AsRef<crate::telemetry::LogConfig>>(args: &BootArgs) -> anyhow::Result<Option<C>> {
    let Some(loaded) = args.load::<C>()? else { return Ok(None) };
    crate::telemetry::init(loaded.config.as_ref()).context("starting the log")?;
    for note in &loaded.notes {
        note.log();
    }
    Ok(Some(loaded.config))
}
