//! A crash at every numbered step of every operation on packages, before and after the store's write, times
//! {coordinator, target, the store's leader}: afterwards the package is READY everywhere or undone everywhere, nothing
//! of it is left in the store or on a disk, and the client's next try goes through.
//!
//! A failing point is named; `CRASH_POINT=TEXT` runs those alone that are printed with this text.
//!
//! What lies between two steps on one node is its disk's; `icp_store` has crash tests after each of those.

#[path = "../common/mod.rs"]
mod common;
mod scene;
mod trap;

use futures_util::StreamExt;
use futures_util::stream::iter;
use tokio::time::timeout;

use scene::Operation::{
    self, Create, CreateListed, OnDemand, Register, RegisterUnequal, Remove, RemoveByForce, RemovePinned,
};
use scene::Who::{self, First, Leader, Second};
use scene::{BOUND, Party, Scene, post};
use trap::Step::{
    self, Abort, Adopted, Announce, Draining, Dropped, Fetching, Inspected, Present, Ready, Reserve,
};
use trap::When::{self, After, Before};
use trap::{Fate, Trap};

use Outcome::{Either, Everywhere, Undone};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Everywhere,
    Undone,
    /// The coordinator may have seen the step before it died.
    Either,
}

/// Operation; whose step; which; on which side of it; who dies; what must become of the package.
type Point = (Operation, Who, Step, When, Who, Outcome);

/// The outcome of a step's two sides, for each who may die at it.
const fn both(of: Operation, at: Who, step: Step, dies: Who, outcomes: [Outcome; 2]) -> [Point; 2] {
    [(of, at, step, Before, dies, outcomes[0]), (of, at, step, After, dies, outcomes[1])]
}

fn points() -> Vec<Point> {
    let (ready, undone) = ([Everywhere; 2], [Undone; 2]);
    let rows = [
        // The coordinator's steps, and it dies: until a node has the bytes there is nobody to go on.
        both(Create, First, Reserve, First, undone),
        both(Create, First, Announce, First, undone),
        both(Create, First, Ready, First, ready),
        both(Create, First, Reserve, Leader, ready),
        both(Create, First, Announce, Leader, ready),
        both(Create, First, Present, Leader, ready),
        both(Create, First, Ready, Leader, ready),
        both(Create, First, Announce, Second, ready),
        both(Create, First, Ready, Second, ready),
        // The target's.
        both(Create, Second, Fetching, First, undone),
        both(Create, Second, Present, First, ready),
        both(Create, Second, Fetching, Second, ready),
        both(Create, Second, Present, Second, ready),
        both(Create, Second, Fetching, Leader, ready),
        both(Create, Second, Present, Leader, ready),
        // The same with the list of the files first. What was sent to a coordinator is lost with it.
        both(CreateListed, First, Reserve, First, undone),
        both(CreateListed, First, Announce, First, undone),
        both(CreateListed, First, Ready, First, ready),
        both(CreateListed, First, Reserve, Leader, ready),
        both(CreateListed, First, Announce, Leader, ready),
        both(CreateListed, First, Ready, Leader, ready),
        both(CreateListed, First, Reserve, Second, ready),
        both(CreateListed, First, Announce, Second, ready),
        both(CreateListed, Second, Fetching, First, undone),
        both(CreateListed, Second, Present, First, ready),
        both(CreateListed, Second, Fetching, Second, ready),
        both(CreateListed, Second, Present, Second, ready),
        both(CreateListed, Second, Present, Leader, ready),
        // Nobody goes on with a register but its coordinator; what it made READY stays.
        both(Register, First, Reserve, First, undone),
        both(Register, First, Inspected, First, undone),
        both(Register, First, Announce, First, undone),
        both(Register, First, Adopted, First, [Undone, Either]),
        both(Register, First, Ready, First, [Undone, Everywhere]),
        both(Register, Second, Inspected, First, undone),
        both(Register, Second, Adopted, First, [Undone, Either]),
        both(Register, Second, Inspected, Second, ready),
        both(Register, Second, Adopted, Second, ready),
        both(Register, First, Ready, Second, ready),
        both(Register, First, Reserve, Leader, ready),
        both(Register, First, Inspected, Leader, ready),
        both(Register, First, Announce, Leader, ready),
        both(Register, First, Adopted, Leader, ready),
        both(Register, First, Ready, Leader, ready),
        both(Register, Second, Inspected, Leader, ready),
        both(Register, Second, Adopted, Leader, ready),
        both(RegisterUnequal, First, Abort, First, undone),
        both(RegisterUnequal, First, Abort, Second, undone),
        both(RegisterUnequal, First, Abort, Leader, undone),
        both(RegisterUnequal, Second, Dropped, Second, undone),
        both(RegisterUnequal, Second, Dropped, Leader, undone),
        // A removal has no coordinator: each node does its part, whoever else is gone.
        both(Remove, First, Dropped, First, undone),
        both(Remove, Second, Dropped, First, undone),
        both(Remove, Second, Dropped, Leader, undone),
        both(RemovePinned, First, Draining, First, undone),
        both(RemovePinned, Second, Draining, First, undone),
        both(RemovePinned, Second, Draining, Leader, undone),
        both(RemoveByForce, First, Dropped, First, undone),
        both(RemoveByForce, Second, Dropped, First, undone),
        both(RemoveByForce, Second, Dropped, Leader, undone),
        // The source dies, the target dies, the leader dies.
        both(OnDemand, Second, Fetching, First, ready),
        both(OnDemand, Second, Present, First, ready),
        both(OnDemand, Second, Fetching, Second, ready),
        both(OnDemand, Second, Present, Second, ready),
        both(OnDemand, Second, Fetching, Leader, ready),
        both(OnDemand, Second, Present, Leader, ready),
    ];
    rows.concat()
}

