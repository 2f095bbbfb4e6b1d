//! What users see of packages: records joined with live nodes, uses and pins. DEGRADED and LOST are derived here and
//! nowhere stored.

use std::collections::{BTreeMap, BTreeSet};

use meta_client::{Stored, TypedKey};
use serde::Serialize;
use utoipa::ToSchema;

use super::publish::required;
use crate::keys::{CopyKey, PinKey, UnitKey, UseKey, below, versions};
use crate::names::UnitId;
use crate::nodes;
use crate::record::{Copy, CopyState, NodeRef, Unit, UnitState};
use crate::refusal::Refusal;
use crate::view::View;

/// One package in the cluster, as `/icp` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct PackageStatus {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// CREATING, READY, DEGRADED, LOST, REMOVING or PURGING.
    pub status: &'static str,
    /// The node that carries or carried its create.
    pub coordinator: String,
    /// Its rows, one a node: those that have it and those that should.
    pub nodes: Vec<CopyStatus>,
    /// Its operation.
    pub op: String,
    /// BLAKE3 of its manifest.
    pub digest: Option<String>,
    /// Bytes of all files.
    pub bytes: u64,
    /// Number of files.
    pub files: u64,
    /// Jobs that may start on it.
    pub jobs: Vec<String>,
    /// Why it failed or is removed.
    pub error: Option<String>,
}

/// One node's copy, as `/icp` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CopyStatus {
    /// The node.
    pub node: String,
    /// FETCHING, PRESENT, FAILED, DRAINING, CORRUPT, or WAITING for a target without a row.
    pub status: &'static str,
    /// Running uses there.
    pub usage_count: usize,
    /// Who they are.
    pub holders: Vec<String>,
    /// Bytes verified.
    pub bytes: u64,
    /// What went wrong.
    pub error: Option<String>,
    /// Whether the boot that wrote the row lives.
    pub alive: bool,
}

/// One package. Scope: [`crate::Scope::package`].
pub fn package_status(view: &View, unit: &UnitId) -> Result<PackageStatus, Refusal> {
    let found = view.get(&UnitKey::new(unit))?;
    let found = found.ok_or_else(|| Refusal::not_found(format!("there is no package {unit}")))?;
    join(view, unit, &found)
}

/// Every package, by name and version. Scope: [`crate::Scope::packages`].
pub fn packages(view: &View) -> Result<Vec<PackageStatus>, Refusal> {
    view.all::<UnitKey>()?.iter().map(|(key, found)| join(view, &key.unit, found)).collect()
}

/// Every version of a name. Scope: [`crate::Scope::packages`].
pub fn versions_status(view: &View, name: &str) -> Result<Vec<PackageStatus>, Refusal> {
    crate::names::check_name(name)?;
    let found: Vec<PackageStatus> = view
        .under::<UnitKey>(&versions(name))?
        .iter()
        .map(|(key, found)| join(view, &key.unit, found))
        .collect::<Result<_, _>>()?;
    if found.is_empty() {
        return Err(Refusal::not_found(format!("there is no package {name}")));
    }
    Ok(found)
}

fn join(view: &View, unit: &UnitId, found: &Stored<Unit>) -> Result<PackageStatus, Refusal> {
    let rows: BTreeMap<String, Stored<Copy>> = view
        .under::<CopyKey>(&below(CopyKey::PREFIX, unit))?
        .into_iter()
        .map(|(key, copy)| (key.node, copy))
        .collect();
    let expected = if found.state == UnitState::Creating { found.targets.as_slice() } else { &[] };
    let names: BTreeSet<&String> = rows.keys().chain(expected).collect();
    let copies: Vec<CopyStatus> = names
        .into_iter()
        .map(|node| copy_status(view, unit, node, rows.get(node)))
        .collect::<Result<_, _>>()?;
    let present = copies.iter().filter(|copy| copy.alive && copy.status == "PRESENT").count();
    let status = match found.state {
        UnitState::Creating => "CREATING",
        UnitState::Ready if present == 0 => "LOST",
        UnitState::Ready if present < required(found.policy, found.targets.len()) => "DEGRADED",
        UnitState::Ready => "READY",
        UnitState::Removing => "REMOVING",
        UnitState::Purging => "PURGING",
    };
    let pins = view.under::<PinKey>(&below(PinKey::PREFIX, unit))?;
    Ok(PackageStatus {
        name: unit.name.clone(),
        version: unit.version.clone(),
        status,
        coordinator: found.coordinator.node.clone(),
        nodes: copies,
        op: found.op.clone(),
        digest: found.manifest.clone(),
        bytes: found.bytes,
        files: found.files,
        jobs: pins.into_iter().map(|(key, _)| key.job.to_string()).collect(),
        error: found.error.clone(),
    })
}

pub(super) fn copy_status(
    view: &View,
    unit: &UnitId,
    node: &str,
    row: Option<&Stored<Copy>>,
) -> Result<CopyStatus, Refusal> {
    let uses = view.under::<UseKey>(&crate::keys::uses_on(unit, node))?;
    let holders: Vec<String> = uses.into_iter().map(|(key, _)| key.holder).collect();
    let alive = match row {
        Some(row) => nodes::is_alive(view, &NodeRef { node: node.into(), incarnation: row.incarnation })?,
        None => nodes::current(view, node)?.is_some(),
    };
    Ok(CopyStatus {
        node: node.into(),
        status: row.map_or("WAITING", |row| match row.state {
            CopyState::Fetching => "FETCHING",
            CopyState::Present => "PRESENT",
            CopyState::Failed => "FAILED",
            CopyState::Draining => "DRAINING",
            CopyState::Corrupt => "CORRUPT",
        }),
        usage_count: holders.len(),
        holders,
        bytes: row.map_or(0, |row| row.bytes_done),
        error: row.and_then(|row| row.error.clone()),
        alive,
    })
}
