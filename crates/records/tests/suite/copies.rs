//! Copies of packages: not before the bytes are there, and again when nodes are gone.

use records::Class;
use records::keys::UnitKey;
use records::packages::{self, Reserve, Targets, substitutes};
use records::record::{Policy, UnitState};

use crate::world::{Proc, World, content, report, reserve, unit};

fn who(world: &World, id: &str) -> Vec<String> {
    let (view, unit) = (world.view(), unit(id));
    let found = view.get(&UnitKey::new(&unit)).unwrap().unwrap();
    substitutes(&view, &unit, &found).unwrap()
}

fn hold(world: &World, wish: &Reserve, node: &Proc) {
    world.must(|view| packages::present(view, &report(&wish.unit, &wish.op, node), 3));
}

/// A package whose files are listed first: nobody fetches, nothing is READY, nobody takes it over until they are there.
#[test]
fn what_is_being_uploaded_is_nobodys_to_fetch() {
    let world = World::default();
    let (a, b) = (world.server("a"), world.server("b"));
    let wish = Reserve { uploading: true, targets: Targets::Live, ..reserve("p:1", "x", &a) };
    world.must(|view| packages::reserve(view, &wish));
    for node in [&a, &b] {
        let report = report(&wish.unit, &wish.op, node);
        assert_eq!(world.refused(|view| packages::present(view, &report, 3)).class, Class::NotYet);
        assert_eq!(world.refused(|view| packages::fetching(view, &report, 0)).class, Class::NotYet);
    }
    assert_eq!(world.refused(|view| packages::ready(view, &wish.unit, "op-x", 1)).class, Class::WrongState);

    let (digest, manifest) = content("x");
    let announce = |view: &_| packages::announce(view, &wish.unit, "op-x", 1, &digest, &manifest);
    let (other, list) = content("y");
    let changed = world.refused(|view| packages::announce(view, &wish.unit, "op-x", 1, &other, &list));
    assert_eq!(changed.class, Class::Fenced, "what was listed is what comes");
    world.must(announce);
    world.must(announce);
    hold(&world, &wish, &a);
    hold(&world, &wish, &b);
    world.must(|view| packages::ready(view, &wish.unit, "op-x", 1));
    assert_eq!(world.view().get(&UnitKey::new(&wish.unit)).unwrap().unwrap().state, UnitState::Ready);
}

#[test]
fn a_lost_copy_is_made_good_by_as_many_nodes_as_lack() {
    let world = World::default();
    let nodes: Vec<Proc> = ["a", "b", "c", "d"].iter().map(|name| world.server(name)).collect();
    let wish =
        Reserve { targets: Targets::Some(2), policy: Policy::Copies(2), ..reserve("p:1", "x", &nodes[0]) };
    world.must(|view| packages::reserve(view, &wish));
    assert!(who(&world, "p:1").is_empty(), "targets see to a create");
    hold(&world, &wish, &nodes[0]);
    hold(&world, &wish, &nodes[1]);
    world.must(|view| packages::ready(view, &wish.unit, &wish.op, 1));
    assert!(who(&world, "p:1").is_empty());

    // A node that is away counts until its row goes.
    world.kill(&nodes[1]);
    assert!(who(&world, "p:1").is_empty());
    world.must(|view| packages::dead_copy(view, &wish.unit, "b"));
    let first = who(&world, "p:1");
    assert!(first == ["c"] || first == ["d"], "{first:?}");
    // One that cannot is passed over, one that does is enough.
    let (chosen, other) = if first == ["c"] { (&nodes[2], &nodes[3]) } else { (&nodes[3], &nodes[2]) };
    world.must(|view| packages::failed(view, &report(&wish.unit, &wish.op, chosen), "disk full"));
    assert_eq!(who(&world, "p:1"), std::slice::from_ref(&other.me.node));
    world.must(|view| packages::fetching(view, &report(&wish.unit, &wish.op, other), 0));
    assert!(who(&world, "p:1").is_empty());

    // When nobody has it there is nobody to ask; a package that is removed is not spread.
    world.must(|view| packages::failed(view, &report(&wish.unit, &wish.op, other), "no source"));
    world.kill(&nodes[0]);
    world.must(|view| packages::dead_copy(view, &wish.unit, "a"));
    assert!(who(&world, "p:1").is_empty());
}

#[test]
fn different_packages_go_to_different_nodes() {
    let world = World::default();
    let nodes: Vec<Proc> = ["a", "b", "c", "d", "e"].iter().map(|name| world.server(name)).collect();
    let mut chosen = std::collections::BTreeSet::new();
    for number in 0..20 {
        let wish = Reserve {
            targets: Targets::Some(2),
            policy: Policy::Copies(2),
            ..reserve(&format!("p:{number}"), &format!("x{number}"), &nodes[0])
        };
        world.must(|view| packages::reserve(view, &wish));
        let targets = world.view().get(&UnitKey::new(&wish.unit)).unwrap().unwrap().targets.clone();
        for node in nodes.iter().filter(|node| targets.contains(&node.me.node)) {
            hold(&world, &wish, node);
        }
        world.must(|view| packages::ready(view, &wish.unit, &wish.op, 1));
    }
    world.kill(&nodes[1]);
    for number in 0..20 {
        world.must(|view| packages::dead_copy(view, &unit(&format!("p:{number}")), "b"));
        chosen.extend(who(&world, &format!("p:{number}")));
    }
    assert_eq!(chosen.into_iter().collect::<Vec<_>>(), ["c", "d", "e"]);
}
