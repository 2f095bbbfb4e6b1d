//! What packages leave behind when processes die: creates of lost coordinators, rows of dead nodes, packages nobody
//! came for, removals nobody finished, manifests nobody refers to. Every dispatcher looks; the guards make repeats harmless.
//!
//! A grace is counted by this process's own clock from the moment it first saw the situation, so clocks of other
//! machines do not matter; a new dispatcher starts to count anew.

use std::collections::HashMap;
use std::collections::HashSet;

use meta_client::TypedKey;
use meta_types::Revision;
use process_kit::Did;
use records::keys::{CopyKey, JarKey, NodeKey, PinKey, UnitKey, UseKey, below};
use records::packages::{
    JAR_UNIT_PREFIX, collect_manifest, coordinator_lost, dead_copy, finish, manifest_scope, sweep_orphan_jar,
    sweep_private, unreferenced_manifests,
};
use records::record::{Unit, UnitOrigin, UnitState};
use records::{Changes, Failure, Parsed, Plan, Refusal, Scope, UnitId, View, nodes};
use tokio::time::Instant;

use crate::api_error::ApiError;
use crate::front::Front;
use crate::jar_handlers::of_failure;
use crate::limits::RECONCILE_EVERY;
use crate::reconcile::Reconciler;

/// The reconciler.
pub struct PackageReconciler {
    front: Front,
    units: Parsed<UnitKey>,
    copies: Parsed<CopyKey>,
    nodes: Changes<NodeKey>,
    jars: Changes<JarKey>,
    pins: Changes<PinKey>,
    uses: Changes<UseKey>,
    /// When all packages were last looked at to the end.
    looked_at: Option<Instant>,
    seen: HashMap<Due, Instant>,
}

/// Something that waits for its grace.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Due {
    /// A create whose coordinator, this boot of it, is gone.
    Create { unit: UnitId, op: String, incarnation: Revision },
    /// A row of a node that is not alive.
    Row { unit: UnitId, node: String, incarnation: Revision },
    /// A package that nothing refers to.
    Unreferenced { unit: UnitId, op: String },
    /// A manifest that no package refers to.
    Manifest { digest: String },
}

impl Due {
    /// What its settling is counted as.
    fn kind(&self) -> &'static str {
        match self {
            Self::Create { .. } => "creates-aborted",
            Self::Row { .. } => "rows-dropped",
            Self::Unreferenced { .. } => "unreferenced-removed",
            Self::Manifest { .. } => "manifests-collected",
        }
    }
}

impl PackageReconciler {
    /// A reconciler that has seen nothing yet.
    pub fn new(front: Front) -> Self {
        Self {
            front,
            units: Parsed::default(),
            copies: Parsed::default(),
            nodes: Changes::default(),
            jars: Changes::default(),
            pins: Changes::default(),
            uses: Changes::default(),
            looked_at: None,
            seen: HashMap::new(),
        }
    }

    /// Takes over what changed; true if a package could be concerned. Runs that begin and wait do not count: they
    /// add pins and uses, and only one that goes away lets something be done.
    fn note(&mut self, view: &View) -> bool {
        let units = !self.units.update(view).is_empty();
        let copies = !self.copies.update(view).is_empty();
        let nodes = !self.nodes.keys_since(view).is_empty();
        let jars = !self.jars.keys_since(view).is_empty();
        let unpinned = self.pins.keys_since(view).iter().any(|(_, is_there)| !is_there);
        let unused = self.uses.keys_since(view).iter().any(|(_, is_there)| !is_there);
        units || copies || nodes || jars || unpinned || unused
    }

    /// What waits for a grace now.
    fn waiting(&self, view: &View) -> Result<Vec<Due>, Refusal> {
        let mut due = Vec::new();
        for (UnitKey { unit }, found) in self.units.iter() {
            let (unit, op) = (unit.clone(), found.op.clone());
            if found.state == UnitState::Creating && !nodes::is_alive(view, &found.coordinator)? {
                due.push(Due::Create { unit, op, incarnation: found.coordinator.incarnation });
            } else if found.state == UnitState::Ready && is_unreferenced(view, &unit, found)? {
                due.push(Due::Unreferenced { unit, op });
            }
        }
        for (CopyKey { unit, node }, copy) in self.copies.iter() {
            if nodes::current(view, node)?.is_none() {
                let (unit, node) = (unit.clone(), node.clone());
                due.push(Due::Row { unit, node, incarnation: copy.incarnation });
            }
        }
        let named = self.units.iter().filter_map(|(_, unit)| unit.manifest.as_deref()).collect();
        due.extend(unreferenced_manifests(view, &named)?.into_iter().map(|digest| Due::Manifest { digest }));
        Ok(due)
    }

