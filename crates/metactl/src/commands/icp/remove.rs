//! `metactl icp remove`.

use std::time::Duration;

use clap::Args;
use records::{Scope, UnitId, keys::UnitKey};
use reqwest::Method;
use serde_json::Value;

use super::{path_of, status::rows};
use crate::{
    cli::{Globals, duration},
    exit::{Done, Failure, OK},
    rest::Dispatchers,
    show, view,
};

/// How often a waiting command looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What is removed.
#[derive(Debug, Args)]
pub struct Remove {
    /// The package.
    #[arg(value_name = "NAME:VERSION")]
    unit: UnitId,
    /// At once, under running code.
    #[arg(long)]
    force: bool,
    /// Waits until it is gone everywhere.
    #[arg(long)]
    wait: bool,
    /// How long to wait at most.
    #[arg(long, default_value = "5m", value_parser = duration, requires = "wait")]
    timeout: Duration,
}

impl Remove {
    /// Runs it.
    pub async fn run(self, globals: &Globals) -> Done {
        let dispatchers = Dispatchers::find(globals).await?;
        let mode = if self.force { "force" } else { "safe" };
        let path = format!("{}?mode={mode}", path_of(&self.unit));
        let answer = dispatchers.simple(Method::DELETE, &path, globals.command_timeout).await?;
        let answer: Value = answer.json().await.unwrap_or(Value::Null);
        if globals.json() {
            show::json_line(&answer)?;
        }
        if self.wait {
            return self.wait_until_gone(globals).await;
        }
        let view = view::load(globals, Scope::package(&self.unit)).await?;
        let holders: Vec<_> = rows(&view, &self.unit)?.into_iter().flat_map(|row| row.holders).collect();
        if !holders.is_empty() {
            eprintln!("{} is removed when these are done: {}", self.unit, holders.join(", "));
        }
        Ok(OK)
    }

    async fn wait_until_gone(&self, globals: &Globals) -> Done {
        let start = std::time::Instant::now();
        loop {
            let view = view::load(globals, Scope::package(&self.unit)).await?;
            if view.get(&UnitKey::new(&self.unit))?.is_none() {
                return Ok(OK);
            }
            if start.elapsed() >= self.timeout {
                let unit = &self.unit;
                return Err(Failure::unavailable(format!(
                    "{unit} is not gone yet: ask with metactl icp status {unit}"
                )));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}
