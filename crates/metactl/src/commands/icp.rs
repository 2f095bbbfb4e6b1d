//! `metactl icp`: code packages.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, Subcommand};
use meta_client::TypedKey as _;
use records::{
    Scope, UnitId, View,
    keys::{CopyKey, NodeKey, UnitKey, UseKey, below, encode_segment, uses_on},
};
use reqwest::{Method, multipart::Part};
use serde_json::{Value, json};
use tokio_util::io::ReaderStream;

use crate::{
    cli::{Globals, duration},
    exit::{Done, Failure, OK},
    rest::{Dispatchers, json as answer_json},
    show, view,
};

const EXAMPLES: &str = "Examples:
  metactl icp create lib:1.0 target/lib.jar deps/      a directory is taken with its tree
  metactl icp create lib:1.1 lib.jar --nodes majority --timeout 2m
  metactl icp status lib:1.0
  metactl icp remove lib:1.0                           safe: waits in the background for running uses
  metactl icp remove lib:1.0 --force                   at once, under running code";

/// How often a waiting command looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Code packages: named, versioned, deployed to nodes.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Icp {
    /// Makes a package of files and deploys it.
    Create(Create),
    /// Lists the packages.
    List,
    /// One package, on each node.
    Status {
        /// The package.
        #[arg(value_name = "NAME:VERSION")]
        unit: UnitId,
    },
    /// Removes a package; prints who still holds it.
    Remove(Remove),
}

/// What is deployed, and where.
#[derive(Debug, Args)]
pub struct Create {
    /// The package.
    #[arg(value_name = "NAME:VERSION")]
    unit: UnitId,
    /// Files, and directories that are taken with their tree.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Which nodes must hold it: all, majority, or names parted by commas.
    #[arg(long, default_value = "all")]
    nodes: String,
    /// How long the deployment may take.
    #[arg(long, default_value = "5m", value_parser = duration)]
    timeout: Duration,
}

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

impl Icp {
    /// Runs it.
    pub async fn run(self, globals: &Globals) -> Done {
        match self {
            Self::Create(create) => create.run(globals).await,
            Self::List => list(globals).await,
            Self::Status { unit } => status(globals, &unit).await,
            Self::Remove(remove) => remove.run(globals).await,
        }
    }
}

fn path_of(unit: &UnitId) -> String {
    format!("/icp/{}/{}", encode_segment(&unit.name), encode_segment(&unit.version))
}

impl Create {
    async fn run(self, globals: &Globals) -> Done {
        let files = collect(&self.paths)?;
        let dispatchers = Dispatchers::find(globals).await?;
        let path = format!(
            "{}?nodes={}&timeout_ms={}",
            path_of(&self.unit),
            encode_segment(&self.nodes).replace("%2C", ","),
            self.timeout.as_millis()
        );
        let answer = dispatchers
            .call(Method::PUT, &path, false, async |request| {
                let mut form = reqwest::multipart::Form::new();
                for (name, file) in &files {
                    form = form.part("file", file_part(file, name.clone()).await?);
                }
                Ok(request.multipart(form))
            })
            .await?;
        let answer = answer_json(answer).await?;
        if globals.json() {
            show::json_line(&answer)?;
        } else {
            println!("{} {}", self.unit, answer["status"].as_str().unwrap_or("READY"));
        }
        Ok(OK)
    }
}

/// A file as a part of a form, streamed from disk, so that a large one is never in memory.
pub async fn file_part(path: &Path, name: String) -> Result<Part, Failure> {
    let shown = path.display();
    let file =
        tokio::fs::File::open(path).await.map_err(|error| Failure::failed(format!("{shown}: {error}")))?;
    let length = file.metadata().await?.len();
    Ok(Part::stream_with_length(reqwest::Body::wrap_stream(ReaderStream::new(file)), length).file_name(name))
}

/// Every file by its path in the package; two of one path are an error.
fn collect(paths: &[PathBuf]) -> Result<BTreeMap<String, PathBuf>, Failure> {
    let mut files = BTreeMap::new();
    for path in paths {
        let base = if path.is_dir() { path.as_path() } else { path.parent().unwrap_or(Path::new("")) };
        let mut found = Vec::new();
        walk(path, &mut found)?;
        for file in found {
            let inside = file.strip_prefix(base).unwrap_or(&file);
            let name = inside
                .to_str()
                .ok_or_else(|| Failure::usage(format!("{}: not UTF-8", file.display())))?
                .to_owned();
            if files.insert(name.clone(), file).is_some() {
                return Err(Failure::usage(format!("two files would be {name} in the package")));
            }
        }
    }
    Ok(files)
}