/// Whoever comes to the step is stopped there, and dies or loses the store.
async fn stop_at(scene: &mut Scene, point: Point) -> Result<(), String> {
    let (operation, at, step, when, dies, _) = point;
    let fate = if dies == Leader { Fate::Unanswered } else { Fate::Held };
    let kv = scene.party(at).kv.clone();
    kv.set(Trap { step, when, fate });
    scene.ask(operation).await;
    timeout(BOUND, kv.sprung()).await.map_err(|_| format!("{point:?} was not reached"))?;
    match dies {
        First => scene.first.kill(&scene.cluster),
        Second => scene.second.kill(&scene.cluster),
        Leader => {}
    }
    kv.go_on();
    scene.unpin().await;
    Ok(())
}

async fn crash(point: Point) -> Result<(), String> {
    let (operation, _, _, when, dies, outcome) = point;
    let mut scene = Scene::new(operation).await;
    stop_at(&mut scene, point).await?;
    let undo = outcome != Everywhere;
    // The survivors come to an end of it first, or the dead one comes back at once: each half of the points.
    if when == After && operation != OnDemand {
        scene.until(&format!("over after {point:?}"), undo, async || scene.is_settled().await).await?;
    }
    match dies {
        First => scene.first = Party::start(&scene.cluster, "a").await,
        Second => scene.second = Party::start(&scene.cluster, "b").await,
        Leader => {}
    }
    if operation == OnDemand && dies != Leader {
        drop(tokio::spawn(post(scene.second.node.url("/packages/app/1.0.0/pull"))));
    }
    let is = async || match outcome {
        Everywhere => scene.is_everywhere().await,
        Undone => scene.is_nowhere(operation).await,
        Either => scene.is_everywhere().await || scene.is_nowhere(operation).await,
    };
    scene.until(&format!("{outcome:?} after {point:?}"), undo, is).await?;
    if outcome == Undone && operation != RegisterUnequal && operation != Register {
        scene.create_again().await.map_err(|why| format!("{why} after {point:?}"))?;
        let is = async || scene.is_everywhere().await;
        scene.until(&format!("READY by the next try after {point:?}"), undo, is).await?;
    }
    let wrong = records::invariants(&scene.cluster.kv.snapshot().into());
    if wrong.is_empty() { Ok(()) } else { Err(format!("{point:?}: {wrong:#?}")) }
}

/// Scenes at a time: they wait more than they work.
const AT_ONCE: usize = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_crash_ends_ready_everywhere_or_undone_everywhere() {
    let only = std::env::var("CRASH_POINT").unwrap_or_default();
    let points: Vec<Point> =
        points().into_iter().filter(|point| format!("{point:?}").contains(&only)).collect();
    println!("{} points", points.len());
    let ended = iter(points.clone()).map(crash).buffer_unordered(AT_ONCE).collect::<Vec<_>>().await;
    let wrong: Vec<String> = ended.into_iter().filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), points.len(), wrong.join("\n\n"));
}
