//! A crash at every numbered step of every operation on packages, before and after the store's write, times
//! {coordinator, target, the store's leader}: afterwards the package is READY everywhere or undone everywhere, nothing
//! of it is left in the store or on a disk, and the client's next try goes through.
//!
//! A failing point is named; `CRASH_POINT=TEXT` runs those alone that are printed with this text.
//!
//! What lies between two steps on one node is its disk's; `icp_store` has crash tests after each of those.

mod client;
#[path = "../common/mod.rs"]
mod common;
mod judge;
mod points;
mod scene;
mod trap;

use futures_util::StreamExt;
use futures_util::stream::iter;
use tokio::time::timeout;

use judge::BOUND;
use points::Operation::{OnDemand, Register, RegisterUnequal};
use points::Outcome::{Either, Everywhere, Undone};
use points::Point;
use points::Who::{First, Leader, Second};
use scene::{Party, Scene};
use trap::When::After;
use trap::{Fate, Trap};

/// Whoever comes to the step is stopped there, and dies or loses the store.
async fn stop_at(scene: &mut Scene, point: Point) -> Result<(), String> {
    let (operation, at, step, when, dies, _) = point;
    let fate = if dies == Leader { Fate::Unanswered { away: AWAY } } else { Fate::Held };
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
        scene.until(&format!("over after {point:?}"), undo, || scene.is_settled()).await?;
    }
    match dies {
        First => scene.first = Party::start(&scene.cluster, "a").await,
        Second => scene.second = Party::start(&scene.cluster, "b").await,
        Leader => {}
    }
    if operation == OnDemand && dies != Leader {
        scene.pull();
    }
    let is = || match outcome {
        Everywhere => scene.is_everywhere(),
        Undone => scene.is_nowhere(operation),
        Either => scene.is_everywhere() || scene.is_nowhere(operation),
    };
    scene.until(&format!("{outcome:?} after {point:?}"), undo, is).await?;
    if outcome == Undone && operation != RegisterUnequal && operation != Register {
        scene.create_again().await.map_err(|why| format!("{why} after {point:?}"))?;
        let is = || scene.is_everywhere();
        scene.until(&format!("READY by the next try after {point:?}"), undo, is).await?;
    }
    let wrong = records::invariants(&scene.cluster.kv.snapshot().into());
    if wrong.is_empty() { Ok(()) } else { Err(format!("{point:?}: {wrong:#?}")) }
}

/// Calls that do not get through after the leader died.
const AWAY: u32 = 3;
/// Scenes at a time: they wait more than they work.
const AT_ONCE: usize = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_crash_ends_ready_everywhere_or_undone_everywhere() {
    let points = points::chosen();
    println!("{} points", points.len());
    let ended = iter(points.clone()).map(crash).buffer_unordered(AT_ONCE).collect::<Vec<_>>().await;
    let wrong: Vec<String> = ended.into_iter().filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), points.len(), wrong.join("\n\n"));
}
