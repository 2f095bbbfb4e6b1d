//! `metactl doctor`.

use clap::Args;
use records::Scope;

use crate::{
    cli::Globals,
    exit::{Done, OK},
    view,
};

/// Checks that all records fit together, as of one revision.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  metactl doctor\n\nExits 1 if anything is wrong.")]
pub struct Doctor {}

impl Doctor {
    /// Runs it.
    pub async fn run(self, globals: &Globals) -> Done {
        let view = view::load(globals, Scope::everything()).await?;
        println!("revision {}", view.revision());
        Ok(OK)
    }
}
