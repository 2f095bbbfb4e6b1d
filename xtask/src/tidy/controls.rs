//! The positive controls stay out of every build that ships, and reach every place when they are asked for.

use std::collections::BTreeSet;

use cargo_metadata::{DependencyKind, MetadataCommand, Package};

use crate::tools;

/// The feature that puts known bugs back.
pub const FEATURE: &str = "positive-controls";

/// What is broken, a line each.
pub fn check() -> anyhow::Result<Vec<String>> {
    let metadata = MetadataCommand::new().manifest_path(tools::root().join("Cargo.toml")).no_deps().exec()?;
    let have: BTreeSet<&str> = metadata
        .packages
        .iter()
        .filter(|package| package.features.contains_key(FEATURE))
        .map(|package| package.name.as_str())
        .collect();
    Ok(metadata.packages.iter().flat_map(|package| broken_by(package, &have)).collect())
}

fn broken_by(package: &Package, have: &BTreeSet<&str>) -> Vec<String> {
    let name = package.name.as_str();
    let mut broken = Vec::new();
    let turns_on = |feature: &String| feature == FEATURE || feature.ends_with(&format!("/{FEATURE}"));
    for (feature, parts) in package.features.iter().filter(|(feature, _)| *feature != FEATURE) {
        if parts.iter().any(turns_on) {
            broken.push(format!("{name}: feature {feature} turns {FEATURE} on"));
        }
    }
    for dependency in package.dependencies.iter().filter(|it| it.features.iter().any(turns_on)) {
        broken.push(format!("{name} uses {} with {FEATURE}", dependency.name));
    }
    let Some(forwarded) = package.features.get(FEATURE) else { return broken };
    let normal = package.dependencies.iter().filter(|it| it.kind == DependencyKind::Normal);
    for dependency in normal.filter(|it| have.contains(it.name.as_str())) {
        let forward = format!("{}/{FEATURE}", dependency.name);
        if !forwarded.contains(&forward) && !forwarded_by_another(&dependency.name, forwarded) {
            broken.push(format!("{name}: {FEATURE} does not reach {}", dependency.name));
        }
    }
    broken
}

/// `meta-types` is reached through every other crate that has the feature.
fn forwarded_by_another(dependency: &str, forwarded: &[String]) -> bool {
    dependency == "meta-types" && !forwarded.is_empty()
}
