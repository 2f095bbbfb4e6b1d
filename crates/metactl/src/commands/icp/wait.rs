//! `metactl icp wait`: until a package can be used on the nodes somebody cares for.

use std::time::{Duration, Instant};

use clap::Args;
use records::{
    Scope, UnitId, View,
    nodes::servers_line,
    packages::{Standing, Wanted, standing, unknown_nodes},
};
use serde_json::json;

use super::word;
use crate::{
    cli::{Globals, duration},
    exit::{Done, Failure, OK, UNAVAILABLE},
    show, view,
};

const EXAMPLES: &str = "Examples:
  metactl icp create lib:1.0 lib.jar --nodes majority && metactl icp wait lib:1.0 --nodes all
  metactl icp wait lib:1.0 --nodes n1,n2 --timeout 30s

all and majority are of the package's targets that live; names are waited for whether they are targets or not.
Exits 0 when it is READY and PRESENT there, 3 at the end of the time (saying how it stands), 1 if it is being removed
or its create failed meanwhile, 5 if there is no such package or node.";

/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What is waited for.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Wait {
    /// The package.
    #[arg(value_name = "NAME:VERSION")]
    unit: UnitId,
    /// Where: all, majority, or names parted by commas.
    #[arg(long, default_value = "all")]
    nodes: Wanted,
    /// How long at most.
    #[arg(long, default_value = "5m", value_parser = duration)]
    timeout: Duration,
}

impl Wait {
    /// Runs it.
    pub async fn run(self, globals: &Globals) -> Done {
        let start = Instant::now();
        let first = view::load(globals, Scope::package(&self.unit)).await?;
        self.check_names(&first)?;
        let mut seen = None;
        let mut stands = self.look(&first, &mut seen)?;
        loop {
            if let Some(on) = stands.usable() {
                if globals.json() {
                    let UnitId { name, version } = &self.unit;
                    show::json_line(
                        &json!({ "name": name, "version": version, "status": "READY", "nodes": on }),
                    )?;
                } else {
                    println!("{} READY on {}", self.unit, on.join(","));
                }
                return Ok(OK);
            }
            let left = self.timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(Failure::unavailable(stands.to_string()));
            }
            tokio::time::sleep(LOOK_EVERY.min(left)).await;
            stands = match view::load(globals, Scope::package(&self.unit)).await {
                Ok(view) => self.look(&view, &mut seen)?,
                // The store may come back while there is time.
                Err(failure) if failure.code == UNAVAILABLE => Stands::Unknown(failure.to_string()),
                Err(failure) => return Err(failure),
            };
        }
    }

    fn check_names(&self, view: &View) -> Result<(), Failure> {
        if matches!(standing(view, &self.unit, &self.nodes)?, Standing::Absent) {
            return Err(Failure::not_found(format!("there is no package {}", self.unit)));
        }
        match unknown_nodes(view, &self.unit, &self.nodes)?.as_slice() {
            [] => Ok(()),
            unknown => Err(Failure::not_found(format!(
                "there is no server node {}; {}",
                unknown.join(", "),
                servers_line(view)?
            ))),
        }
    }

    /// How it stands, if there is still something to wait for. `seen` is the operation that it was at first.
    fn look(&self, view: &View, seen: &mut Option<String>) -> Result<Stands, Failure> {
        let unit = &self.unit;
        let op = view.get(&records::keys::UnitKey::new(unit))?.map(|found| found.op.clone());
        let was = seen.get_or_insert_with(|| op.clone().unwrap_or_default());
        match standing(view, unit, &self.nodes)? {
            Standing::Over { why } => Err(Failure::failed(why)),
            Standing::Absent => {
                Err(Failure::failed(format!("{unit} is gone: it was removed, or its create failed")))
            }
            _ if op.as_ref() != Some(was) => Err(Failure::failed(format!(
                "{unit} is another package by now: the one waited for was removed"
            ))),
            Standing::Usable { on } => Ok(Stands::Usable(on)),
            Standing::Waiting { state, present, needed, missing, .. } => {
                let missing: Vec<_> = missing.iter().map(|(node, how)| format!("{node} ({how})")).collect();
                let on =
                    if missing.is_empty() { "no target that lives".to_owned() } else { missing.join(", ") };
                Ok(Stands::Waiting(format!(
                    "{unit} is {}, on {present} of {needed} nodes; not on {on}; it goes on: metactl icp status {unit}",
                    word(&state)
                )))
            }
        }
    }
}

/// What is known at one moment.
enum Stands {
    Usable(Vec<String>),
    Waiting(String),
    Unknown(String),
}

impl Stands {
    fn usable(&self) -> Option<&[String]> {
        match self {
            Self::Usable(on) => Some(on),
            Self::Waiting(_) | Self::Unknown(_) => None,
        }
    }
}

impl std::fmt::Display for Stands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Usable(on) => write!(f, "on {}", on.join(",")),
            Self::Waiting(how) => write!(f, "time is up: {how}"),
            Self::Unknown(why) => write!(f, "time is up, and the store does not answer: {why}"),
        }
    }
}
