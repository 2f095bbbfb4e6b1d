//! Manifests that nobody refers to, and creates that want them at the same moment.

use records::keys::{ManifestKey, UnitKey};
use records::packages::{self, collect_manifest, manifest_scope, unreferenced_manifests};
use records::record::Manifest;
use records::{Plan, Steps, invariants};

use crate::world::{Proc, World, content, reserve, unit};

const DIGEST: &str = "digest-x";

/// A manifest that names these packages, whether they are there or not.
fn leave(world: &World, holders: &[&str]) {
    let (digest, mut manifest) = content("x");
    manifest.holders = holders.iter().map(|holder| (*holder).to_owned()).collect();
    let plan: Plan<()> = Steps::new().put(&ManifestKey { digest }, &manifest).answer(());
    world.kv.apply_txn(plan.txn()).unwrap();
}

fn manifest(world: &World) -> Option<Manifest> {
    world.view().get(&ManifestKey { digest: DIGEST.into() }).unwrap().map(|found| found.value)
}

fn world() -> (World, Proc) {
    let world = World::default();
    let node = world.server("n1");
    (world, node)
}

#[test]
fn what_no_package_names_is_found_and_collected_once() {
    let (world, node) = world();
    leave(&world, &["gone:1", "not a package"]);
    world.kv.apply_txn(world_create(&world, &node, "other:1", "y").txn()).unwrap();
    let view = world.view();
    let named = view.all::<UnitKey>().unwrap();
    let named = named.iter().filter_map(|(_, unit)| unit.manifest.as_deref()).collect();
    assert_eq!(unreferenced_manifests(&view, &named).unwrap(), [DIGEST]);
    // The scope says all that the planner looks at.
    let scope = manifest_scope(&view, DIGEST).unwrap();
    assert_eq!(scope.ranges().len(), 2, "the manifest and gone:1");
    world.must(|view| collect_manifest(view, DIGEST));
    assert_eq!((manifest(&world), invariants(&world.view())), (None, vec![]));
    assert!(collect_manifest(&world.view(), DIGEST).unwrap().is_empty(), "it is gone");
    assert!(collect_manifest(&world.view(), "digest-y").unwrap().is_empty(), "other:1 has it");
}

fn world_create(world: &World, node: &Proc, id: &str, name: &str) -> Plan<packages::Reserved> {
    packages::reserve(&world.view(), &reserve(id, name, node)).unwrap()
}

#[test]
fn a_package_that_has_it_stays_on_it_when_others_are_taken_off() {
    let (world, node) = world();
    let package = world.package("lib:1", &node, "x");
    leave(&world, &["lib:1", "gone:1"]);
    world.must(|view| collect_manifest(view, DIGEST));
    assert_eq!(manifest(&world).unwrap().holders, [package.unit.to_string()]);
    assert_eq!(invariants(&world.view()), []);
}

/// Whoever is first, the package that was just created has its manifest.
#[test]
fn a_create_of_the_same_content_and_the_collection_exclude_each_other() {
    for (id, holders) in [("lib:1", vec!["lib:1"]), ("new:1", vec![]), ("new:1", vec!["new:1", "?"])] {
        let (world, node) = world();
        leave(&world, &holders);
        let collect = collect_manifest(&world.view(), DIGEST).unwrap();
        let create = world_create(&world, &node, id, "x");
        assert!(world.kv.apply_txn(create.txn()).unwrap().value.succeeded);
        assert_eq!(world.commit(collect), None, "{id} {holders:?}: it was created meanwhile");
        assert!(manifest(&world).unwrap().holders.contains(&id.to_owned()));

        let (world, node) = self::world();
        leave(&world, &holders);
        let create = world_create(&world, &node, id, "x");
        world.must(|view| collect_manifest(view, DIGEST));
        assert_eq!(world.commit(create), None, "{id} {holders:?}: what it wanted to hold is gone");
        let again = world_create(&world, &node, id, "x");
        assert!(world.commit(again).is_some());
        assert_eq!(manifest(&world).unwrap().holders, [unit(id).to_string()]);
    }
}
