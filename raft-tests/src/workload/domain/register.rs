//! A register: the files lie on the nodes already. What its coordinator and its targets do.

use std::time::Duration;

use meta_client::Stored;
use records::keys::CopyKey;
use records::packages::{self, CopyReport, Inspections, Reserve, Reserved};
use records::record::{CopyState, PackageRef, Policy, Unit, UnitOrigin};
use records::{Scope, UnitId, View};
use tokio::time::Instant;

use super::coordinator::{Create, LOOK, PATIENCE, bring_about, manifest};
use super::process::Session;
use super::truth::Truth;
use crate::workload::env::Chance;

/// Carries one register, from the reservation on.
pub async fn register(session: &Session, truth: &Truth, mut chance: Chance, create: Create) {
    let wish = Reserve {
        unit: create.unit.clone(),
        op: create.op.clone(),
        origin: UnitOrigin::Register,
        coordinator: session.me.clone(),
        manifest: None,
        uploading: false,
        targets: create.targets.clone(),
        policy: Policy::All,
        request: None,
        now_ms: 0,
        from: None,
    };
    let scope = Scope::package(&create.unit);
    let reserved = session.carry("register reserved", &scope, |view| packages::reserve(view, &wish)).await;
    let Ok(Reserved::Started { .. }) = reserved else { return };
    session.may_die(&mut chance, 5).await;
    let mine = PackageRef { unit: create.unit, op: create.op };
    let PackageRef { unit, op } = &mine;
    // None: gone, taken over, or another operation's.
    let Some(said) = until_all_looked(session, &mine).await else { return };
    let Some(digest) = agreed(&said) else {
        let plan = |view: &View| packages::abort(view, unit, op, 1, "the nodes hold different files");
        // Refused: somebody else ended it.
        let _ = session.carry("register aborted", &scope, plan).await;
        return;
    };
    let (digest, files) = manifest(digest.trim_start_matches("digest-"));
    let scope = scope.and_manifest(&digest);
    let announced = session
        .carry("register announced", &scope, |view| packages::announce(view, unit, op, 1, &digest, &files));
    // Taken over or removed by force meanwhile: found out below.
    let _ = announced.await;
    session.may_die(&mut chance, 5).await;
    bring_about(session, truth, &mut chance, &mine, 1).await;
}

/// What the targets found; what there is of it when time is up.
async fn until_all_looked(session: &Session, package: &PackageRef) -> Option<Inspections> {
    let end = Instant::now() + PATIENCE;
    loop {
        let view = session.see(Scope::package(&package.unit)).await;
        let said = packages::inspections(&view, &package.unit, &package.op).ok()?;
        if said.waiting.is_empty() || Instant::now() >= end {
            return Some(said);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The digest of what all of them found.
fn agreed(said: &Inspections) -> Option<String> {
    let (_, first) = said.found.first()?;
    let equal = said.found.iter().all(|(_, digest)| digest == first);
    (equal && said.waiting.is_empty() && said.failed.is_empty()).then(|| first.clone())
}

/// A target's next step: says what it found; takes it over once that is what was announced.
pub async fn take_part(session: &Session, truth: &Truth, view: &View, unit: &UnitId, found: &Stored<Unit>) {
    let node = &session.me.node;
    let row = view.get(&CopyKey::new(unit, node)).ok().flatten();
    let row = row.filter(|row| row.op == found.op && row.incarnation == session.me.incarnation);
    if !found.targets.contains(node) || row.as_ref().is_some_and(|row| row.state != CopyState::Fetching) {
        return;
    }
    let report =
        CopyReport { unit: unit.clone(), op: found.op.clone(), me: session.me.clone(), for_job: None };
    let Some(digest) = truth.laid(node, unit) else {
        session.act("register found nothing", view, packages::failed(view, &report, "MISSING")).await;
        return;
    };
    match (&row, &found.manifest) {
        (None, _) => {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let plan = packages::inspected(view, &report, &digest, 3);
            session.act("register inspected", view, plan).await;
        }
        (Some(_), Some(announced)) if *announced == digest => {
            // Tentative: on the disk before the record says so.
            let package = PackageRef { unit: unit.clone(), op: found.op.clone() };
            truth.publish(node, &package, &digest);
            let plan = packages::adopted(view, &report, &digest, 3);
            session.act("register adopted", view, plan).await;
        }
        (Some(_), Some(_)) => {
            session.act("register found changed", view, packages::failed(view, &report, "changed")).await;
        }
        (Some(_), None) => {}
    }
}