fn walk(path: &Path, found: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::usage(format!("{}: {error}", path.display()));
    if !std::fs::metadata(path).map_err(failed)?.is_dir() {
        found.push(path.to_owned());
        return Ok(());
    }
    let mut entries: Vec<_> =
        std::fs::read_dir(path).map_err(failed)?.collect::<Result<_, _>>().map_err(failed)?;
    entries.sort_by_key(std::fs::DirEntry::path);
    entries.iter().try_for_each(|entry| walk(&entry.path(), found))
}

async fn list(globals: &Globals) -> Done {
    let view = view::load(globals, Scope::packages()).await?;
    let (mut rows, mut objects) = (Vec::new(), Vec::new());
    for (key, unit) in view.all::<UnitKey>()? {
        let copies = view.under::<CopyKey>(&below(CopyKey::PREFIX, &key.unit))?.len();
        let uses = view.count(&below(UseKey::PREFIX, &key.unit))?;
        rows.push(vec![
            key.unit.to_string(),
            word(&unit.state),
            copies.to_string(),
            uses.to_string(),
            unit.files.to_string(),
            unit.bytes.to_string(),
            word(&unit.origin),
        ]);
        objects.push(json!({
            "name": key.unit.name, "version": key.unit.version, "status": unit.state, "copies": copies,
            "usageCount": uses, "files": unit.files, "bytes": unit.bytes, "origin": unit.origin,
        }));
    }
    if globals.json() {
        show::json_line(&Value::Array(objects))?;
    } else {
        show::table(&["package", "status", "copies", "uses", "files", "bytes", "origin"], &rows)?;
    }
    Ok(OK)
}

/// The word that a state has in JSON.
fn word(state: &impl serde::Serialize) -> String {
    serde_json::to_value(state).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

struct Row {
    node: String,
    state: String,
    holders: Vec<String>,
    alive: bool,
    error: Option<String>,
}

fn rows(view: &View, unit: &UnitId) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for (key, copy) in view.under::<CopyKey>(&below(CopyKey::PREFIX, unit))? {
        let uses = view.under::<UseKey>(&uses_on(unit, &key.node))?;
        rows.push(Row {
            state: word(&copy.state),
            holders: uses.into_iter().map(|(key, _)| key.holder).collect(),
            alive: view.get(&NodeKey::new(&key.node))?.is_some(),
            error: copy.error.clone(),
            node: key.node,
        });
    }
    Ok(rows)
}

async fn status(globals: &Globals, id: &UnitId) -> Done {
    let view = view::load(globals, Scope::package(id)).await?;
    let unit = view
        .get(&UnitKey::new(id))?
        .ok_or_else(|| Failure::not_found(format!("there is no package {id}")))?;
    let rows = rows(&view, id)?;
    if globals.json() {
        let nodes: Vec<_> = rows
            .iter()
            .map(|row| {
                json!({
                    "node": row.node, "status": row.state, "usageCount": row.holders.len(),
                    "holders": row.holders, "alive": row.alive, "error": row.error,
                })
            })
            .collect();
        show::json_line(&json!({
            "name": id.name, "version": id.version, "status": unit.state, "coordinator": unit.coordinator,
            "files": unit.files, "bytes": unit.bytes, "error": unit.error, "nodes": nodes,
        }))?;
        return Ok(OK);
    }
    println!(
        "{id} {}{}",
        word(&unit.state),
        unit.error.as_ref().map(|why| format!(": {why}")).unwrap_or_default()
    );
    let lines: Vec<_> = rows
        .into_iter()
        .map(|row| {
            let alive = if row.alive { "yes" } else { "no" };
            vec![row.node, row.state, alive.to_owned(), row.holders.join(","), row.error.unwrap_or_default()]
        })
        .collect();
    show::table(&["node", "status", "alive", "holders", "error"], &lines)?;
    Ok(OK)
}

impl Remove {
    async fn run(self, globals: &Globals) -> Done {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_keeps_its_tree_and_a_file_its_name() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::fs::write(dir.path().join("a/b/c.jar"), "c").unwrap();
        std::fs::write(dir.path().join("d.jar"), "d").unwrap();
        let all = collect(&[dir.path().to_owned()]).unwrap();
        assert_eq!(all.keys().collect::<Vec<_>>(), ["a/b/c.jar", "d.jar"]);
        let one = collect(&[dir.path().join("a/b/c.jar")]).unwrap();
        assert_eq!(one.keys().collect::<Vec<_>>(), ["c.jar"]);
        assert!(collect(&[dir.path().to_owned(), dir.path().join("d.jar")]).is_err());
        assert!(collect(&[dir.path().join("nosuch")]).is_err());
    }
}
