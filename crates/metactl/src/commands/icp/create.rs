//! `metactl icp create`: files of this machine become a package on the nodes.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use records::{UnitId, keys::encode_segment};
use reqwest::{Method, multipart::Part};
use tokio_util::io::ReaderStream;

use super::path_of;
use crate::{
    cli::{Globals, duration},
    exit::{Done, Failure, OK},
    rest::{Dispatchers, json as answer_json},
    show,
};

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

impl Create {
    /// Runs it.
    pub async fn run(self, globals: &Globals) -> Done {
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
