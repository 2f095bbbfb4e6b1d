//! A process of the domain: it registers under a lease, renews that, and dies, by the seed's plan or because it
//! could not renew. Whatever it does is one future, so a death takes everything with it in one moment.
//!
//! Like the real ones it trusts its lease only up to the last renewal that was answered, counted from when that was
//! sent: at that moment at the latest everything of it is dead.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use meta_client::{Commit, Kv, commit};
use meta_types::{LeaseId, Revision, Txn};
use records::nodes::{Register, register};
use records::record::{Node, NodeRef, Role};
use records::{Failure, Plan, Refusal, Scope, View, carry_out};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::history::RecordingKv;
use crate::workload::env::{Chance, Client, Env, Stage};

/// Time to live of a process.
const TTL: Duration = Duration::from_secs(3);
/// A lease is renewed so many times within it.
const RENEWALS: u32 = 5;
/// Pause after something that did not work at the store.
pub const RETRY: Duration = Duration::from_millis(150);
/// How long a process lives in a storm.
const LIFE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(16));
/// A process that is stopped between its look and its write goes on so many lives of its lease later, at most.
const FROZEN_LEASES: u32 = 3;
/// One of so many writes in a storm meets that.
const FROZEN_ONCE_IN: u64 = 60;
/// How long it is away then: sometimes back before its lease has run out.
const AWAY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// What a process is.
#[derive(Debug, Clone)]
pub struct Process {
    /// Its name.
    pub name: String,
    /// What it does.
    pub role: Role,
    /// Jobs it can run.
    pub slots: u32,
}

/// A boot of a process.
#[derive(Clone)]
pub struct Session {
    /// Name and incarnation.
    pub me: NodeRef,
    /// Its lease.
    pub lease: LeaseId,
    /// The store.
    pub kv: Arc<RecordingKv>,
    /// What it shares with everybody.
    pub env: Env,
    death: Arc<Notify>,
}

impl Process {
    /// Lives again and again, doing `work`, until everything is over.
    pub async fn run<F: Future<Output = ()>>(self, mut client: Client, work: impl Fn(Session) -> F) {
        let env = client.env.clone();
        env.until_over(async {
            loop {
                let (session, until) = self.boot(&mut client).await;
                let life = client.chance.between(LIFE.0, LIFE.1);
                let killed = async {
                    tokio::time::sleep(life).await;
                    if !env.is_storm() {
                        std::future::pending::<()>().await;
                    }
                };
                tokio::select! {
                    biased;
                    () = killed => env.tally.count("process killed"),
                    () = session.death.notified() => env.tally.count("process died in the middle"),
                    () = keep(&session, until) => env.tally.count("process lost its lease"),
                    () = work(session.clone()) => {}
                }
                let away = client.chance.between(AWAY.0, AWAY.1);
                tokio::select! {
                    biased;
                    () = env.reached(Stage::Calm) => client.pause(RETRY).await,
                    () = tokio::time::sleep(away) => {}
                }
            }
        })
        .await;
    }

    /// Registers; answers the session and until when its lease may be trusted.
    async fn boot(&self, client: &mut Client) -> (Session, Instant) {
        loop {
            let sent = Instant::now();
            let Ok(lease) = client.kv.lease_grant(0, TTL).await else {
                client.pause(RETRY).await;
                continue;
            };
            let wish = Register { name: self.name.clone(), node: self.node(client), lease: lease.id };
            match carry_out(&*client.kv, &Scope::nodes(), |view| register(view, &wish)).await {
                Ok(done) => {
                    client.count("process registered");
                    return (Session::of(client, done.answer, lease.id), sent + lease.ttl);
                }
                Err(Failure::Refused(_)) => client.count("process waits for its predecessor"),
                Err(_) => {}
            }
            // Not ours: the registration that may hang on it must go with it.
            let _ = client.kv.lease_revoke(lease.id).await;
            client.pause(RETRY * 2).await;
        }
    }

    fn node(&self, client: &mut Client) -> Node {
        Node {
            roles: vec![self.role],
            rest_address: None,
            node_address: None,
            slots: self.slots,
            version: String::new(),
            java: None,
            single_enable: None,
            boot: format!("{:032x}", client.chance.bits()),
            started_at_ms: 0,
            work_dir: None,
            stopping: false,
            extra: Default::default(),
        }
    }
}

