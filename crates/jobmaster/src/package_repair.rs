//! A node's copy that is on disk and has to prove itself: it was found damaged, or nobody remembers that it was
//! verified (its row is gone, or says that it is being fetched). A good one is PRESENT at once; a damaged one is
//! replaced by a copy of which every byte was verified.
//!
//! ```text
//! 1 row CORRUPT       by a check; no use begins on it from here on, those that run go on
//! 2 wait              until nothing here runs on it: a program may open its files late
//! 3 row FETCHING
//! 4 receive           beside the damaged copy: good blobs are taken, the rest comes from nodes that are PRESENT
//! 5 replace           damaged copy to the trash, the good one published
//! 6 row PRESENT
//! ```
//! A crash after any of them, or no source in 4, leaves a row that is not PRESENT, and with it nothing that a job
//! would start from; the damaged copy stays until 5, so nothing good in it is lost. The agent tries again.

use std::sync::Arc;

use icp_store::{Manifest as DiskManifest, StoreError, VerifyReport, Wanted};
use records::packages::{CopyReport, corrupt, fetching, present, was_ready};
use records::record::{CopyState, PackageRef, Unit};
use records::{Plan, Refusal, Scope, UnitId, View, keys::CopyKey};
use tokio::sync::OwnedMutexGuard;

use crate::host::Host;
use crate::metrics::End;
use crate::package_copy::{EnsureError, Trouble, manifest_of, sources};
use crate::session::Tenure;

/// Damaged files named in a row's error: it is for people.
const NAMED: usize = 3;

/// The turn of an operation. Kept by what runs on the disk even if its caller is gone.
pub type Turn = Arc<OwnedMutexGuard<()>>;

/// A copy on disk that is not trusted, with its turn held.
pub struct Suspect<'a> {
    /// The node.
    pub host: &'a Host,
    /// Its right to write.
    pub tenure: &'a Tenure,
    /// The records it was found with.
    pub view: &'a View,
    /// The package's record.
    pub found: &'a Unit,
    /// Who reports.
    pub report: &'a CopyReport,
    /// The turn.
    pub turn: Turn,
}

impl Suspect<'_> {
    /// Makes it PRESENT: as it is, or repaired.
    pub async fn settle(self) -> Result<(), EnsureError> {
        let CopyReport { unit, op, .. } = self.report;
        let scope = Scope::package(unit);
        let manifest = manifest_of(self.host, self.tenure, self.found).await?;
        let bytes = manifest.total_bytes();
        let damage = match verify(self.host, unit, op, &manifest).await.map_err(Trouble::from)? {
            Some(report) => in_words(&report),
            None => Some("it is gone".to_owned()),
        };
        let Some(damage) = damage else {
            return Ok(self
                .host
                .insist(self.tenure, &scope, |view| present(view, self.report, bytes))
                .await?);
        };
        let running = self.host.gates.running(op);
        if running > 0 {
            return Err(Refusal::not_yet(format!(
                "the copy on node {} is damaged ({damage}); it is replaced when the {running} uses that run on it \
                 are over",
                self.host.options.name
            ))
            .into());
        }
        tracing::warn!(package = %unit, damage, "the copy here is damaged; replacing it");
        self.host.insist(self.tenure, &scope, |view| fetching(view, self.report, 0)).await?;
        match self.replace(manifest).await {
            Ok(()) => {
                self.host.metrics.fetches.get_or_create(&End { end: "ok" }).inc();
                tracing::info!(package = %unit, bytes, "repaired");
                Ok(self.host.insist(self.tenure, &scope, |view| present(view, self.report, bytes)).await?)
            }
            Err(trouble) => {
                self.host.metrics.fetches.get_or_create(&End { end: "failed" }).inc();
                let why = format!("damaged here ({damage}) and not repaired: {trouble}");
                tracing::warn!(package = %unit, why, "not repaired");
                let trouble = Trouble { code: trouble.code, why };
                self.host.insist(self.tenure, &scope, |view| trouble.plan(view, self.report)).await?;
                Err(trouble.into())
            }
        }
    }

    async fn replace(&self, manifest: DiskManifest) -> Result<(), Trouble> {
        let CopyReport { unit, op, .. } = self.report;
        let sources = sources(self.view, unit, self.found, &self.host.options.name)?;
        let (name, version) = (unit.name.clone(), unit.version.clone());
        let wanted = Wanted { op: op.clone(), name: name.clone(), version: version.clone(), manifest };
        let good = self.host.fetcher.receive(&wanted, &sources).await?;
        let (turn, op, proven) = (self.turn.clone(), op.clone(), was_ready(self.found));
        self.host
            .on_disk(move |store| {
                let _turn = turn;
                if proven {
                    // Registered files that this node has not made its own yet are the package's since it was READY.
                    store.confirm(&name, &version, &op)?;
                }
                good.replace(&name, &version)
            })
            .await?;
        Ok(())
    }
}

/// Compares this node's copy with a manifest; `None` = there is none. Reads every byte.
async fn verify(
    host: &Host,
    unit: &UnitId,
    op: &str,
    manifest: &DiskManifest,
) -> Result<Option<VerifyReport>, StoreError> {
    let (unit, op, manifest) = (unit.clone(), op.to_owned(), manifest.clone());
    host.on_disk(move |store| store.verify_against(&unit.name, &unit.version, &op, &manifest)).await
}

/// What is damaged, for people; `None` if nothing is.
pub fn in_words(report: &VerifyReport) -> Option<String> {
    let all: Vec<String> =
        report.damage().map(|(path, state)| format!("{path} {}", state.as_str())).collect();
    let more = all.len().saturating_sub(NAMED);
    let named = all.get(..NAMED).unwrap_or(&all).join(", ");
    match (all.len(), more) {
        (0, _) => None,
        (_, 0) => Some(named),
        (_, more) => Some(format!("{named} and {more} more")),
    }
}

/// Writes down that the copy is damaged, so that the agent replaces it. A row that says it is not usable anyway stays
/// as it is. True if the row is CORRUPT now.
pub async fn condemn(
    host: &Host,
    tenure: &Tenure,
    package: &PackageRef,
    damage: &str,
) -> Result<bool, Refusal> {
    let report = crate::package_copy::report(tenure, package);
    let key = CopyKey::new(&package.unit, &report.me.node);
    let scope = Scope::package(&package.unit);
    host.insist(tenure, &scope, |view| {
        let state = view.get(&key)?.filter(|row| row.op == package.op).map(|row| row.state);
        Ok(match state {
            Some(CopyState::Present | CopyState::Draining) => corrupt(view, &report, damage)?.map(|()| true),
            Some(CopyState::Corrupt) => Plan::already(true),
            Some(CopyState::Fetching | CopyState::Failed) | None => Plan::already(false),
        })
    })
    .await
}
