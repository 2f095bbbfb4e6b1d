//! `metactl icp refs`: who holds a package. A removal that waits, or is refused, prints the same list.

use clap::Args;
use records::{
    Scope, UnitId,
    packages::{Refs as Held, refs},
};
use serde_json::json;

use super::word;
use crate::{
    cli::Globals,
    exit::{Done, Failure, OK},
    show, view,
};

const EXAMPLES: &str = "Examples:
  metactl icp refs lib:1.0
  metactl icp refs lib:1.0 -o json | jq -r '.jobs[].run'

A job holds a package from its admission until it is over, a use while an attempt runs, a node while it has a copy.";

/// What is looked up.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Refs {
    /// The package.
    #[arg(value_name = "NAME:VERSION")]
    unit: UnitId,
}

impl Refs {
    /// Runs it.
    pub async fn run(self, globals: &Globals) -> Done {
        let view = view::load(globals, Scope::package(&self.unit)).await?;
        let held = refs(&view, &self.unit)?;
        if globals.json() {
            show::json_line(&json!(held))?;
        } else {
            print(&held)?;
        }
        Ok(OK)
    }
}

/// Prints the list.
pub fn print(held: &Held) -> std::io::Result<()> {
    let jobs = held.jobs.iter().map(|hold| {
        vec!["job".to_owned(), hold.job.to_string(), hold.run.to_string(), String::new(), String::new()]
    });
    let uses = held.uses.iter().map(|hold| {
        let run = hold.run.as_ref().map(ToString::to_string).unwrap_or_default();
        let state = format!("attempt-{}", hold.attempt);
        vec!["use".to_owned(), hold.holder.clone(), run, hold.node.clone(), state]
    });
    let nodes = held.nodes.iter().map(|hold| {
        let state = if hold.alive { word(&hold.status) } else { format!("{},DEAD", word(&hold.status)) };
        vec!["copy".to_owned(), String::new(), String::new(), hold.node.clone(), state]
    });
    show::table(&["kind", "job", "run", "node", "state"], &jobs.chain(uses).chain(nodes).collect::<Vec<_>>())
}

/// Who holds it now; none if it is gone.
pub async fn find(globals: &Globals, unit: &UnitId) -> Result<Option<Held>, Failure> {
    let view = view::load(globals, Scope::package(unit)).await?;
    match refs(&view, unit) {
        Ok(held) => Ok(Some(held)),
        Err(refusal) if refusal.class == records::Class::NotFound => Ok(None),
        Err(refusal) => Err(refusal.into()),
    }
}
