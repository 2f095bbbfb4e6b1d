//! A run that one dispatcher accepted is known to the other at once, however many wait (P2).

use raft_tests::{JobCluster, run_request};

/// Runs accepted while every slot is taken.
const RUNS: usize = 10_000;
/// Clients that post and ask, each one after the other.
const CLIENTS: usize = 16;

#[tokio::test(flavor = "multi_thread")]
async fn a_post_on_one_dispatcher_is_never_404_on_the_other() {
    let world = JobCluster::start(3, 2, 1, |o| o.set("node.slots", "1"));
    let jar = world.upload().await;
    let (a, b) = (world.cluster.rest(0), world.cluster.rest(1));
    let busy = run_request(&jar, "busy", "Forever", &[]);
    assert_eq!(a.post("/run-async", &busy).await.unwrap().0, 200);
    let job = raft_tests::job_of(&b, "busy").await;
    raft_tests::job_reaches(&b, &job, "RUNNING").await;
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..CLIENTS {
        let (a, b, jar) = (a.clone(), b.clone(), jar.clone());
        clients.spawn(async move {
            for number in (client..RUNS).step_by(CLIENTS) {
                let trigger = format!("waits-{number}");
                let posted = a.post("/run-async", &run_request(&jar, &trigger, "Hello", &[])).await.unwrap();
                assert_eq!(posted.0, 200, "{}", posted.1);
                let (status, body) = b.get(&format!("/run-async/{trigger}")).await.unwrap();
                assert_eq!(status, 200, "{trigger} right after its 200: {body}");
                assert_eq!(body["status"]["id"], "IN_PROGRESS", "no slot is free: {body}");
            }
        });
    }
    while let Some(done) = clients.join_next().await {
        done.unwrap();
    }
    let listed = b.get_ok("/run-async").await;
    assert_eq!(listed.as_array().map(Vec::len), Some(RUNS + 1));
}
