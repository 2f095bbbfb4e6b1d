//! What clients do meanwhile: the workload, through the real client over the simulated network, recorded; and on
//! each client's host a probe whose writes say whether the cluster serves.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use meta_client::{EtcdOptions, Kv};
use meta_types::PutRequest;
use records::{Scope, View};
use tokio::sync::watch;

use super::chance::Chance;
use super::net;
use super::plan::Plan;
use super::world::World;
use crate::history::{Clock, History, Recorder};
use crate::workload::{self, Connect, DomainOptions, Env, KvOptions, Options, Stage, Tally, Truth};

/// Numbers of clients on a host.
const CLIENTS_OF_A_HOST: u64 = 100_000;
/// Between two writes of a probe.
const PROBE_EVERY: Duration = Duration::from_millis(200);
/// A client may wait for an answer so long.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);

/// See the module.
pub struct Load {
    recorder: Recorder,
    stage: watch::Sender<Stage>,
    shared: Rc<Shared>,
}

#[derive(Default)]
struct Shared {
    running: Cell<u64>,
    /// When a probe's write was last acknowledged, by host.
    served: RefCell<Vec<Duration>>,
    /// What of the domain has not come to an end.
    unsettled: RefCell<Vec<String>>,
    truth: Truth,
    tally: RefCell<Vec<Tally>>,
}

/// One client's host.
struct Host {
    number: usize,
    seed: u64,
    replicas: Vec<String>,
    /// The step of the simulation: within one, hosts run in an order that their clocks do not tell.
    tick: Duration,
    options: Options,
    chance: Chance,
    recorder: Recorder,
    stages: watch::Receiver<Stage>,
    shared: Rc<Shared>,
}

impl Load {
    /// Clients begin as soon as time goes on.
    pub fn start(world: &mut World, plan: &Plan, clients: &[String], chance: &Chance) -> Self {
        let (stage, stages) = watch::channel(Stage::Storm);
        let load = Self { recorder: Recorder::default(), stage, shared: Rc::default() };
        load.shared.running.set(clients.len() as u64);
        load.shared.served.replace(vec![Duration::ZERO; clients.len()]);
        for (number, client) in clients.iter().enumerate() {
            let chance = chance.fork(client);
            let host = Host {
                number,
                seed: chance.below(u64::MAX),
                replicas: plan.setting.names.clone(),
                tick: plan.setting.tick,
                options: options(number, plan.domain),
                chance,
                recorder: load.recorder.clone(),
                stages: stages.clone(),
                shared: load.shared.clone(),
            };
            world.client(client, host.run());
        }
        load
    }

    /// Moves the workload on.
    pub fn stage(&self, stage: Stage) {
        self.stage.send_replace(stage);
    }

    /// True once every client has ended.
    pub fn ended(&self) -> bool {
        self.shared.running.get() == 0
    }

    /// True if every probe had a write acknowledged in the last second.
    pub fn serves(&self, now: Duration) -> bool {
        self.shared.served.borrow().iter().all(|at| now.saturating_sub(*at) < Duration::from_secs(1))
    }

    /// What of the domain has not come to an end.
    pub fn unsettled(&self) -> Vec<String> {
        self.shared.unsettled.borrow().clone()
    }

    /// What must not be and was seen outside of the store.
    pub fn findings(&self) -> Vec<String> {
        self.shared.truth.findings()
    }

    /// What was seen.
    pub fn history(&self) -> History {
        self.recorder.history()
    }
}

/// What runs on which host: the store's clients on the first, the domain and a few others on the second.
fn options(number: usize, domain: bool) -> Options {
    let pause = Duration::from_millis(200);
    let domain =
        domain.then_some(DomainOptions { nodes: 3, dispatchers: 2, run_users: 2, deployers: 2, pause });
    let kv = KvOptions { keys: 3, pause: Duration::from_millis(50) };
    match number {
        0 => Options {
            kv_clients: 3,
            kv,
            compact_every: Some(Duration::from_millis(1500)),
            watchers: 4,
            lease_clients: 2,
            domain: None,
        },
        _ => Options { kv_clients: 1, kv, compact_every: None, watchers: 1, lease_clients: 1, domain },
    }
}

impl Host {
    async fn run(self) {
        let clock = Clock::with_grain(self.tick);
        let stages = self.stages.clone();
        let env = Env::new(self.connect(), self.recorder.clone(), clock, stages, self.seed);
        self.shared.tally.borrow_mut().push(env.tally.clone());
        let first = self.number as u64 * CLIENTS_OF_A_HOST + 1;
        let truth = self.shared.truth.clone();
        let work = workload::run(&env, &truth, self.options, first);
        tokio::join!(
            work,
            env.until_over(self.probe(&env, clock, first - 1)),
            env.until_over(self.settle(&env))
        );
        self.shared.running.set(self.shared.running.get() - 1);
    }

    /// Most clients know every replica; some know only one, and see what it shows.
    fn connect(&self) -> Connect {
        let (replicas, chance) = (self.replicas.clone(), self.chance.fork("connect"));
        // Those of the domain can go anywhere.
        let may_be_pinned = if self.number == 0 { 8 } else { 3 };
        Arc::new(move |client| {
            let chance = chance.fork(&client.to_string());
            let pinned = client % CLIENTS_OF_A_HOST <= may_be_pinned && chance.one_in(2);
            let known = if pinned { vec![chance.pick(&replicas).clone()] } else { replicas.clone() };
            let options = EtcdOptions { call_timeout: CALL_TIMEOUT, ..EtcdOptions::default() };
            let kv = net::client(&known, options, Arc::new(chance)).expect("names of hosts are endpoints");
            Arc::new(kv)
        })
    }

    async fn probe(&self, env: &Env, clock: Clock, id: u64) {
        let kv = env.door(id);
        for number in 0u64.. {
            let (key, value) = (format!("/probe/{}", self.number), number.to_string());
            let put = PutRequest { key: key.into(), value: value.into(), ..PutRequest::default() };
            if kv.put(put).await.is_ok() {
                self.shared.served.borrow_mut()[self.number] = clock.now();
            }
            tokio::time::sleep(PROBE_EVERY).await;
        }
    }

    /// Looks what of the domain is in progress once nothing new is asked for.
    async fn settle(&self, env: &Env) {
        if self.options.domain.is_none() {
            return;
        }
        self.shared.unsettled.replace(vec!["the domain was not looked at".into()]);
        env.reached(Stage::Calm).await;
        let kv = (self.connect())(0);
        loop {
            if let Ok(view) = View::load(&*kv, Scope::everything()).await {
                self.shared.unsettled.replace(workload::unsettled(&view));
            }
            tokio::time::sleep(PROBE_EVERY).await;
        }
    }
}
