//! Rounds of runs under faults. In each round clients submit through random dispatchers, and try again until they have
//! an answer, while one process is killed or stopped at a random moment. Afterwards each trigger has exactly one job,
//! that job has ended well, no two of its children ever lived at the same time, and nothing is stuck.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use testkit::{ClusterOptions, Rest, eventually_async};

use crate::strike::{Blow, Victim, strike};
use crate::{JobCluster, RECOVERY, job_of, job_reaches, run_request};

/// How long one try of a client may take before it goes to another dispatcher.
const ONE_TRY: Duration = Duration::from_secs(3);
/// Pause before the next.
const TRY_AGAIN: Duration = Duration::from_millis(200);
/// A client gives up, and the round fails: longer than a stop and an election.
const PATIENCE: Duration = Duration::from_secs(120);
/// Latest moment of a blow after the submissions, in milliseconds.
const BLOW_WITHIN_MS: u64 = 2500;
/// Longest life of a child, in milliseconds.
const LIFE_MS: u64 = 3000;
/// Most runs of a round.
const MOST_RUNS: u32 = 3;

/// The least leases that are accepted: what a fault costs in time.
pub fn short_leases(options: ClusterOptions) -> ClusterOptions {
    options.set("node.lease", "2s").set("node.keep-alive", "400ms").set("node.lease.margin", "500ms")
}

/// What the rounds did.
#[derive(Debug, Default)]
pub struct Counts {
    /// Rounds that ended well.
    pub rounds: u32,
    /// Runs, each with one job.
    pub runs: usize,
    /// Starts of main(); the surplus over the runs moved.
    pub starts: usize,
    /// Submissions, retries included.
    pub tries: u32,
    /// Blows, by whom and with what.
    pub blows: BTreeMap<String, u32>,
}

/// The cluster and the dice.
pub struct Rounds {
    world: JobCluster,
    random: StdRng,
    jar: String,
    jobs: BTreeSet<String>,
    counts: Counts,
}

impl Rounds {
    /// Three replicas, two dispatchers, two JobMaster processes.
    pub async fn start(seed: u64) -> Self {
        let world = JobCluster::start(3, 2, 2, short_leases);
        let jar = world.upload().await;
        Self {
            world,
            random: StdRng::seed_from_u64(seed),
            jar,
            jobs: BTreeSet::new(),
            counts: Counts::default(),
        }
    }

    /// So many rounds. Panics with what was broken.
    pub async fn run(mut self, rounds: u32) -> Counts {
        for round in 0..rounds {
            self.round(round).await;
            self.counts.rounds += 1;
        }
        self.world.cluster.ctl().ok(&["doctor"]);
        self.counts
    }

    async fn round(&mut self, round: u32) {
        let (victim, blow) = (Victim::draw(&mut self.random), Blow::draw(&mut self.random));
        let moment = Duration::from_millis(self.random.random_range(0..BLOW_WITHIN_MS));
        let triggers: Vec<String> =
            (0..self.random.random_range(1..=MOST_RUNS)).map(|n| format!("round-{round}-{n}")).collect();
        let began = Instant::now();
        let clients: Vec<_> = triggers.iter().map(|trigger| tokio::spawn(self.client(trigger))).collect();
        // The moment of the fault, not a wait for something.
        tokio::time::sleep(moment).await;
        let struck =
            tokio::task::block_in_place(|| strike(&self.world.cluster, victim, blow, &mut self.random));
        let what = match &struck {
            Some(struck) => format!("{blow:?} of {:?} ({}) after {moment:?}", struck.victim, struck.name),
            None => format!("no {victim:?} to be struck"),
        };
        println!("round {round}: {} runs, {what}", triggers.len());
        if let Some(struck) = struck {
            let kind = if blow == Blow::Kill { "kill" } else { "stop" };
            *self.counts.blows.entry(format!("{kind} {:?}", struck.victim)).or_default() += 1;
            struck.make_good(&mut self.world.cluster).await;
        }
        for client in join_all(clients).await {
            self.counts.tries += client.expect("a client gets an answer");
        }
        for trigger in &triggers {
            self.ends_well(trigger).await;
        }
        self.nothing_else(&what).await;
        println!("round {round}: {:.1} s", began.elapsed().as_secs_f64());
    }

