//! Flink's jar ids: a JAR uploaded through `/jars/upload` is a package of its own, found by its id.

use meta_client::Stored;

use super::resolve::guard_ready;
use crate::keys::{JarKey, UnitKey};
use crate::plan::{Plan, Steps};
use crate::record::{Jar, PackageRef, UnitState};
use crate::refusal::Refusal;
use crate::view::View;

/// An uploaded JAR whose package is READY.
#[derive(Debug, Clone)]
pub struct AddJar {
    /// Its id: `<uuid>_<file name>`.
    pub id: String,
    /// The record.
    pub jar: Jar,
}

/// Puts the jar's id. Scope: the jar's key and its package's.
pub fn add_jar(view: &View, wish: &AddJar) -> Result<Plan<()>, Refusal> {
    let key = JarKey { jar: wish.id.clone() };
    if let Some(found) = view.get(&key)? {
        if found.op == wish.jar.op {
            return Ok(Plan::already(()));
        }
        return Err(Refusal::bad_request(format!("jar id {} is taken", wish.id)));
    }
    let package = PackageRef { unit: wish.jar.unit.clone(), op: wish.jar.op.clone() };
    let steps = guard_ready(view, Steps::new().absent(&key), &package)?;
    Ok(steps.put(&key, &wish.jar).answer(()))
}

/// Deletes a jar's id and starts the safe removal of its package: jobs that run on it go on.
/// Scope: the jar's key and [`crate::Scope::package`] of its package (load the jar first).
pub fn delete_jar(view: &View, id: &str) -> Result<Plan<()>, Refusal> {
    let key = JarKey { jar: id.into() };
    let Some(jar) = view.get(&key)? else {
        return Err(Refusal::not_found(format!("File {id} does not exist.")));
    };
    let steps = Steps::new().unchanged(&key, &jar).delete(&key);
    let unit_key = UnitKey::new(&jar.unit);
    let steps = match view.get(&unit_key)? {
        Some(unit) if unit.op == jar.op && unit.state == UnitState::Ready => {
            let mut record = unit.value.clone();
            record.state = UnitState::Removing;
            record.error = Some("its jar was deleted".into());
            steps.unchanged(&unit_key, &unit).put(&unit_key, &record)
        }
        _ => steps,
    };
    Ok(steps.answer(()))
}

/// Every uploaded JAR, newest first. Scope: all jars.
pub fn jars(view: &View) -> Result<Vec<(String, Stored<Jar>)>, Refusal> {
    let mut all: Vec<_> = view.all::<JarKey>()?.into_iter().map(|(key, jar)| (key.jar, jar)).collect();
    all.sort_by(|a, b| (b.1.uploaded_at_ms, &b.0).cmp(&(a.1.uploaded_at_ms, &a.0)));
    Ok(all)
}
