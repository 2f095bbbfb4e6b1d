//! Deleting a run while its main() runs, on real processes: what was deleted is gone, and stays so (case C13).

use std::time::Duration;

use raft_tests::strike::processes_of;
use raft_tests::{JobCluster, RECOVERY, run_request};
use serde_json::json;
use testkit::eventually_async;

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_runs_main_is_gone_and_its_id_does_not_run_again() {
    let world = JobCluster::start(1, 2, 1, |o| o);
    let jar = world.upload().await;
    let (a, b) = (world.cluster.rest(0), world.cluster.rest(1));
    let file = world.starts_file();
    // It never says that it made a job, so its run stays in progress.
    let mut request = run_request(&jar, "T9", "OnceForever", &[&file]);
    request["flinkConfiguration"] = json!({ "engine.process.created": "signal" });
    assert_eq!(a.post("/run-async", &request).await.unwrap().0, 200);
    let job = b.get_ok("/run-async/T9").await["run"]["jobid"].as_str().expect("a job").to_owned();
    eventually_async(RECOVERY, "main() runs", || async {
        if processes_of(&job).is_empty() { Err("no process of it".to_owned()) } else { Ok(()) }
    })
    .await;
    // Longer than a job without `signal` takes to count as created.
    let waited = b.get_ok("/run-async/T9?wait=1500ms").await;
    assert_eq!(
        (&waited["status"]["id"], &waited["run"]["phase"]),
        (&json!("IN_PROGRESS"), &json!("LAUNCHING"))
    );
    let other = b.get("/run-async/T9?wait=60s");
    let deleted = async {
        let deleted = a.delete("/run-async/T9").await.unwrap();
        // At once: the answer says that nothing of it runs.
        (deleted, processes_of(&job))
    };
    let (other, (deleted, left)) =
        tokio::time::timeout(Duration::from_secs(30), async { tokio::join!(other, deleted) })
            .await
            .expect("both");
    assert_eq!((deleted.0, left), (200, vec![]), "{}", deleted.1);
    assert_eq!(other.unwrap().0, 404, "who waited for it is told");
    assert_eq!(b.get("/run-async/T9").await.unwrap().0, 404);
    let (status, body) = b.post("/run-async", &request).await.unwrap();
    assert_eq!(status, 409, "{body}");
    assert!(body["errors"][0].as_str().unwrap_or_default().contains("run T9 was deleted at 20"), "{body}");
    assert_eq!(world.starts(), [format!("{job} 1")], "main() started once");
    world.cluster.ctl().ok(&["doctor"]);
}
