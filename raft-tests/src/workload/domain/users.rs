//! Users of the domain: they POST runs to two dispatchers at once, ask, delete, cancel; they create packages and
//! remove them, safely or by force; and one only looks whether what the records say of packages is on the disks.

use std::time::Duration;

use meta_client::TypedKey;
use records::keys::{CopyKey, JobOwnerKey, NodeDrainKey, NodeKey, UnitKey};
use records::nodes;
use records::packages::{self, Remove, Targets};
use records::record::{CopyState, NodeRef, PackageRef, Policy, UnitState};
use records::{Scope, TriggerId, UnitId, View};

use super::coordinator::{ContentKnown, Create};
use super::dispatcher::{self, Post};
use super::process::Session;
use super::truth::{DispatcherDoor, Truth};
use crate::history::{Answer, CopyOnNode, PackageSeen, RunInput, RunOperation, RunOutcome};
use crate::workload::env::{Client, Stage};

/// Packages there are: few, so that operations meet.
const UNITS: [(&str, &str); 3] = [("app", "1"), ("app", "2"), ("lib", "1")];
/// Runs that users turn to: the newest ones.
const RECENT: usize = 5;

fn unit_of(at: usize) -> UnitId {
    let (name, version) = UNITS[at % UNITS.len()];
    UnitId::new(name, version).expect("a good name and version")
}

/// A user of runs.
pub struct RunUser {
    client: Client,
    truth: Truth,
    pause: Duration,
}

/// What a request is about.
enum Ask {
    Post(Post),
    Get,
    Delete,
}

impl RunUser {
    /// A user that has not begun.
    pub fn new(client: Client, truth: Truth, pause: Duration) -> Self {
        Self { client, truth, pause }
    }

    /// Asks until everything is over; in the calm only for what became of the runs.
    pub async fn run(mut self) {
        let env = self.client.env.clone();
        env.until_over(async {
            let mut made = 0;
            loop {
                self.client.pause(self.pause).await;
                if env.is_storm() {
                    self.step(&mut made).await;
                } else {
                    self.end_drains().await;
                    let trigger = trigger_of(self.client.chance.below(made + RECENT));
                    self.ask(&trigger, || Ask::Get, 0).await;
                }
            }
        })
        .await;
    }

    async fn step(&mut self, made: &mut usize) {
        if self.client.chance.one_in(3) {
            *made += 1;
        }
        // Users count on their own, so they meet at the same runs and at new ones.
        let trigger = trigger_of(*made + self.client.chance.below(RECENT));
        match self.client.chance.below(13) {
            0..6 => self.post(&trigger).await,
            6..9 => self.ask(&trigger, || Ask::Get, 0).await,
            9..11 => self.ask(&trigger, || Ask::Delete, 0).await,
            11 => self.cancel().await,
            _ => self.drain().await,
        }
    }

    /// Ends a drain if there is one, otherwise drains a node that runs something.
    async fn drain(&mut self) {
        let Ok(view) = View::load(&*self.client.kv, Scope::jobs()).await else { return };
        let drained: Vec<NodeDrainKey> = view.keys().unwrap_or_default();
        if let Some(NodeDrainKey { node }) = self.client.chance.pick(&drained) {
            self.operator().act("drain ended", &view, nodes::cancel_drain(&view, node)).await;
            return;
        }
        let owned = view.all::<JobOwnerKey>().unwrap_or_default();
        if let Some((_, owner)) = self.client.chance.pick(&owned) {
            self.operator().act("node drained", &view, nodes::drain(&view, &owner.node, 0)).await;
        }
    }

    /// In the calm nobody drains: what waits for a node gets one.
    async fn end_drains(&self) {
        let Ok(view) = View::load(&*self.client.kv, Scope::nodes()).await else { return };
        for NodeDrainKey { node } in view.keys().unwrap_or_default() {
            self.operator().act("drain ended", &view, nodes::cancel_drain(&view, &node)).await;
        }
    }

    fn operator(&self) -> Session {
        Session::of(&self.client, NodeRef { node: "user".into(), incarnation: 0 }, 0)
    }

    /// The same trigger to two dispatchers at once, mostly the same request; again if an answer is lost.
    async fn post(&mut self, trigger: &TriggerId) {
        let program = unit_of(self.client.chance.below(UNITS.len()));
        let mut fingerprint = format!("f{}", trigger.as_str());
        if self.client.chance.one_in(6) {
            fingerprint.push_str("-other");
        }
        let wish =
            || Post { trigger: trigger.clone(), fingerprint: fingerprint.clone(), program: program.clone() };
        let at_once = 1 + self.client.chance.below(2);
        self.ask(trigger, || Ask::Post(wish()), at_once - 1).await;
    }

