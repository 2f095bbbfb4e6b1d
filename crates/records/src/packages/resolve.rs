//! From what a user wrote (`NAME`, `NAME:VERSION`, `NAME:latest`) to a package of exactly one operation.

use semver::Version;

use crate::keys::{UnitKey, versions};
use crate::names::{LATEST, UnitId, check_name};
use crate::plan::Steps;
use crate::record::{PackageRef, UnitState};
use crate::refusal::{Class, Refusal};
use crate::view::View;

/// The package meant by `text`; it must be READY. No version or `latest` is the newest SemVer release that is READY.
/// Scope: the versions of the name.
pub fn resolve(view: &View, text: &str) -> Result<PackageRef, Refusal> {
    let (name, version) = text.split_once(':').unwrap_or((text, LATEST));
    check_name(name)?;
    if version != LATEST {
        return ready_package(view, &UnitId::new(name, version)?);
    }
    let mut releases: Vec<(Version, PackageRef)> = Vec::new();
    for (key, unit) in view.under::<UnitKey>(&versions(name))? {
        let Ok(version) = Version::parse(&key.unit.version) else { continue };
        if version.pre.is_empty() && unit.state == UnitState::Ready {
            releases.push((version, PackageRef { unit: key.unit, op: unit.op.clone() }));
        }
    }
    let newest = releases.into_iter().max_by(|a, b| a.0.cmp(&b.0));
    newest.map(|(_, package)| package).ok_or_else(|| {
        Refusal::not_found(format!("package {name} has no release that is READY: name a version"))
    })
}

/// The package, if code may start on it. Scope: the package's key.
pub fn ready_package(view: &View, unit: &UnitId) -> Result<PackageRef, Refusal> {
    match view.get(&UnitKey::new(unit))? {
        Some(found) if found.state == UnitState::Ready => {
            Ok(PackageRef { unit: unit.clone(), op: found.op.clone() })
        }
        Some(found) => {
            let state = match found.state {
                UnitState::Creating => "CREATING",
                UnitState::Ready => "READY",
                UnitState::Removing => "REMOVING",
                UnitState::Purging => "PURGING",
            };
            Err(Refusal::new(Class::UnitNotReady, format!("package {unit} is not READY: it is {state}")))
        }
        None => Err(Refusal::not_found(format!("there is no package {unit}"))),
    }
}

/// Guard of an admission: the package is READY under the operation that was read, and stays as it was.
pub(crate) fn guard_ready(view: &View, steps: Steps, package: &PackageRef) -> Result<Steps, Refusal> {
    let key = UnitKey::new(&package.unit);
    let ready = ready_package(view, &package.unit)?;
    if ready.op != package.op {
        return Err(Refusal::new(
            Class::UnitNotReady,
            format!("package {} was replaced while the run was admitted: try again", package.unit),
        ));
    }
    let found = view.get(&key)?;
    Ok(steps.as_read(&key, found.as_ref()))
}
