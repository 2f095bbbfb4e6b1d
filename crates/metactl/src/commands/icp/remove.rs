//! `metactl icp remove`.

use std::time::Duration;

use clap::Args;
use records::{
    Scope, UnitId,
    keys::UnitKey,
    packages::{Preview, Remove as Wish, preview},
};
use reqwest::Method;
use serde_json::{Value, json};

use super::{path_of, refs, word};
use crate::{
    cli::{Globals, duration},
    exit::{CONFLICT, Done, Failure, OK},
    rest::Dispatchers,
    show, view,
};

const EXAMPLES: &str = "Examples:
  metactl icp remove lib:1.0 --dry-run      what would happen; changes nothing
  metactl icp remove lib:1.0                safe: goes on in the background until nobody holds it
  metactl icp remove lib:1.0 --wait --timeout 10m
  metactl icp remove lib:1.0 --force        at once, under running code

A removal that waits, and one that is refused, prints who holds the package, as metactl icp refs does.";

/// How often a waiting command looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What is removed.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
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
    /// Says what would happen, and changes nothing.
    #[arg(long, conflicts_with = "wait")]
    dry_run: bool,
}

impl Remove {
    /// Runs it.
    pub async fn run(self, globals: &Globals) -> Done {
        if self.dry_run {
            return self.say_what_would_happen(globals).await;
        }
        let dispatchers = Dispatchers::find(globals).await?;
        let mode = if self.force { "force" } else { "safe" };
        let path = format!("{}?mode={mode}", path_of(&self.unit));
        let answer = match dispatchers.simple(Method::DELETE, &path, globals.command_timeout).await {
            Ok(answer) => answer,
            Err(failure) if failure.code == CONFLICT => return self.refused(globals, failure).await,
            Err(failure) => return Err(failure),
        };
        let answer: Value = answer.json().await.unwrap_or(Value::Null);
        if globals.json() {
            show::json_line(&answer)?;
        } else {
            println!("{} {}", self.unit, answer["status"].as_str().unwrap_or("REMOVING"));
            self.print_holders(globals).await?;
        }
        if self.wait {
            return self.wait_until_gone(globals, answer["op"].as_str()).await;
        }
        Ok(OK)
    }

    async fn say_what_would_happen(&self, globals: &Globals) -> Done {
        let view = view::load(globals, Scope::package(&self.unit)).await?;
        let wish = Wish { unit: self.unit.clone(), op: None, reason: String::new() };
        let found = match preview(&view, &wish, self.force) {
            Ok(found) => found,
            Err(refusal) => {
                let failure = Failure::from(refusal);
                if failure.code == CONFLICT {
                    return self.refused(globals, failure).await;
                }
                return Err(failure);
            }
        };
        if globals.json() {
            show::json_line(&json!(found))?;
            return Ok(OK);
        }
        for line in in_words(&self.unit, &found) {
            println!("{line}");
        }
        refs::print(&found.refs)?;
        Ok(OK)
    }

    /// Who is in the way, and the error.
    async fn refused(&self, globals: &Globals, failure: Failure) -> Done {
        if let Some(held) = refs::find(globals, &self.unit).await? {
            if globals.json() {
                show::json_line(&json!({ "refused": failure.to_string(), "refs": held }))?;
            } else {
                refs::print(&held)?;
            }
        }
        Err(failure)
    }

    /// Who still holds it, if anybody does.
    async fn print_holders(&self, globals: &Globals) -> Result<(), Failure> {
        let Some(held) = refs::find(globals, &self.unit).await? else { return Ok(()) };
        refs::print(&held)?;
        let holders = held.holders();
        if !holders.is_empty() && !self.force {
            eprintln!("{} is removed when these are done: {}", self.unit, holders.join(", "));
        }
        Ok(())
    }

    async fn wait_until_gone(&self, globals: &Globals, op: Option<&str>) -> Done {
        let start = std::time::Instant::now();
        loop {
            let view = view::load(globals, Scope::package(&self.unit)).await?;
            let found = view.get(&UnitKey::new(&self.unit))?;
            // Another operation under the name is another package: the one removed is gone.
            if found.is_none_or(|found| op.is_some_and(|op| op != found.op)) {
                return Ok(OK);
            }
            if start.elapsed() >= self.timeout {
                let unit = &self.unit;
                if !globals.json() {
                    self.print_holders(globals).await?;
                }
                return Err(Failure::unavailable(format!(
                    "{unit} is not gone yet: ask with metactl icp status {unit}"
                )));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

fn in_words(unit: &UnitId, found: &Preview) -> Vec<String> {
    let (from, to) = (word(&found.from), word(&found.to));
    let mut lines = vec![if from == to {
        format!("{unit} is {from} already")
    } else {
        format!("{unit} would go from {from} to {to}")
    }];
    let list = |what: &str, who: &[String]| (!who.is_empty()).then(|| format!("{what}: {}", who.join(", ")));
    lines.extend(list("it would wait for", &found.waits_for));
    lines.extend(list("it would end", &found.ends));
    lines.extend(list("these nodes would delete their copies", &found.deletes));
    lines
}