    /// Asks a dispatcher, and `others` more at the same time.
    async fn ask(&mut self, trigger: &TriggerId, wish: impl Fn() -> Ask, others: usize) {
        let Some((one, other)) = self.truth.two_dispatchers(&mut self.client.chance) else { return };
        if others == 0 {
            self.ask_one(&one, trigger, wish()).await;
            return;
        }
        let second = Self {
            client: Client {
                id: self.client.id,
                kv: self.client.kv.clone(),
                chance: self.client.env.chance(self.client.chance.bits() as u64),
                env: self.client.env.clone(),
            },
            truth: self.truth.clone(),
            pause: self.pause,
        };
        let mut second = second;
        tokio::join!(
            Box::pin(self.ask_one(&one, trigger, wish())),
            Box::pin(second.ask_one(&other, trigger, wish())),
        );
    }

    /// One request; a dispatcher that dies meanwhile leaves its user without an answer.
    async fn ask_one(&mut self, door: &DispatcherDoor, trigger: &TriggerId, ask: Ask) {
        let call = self.client.env.clock.called();
        let input = match &ask {
            Ask::Post(post) => RunInput::Post { fingerprint: post.fingerprint.clone() },
            Ask::Get => RunInput::Get,
            Ask::Delete => RunInput::Delete,
        };
        let mut lives = door.lives.clone();
        let chance = &mut self.client.chance;
        let answered = async {
            match &ask {
                Ask::Post(post) => dispatcher::post(&door.session, chance, post).await,
                Ask::Get => dispatcher::get(&door.session, trigger).await,
                Ask::Delete => dispatcher::delete(&door.session, trigger).await,
            }
        };
        let outcome = tokio::select! {
            biased;
            _ = lives.changed() => RunOutcome::Unknown,
            outcome = answered => outcome,
        };
        self.client.count(match (&input, &outcome) {
            (RunInput::Post { .. }, RunOutcome::Unknown) => "run POST unanswered",
            (RunInput::Post { .. }, RunOutcome::Ok(Answer::OtherRequest)) => "run POST of another request",
            (RunInput::Post { .. }, RunOutcome::Ok(Answer::WasDeleted)) => "run POST after DELETE",
            (RunInput::Post { .. }, _) => "run POST",
            (RunInput::Get, RunOutcome::Ok(Answer::Completed { .. })) => "run seen completed",
            (RunInput::Get, _) => "run GET",
            (RunInput::Delete, _) => "run DELETE",
        });
        let unknown = outcome == RunOutcome::Unknown;
        let ret = (!unknown).then(|| self.client.env.clock.now());
        let (client, trigger) = (self.client.id, trigger.to_string());
        self.client.env.recorder.run(RunOperation { client, call, ret, trigger, input, outcome });
    }

    async fn cancel(&mut self) {
        let Some((one, _)) = self.truth.two_dispatchers(&mut self.client.chance) else { return };
        let Ok(view) = View::load(&*self.client.kv, Scope::jobs()).await else { return };
        let owned = view.all::<JobOwnerKey>().unwrap_or_default();
        if let Some((key, _)) = self.client.chance.pick(&owned) {
            dispatcher::cancel(&one.session, &key.job).await;
        }
    }
}

fn trigger_of(number: usize) -> TriggerId {
    format!("t{number}").parse().expect("a good trigger")
}

/// Creates packages, and removes them.
pub async fn deploy(mut client: Client, truth: Truth, pause: Duration) {
    let env = client.env.clone();
    env.until_over(async {
        loop {
            client.pause(pause).await;
            if !env.is_storm() {
                return env.reached(Stage::Over).await;
            }
            let Ok(view) = View::load(&*client.kv, Scope::packages()).await else { continue };
            let missing = (0..UNITS.len()).map(unit_of).find(|unit| is_missing(&view, unit));
            let any = unit_of(client.chance.below(UNITS.len()));
            let unit = missing.filter(|_| client.chance.one_in(2)).unwrap_or(any);
            if let Some(paused) = truth.paused().filter(|_| client.chance.one_in(2)) {
                remove(&client, &view, paused, true).await;
                continue;
            }
            match view.get(&UnitKey::new(&unit)).ok().flatten().map(|found| found.state) {
                None => create(&mut client, &truth, unit),
                Some(UnitState::Creating) if client.chance.one_in(8) => {
                    remove(&client, &view, unit, true).await;
                }
                Some(UnitState::Ready) if client.chance.one_in(16) => {
                    let forced = client.chance.one_in(3);
                    remove(&client, &view, unit, forced).await;
                }
                Some(UnitState::Ready) if client.chance.one_in(8) => create(&mut client, &truth, unit),
                _ => {}
            }
        }
    })
    .await;
}

