//! The arrows between crates: who may use whom. The folder tree is the architecture, and this is its one rule.

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

use crate::tools;

/// What each crate may use of ours, tests aside. A crate that is not here may use nothing of ours.
const ARROWS: &[(&str, &[&str])] = &[
    ("meta-types", &[]),
    ("meta-core", &["meta-types"]),
    ("meta-store", &["meta-types"]),
    ("meta-raft", &["meta-types", "meta-core", "meta-store"]),
    ("meta-api", &["meta-types"]),
    ("meta-replica", &["meta-types", "meta-core", "meta-store", "meta-raft", "meta-api", "process-kit"]),
    ("meta-client", &["meta-types", "meta-api"]),
    ("records", &["meta-types", "meta-client"]),
    ("icp-store", &["records"]),
    ("flink-rest", &[]),
    ("process-kit", &["meta-types"]),
    ("jobmaster", &["meta-types", "meta-client", "records", "icp-store", "flink-rest", "process-kit"]),
    (
        "dispatcher",
        &["meta-types", "meta-client", "records", "icp-store", "flink-rest", "jobmaster", "process-kit"],
    ),
    (
        "metastored",
        &["meta-types", "process-kit", "meta-replica", "meta-client", "records", "jobmaster", "dispatcher"],
    ),
    ("metactl", &["meta-types", "meta-api", "meta-client", "records", "flink-rest"]),
    ("testkit", &["meta-types", "meta-client", "records"]),
    (
        "raft-tests",
        &[
            "meta-types",
            "meta-core",
            "meta-store",
            "meta-raft",
            "meta-replica",
            "meta-api",
            "meta-client",
            "records",
            "icp-store",
            "jobmaster",
            "process-kit",
            "testkit",
        ],
    ),
    ("xtask", &[]),
];

/// Outside crates that only some of ours may name, so that the choice stays behind one door.
const DOORS: &[(&str, &[&str])] = &[
    ("sled", &["meta-store"]),
    ("openraft", &["meta-raft"]),
    ("bincode", &["meta-types"]),
    ("prometheus-client", &["process-kit", "meta-replica", "dispatcher", "jobmaster"]),
];

/// Crates without I/O, clock, thread or chance: what they may not name.
const PURE: (&[&str], &[&str]) =
    (&["meta-types", "meta-core"], &["tokio", "rand", "rustix", "libc", "reqwest", "axum", "tonic"]);

/// What is broken, a line each.
pub fn check() -> anyhow::Result<Vec<String>> {
    let metadata = MetadataCommand::new().manifest_path(tools::root().join("Cargo.toml")).no_deps().exec()?;
    Ok(metadata.packages.iter().flat_map(|package| broken_by(package, &metadata)).collect())
}

fn broken_by(package: &Package, metadata: &Metadata) -> Vec<String> {
    let name = package.name.as_str();
    let arrows = ARROWS.iter().find(|(from, _)| *from == name).map(|(_, to)| *to);
    let Some(allowed) = arrows else { return vec![format!("{name}: no arrows are written down for it")] };
    let is_ours = |other: &str| metadata.packages.iter().any(|package| package.name.as_str() == other);
    let mut broken = Vec::new();
    for dependency in package.dependencies.iter().filter(|it| it.kind != DependencyKind::Development) {
        let other = dependency.name.as_str();
        if is_ours(other) && !allowed.contains(&other) {
            broken.push(format!("{name} must not use {other}: the arrows point the other way"));
        }
        if let Some((_, users)) = DOORS.iter().find(|(door, _)| *door == other)
            && !users.contains(&name)
        {
            broken.push(format!("{name} must not name {other}: only {} does", users.join(", ")));
        }
        if PURE.0.contains(&name) && PURE.1.contains(&other) {
            broken.push(format!("{name} is pure and must not use {other}"));
        }
    }
    broken
}
