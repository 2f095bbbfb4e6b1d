//! `metactl icp create`: files of this machine become a package on the nodes.

use std::path::PathBuf;

use clap::Args;
use records::UnitId;

use super::{
    deploy::{Deployment, How},
    files,
};
use crate::{cli::Globals, exit::Done};

/// What is deployed, and where.
#[derive(Debug, Args)]
pub struct Create {
    /// The package.
    #[arg(value_name = "NAME:VERSION")]
    unit: UnitId,
    /// Files, and directories that are taken with their tree.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    how: How,
}

impl Create {
    /// Runs it.
    pub async fn run(self, globals: &Globals) -> Done {
        let files = files::list(files::collect(&self.paths)?).await?;
        Deployment { unit: self.unit, files, how: self.how }.run(globals).await
    }
}