fn is_missing(view: &View, unit: &UnitId) -> bool {
    matches!(view.get(&UnitKey::new(unit)), Ok(None))
}

fn create(client: &mut Client, truth: &Truth, unit: UnitId) {
    let chance = &mut client.chance;
    let op = format!("{:032x}", chance.bits());
    let targets = [Targets::Live, Targets::Some(2), Targets::Some(1)][chance.below(3)].clone();
    let known = [ContentKnown::Reserved, ContentKnown::Listed, ContentKnown::Received, ContentKnown::Laid];
    let content_known = known[chance.below(known.len())];
    let content = format!("c{}", chance.below(2));
    if content_known == ContentKnown::Laid {
        let unequal = [None, None, Some(Some("digest-other")), Some(None)][chance.below(4)];
        truth.lay(&unit, &format!("digest-{content}"), unequal);
    }
    let create = Create {
        unit,
        content,
        content_known,
        targets,
        policy: [Policy::All, Policy::Majority, Policy::Copies(1)][chance.below(3)],
        request: chance.one_in(2).then(|| format!("r{op}")),
        op,
    };
    if truth.create(chance, create) {
        client.count("package create asked");
    }
}

async fn remove(client: &Client, view: &View, unit: UnitId, forced: bool) {
    let nobody = NodeRef { node: "user".into(), incarnation: 0 };
    let session = Session::of(client, nobody, 0);
    let wish = Remove { unit, op: None, reason: "removed".into() };
    if forced {
        session.act("package removed by force", view, packages::force_remove(view, &wish)).await;
    } else {
        session.act("package removed", view, packages::remove(view, &wish)).await;
    }
}

/// Looks at packages and disks. Only what did not change between two looks counts: then the records and the disks in
/// between are of one moment.
pub async fn inspect(mut client: Client, truth: Truth, pause: Duration) {
    let env = client.env.clone();
    env.until_over(async {
        loop {
            client.pause(pause).await;
            let Ok(before) = View::load(&*client.kv, Scope::packages()).await else { continue };
            let disks: Vec<_> = before
                .all::<UnitKey>()
                .unwrap_or_default()
                .into_iter()
                .map(|(key, found)| (truth.holders(&key.unit, &found.op), env.clock.now(), key, found))
                .collect();
            let Ok(after) = View::load(&*client.kv, Scope::packages()).await else { continue };
            for (holders, at, key, found) in disks {
                let package = PackageRef { unit: key.unit.clone(), op: found.op.clone() };
                let rows = rows(&before, &package);
                let same = after.get(&key).ok().flatten().map(|now| now.mod_revision);
                if same != Some(found.mod_revision) || rows != self::rows(&after, &package) {
                    continue;
                }
                client.count("package seen");
                let mut copies: Vec<CopyOnNode> = Vec::new();
                for (node, present) in rows.into_iter().map(|(node, present, _)| (node, present)) {
                    copies.push(CopyOnNode { node, present, on_disk: None });
                }
                for (node, digest) in holders {
                    match copies.iter_mut().find(|copy| copy.node == node) {
                        Some(copy) => copy.on_disk = Some(digest),
                        None => copies.push(CopyOnNode { node, present: false, on_disk: Some(digest) }),
                    }
                }
                env.recorder.package(PackageSeen {
                    at,
                    unit: key.unit.to_string(),
                    ready: found.state == UnitState::Ready,
                    digest: found.manifest.clone(),
                    copies,
                });
            }
        }
    })
    .await;
}

/// The rows of a package: node, whether its current boot says PRESENT, revision.
fn rows(view: &View, package: &PackageRef) -> Vec<(String, bool, i64)> {
    let prefix = records::keys::below(CopyKey::PREFIX, &package.unit);
    let rows = view.under::<CopyKey>(&prefix).unwrap_or_default();
    rows.into_iter()
        .map(|(key, row)| {
            let boot = view.get(&NodeKey::new(&key.node)).ok().flatten().map(|node| node.create_revision);
            let present =
                row.state == CopyState::Present && row.op == package.op && boot == Some(row.incarnation);
            (key.node, present, row.mod_revision)
        })
        .collect()
}
