//! `metactl icp import`: a package from an archive that `export` wrote.

use std::path::PathBuf;

use clap::Args;
use records::UnitId;

use super::{
    archive,
    deploy::{Deployment, How},
};
use crate::{
    cli::Globals,
    exit::{Done, Failure},
};

const EXAMPLES: &str = "Examples:
  metactl icp import lib-1.0.tar                    as the package that it was
  metactl icp import lib-1.0.tar --as lib:1.0-eu --nodes majority

An archive that is damaged, cut short or not from metactl icp export is refused with exit code 2, and nothing happens.";

/// What becomes a package.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Import {
    /// The archive.
    file: PathBuf,
    /// Under another name or version.
    #[arg(long = "as", value_name = "NAME:VERSION")]
    unit: Option<UnitId>,
    #[command(flatten)]
    how: How,
}

impl Import {
    /// Runs it.
    pub async fn run(self, globals: &Globals) -> Done {
        let spool = tempfile::tempdir()?;
        let list = archive::unpack(&self.file, spool.path())?;
        let unit = match self.unit {
            Some(unit) => unit,
            None => UnitId::new(&list.name, &list.version).map_err(|refusal| {
                Failure::usage(format!("{}: {}; choose a name with --as", self.file.display(), refusal.text))
            })?,
        };
        Deployment { unit, files: list.files, how: self.how }.run(globals).await
    }
}
