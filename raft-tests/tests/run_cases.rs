//! Cases that users of such systems reported, on real processes: impatient clients, members that stop while they are
//! asked, JARs whose member is gone (C2, C7 and C9 of the cases for jobs).

use std::time::{Duration, Instant};

use raft_tests::strike::{processes_of, send};
use raft_tests::{JobCluster, RECOVERY, job_ids, job_of, job_reaches, run_request};
use rustix::process::Signal;
use serde_json::json;
use testkit::{ClusterOptions, Rest, eventually_async};

/// So long that nothing in these tests waits for a lease to run out: what goes on was handed over.
const NEVER: &str = "10m";

fn no_lease_ends(options: ClusterOptions) -> ClusterOptions {
    options.set("node.lease", NEVER).set("node.lease.margin", "60s")
}

/// True if nothing of the process runs any more.
fn is_gone(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).map_or(true, |line| line.is_empty())
}

async fn until_gone(pid: u32) {
    eventually_async(RECOVERY, "the process ends", || async {
        if is_gone(pid) { Ok(()) } else { Err(format!("{pid} runs")) }
    })
    .await;
}

/// Waits until main() of the job was started so often, and wants each start to be the next attempt.
async fn starts_of(world: &JobCluster, job: &str, wanted: usize) {
    let starts = || world.starts().into_iter().filter(|line| line.starts_with(job)).collect::<Vec<_>>();
    eventually_async(RECOVERY, "main() starts", || async {
        if starts().len() >= wanted { Ok(()) } else { Err(format!("{:?}", starts())) }
    })
    .await;
    let attempts: Vec<String> = (1..=wanted).map(|attempt| format!("{job} {attempt}")).collect();
    assert_eq!(starts(), attempts);
}

/// A main() of 20 s, a client that gives up after one, five retries through every dispatcher, and a dead leader.
#[tokio::test(flavor = "multi_thread")]
async fn an_impatient_client_and_a_dead_leader_make_one_job() {
    const MAIN: Duration = Duration::from_secs(20);
    let world = JobCluster::start(3, 2, 2, |o| o);
    let jar = world.upload().await;
    let seconds = MAIN.as_secs().to_string();
    let mut request = run_request(&jar, "T1", "Slow", &[&world.starts_file(), &seconds]);
    request["flinkConfiguration"] = json!({ "engine.process.created": "signal" });
    let begun = Instant::now();
    for attempt in 0..6 {
        let rest = world.cluster.rest(attempt % 2);
        // The run takes 20 s; asking for its end makes the client lose patience each time.
        let asked = async {
            let (status, body) = rest.post("/run-async", &request).await.unwrap();
            assert_eq!((status, body["request-id"].as_str()), (200, Some("T1")), "{body}");
            rest.get("/run-async/T1?wait=30s").await.map(|(status, _)| status)
        };
        let lost = tokio::time::timeout(Duration::from_secs(1), asked).await;
        assert!(lost.is_err(), "the run cannot be over after {:?}: {lost:?}", begun.elapsed());
    }
    // The length of the case, not a wait for something.
    tokio::time::sleep((MAIN / 2).saturating_sub(begun.elapsed())).await;
    world.cluster.kill_leader();
    let (a, b) = (world.cluster.rest(0), world.cluster.rest(1));
    let job = job_of(&b, "T1").await;
    assert!(begun.elapsed() >= MAIN, "completed when main() made the job, not before");
    assert_eq!(job_of(&a, "T1").await, job);
    job_reaches(&a, &job, "FINISHED").await;
    assert_eq!(world.starts(), [format!("{job} 1")], "main() started once");
    assert_eq!(job_ids(&b).await, [job]);
    world.cluster.ctl().ok(&["doctor"]);
}

