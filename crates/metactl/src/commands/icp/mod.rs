//! `metactl icp`: code packages.

mod archive;
mod check;
mod class_path;
mod create;
mod deploy;
mod export;
mod files;
mod import;
mod list;
mod node_status;
mod progress;
mod pull;
mod refs;
mod register;
mod remove;
mod status;
mod upload;
mod wait;

use clap::Subcommand;
use records::{UnitId, keys::encode_segment};

use self::{
    check::Check, create::Create, export::Export, import::Import, pull::Pull, refs::Refs, register::Register,
    remove::Remove, status::Status, wait::Wait,
};
pub use self::{class_path::deploy_file, files::file_part};
use crate::{cli::Globals, exit::Done};

const EXAMPLES: &str = "Examples:
  metactl icp create lib:1.0 target/lib.jar deps/      a directory is taken with its tree
  metactl icp create lib:1.1 lib.jar --nodes majority --timeout 2m
  metactl icp register lib:1.0                         what lies in WORK-DIR/icp/lib/1.0 on every node, if equal
  metactl icp register lib:1.0 --from /opt/lib         copied from there; icp.register-from must allow it
  metactl icp wait lib:1.1 --nodes all                 READY and PRESENT there
  metactl icp status lib:1.0
  metactl icp status --node n1                         its records beside its disk
  metactl icp check lib:1.0 --repair                   reads every copy again, mends what is damaged
  metactl icp pull lib:1.0 --node n3                   brings it there before a job needs it
  metactl icp refs lib:1.0                             every run, job and node that holds it
  metactl icp export lib:1.0 lib-1.0.tar               its bytes as one file, for metactl icp import
  metactl icp remove lib:1.0                           safe: waits in the background for running uses
  metactl icp remove lib:1.0 --force                   at once, under running code";

/// Code packages: named, versioned, deployed to nodes.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Icp {
    /// Makes a package of files and deploys it.
    Create(Create),
    /// Makes a package of files that lie on the nodes already, if they are equal on all of them.
    Register(Register),
    /// Lists the packages.
    List,
    /// Packages by name, on each node; or what one node has.
    Status(Status),
    /// Has every node that holds a package read its copy again.
    Check(Check),
    /// Brings a package to a node.
    Pull(Pull),
    /// Lists every run, job and node that holds a package.
    Refs(Refs),
    /// Waits until a package is READY and on the nodes.
    Wait(Wait),
    /// Writes a package to a file.
    Export(Export),
    /// Makes a package of a file that export wrote.
    Import(Import),
    /// Removes a package; prints who still holds it.
    Remove(Remove),
}

impl Icp {
    /// Runs it.
    pub async fn run(self, globals: &Globals) -> Done {
        match self {
            Self::Create(create) => create.run(globals).await,
            Self::Register(register) => register.run(globals).await,
            Self::List => list::list(globals).await,
            Self::Status(status) => status.run(globals).await,
            Self::Check(check) => check.run(globals).await,
            Self::Pull(pull) => pull.run(globals).await,
            Self::Refs(refs) => refs.run(globals).await,
            Self::Wait(wait) => wait.run(globals).await,
            Self::Export(export) => export.run(globals).await,
            Self::Import(import) => import.run(globals).await,
            Self::Remove(remove) => remove.run(globals).await,
        }
    }
}

fn path_of(unit: &UnitId) -> String {
    format!("/icp/{}/{}", encode_segment(&unit.name), encode_segment(&unit.version))
}

/// The word that a state has in JSON.
fn word(state: &impl serde::Serialize) -> String {
    serde_json::to_value(state).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}
