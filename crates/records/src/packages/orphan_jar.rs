//! An uploaded JAR's package that no jar id names: its dispatcher died between the two, or the id was deleted.

use meta_client::TypedKey;

use crate::keys::{JarKey, UnitKey};
use crate::names::UnitId;
use crate::plan::{Plan, Steps};
use crate::record::{UnitOrigin, UnitState};
use crate::refusal::Refusal;
use crate::view::View;

/// What the name of a package made from a JAR starts with; its random part follows, and starts the jar id too.
pub const JAR_UNIT_PREFIX: &str = "jar-";

/// A READY package of origin `jar` without a jar id goes to REMOVING. The guard is an empty range of ids, so that an
/// id which is just being put either is seen here or finds the package not READY.
/// Scope: [`crate::Scope::package`] and all jars.
pub fn sweep_orphan_jar(view: &View, unit: &UnitId) -> Result<Plan<()>, Refusal> {
    let key = UnitKey::new(unit);
    let Some(found) = view.get(&key)? else { return Ok(Plan::already(())) };
    if found.state >= UnitState::Removing {
        return Ok(Plan::already(()));
    }
    let uuid = unit.name.strip_prefix(JAR_UNIT_PREFIX);
    let (UnitOrigin::Jar, UnitState::Ready, Some(uuid)) = (found.origin, found.state, uuid) else {
        return Err(Refusal::wrong_state(format!("{unit} is not an uploaded JAR that is READY")));
    };
    let ids = format!("{}{uuid}_", JarKey::PREFIX);
    if view.count(&ids)? > 0 {
        return Err(Refusal::not_yet(format!("a jar id names {unit}")));
    }
    let mut record = found.value.clone();
    record.state = UnitState::Removing;
    record.error = Some("no jar id names it".into());
    Ok(Steps::new().unchanged(&key, &found).empty(&ids).put(&key, &record).answer(()))
}
