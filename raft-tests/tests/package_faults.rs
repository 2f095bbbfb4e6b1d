//! Packages while the processes around them die by SIGKILL: READY everywhere or undone everywhere, nothing left (P4).

use std::path::PathBuf;

use raft_tests::{JobCluster, RECOVERY, job_of, job_reaches, run_request};
use serde_json::json;
use testkit::{Ctl, eventually, eventually_async};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// A body that stops in the middle of its only file.
const HALF: &str = "PUT /packages/app/1.0.0?nodes=all HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\
                    Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n\
                    Content-Disposition: form-data; name=\"f\"; filename=\"app.jar\"\r\n\r\nhalf of it";

fn status(ctl: &Ctl) -> Option<i32> {
    ctl.run(&["icp", "status", "app:1.0.0"]).status.code()
}

/// What lies below a node's directory for packages, `icp-store/blobs` aside.
fn left(world: &JobCluster, node: &str) -> Vec<PathBuf> {
    let work = world.cluster.path().join(node).join("work");
    let below = |at: &str| std::fs::read_dir(work.join(at)).into_iter().flatten().flatten().map(|e| e.path());
    ["icp/app", "icp-store/staging", "icp-store/trash", "icp-store/descriptors"]
        .iter()
        .flat_map(|at| below(at))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_killed_in_the_middle_of_a_create_leaves_nothing_and_the_next_create_goes_through() {
    let mut world = JobCluster::start(3, 1, 2, |o| o.set("icp.grace", "1s"));
    let ctl = world.cluster.ctl();
    let nodes = ctl.json(&["node", "list"]);
    let address = address_of(&nodes, "jobmaster-1");
    let mut socket = TcpStream::connect(&address).await.unwrap();
    socket.write_all(HALF.as_bytes()).await.unwrap();
    eventually(RECOVERY, "the create is reserved", || match status(&ctl) {
        Some(0) => Ok(()),
        other => Err(format!("icp status ends with {other:?}")),
    });
    world.cluster.kill("jobmaster-1");
    drop(socket);
    eventually(RECOVERY, "the create is undone", || match status(&ctl) {
        Some(5) => Ok(()),
        other => Err(format!("icp status ends with {other:?}")),
    });

    let jar = world.scratch.path().join("app.jar");
    std::fs::write(&jar, "whole").unwrap();
    ctl.ok(&["icp", "create", "app:1.0.0", jar.to_str().unwrap()]);
    assert!(!left(&world, "jobmaster-2").is_empty(), "it is on the node that lives");
    ctl.ok(&["icp", "remove", "app:1.0.0", "--wait"]);
    world.cluster.restart("jobmaster-1");
    for node in ["jobmaster-1", "jobmaster-2"] {
        eventually_async(RECOVERY, "nothing of it is left", || async {
            let left = left(&world, node);
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
    }
    ctl.ok(&["doctor"]);
}

/// The JobMaster process of a job is killed and back within a moment; meanwhile the package that the job runs on is
/// removed. The job goes on with it; the package goes when the job is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_package_is_removed_while_the_jobmaster_process_of_its_job_dies_and_comes_back() {
    let mut world = JobCluster::start(3, 1, 2, |o| o);
    let ctl = world.cluster.ctl();
    let file = world.scratch.path().join("app.jar");
    std::fs::write(&file, "whole").unwrap();
    ctl.ok(&["icp", "create", "app:1.0.0", file.to_str().unwrap()]);
    let (jar, rest, starts) = (world.upload().await, world.cluster.rest(0), world.starts_file());
    let mut request = run_request(&jar, "pins", "OnceForever", &[&starts]);
    request["packages"] = json!(["app:1.0.0"]);
    assert_eq!(rest.post("/run-async", &request).await.unwrap().0, 200);
    let job = job_of(&rest, "pins").await;
    job_reaches(&rest, &job, "RUNNING").await;
    let owner = rest.get_ok("/run-async/pins").await["run"]["job-node"].as_str().expect("a node").to_owned();

    world.cluster.kill(&owner);
    let removed = ctl.ok(&["icp", "remove", "app:1.0.0"]);
    world.cluster.restart(&owner);
    assert!(removed.contains(&job), "who holds it is told: {removed}");
    eventually_async(RECOVERY, "a second attempt starts", || async {
        if world.starts().len() == 2 { Ok(()) } else { Err(format!("{:?}", world.starts())) }
    })
    .await;
    job_reaches(&rest, &job, "RUNNING").await;
    let owner = rest.get_ok("/run-async/pins").await["run"]["job-node"].as_str().expect("a node").to_owned();
    let here = world.cluster.path().join(&owner).join("work/icp/app/1.0.0/app.jar");
    assert!(here.is_file(), "the job runs on {owner} with its package");
    request["triggerId"] = json!("late");
    let (refused, body) = rest.post("/run-async", &request).await.unwrap();
    assert_eq!(refused, 409, "nothing new starts on it: {body}");

    assert_eq!(rest.patch(&format!("/jobs/{job}?mode=cancel")).await.unwrap().0, 202);
    job_reaches(&rest, &job, "CANCELED").await;
    eventually(RECOVERY, "the package is gone", || match status(&ctl) {
        Some(5) => Ok(()),
        other => Err(format!("icp status ends with {other:?}")),
    });
    for node in ["jobmaster-1", "jobmaster-2"] {
        let at = world.cluster.path().join(node).join("work/icp/app");
        assert!(!at.exists(), "{} is left", at.display());
    }
    ctl.ok(&["doctor"]);
}

fn address_of(nodes: &serde_json::Value, name: &str) -> String {
    let nodes = nodes.as_array().expect("a list");
    let node = nodes.iter().find(|node| node.to_string().contains(&format!("\"{name}\"")));
    let address = node.and_then(|node| node["nodeAddress"].as_str());
    address.unwrap_or_else(|| panic!("no address of {name} in {nodes:?}")).to_owned()
}
