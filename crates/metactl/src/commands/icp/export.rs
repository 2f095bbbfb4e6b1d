//! `metactl icp export`: the bytes of a package as one file.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use futures_util::TryStreamExt as _;
use records::{
    Refusal, Scope, UnitId,
    keys::{ManifestKey, UnitKey},
    packages::ready_package,
    record::ManifestFile,
};
use reqwest::{Method, StatusCode, header};
use serde_json::json;
use tokio::io::{AsyncSeekExt as _, AsyncWriteExt as _};

use super::{
    archive::{List, Writer},
    files::ListedFile,
    path_of,
};
use crate::{
    cli::{Globals, duration},
    exit::{Done, Failure, OK},
    rest::Dispatchers,
    show, view,
};

const EXAMPLES: &str = "Examples:
  metactl icp export lib:1.0 lib-1.0.tar
  metactl icp import lib-1.0.tar                    on another cluster
  tar -tf lib-1.0.tar                               any tar reads it

Each file is compared with its hash. Exits 4 if the package is not READY, 5 if there is none.";

/// How often a file whose connection breaks is asked for.
const TRIES: usize = 5;

/// What is written where.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Export {
    /// The package.
    #[arg(value_name = "NAME:VERSION")]
    unit: UnitId,
    /// The archive; it must not be there yet.
    file: PathBuf,
    /// How long it may take.
    #[arg(long, default_value = "5m", value_parser = duration)]
    timeout: Duration,
}

impl Export {
    /// Runs it.
    pub async fn run(self, globals: &Globals) -> Done {
        let dispatchers = Dispatchers::find(globals).await?;
        let view = view::load(globals, Scope::package(&self.unit)).await?;
        ready_package(&view, &self.unit)?;
        let found = view.get(&UnitKey::new(&self.unit))?;
        let gone = || Failure::from(Refusal::not_found(format!("the files of {} are gone", self.unit)));
        let digest = found.and_then(|found| found.manifest.clone()).ok_or_else(gone)?;
        let key = ManifestKey { digest: digest.clone() };
        let manifests = view::load(globals, Scope::default().and_key(&key)).await?;
        let files = manifests.get(&key)?.ok_or_else(gone)?.value.files;
        let work = self.write(&dispatchers, &digest, &files);
        let late = || Failure::unavailable(format!("not exported within {:?}", self.timeout));
        tokio::time::timeout(self.timeout, work).await.map_err(|_| late())??;
        let bytes: u64 = files.iter().map(|file| file.size).sum();
        if globals.json() {
            let UnitId { name, version } = &self.unit;
            show::json_line(&json!({
                "name": name, "version": version, "digest": digest, "files": files.len(), "bytes": bytes,
                "file": self.file.display().to_string(),
            }))?;
        } else {
            println!("{}: {} files, {bytes} bytes, in {}", self.unit, files.len(), self.file.display());
        }
        Ok(OK)
    }

    async fn write(
        &self,
        dispatchers: &Dispatchers,
        digest: &str,
        files: &[ManifestFile],
    ) -> Result<(), Failure> {
        let spool = tempfile::tempdir()?;
        let at = spool.path().join("file");
        let listed: Vec<ListedFile> = files.iter().map(|file| listed(file, &at)).collect();
        let list = List::new(&self.unit.name, &self.unit.version, digest, listed.clone());
        let mut writer = Writer::begin(&self.file, &list)?;
        for file in &listed {
            download(dispatchers, &self.unit, file).await?;
            writer.add(file)?;
        }
        writer.finish()
    }
}

fn listed(file: &ManifestFile, at: &Path) -> ListedFile {
    ListedFile { path: file.path.clone(), size: file.size, blake3: file.hash.clone(), at: at.to_owned() }
}

/// Brings a file here. A connection that breaks goes on where it was, with whichever node has the file.
async fn download(dispatchers: &Dispatchers, unit: &UnitId, file: &ListedFile) -> Result<(), Failure> {
    let path = format!("{}/files/{}", path_of(unit), file.blake3);
    let mut here = tokio::fs::File::create(&file.at).await?;
    let (mut hasher, mut got) = (blake3::Hasher::new(), 0u64);
    for left in (0..TRIES).rev() {
        let from = format!("bytes={got}-");
        let answer = dispatchers.call(Method::GET, &path, true, async |asked| {
            Ok(if got == 0 { asked } else { asked.header(header::RANGE, from.as_str()) })
        });
        let answer = answer.await?;
        if got > 0 && answer.status() != StatusCode::PARTIAL_CONTENT {
            (hasher, got) = (blake3::Hasher::new(), 0);
            here.set_len(0).await?;
            here.rewind().await?;
        }
        let mut chunks = answer.bytes_stream();
        let ended = loop {
            match chunks.try_next().await {
                Ok(Some(chunk)) => {
                    got += chunk.len() as u64;
                    hasher.update(&chunk);
                    here.write_all(&chunk).await?;
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        match ended {
            Ok(()) => break,
            Err(error) if left == 0 => {
                return Err(Failure::unavailable(format!("{}: the connection broke: {error}", file.path)));
            }
            Err(_) => {}
        }
    }
    here.flush().await?;
    if got != file.size || hasher.finalize().to_hex().as_str() != file.blake3 {
        let text = format!("{} came damaged: metactl icp check {unit} tells which node's copy is", file.path);
        return Err(Failure::failed(text));
    }
    Ok(())
}
