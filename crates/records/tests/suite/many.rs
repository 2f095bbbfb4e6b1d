//! Very many of something: no transaction grows with them beyond what the store takes.

use meta_client::TypedKey;
use records::jobs;
use records::keys::{JobKey, ManifestKey};
use records::packages::{collect_manifest, manifest_scope};
use records::record::{Placed, Role};
use records::{Class, Failure, Plan, Scope, Steps, View, carry_out};

use crate::world::{World, admit_wish, content, drive_wish, job};

/// More than a transaction may have operations.
const MANY: u32 = 150;

#[tokio::test]
async fn a_node_claims_as_many_jobs_as_it_has_slots() {
    let world = World::default();
    let node = world.start("n1", &[Role::Jobmaster], MANY);
    let dispatcher = world.dispatcher("d1");
    let program = world.package("p:1", &node, "x");
    let place = |number| {
        world.admit(&admit_wish(&format!("t{number}"), number, &program, &dispatcher));
        world.must(|view| jobs::drive(view, &drive_wish(&job(number))))
    };
    let (me, lease) = (&node.me, node.lease);
    for number in 1..=u128::from(MANY) {
        let (id, placed) = (job(number), place(number));
        assert_eq!(placed, jobs::Driven::Placed(me.clone()));
        let claimed =
            carry_out(&world.kv, &Scope::claim(&id), |view| jobs::claim(view, &id, me, lease)).await;
        assert!(claimed.unwrap().wrote, "job {number}");
    }
    // Not one more, placed by a dispatcher that had not seen them all.
    let id = job(0);
    world.admit(&admit_wish("t0", 0, &program, &dispatcher));
    let waits = world.must(|view| jobs::drive(view, &drive_wish(&id)));
    assert!(matches!(waits, jobs::Driven::Waiting(_)), "{waits:?}");
    let mut record = world.view().get(&JobKey::new(&id)).unwrap().unwrap().value;
    record.placed = Some(Placed { node: me.node.clone(), incarnation: me.incarnation, at_ms: 0 });
    put(&world, &JobKey::new(&id), &record);
    let late = carry_out(&world.kv, &Scope::claim(&id), |view| jobs::claim(view, &id, me, lease)).await;
    assert!(matches!(late, Err(Failure::Refused(refusal)) if refusal.class == Class::NotYet));
}

#[tokio::test]
async fn a_manifest_is_collected_however_many_held_it() {
    let world = World::default();
    let (digest, mut manifest) = content("x");
    manifest.holders = (0..2 * MANY).map(|number| format!("gone:{number}")).collect();
    let key = ManifestKey { digest };
    put(&world, &key, &manifest);
    for round in 1.. {
        let view = View::load(&world.kv, Scope::default().and_manifest(&key.digest)).await.unwrap();
        if view.get(&key).unwrap().is_none() {
            return;
        }
        assert!(round < 10, "it does not become less");
        let scope = manifest_scope(&view, &key.digest).unwrap();
        carry_out(&world.kv, &scope, |view| collect_manifest(view, &key.digest)).await.unwrap();
    }
}

/// As somebody else left it.
fn put<K: TypedKey>(world: &World, key: &K, record: &K::Value) {
    let plan: Plan<()> = Steps::new().put(key, record).answer(());
    world.kv.apply_txn(plan.txn()).unwrap();
}