    /// Those whose grace is over; forgets what is no longer waiting.
    fn ripe(&mut self, waiting: Vec<Due>) -> Vec<Due> {
        let now = Instant::now();
        let current: HashSet<&Due> = waiting.iter().collect();
        self.seen.retain(|due, _| current.contains(due));
        let grace = self.front.options.icp_grace;
        let mut ripe = Vec::new();
        for due in waiting {
            let since = *self.seen.entry(due.clone()).or_insert(now);
            if now.duration_since(since) >= grace {
                ripe.push(due);
            }
        }
        ripe
    }

    async fn settle(&self, due: &Due, did: &mut Did) -> Result<(), ApiError> {
        tracing::info!(?due, "settling what was left behind");
        let wrote = match due {
            Due::Create { unit, op, .. } => {
                let scope = self.with_request(unit).await?;
                self.carry(&scope, |view| coordinator_lost(view, unit, op)).await?
            }
            Due::Row { unit, node, .. } => {
                self.carry(&Scope::package(unit), |view| dead_copy(view, unit, node)).await?
            }
            Due::Unreferenced { unit, .. } => {
                let scope = Scope::package(unit).and_all::<JarKey>();
                self.carry(&scope, |view| match view.get(&UnitKey::new(unit))?.map(|found| found.origin) {
                    Some(UnitOrigin::Private) => sweep_private(view, unit),
                    _ => sweep_orphan_jar(view, unit),
                })
                .await?
            }
            Due::Manifest { digest } => {
                let view = self.front.fresh(Scope::default().and_manifest(digest)).await?;
                self.carry(&manifest_scope(&view, digest)?, |view| collect_manifest(view, digest)).await?
            }
        };
        did.add(due.kind(), u64::from(wrote));
        Ok(())
    }

    async fn with_request(&self, unit: &UnitId) -> Result<Scope, ApiError> {
        let view = self.front.fresh(Scope::package(unit)).await?;
        let request = view.get(&UnitKey::new(unit))?.and_then(|found| found.value.request);
        let scope = Scope::package(unit);
        Ok(match request {
            Some(request) => scope.and_request(&request),
            None => scope,
        })
    }

    /// Carries a plan out; a refusal means that the situation is another by now.
    async fn carry(
        &self,
        scope: &Scope,
        planner: impl Fn(&View) -> Result<Plan<()>, Refusal> + Send + Sync,
    ) -> Result<bool, ApiError> {
        match self.front.carry(scope, planner).await {
            Ok(done) => Ok(done.wrote),
            Err(Failure::Refused(refusal)) => {
                tracing::debug!(%refusal, "nothing to do");
                Ok(false)
            }
            Err(failure) => Err(of_failure(failure, "the package's status")),
        }
    }

    async fn finish_removals(&self, view: &View, did: &mut Did) -> Result<(), ApiError> {
        for (key, found) in self.units.iter() {
            if found.state < UnitState::Removing || is_held(view, &key.unit)? {
                continue;
            }
            let scope = Scope::package(&key.unit);
            let scope = match &found.manifest {
                Some(digest) => scope.and_manifest(digest),
                None => scope,
            };
            let wrote = self.carry(&scope, |view| finish(view, &key.unit, &found.op)).await?;
            did.add("removals-finished", u64::from(wrote));
        }
        Ok(())
    }
}

/// True if a copy, a pin or a use is left.
fn is_held(view: &View, unit: &UnitId) -> Result<bool, Refusal> {
    for prefix in [CopyKey::PREFIX, PinKey::PREFIX, UseKey::PREFIX] {
        if view.count(&below(prefix, unit))? > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A private package that no job pins, an uploaded JAR that no id names.
fn is_unreferenced(view: &View, unit: &UnitId, found: &Unit) -> Result<bool, Refusal> {
    match found.origin {
        UnitOrigin::Private => Ok(view.count(&below(PinKey::PREFIX, unit))? == 0),
        UnitOrigin::Jar => match unit.name.strip_prefix(JAR_UNIT_PREFIX) {
            Some(uuid) => Ok(view.count(&format!("{}{uuid}_", JarKey::PREFIX))? == 0),
            None => Ok(false),
        },
        UnitOrigin::Icp | UnitOrigin::Register => Ok(false),
    }
}

impl Reconciler for PackageReconciler {
    const NAME: &'static str = "packages";

    async fn round(&mut self, view: &View, did: &mut Did) -> Result<(), ApiError> {
        let is_news = self.note(view);
        if !is_news && self.looked_at.is_some_and(|at| at.elapsed() < RECONCILE_EVERY) {
            return Ok(());
        }
        self.looked_at = None;
        self.finish_removals(view, did).await?;
        for due in self.ripe(self.waiting(view)?) {
            self.settle(&due, did).await?;
        }
        self.looked_at = Some(Instant::now());
        Ok(())
    }
}
