//! The coordinator of a create: reserve, announce, wait for the copies, READY or undone. Sometimes it is paused
//! between its look and its write, as a real one may be.

use std::time::Duration;

use records::packages::{self, Progress, Reserve, Reserved, Targets};
use records::record::{Manifest, ManifestFile, PackageRef, Policy, UnitOrigin};
use records::{Scope, UnitId, View};
use tokio::time::Instant;

use super::process::Session;
use super::truth::Truth;
use crate::workload::env::Chance;

/// How long a create may take before its coordinator gives it up.
pub const PATIENCE: Duration = Duration::from_secs(7);
/// Pause between two looks.
pub const LOOK: Duration = Duration::from_millis(120);
/// Longest pause between look and write.
const PAUSED: Duration = Duration::from_millis(900);

/// What a client asks a node for.
#[derive(Debug, Clone)]
pub struct Create {
    /// The package.
    pub unit: UnitId,
    /// The operation.
    pub op: String,
    /// Names the content.
    pub content: String,
    /// When the content becomes known.
    pub content_known: ContentKnown,
    /// Which nodes are to hold it.
    pub targets: Targets,
    /// How many of them must.
    pub policy: Policy,
    /// The client's request.
    pub request: Option<String>,
}

/// When the content of a package becomes known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentKnown {
    /// With the reservation, its bytes too.
    Reserved,
    /// Its list with the reservation, its bytes later.
    Listed,
    /// After the reservation.
    Received,
    /// Its files lie on the nodes: a register.
    Laid,
}

/// A manifest of one file and its digest.
pub fn manifest(content: &str) -> (String, Manifest) {
    let file = ManifestFile { path: "app.jar".into(), size: 3, hash: content.to_owned(), executable: false };
    (format!("digest-{content}"), Manifest { files: vec![file], holders: vec![], extra: Default::default() })
}

/// Carries one create, from the reservation on.
pub async fn create(session: &Session, truth: &Truth, mut chance: Chance, create: Create) {
    if create.content_known == ContentKnown::Laid {
        return super::register::register(session, truth, chance, create).await;
    }
    let (digest, content) = manifest(&create.content);
    let wish = Reserve {
        unit: create.unit.clone(),
        op: create.op.clone(),
        origin: UnitOrigin::Icp,
        coordinator: session.me.clone(),
        manifest: (create.content_known != ContentKnown::Received).then(|| (digest.clone(), content.clone())),
        uploading: create.content_known == ContentKnown::Listed,
        targets: create.targets.clone(),
        policy: create.policy,
        request: create.request.clone().map(|request| (request, 0)),
        now_ms: 0,
        from: None,
    };
    let scope = Scope::package(&create.unit)
        .and_manifest(&digest)
        .and_request(create.request.as_deref().unwrap_or("none"));
    let reserved = session.carry("package reserved", &scope, |view| packages::reserve(view, &wish)).await;
    let Ok(Reserved::Started { .. }) = reserved else { return };
    let mine = PackageRef { unit: create.unit.clone(), op: create.op.clone() };
    truth.publish(&session.me.node, &mine, &digest);
    session.may_die(&mut chance, 5).await;
    if create.content_known != ContentKnown::Reserved {
        let announced = session.carry("package announced", &scope, |view| {
            packages::announce(view, &create.unit, &create.op, 1, &digest, &content)
        });
        // Taken over or removed by force meanwhile: found out below.
        let _ = announced.await;
    }
    bring_about(session, truth, &mut chance, &mine, 1).await;
}

/// Goes on with a create, as its coordinator of this epoch, until it is READY, undone, or somebody else's.
pub async fn bring_about(
    session: &Session,
    truth: &Truth,
    chance: &mut Chance,
    package: &PackageRef,
    epoch: u64,
) {
    let PackageRef { unit, op } = package;
    let end = Instant::now() + PATIENCE;
    loop {
        let view = session.see(scope_of(session, package).await).await;
        // Refused: gone, or another operation's.
        let Ok(progress) = packages::progress(&view, unit, op) else { return };
        let reason = match progress {
            Progress::Enough => {
                if chance.one_in(2) {
                    truth.pause(unit, true);
                    tokio::time::sleep(chance.between(Duration::ZERO, PAUSED)).await;
                    truth.pause(unit, false);
                }
                let plan = packages::ready(&view, unit, op, epoch);
                let refused = plan.is_err();
                if session.act("package ready", &view, plan).await.is_some() || refused {
                    return;
                }
                continue;
            }
            Progress::Waiting { .. } if Instant::now() < end => {
                tokio::time::sleep(LOOK).await;
                continue;
            }
            Progress::Waiting { .. } => "it took too long".to_owned(),
            Progress::Failed { reason, .. } => reason,
            Progress::NobodyLeft => "no target lives".to_owned(),
        };
        let plan = packages::abort(&view, unit, op, epoch, &reason);
        let refused = plan.is_err();
        if session.act("package aborted", &view, plan).await.is_some() || refused {
            return;
        }
    }
}

/// The package and the outcome of its request.
async fn scope_of(session: &Session, package: &PackageRef) -> Scope {
    let view: View = session.see(Scope::package(&package.unit)).await;
    let found = view.get(&records::keys::UnitKey::new(&package.unit)).ok().flatten();
    let request = found.and_then(|found| found.request.clone());
    let scope = Scope::package(&package.unit);
    match request {
        Some(request) => scope.and_request(&request),
        None => scope,
    }
}