/// Renews until the lease may not be trusted any more.
async fn keep(session: &Session, mut until: Instant) {
    let every = TTL / RENEWALS;
    loop {
        let next = Instant::now() + every;
        if next >= until {
            return tokio::time::sleep_until(until).await;
        }
        tokio::time::sleep_until(next).await;
        let sent = Instant::now();
        match tokio::time::timeout_at(until, session.kv.lease_keep_alive(session.lease)).await {
            Ok(Ok(Some(ttl))) => until = until.max(sent + ttl),
            // The store says that it is gone.
            Ok(Ok(None)) | Err(_) => return,
            Ok(Err(_)) => {}
        }
    }
}

impl Session {
    /// A session of a boot.
    pub fn of(client: &Client, me: NodeRef, lease: LeaseId) -> Self {
        let (kv, env) = (client.kv.clone(), client.env.clone());
        Self { me, lease, kv, env, death: Arc::default() }
    }

    /// In a storm the process dies here, once in so many times: in the middle of what it does is where it hurts.
    pub async fn may_die(&self, chance: &mut Chance, once_in: usize) {
        if chance.one_in(once_in) && self.env.is_storm() {
            self.death.notify_one();
            std::future::pending::<()>().await;
        }
    }

    /// In a storm the process is stopped here once in a while; for how long.
    fn freezes(&self, what: &str) -> Option<Duration> {
        // Chance that follows from what is done: the same in each run of a seed.
        let mut dice = DefaultHasher::new();
        (what, &self.me.node, self.env.newest()).hash(&mut dice);
        let dice = dice.finish();
        // Users, who have no lease, are no process of this host.
        let hit = dice.is_multiple_of(FROZEN_ONCE_IN) && self.env.is_storm() && self.lease != 0;
        hit.then(|| TTL + TTL * (dice / FROZEN_ONCE_IN % u64::from(FROZEN_LEASES)) as u32)
    }

    /// The process is stopped between its look and its write, for longer than its lease. What a guard watches is dead
    /// then, and a successor may be there; thawed, it writes before it learns of either. Never returns.
    async fn freeze(&self, length: Duration, txn: &Txn, looked_at: Revision) {
        self.env.tally.count("process frozen");
        let (this, txn) = (self.clone(), txn.clone());
        tokio::spawn(async move {
            let env = this.env.clone();
            env.until_over(async {
                tokio::time::sleep(length).await;
                match commit(&*this.kv, &txn, looked_at).await {
                    Ok(Commit::Done(_)) => this.env.tally.count("thawed process wrote"),
                    Ok(Commit::Conflict) => this.env.tally.count("thawed process was refused"),
                    Err(_) => {}
                }
            })
            .await;
        });
        self.death.notify_one();
        std::future::pending::<()>().await;
    }

    /// Looks at a part of the store, until it can be read.
    pub async fn see(&self, scope: Scope) -> View {
        loop {
            match View::load(&*self.kv, scope.clone()).await {
                Ok(view) => return view,
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        }
    }

    /// Commits a plan that was made on `view`, however old that is by now. The answer if it took place.
    pub async fn act<T>(&self, what: &'static str, view: &View, plan: Result<Plan<T>, Refusal>) -> Option<T> {
        let plan = plan.ok()?;
        if plan.is_empty() {
            return Some(plan.answer(view.revision()));
        }
        if let Some(length) = self.freezes(what) {
            self.freeze(length, plan.txn(), view.revision()).await;
        }
        match commit(&*self.kv, plan.txn(), view.revision()).await {
            Ok(Commit::Done(revision)) => {
                self.env.tally.count(what);
                Some(plan.answer(revision))
            }
            Ok(Commit::Conflict) => {
                self.env.tally.count("plan met a conflict");
                None
            }
            Err(_) => None,
        }
    }

    /// Loads, plans and commits until the store has decided. A refusal is an answer.
    pub async fn carry<T: Send>(
        &self,
        what: &'static str,
        scope: &Scope,
        planner: impl Fn(&View) -> Result<Plan<T>, Refusal> + Send + Sync,
    ) -> Result<T, Refusal> {
        if let Some(length) = self.freezes(what) {
            let view = self.see(scope.clone()).await;
            let plan = planner(&view)?;
            if !plan.is_empty() {
                self.freeze(length, plan.txn(), view.revision()).await;
            }
        }
        loop {
            match carry_out(&*self.kv, scope, &planner).await {
                Ok(done) => {
                    if done.wrote {
                        self.env.tally.count(what);
                    }
                    return Ok(done.answer);
                }
                Err(Failure::Refused(refusal)) => return Err(refusal),
                Err(Failure::Store(_) | Failure::Contended) => tokio::time::sleep(RETRY).await,
            }
        }
    }
}
