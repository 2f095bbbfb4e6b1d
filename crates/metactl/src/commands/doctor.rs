//! `metactl doctor`.

use clap::Args;
use records::{Scope, invariants};
use serde_json::json;

use crate::{
    cli::Globals,
    exit::{Done, FAILED, OK},
    show, view,
};

/// Checks that all records fit together, as of one revision.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  metactl doctor\n\nExits 1 if anything is wrong.")]
pub struct Doctor {}

impl Doctor {
    /// Runs it.
    pub async fn run(self, globals: &Globals) -> Done {
        let view = view::load(globals, Scope::everything()).await?;
        let violations = invariants(&view);
        if globals.json() {
            let list: Vec<_> = violations
                .iter()
                .map(|it| json!({ "invariant": it.invariant, "key": it.key, "text": it.text }))
                .collect();
            show::json_line(&json!({ "revision": view.revision(), "violations": list }))?;
        } else {
            println!("revision {}: {} violations", view.revision(), violations.len());
            violations.iter().for_each(|violation| println!("{violation}"));
        }
        Ok(if violations.is_empty() { OK } else { FAILED })
    }
}
