//! A node's truth: what the records say of its packages, joined with what the node finds on its disk.

use std::collections::{BTreeMap, BTreeSet};

use meta_client::Stored;
use serde::Serialize;
use utoipa::ToSchema;

use super::drains;
use super::status::{CopyStatus, copy_status};
use crate::keys::{CopyKey, UnitKey};
use crate::names::UnitId;
use crate::record::{Copy, CopyState, Unit, UnitState};
use crate::refusal::Refusal;
use crate::view::View;

/// One directory that a node finds where its packages are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its name, by the directory.
    pub name: String,
    /// Its version, by the directory; empty for a file beside the names.
    pub version: String,
    /// What the node published there; `None` if somebody else put it there.
    pub published: Option<Published>,
}

/// A package that the node itself published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// By this operation.
    pub op: String,
    /// Digest of the manifest it was published with.
    pub digest: String,
    /// Bytes of all files.
    pub bytes: u64,
    /// Number of files.
    pub files: u64,
}

/// One package on one node, as `/nodes/{node}/icp` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePackage {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The package's state in the cluster, as recorded; none if the cluster does not know it.
    pub package: Option<UnitState>,
    /// The node's row: FETCHING, PRESENT, FAILED, DRAINING, CORRUPT; none if it has no row.
    pub status: Option<&'static str>,
    /// The row's operation.
    pub op: Option<String>,
    /// Running uses there.
    pub usage_count: usize,
    /// Who they are.
    pub holders: Vec<String>,
    /// Bytes verified, by the row.
    pub bytes: u64,
    /// The row's last error.
    pub error: Option<String>,
    /// Whether the boot that wrote the row lives; without a row, whether the node does.
    pub alive: bool,
    /// What is on the disk.
    pub disk: OnDisk,
    /// True if record and disk disagree.
    pub drift: bool,
    /// How they disagree.
    pub why: Option<String>,
}

/// What is on the disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct OnDisk {
    /// PRESENT, UNREGISTERED (somebody else's directory), ABSENT, or UNKNOWN while the node does not answer.
    pub state: &'static str,
    /// The operation that published it.
    pub op: Option<String>,
    /// Digest of its manifest.
    pub digest: Option<String>,
    /// Bytes of all files.
    pub bytes: u64,
    /// Number of files.
    pub files: u64,
}

/// What the records expect of a copy.
struct Expected<'a> {
    unit: Option<&'a Stored<Unit>>,
    row: Option<&'a Stored<Copy>>,
}

/// Every package that has a row on the node or is on its disk, by name and version. `disk` is what the node finds;
/// `None` = it does not answer. Scope: [`crate::Scope::packages`].
pub fn node_packages(view: &View, node: &str, disk: Option<&[Found]>) -> Result<Vec<NodePackage>, Refusal> {
    let rows: BTreeMap<UnitId, Stored<Copy>> = view
        .all::<CopyKey>()?
        .into_iter()
        .filter(|(key, _)| key.node == node)
        .map(|(key, row)| (key.unit, row))
        .collect();
    let on_disk: BTreeMap<(&str, &str), &Found> =
        disk.unwrap_or_default().iter().map(|it| ((it.name.as_str(), it.version.as_str()), it)).collect();
    let recorded = rows.keys().map(|unit| (unit.name.as_str(), unit.version.as_str()));
    let names: BTreeSet<(&str, &str)> = recorded.chain(on_disk.keys().copied()).collect();
    let mut packages = Vec::new();
    for (name, version) in names {
        let found = disk.map(|_| on_disk.get(&(name, version)).copied());
        packages.push(match UnitId::new(name, version) {
            Ok(unit) => join(view, node, &unit, rows.get(&unit), found)?,
            // No package can have that name: nothing is recorded of it.
            Err(_) => stranger(name, version),
        });
    }
    Ok(packages)
}

fn join(
    view: &View,
    node: &str,
    id: &UnitId,
    row: Option<&Stored<Copy>>,
    found: Option<Option<&Found>>,
) -> Result<NodePackage, Refusal> {
    let unit = view.get(&UnitKey::new(id))?;
    let expected = Expected { unit: unit.as_ref(), row };
    let why = found.and_then(|found| expected.differs_from(found));
    let CopyStatus { status, usage_count, holders, bytes, error, alive, .. } =
        copy_status(view, id, node, row)?;
    Ok(NodePackage {
        name: id.name.clone(),
        version: id.version.clone(),
        package: unit.as_ref().map(|unit| unit.state),
        status: row.map(|_| status),
        op: row.map(|row| row.op.clone()),
        usage_count,
        holders,
        bytes,
        error,
        alive,
        disk: OnDisk::of(found),
        drift: why.is_some(),
        why,
    })
}

fn stranger(name: &str, version: &str) -> NodePackage {
    NodePackage {
        name: name.into(),
        version: version.into(),
        package: None,
        status: None,
        op: None,
        usage_count: 0,
        holders: Vec::new(),
        bytes: 0,
        error: None,
        alive: true,
        disk: OnDisk { state: "UNREGISTERED", op: None, digest: None, bytes: 0, files: 0 },
        drift: false,
        why: None,
    }
}

impl OnDisk {
    fn of(found: Option<Option<&Found>>) -> Self {
        let bare = |state| Self { state, op: None, digest: None, bytes: 0, files: 0 };
        match found {
            None => bare("UNKNOWN"),
            Some(None) => bare("ABSENT"),
            Some(Some(Found { published: None, .. })) => bare("UNREGISTERED"),
            Some(Some(Found { published: Some(it), .. })) => Self {
                state: "PRESENT",
                op: Some(it.op.clone()),
                digest: Some(it.digest.clone()),
                bytes: it.bytes,
                files: it.files,
            },
        }
    }
}

impl Expected<'_> {
    /// How record and disk disagree; `None` if they do not. Somebody else's directory that nothing is recorded of
    /// is no disagreement.
    fn differs_from(&self, found: Option<&Found>) -> Option<String> {
        let published = found.and_then(|found| found.published.as_ref());
        let Some(row) = self.row else {
            let published = published?;
            return Some(match self.unit.filter(|unit| unit.op == published.op) {
                Some(_) => "it is on disk, and the record says nothing of it".to_owned(),
                None => format!("the cluster does not know operation {}, which is on disk", published.op),
            });
        };
        // A CORRUPT copy may be there, damaged, or be what is missing.
        let should_be_there = drains(row.state);
        match published {
            None if !should_be_there => None,
            None if found.is_some() => {
                Some("a directory that the node did not publish is in its place".into())
            }
            None => Some(format!("the record says {}, and it is not on disk", word(row.state))),
            Some(published) if published.op != row.op => {
                Some(format!("the record is of operation {}, {} is on disk", row.op, published.op))
            }
            Some(_) if matches!(row.state, CopyState::Fetching | CopyState::Failed) => {
                Some(format!("the record says {}, and it is on disk", word(row.state)))
            }
            Some(published) => {
                let digest = self.unit.filter(|unit| unit.op == published.op)?.manifest.as_ref()?;
                (*digest != published.digest)
                    .then(|| format!("the record's manifest is {digest}, {} is on disk", published.digest))
            }
        }
    }
}

const fn word(state: CopyState) -> &'static str {
    match state {
        CopyState::Fetching => "FETCHING",
        CopyState::Present => "PRESENT",
        CopyState::Failed => "FAILED",
        CopyState::Draining => "DRAINING",
        CopyState::Corrupt => "CORRUPT",
    }
}
