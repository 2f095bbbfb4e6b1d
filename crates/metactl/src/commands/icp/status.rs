//! `metactl icp status`: packages in the cluster, from the records.

use std::str::FromStr;

use clap::Args;
use records::{
    Refusal, Scope, UnitId,
    names::check_name,
    packages::{PackageStatus, package_status, versions_status},
};
use serde_json::json;

use super::{node_status, pull::node_name};
use crate::{
    cli::Globals,
    exit::{Done, OK},
    show, view,
};

const EXAMPLES: &str = "Examples:
  metactl icp status lib                    every version
  metactl icp status lib:1.0                one package, on each node
  metactl icp status --node n1              a node: its records beside what is on its disk
  metactl icp status lib:1.0 --node n1      the same of one package

A node that does not live shows OFFLINE, with its records only. DRIFT: record and disk disagree.";

/// What is shown.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Status {
    /// A package, or all versions of a name.
    #[arg(value_name = "NAME[:VERSION]", required_unless_present = "node")]
    what: Option<What>,
    /// As this node has it.
    #[arg(long, value_parser = node_name)]
    node: Option<String>,
}

/// A name, or a name and a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// All versions.
    Name(String),
    /// One package.
    Unit(UnitId),
}

impl FromStr for What {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        if text.contains(':') {
            return text.parse().map(Self::Unit);
        }
        check_name(text).map(|()| Self::Name(text.to_owned()))
    }
}

impl What {
    /// True if a package of this name and version is meant.
    pub fn means(&self, name: &str, version: &str) -> bool {
        match self {
            Self::Name(wanted) => wanted == name,
            Self::Unit(unit) => unit.name == name && unit.version == version,
        }
    }
}

impl std::fmt::Display for What {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Unit(unit) => unit.fmt(f),
        }
    }
}

impl Status {
    /// Runs it.
    pub async fn run(self, globals: &Globals) -> Done {
        match (self.what, self.node) {
            (what, Some(node)) => node_status::show(globals, what.as_ref(), &node).await,
            (Some(What::Unit(unit)), None) => one(globals, &unit).await,
            (Some(What::Name(name)), None) => versions(globals, &name).await,
            // Refused by clap.
            (None, None) => Ok(OK),
        }
    }
}

async fn versions(globals: &Globals, name: &str) -> Done {
    let view = view::load(globals, Scope::packages()).await?;
    let found = versions_status(&view, name)?;
    if globals.json() {
        show::json_line(&json!({ "packages": found }))?;
        return Ok(OK);
    }
    let rows: Vec<_> = found
        .into_iter()
        .map(|package| {
            let present = package.nodes.iter().filter(|node| node.alive && node.status == "PRESENT").count();
            let uses: usize = package.nodes.iter().map(|node| node.usage_count).sum();
            vec![
                package.version,
                package.status.to_owned(),
                format!("{present}/{}", package.nodes.len()),
                uses.to_string(),
                package.jobs.len().to_string(),
                package.files.to_string(),
                package.bytes.to_string(),
                package.error.unwrap_or_default(),
            ]
        })
        .collect();
    show::table(&["version", "status", "present", "uses", "jobs", "files", "bytes", "error"], &rows)?;
    Ok(OK)
}

async fn one(globals: &Globals, id: &UnitId) -> Done {
    let view = view::load(globals, Scope::package(id)).await?;
    let found: PackageStatus = package_status(&view, id)?;
    if globals.json() {
        show::json_line(&json!(found))?;
        return Ok(OK);
    }
    println!("{id} {}{}", found.status, found.error.map(|why| format!(": {why}")).unwrap_or_default());
    if let Some(digest) = &found.digest {
        println!("digest {digest}, {} files, {} bytes", found.files, found.bytes);
    }
    let rows: Vec<_> = found
        .nodes
        .into_iter()
        .map(|row| {
            let alive = if row.alive { "yes" } else { "no" }.to_owned();
            let holders = row.holders.join(",");
            vec![row.node, row.status.to_owned(), alive, holders, row.error.unwrap_or_default()]
        })
        .collect();
    show::table(&["node", "status", "alive", "holders", "error"], &rows)?;
    Ok(OK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_alone_means_all_its_versions() {
        assert_eq!("lib".parse::<What>().unwrap(), What::Name("lib".into()));
        assert_eq!("lib:1".parse::<What>().unwrap(), What::Unit(UnitId::new("lib", "1").unwrap()));
        for bad in ["", ":", "lib:", ":1", "lib:latest", "a:b:c", "con", "a/b"] {
            assert!(bad.parse::<What>().is_err(), "{bad:?}");
        }
        assert!("lib".parse::<What>().unwrap().means("lib", "2"));
        assert!(!"lib:1".parse::<What>().unwrap().means("lib", "2"));
    }
}