    /// A client with one run: tries dispatchers at random until one takes it; the number of its tries.
    fn client(&mut self, trigger: &str) -> impl Future<Output = u32> + Send + use<> {
        let mut random = StdRng::seed_from_u64(self.random.random());
        let seconds = format!("{:.3}", random.random_range(0..LIFE_MS) as f64 / 1000.0);
        let dir = self.world.scratch.path().display().to_string();
        let request = run_request(&self.jar, trigger, "Locked", &[&dir, &seconds]);
        let dispatchers: Vec<Rest> =
            self.world.cluster.dispatchers.iter().map(|url| Rest::new(url)).collect();
        let trigger = trigger.to_owned();
        async move {
            let deadline = Instant::now() + PATIENCE;
            let mut tries = 0;
            loop {
                tries += 1;
                let rest = &dispatchers[random.random_range(0..dispatchers.len())];
                let last = match tokio::time::timeout(ONE_TRY, rest.post("/run-async", &request)).await {
                    Ok(Ok((200, body))) => {
                        assert_eq!(body["request-id"], trigger.as_str());
                        return tries;
                    }
                    // Unknown or not now: the same request again is safe.
                    Ok(Ok((status, body))) if status >= 500 || status == 429 => format!("{status} {body}"),
                    Ok(Ok((status, body))) => panic!("{trigger} is refused: {status} {body}"),
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => format!("no answer within {ONE_TRY:?}"),
                };
                assert!(Instant::now() < deadline, "{trigger} is not taken within {PATIENCE:?}: {last}");
                tokio::time::sleep(TRY_AGAIN).await;
            }
        }
    }

    /// Every dispatcher tells the same one job, and it ended well.
    async fn ends_well(&mut self, trigger: &str) {
        let job = job_of(&self.world.cluster.rest(0), trigger).await;
        assert_eq!(
            job_of(&self.world.cluster.rest(1), trigger).await,
            job,
            "{trigger}: two dispatchers, two jobs"
        );
        job_reaches(&self.world.cluster.rest(1), &job, "FINISHED").await;
        assert!(self.jobs.insert(job.clone()), "{trigger}: job {job} has another trigger too");
    }

    /// No other job, no attempt twice, no two children at once, nobody who owns what has ended.
    async fn nothing_else(&mut self, what: &str) {
        let rest = self.world.cluster.rest(0);
        let known: BTreeSet<String> = listed(&rest).await.into_iter().collect();
        assert_eq!(known, self.jobs, "after {what}: the jobs of all triggers, and no other");
        let overlaps =
            std::fs::read_to_string(self.world.scratch.path().join("overlaps")).unwrap_or_default();
        assert!(overlaps.is_empty(), "after {what}: started while another child lived: {overlaps}");
        let starts = self.world.starts();
        let distinct: BTreeSet<&String> = starts.iter().collect();
        assert_eq!(distinct.len(), starts.len(), "after {what}: an attempt started twice: {starts:?}");
        (self.counts.runs, self.counts.starts) = (self.jobs.len(), starts.len());
    }
}

async fn listed(rest: &Rest) -> Vec<String> {
    eventually_async(RECOVERY, "the jobs are listed", || async {
        match rest.get("/jobs").await.map_err(|error| error.to_string())? {
            (200, body) => Ok(ids(&body)),
            (status, body) => Err(format!("{status} {body}")),
        }
    })
    .await
}

fn ids(body: &Value) -> Vec<String> {
    let jobs = body["jobs"].as_array().into_iter().flatten();
    jobs.filter_map(|job| job["id"].as_str()).map(str::to_owned).collect()
}
