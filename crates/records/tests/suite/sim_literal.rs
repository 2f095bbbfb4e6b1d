//! The literal protocol of the proposal, as far as it differs: it looks at the records and then writes, each on its
//! own, and counts uses apart from the look at the state. A positive control: the checker must catch it.

use meta_client::{Stored, TypedKey};
use records::keys::{CopyKey, ManifestKey, NameKey, UnitKey, UseKey, uses_on};
use records::packages::{BeginUse, CopyReport, Reserve};
use records::record::{Manifest, NameHolder, Unit, UnitState, Use};
use records::{Class, Plan, Refusal, Steps, UnitId, View, nodes};

use crate::sim_disk::content_of;
use crate::world::content;

/// Which parts are the proposal's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Literal {
    /// create: check, then create or "remove existing record and create new"; READY or gone, whatever is there.
    pub create: bool,
    /// remove: check READY, then increase the usage count; at zero the node cleans up.
    pub remove: bool,
}

/// Create, step 3: "if not exists then creates; if exists and node alive, or status not CREATING: already exists;
/// remove existing record and create new".
pub fn create(view: &View, wish: Reserve, files: &str) -> Plan<()> {
    let key = UnitKey::new(&wish.unit);
    let found = view.get(&key).unwrap();
    if let Some(found) = &found
        && (nodes::is_alive(view, &found.coordinator).unwrap() || found.state != UnitState::Creating)
    {
        return Plan::already(());
    }
    let (digest, manifest) = content(files);
    let record = Unit {
        op: wish.op,
        state: UnitState::Creating,
        origin: wish.origin,
        coordinator: wish.coordinator,
        epoch: 1,
        manifest: Some(digest.clone()),
        uploading: false,
        bytes: 3,
        files: 1,
        policy: wish.policy,
        targets: nodes::live_servers(view).unwrap().into_iter().map(|(node, _)| node.node).collect(),
        error: None,
        aborted: false,
        request: None,
        created_at_ms: 0,
        from: None,
        extra: Default::default(),
    };
    let name = NameHolder { name: wish.unit.name.clone(), extra: Default::default() };
    let steps = released(
        view,
        Steps::new(),
        &wish.unit,
        found.as_ref().filter(|found| found.manifest.as_ref() != Some(&digest)),
    );
    let steps =
        steps.put(&ManifestKey { digest: digest.clone() }, &held(view, &digest, manifest, &wish.unit));
    steps.put(&NameKey::of(&wish.unit.name), &name).put(&key, &record).answer(())
}

/// Create, step 3: "change metastorage record status to READY".
pub fn ready(view: &View, unit: &UnitId) -> Plan<()> {
    let key = UnitKey::new(unit);
    let Some(mut found) = view.get(&key).unwrap() else { return Plan::already(()) };
    found.value.state = UnitState::Ready;
    Steps::new().put(&key, &found.value).answer(())
}

/// Create, step 3: "otherwise remove it". Its nodes' words go with it.
pub fn forget(view: &View, unit: &UnitId) -> Plan<()> {
    let key = UnitKey::new(unit);
    let found = view.get(&key).unwrap();
    let steps = released(view, Steps::new().delete(&key), unit, found.as_ref());
    let steps = steps.delete_prefix(&records::keys::below(CopyKey::PREFIX, unit));
    let prefix = records::keys::versions(&unit.name);
    let others = view.count(&prefix).unwrap();
    steps.when(others <= 1, |steps| steps.delete(&NameKey::of(&unit.name))).answer(())
}

/// Remove, step 4 and 5.1: "check status; when some user code starts, increase usageCount".
pub fn begin_use(view: &View, wish: &BeginUse) -> Result<Plan<()>, Refusal> {
    let unit = view.get(&UnitKey::new(&wish.unit))?;
    if unit.is_none_or(|unit| unit.state != UnitState::Ready || unit.op != wish.op) {
        return Err(Refusal::new(Class::UnitNotReady, "not READY"));
    }
    let record = Use {
        op: wish.op.clone(),
        incarnation: wish.me.incarnation,
        attempt: wish.attempt,
        since_ms: 0,
        extra: Default::default(),
    };
    let key = UseKey::new(&wish.unit, &wish.me.node, &wish.holder);
    Ok(Steps::new().put_leased(&key, &record, wish.lease).answer(()))
}

/// Remove, step 6: "eventually usageCount will become zero; node must clean local resources then".
pub fn dropped(view: &View, report: &CopyReport) -> Result<Plan<()>, Refusal> {
    if view.count(&uses_on(&report.unit, &report.me.node))? > 0 {
        return Err(Refusal::not_yet("in use"));
    }
    Ok(Steps::new().delete(&CopyKey::new(&report.unit, &report.me.node)).answer(()))
}

fn held(view: &View, digest: &str, manifest: Manifest, unit: &UnitId) -> Manifest {
    let key = ManifestKey { digest: digest.to_owned() };
    let mut record = view.get(&key).unwrap().map_or(manifest, |found| found.value);
    record.holders.retain(|holder| *holder != unit.to_string());
    record.holders.push(unit.to_string());
    record
}

/// The manifest of what was there does not name the package any more.
fn released(view: &View, steps: Steps, unit: &UnitId, found: Option<&Stored<Unit>>) -> Steps {
    let Some(digest) = found.and_then(|found| found.manifest.clone()) else { return steps };
    let key = ManifestKey { digest: digest.clone() };
    let mut record = held(view, &digest, content(&content_of(&digest)).1, unit);
    record.holders.retain(|holder| *holder != unit.to_string());
    if record.holders.is_empty() { steps.delete(&key) } else { steps.put(&key, &record) }
}
