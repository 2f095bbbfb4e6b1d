//! What every client of the workload has: its own door to the store, its own chance, the stage, the tally.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use meta_client::Kv;
use meta_types::Revision;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::watch;

use crate::history::{Clock, Recorder, RecordingKv};

/// How far the workload is. It only moves on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Everything happens, processes of the domain die.
    Storm,
    /// Clients of the store go on; in the domain nobody dies any more, nothing new is asked for, and what is in
    /// progress comes to an end.
    Calm,
    /// Everybody stops at once; a call under way stays without an answer.
    Over,
}

/// Opens the store for a client, by the client's number: where a simulation decides which replicas it talks to.
pub type Connect = Arc<dyn Fn(u64) -> Arc<dyn Kv> + Send + Sync>;

/// What happened how often, by name.
#[derive(Debug, Clone, Default)]
pub struct Tally(Arc<Mutex<BTreeMap<&'static str, u64>>>);

impl Tally {
    /// It happened once more.
    pub fn count(&self, what: &'static str) {
        *self.0.lock().entry(what).or_default() += 1;
    }

    /// All of it.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().clone()
    }

    /// How often one thing happened.
    pub fn of(&self, what: &str) -> u64 {
        self.0.lock().get(what).copied().unwrap_or(0)
    }
}

/// What all clients share.
#[derive(Clone)]
pub struct Env {
    connect: Connect,
    /// Where histories go.
    pub recorder: Recorder,
    /// The time of histories.
    pub clock: Clock,
    /// What happened how often.
    pub tally: Tally,
    stage: watch::Receiver<Stage>,
    /// The newest revision that any client heard of.
    newest: Arc<AtomicI64>,
    seed: u64,
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env").field("seed", &self.seed).field("stage", &self.stage()).finish_non_exhaustive()
    }
}

impl Env {
    /// An environment for the workload of one seed.
    pub fn new(
        connect: Connect,
        recorder: Recorder,
        clock: Clock,
        stage: watch::Receiver<Stage>,
        seed: u64,
    ) -> Self {
        let tally = Tally::default();
        Self { connect, recorder, clock, tally, stage, newest: Arc::default(), seed }
    }

    /// The stage now.
    pub fn stage(&self) -> Stage {
        *self.stage.borrow()
    }

    /// True while everything is allowed to happen.
    pub fn is_storm(&self) -> bool {
        self.stage() == Stage::Storm
    }

    /// Waits for a stage, or a later one. If nobody moves the stage any more, everything is over.
    pub async fn reached(&self, stage: Stage) {
        // An error means the same: the sender is gone.
        let _ = self.stage.clone().wait_for(|now| *now >= stage).await;
    }

    /// Runs `work` until it ends or everything is over.
    pub async fn until_over(&self, work: impl Future<Output = ()>) {
        tokio::select! {
            biased;
            () = self.reached(Stage::Over) => {}
            () = work => {}
        }
    }

    /// The newest revision that any client heard of.
    pub fn newest(&self) -> Revision {
        self.newest.load(Ordering::Relaxed).max(1)
    }

    /// A client heard of a revision.
    pub fn heard_of(&self, revision: Revision) {
        self.newest.fetch_max(revision, Ordering::Relaxed);
    }

    /// Chance of its own for `who`: what one client draws does not depend on when others draw.
    pub fn chance(&self, who: u64) -> Chance {
        // Any mixing will do that keeps neighbours apart.
        let mixed = (self.seed ^ who.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Chance::new(mixed ^ (mixed >> 31))
    }

    /// A client: the store through a recording door, and chance of its own.
    pub fn client(&self, id: u64) -> Client {
        Client { id, kv: Arc::new(self.door(id)), chance: self.chance(id), env: self.clone() }
    }

    /// The store as client `id`.
    pub fn door(&self, id: u64) -> RecordingKv {
        RecordingKv::new((self.connect)(id), self.recorder.clone(), self.clock, id)
    }
}

/// Chance out of the seed.
#[derive(Debug, Clone)]
pub struct Chance(StdRng);

impl Chance {
    /// Chance from a seed.
    pub fn new(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    /// A number below `bound`; 0 for 0.
    pub fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { self.0.random_range(0..bound) }
    }

    /// True once in so many.
    pub fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len()))
    }

    /// A time between the two.
    pub fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let span = most.saturating_sub(least).as_micros() as u64;
        least + Duration::from_micros(if span == 0 { 0 } else { self.0.random_range(0..=span) })
    }

    /// 128 bits.
    pub fn bits(&mut self) -> u128 {
        self.0.random()
    }
}

/// One client.
pub struct Client {
    /// Its number in the history.
    pub id: u64,
    /// The store, recorded.
    pub kv: Arc<RecordingKv>,
    /// Its chance.
    pub chance: Chance,
    /// What it shares with the others.
    pub env: Env,
}

impl Client {
    /// Waits about `mean`.
    pub async fn pause(&mut self, mean: Duration) {
        let pause = self.chance.between(mean / 4, mean * 7 / 4);
        tokio::time::sleep(pause).await;
    }

    /// Waits between the two.
    pub async fn sleep(&mut self, least: Duration, most: Duration) {
        let pause = self.chance.between(least, most);
        tokio::time::sleep(pause).await;
    }

    /// Counts.
    pub fn count(&self, what: &'static str) {
        self.env.tally.count(what);
    }
}
