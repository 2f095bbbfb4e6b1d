//! Runs and jobs while the processes around them die: nothing is lost, nothing runs twice (P3, P5).

use std::time::Duration;

use raft_tests::strike::processes_of;
use raft_tests::{JobCluster, RECOVERY, job_ids, job_of, job_reaches, run_request};
use testkit::eventually_async;

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_killed_during_a_run_loses_nothing() {
    let world = JobCluster::start(3, 2, 2, |o| o);
    let jar = world.upload().await;
    let file = world.starts_file();
    let (status, body) = world
        .cluster
        .rest(0)
        .post("/run-async", &run_request(&jar, "during", "Once", &[&file]))
        .await
        .unwrap();
    assert_eq!((status, body["request-id"].as_str()), (200, Some("during")), "{body}");
    let dead = world.cluster.kill_leader();
    let rest = world.cluster.rest(1);
    let job = job_of(&rest, "during").await;
    job_reaches(&rest, &job, "FINISHED").await;
    assert_eq!(world.starts(), [format!("{job} 1")], "main() started once");
    assert_eq!(job_ids(&rest).await, std::slice::from_ref(&job));
    // Every surviving replica tells the same, alone.
    for endpoint in world.cluster.endpoints.iter().filter(|e| **e != dead) {
        let told = testkit::Ctl::new(endpoint).json(&["run", "status", "during"]);
        assert!(told.to_string().contains(&job), "{endpoint} says {told}");
    }
    world.cluster.ctl().ok(&["doctor"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dispatcher_killed_right_after_its_200_loses_nothing() {
    let world = JobCluster::start(3, 2, 2, |o| o);
    let jar = world.upload().await;
    let file = world.starts_file();
    let request = run_request(&jar, "orphan", "Once", &[&file]);
    let (status, _) = world.cluster.rest(0).post("/run-async", &request).await.unwrap();
    world.cluster.kill("dispatcher-1");
    assert_eq!(status, 200);
    let rest = world.cluster.rest(1);
    let job = job_of(&rest, "orphan").await;
    job_reaches(&rest, &job, "FINISHED").await;
    assert_eq!(world.starts(), [format!("{job} 1")]);
    let (status, again) = rest.post("/run-async", &request).await.unwrap();
    assert_eq!((status, again["request-id"].as_str()), (200, Some("orphan")), "an equal retry: {again}");
    assert_eq!(job_ids(&rest).await, [job]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_jobmaster_process_hands_its_job_over() {
    let world = JobCluster::start(3, 1, 2, |o| o);
    let jar = world.upload().await;
    let file = world.starts_file();
    let rest = world.cluster.rest(0);
    let request = run_request(&jar, "moves", "OnceForever", &[&file]);
    assert_eq!(rest.post("/run-async", &request).await.unwrap().0, 200);
    let job = job_of(&rest, "moves").await;
    job_reaches(&rest, &job, "RUNNING").await;
    let owner = rest.get_ok("/run-async/moves").await["run"]["job-node"].as_str().expect("a node").to_owned();
    let before = processes_of(&job);
    assert!(!before.is_empty(), "the job's processes are marked with its id");
    world.cluster.kill(&owner);
    eventually_async(RECOVERY, "a second attempt starts elsewhere", || async {
        if world.starts().len() == 2 { Ok(()) } else { Err(format!("{:?}", world.starts())) }
    })
    .await;
    assert_eq!(world.starts(), [format!("{job} 1"), format!("{job} 2")]);
    assert!(
        before.iter().all(|pid| !processes_of(&job).contains(pid)),
        "the first attempt's processes are gone"
    );
    job_reaches(&rest, &job, "RUNNING").await;
    assert_eq!(job_ids(&rest).await, std::slice::from_ref(&job));
    assert_eq!(rest.patch(&format!("/jobs/{job}?mode=cancel")).await.unwrap().0, 202);
    job_reaches(&rest, &job, "CANCELED").await;
    eventually_async(RECOVERY, "no process of the job is left", || async {
        let left = processes_of(&job);
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_dispatchers_and_one_trigger_make_one_job_fifty_times() {
    let world = JobCluster::start(3, 2, 2, |o| o);
    let jar = world.upload().await;
    let (a, b) = (world.cluster.rest(0), world.cluster.rest(1));
    for round in 0..50 {
        let trigger = format!("both-{round}");
        let request = run_request(&jar, &trigger, "Hello", &[]);
        let (left, right) = tokio::join!(a.post("/run-async", &request), b.post("/run-async", &request));
        let (left, right) = (left.unwrap(), right.unwrap());
        assert_eq!(left, right, "both get the same answer");
        assert_eq!(left.0, 200, "{}", left.1);
    }
    let mut jobs = Vec::new();
    for round in 0..50 {
        jobs.push(job_of(&b, &format!("both-{round}")).await);
    }
    jobs.sort();
    jobs.dedup();
    assert_eq!(jobs.len(), 50, "one job a trigger");
    let mut listed = job_ids(&a).await;
    listed.sort();
    assert_eq!(listed, jobs, "and no other job");
    world.cluster.ctl().ok(&["doctor"]);
}

/// As long as the longest election that a busy machine makes of a dead leader, and more than a store call takes by
/// default.
const WITHOUT_QUORUM: Duration = Duration::from_secs(6);

#[tokio::test(flavor = "multi_thread")]
async fn a_post_while_the_store_has_no_quorum_waits_for_it() {
    let mut world = JobCluster::start(3, 1, 1, |o| o);
    let jar = world.upload().await;
    let rest = world.cluster.rest(0);
    for name in ["replica-1", "replica-2"] {
        world.cluster.kill(name);
    }
    let request = run_request(&jar, "waits", "Hello", &[]);
    let posted = tokio::spawn(async move { rest.post("/run-async", &request).await });
    // The length of the fault, not a wait for something.
    tokio::time::sleep(WITHOUT_QUORUM).await;
    assert!(!posted.is_finished(), "answered without a quorum: {:?}", posted.await);
    world.cluster.restart_all(&["replica-1", "replica-2"]);
    let (status, body) = posted.await.unwrap().unwrap();
    assert_eq!((status, body["request-id"].as_str()), (200, Some("waits")), "{body}");
    let rest = world.cluster.rest(0);
    let job = job_of(&rest, "waits").await;
    job_reaches(&rest, &job, "FINISHED").await;
    assert_eq!(job_ids(&rest).await, [job]);
}