/// A JAR is usable from every dispatcher, with the one that took it gone, and with the other's spool directory removed.
#[tokio::test(flavor = "multi_thread")]
async fn a_jar_outlives_the_dispatcher_that_took_it() {
    let world = JobCluster::start(3, 2, 2, |o| o);
    let jar = world.upload().await;
    world.cluster.kill("dispatcher-1");
    let rest = world.cluster.rest(1);
    let listed = rest.get_ok("/jars").await;
    assert_eq!(listed["files"][0]["id"], json!(jar), "{listed}");
    let spool = world.cluster.path().join("dispatcher-2/upload");
    std::fs::remove_dir_all(&spool).unwrap_or_else(|error| panic!("{}: {error}", spool.display()));
    assert_eq!(rest.get_ok("/jars").await["files"][0]["id"], json!(jar));
    let request = run_request(&jar, "T1", "Once", &[&world.starts_file()]);
    assert_eq!(rest.post("/run-async", &request).await.unwrap().0, 200);
    let job = job_of(&rest, "T1").await;
    job_reaches(&rest, &job, "FINISHED").await;
    let second = rest.upload("second.jar", b"PK\x05\x06 stands in for another".to_vec()).await;
    assert_eq!(rest.get_ok("/jars").await["files"].as_array().map(Vec::len), Some(2), "{second}");
    world.cluster.ctl().ok(&["doctor"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_jobmaster_process_that_is_told_to_stop_hands_its_jobs_over() {
    let world = JobCluster::start(3, 1, 2, no_lease_ends);
    let (rest, jar) = (world.cluster.rest(0), world.upload().await);
    let request = run_request(&jar, "moves", "OnceForever", &[&world.starts_file()]);
    assert_eq!(rest.post("/run-async", &request).await.unwrap().0, 200);
    let job = job_of(&rest, "moves").await;
    starts_of(&world, &job, 1).await;
    let owner = rest.get_ok("/run-async/moves").await["run"]["job-node"].as_str().expect("a node").to_owned();
    let before = processes_of(&job);
    let pid = world.cluster.pids[&owner];
    send(pid, Signal::TERM);
    starts_of(&world, &job, 2).await;
    assert!(before.iter().all(|pid| is_gone(*pid)), "the first attempt is over before the second starts");
    until_gone(pid).await;
    assert_eq!(job_ids(&rest).await, [job]);
    world.cluster.ctl().ok(&["doctor"]);
}

/// Case C9: what is asked of a dispatcher that stops is answered, or done by another; nothing waits for its lease.
async fn a_dispatcher_stops_while_it_is_asked(world: &JobCluster) {
    const CLIENTS: usize = 4;
    let jar = world.upload().await;
    let (a, b) = (world.cluster.rest(0), world.cluster.rest(1));
    let file = world.starts_file();
    let pid = world.cluster.pids["dispatcher-1"];
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..CLIENTS {
        let (a, jar, file) = (a.clone(), jar.clone(), file.clone());
        clients.spawn(async move { acknowledged(&a, &jar, &file, client).await });
    }
    eventually_async(RECOVERY, "runs are taken", || async {
        if world.starts().len() >= CLIENTS { Ok(()) } else { Err(format!("{:?}", world.starts())) }
    })
    .await;
    send(pid, Signal::TERM);
    let mut taken = Vec::new();
    while let Some(done) = clients.join_next().await {
        taken.extend(done.unwrap());
    }
    until_gone(pid).await;
    let mut jobs = Vec::new();
    for trigger in &taken {
        let job = job_of(&b, trigger).await;
        job_reaches(&b, &job, "FINISHED").await;
        jobs.push(job);
    }
    for job in &jobs {
        let starts = world.starts().iter().filter(|line| line.starts_with(job.as_str())).count();
        assert!(starts >= 1, "job {job} FINISHED and main() never started");
    }
    jobs.sort();
    jobs.dedup();
    assert_eq!(jobs.len(), taken.len(), "one job a run");
    world.cluster.ctl().ok(&["doctor"]);
}

/// Posts until the dispatcher does not answer any more; the triggers that it acknowledged. While it stops it may say
/// 503, and nothing else.
async fn acknowledged(rest: &Rest, jar: &str, file: &str, client: usize) -> Vec<String> {
    let mut taken = Vec::new();
    loop {
        let trigger = format!("c{client}-{}", taken.len());
        match rest.post("/run-async", &run_request(jar, &trigger, "Once", &[file])).await {
            Ok((200, _)) => taken.push(trigger),
            Ok((status, body)) => {
                assert_eq!(status, 503, "{trigger}: {body}");
                return taken;
            }
            Err(_) => return taken,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dispatcher_that_is_told_to_stop_leaves_nothing_undone() {
    a_dispatcher_stops_while_it_is_asked(&JobCluster::start(3, 2, 1, no_lease_ends)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dispatcher_that_hosts_jobmasters_leaves_nothing_undone() {
    a_dispatcher_stops_while_it_is_asked(&JobCluster::start(3, 2, 0, no_lease_ends)).await;
}
