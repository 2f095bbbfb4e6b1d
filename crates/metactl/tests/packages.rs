//! The operator's commands for packages against a real replica, a dispatcher and server nodes: what they print, where,
//! and their exit codes.

mod site;

use serde_json::json;
use site::{PATIENCE, end, flip, with_lib};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_copy_is_found_mended_and_waited_for() {
    let (site, nodes) = with_lib().await;
    assert_eq!(site.ok("icp check lib:1.0").await, "NODE  FILE  STATE\nn1    *     OK\nn2    *     OK\n");
    flip(&site.file("n2", "lib/b.jar"));
    let table = "NODE  FILE       STATE\nn1    *          OK\nn2    lib/b.jar  CORRUPT\n";
    assert_eq!(site.fails("icp check lib:1.0", 1, "").await, table);
    let found = site.json("icp check lib:1.0").await;
    assert_eq!((&found["clean"], &found["rows"][1]["file"]), (&json!(false), &json!("lib/b.jar")));
    let mending = site.fails("icp check lib:1.0 --repair", 1, "n2: being fetched again").await;
    assert_eq!(mending, table);
    assert_eq!(site.ok("icp wait lib:1.0 --nodes n2 --timeout 30s").await, "lib:1.0 READY on n2\n");
    assert_eq!(site.ok("icp check lib:1.0").await, "NODE  FILE  STATE\nn1    *     OK\nn2    *     OK\n");
    assert_eq!(std::fs::read(site.file("n2", "lib/b.jar")).unwrap(), b"two");
    site.fails("icp check lib:2.0", 5, "there is no package lib:2.0").await;
    end(site, nodes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_package_is_pulled_and_waited_for() {
    let (site, mut nodes) = with_lib().await;
    assert_eq!(site.ok("icp wait lib:1.0").await, "lib:1.0 READY on n1,n2\n");
    nodes.push(site.node("n3").await);
    // A node that came later is no target: it gets the package when a job needs it, or by hand.
    site.fails("icp wait lib:1.0 --nodes n3 --timeout 300ms", 3, "icp pull lib:1.0 --node n3").await;
    assert_eq!(site.ok("icp pull lib:1.0 --node n3").await, "lib:1.0 PRESENT on n3\n");
    assert_eq!(site.ok("icp wait lib:1.0 --nodes n3").await, "lib:1.0 READY on n3\n");
    let waited = site.json("icp wait lib:1.0 --nodes majority").await;
    assert_eq!((&waited["status"], &waited["nodes"]), (&json!("READY"), &json!(["n1", "n2"])));
    site.fails("icp wait lib:1.0 --nodes n1,n9", 5, "no server node n9; live server nodes: n1, n2, n3").await;
    site.fails("icp pull lib:1.0 --node n9", 5, "live server nodes: n1, n2, n3").await;
    site.fails("icp pull lib:1.0 --node d1", 2, "no server node").await;
    site.fails("icp pull lib:9.0 --node n3", 5, "there is no package lib:9.0").await;

    site.stuck().await;
    let told = site.fails("icp wait slow:1 --timeout 300ms", 3, "slow:1 is CREATING, on 0 of 1 nodes").await;
    assert_eq!(told, "");
    site.fails("icp pull slow:1 --node n3", 4, "not READY: it is CREATING").await;
    // It goes away under somebody who waits.
    let waiting = site.ctl("icp wait slow:1 --timeout 30s");
    let removed = async {
        tokio::task::yield_now().await;
        site.ctl("icp remove slow:1 --force").await
    };
    let (waited, removed) = tokio::join!(waiting, removed);
    assert_eq!(removed.code, 0, "{removed:?}");
    // If the removal was faster than its start, it never saw the package.
    assert!(waited.code == 1 || waited.code == 5, "{waited:?}");
    assert!(waited.err.contains("slow:1"), "{waited:?}");
    end(site, nodes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_shows_versions_nodes_and_what_is_on_a_disk() {
    let (site, mut nodes) = with_lib().await;
    let versions = site.ok("icp status lib").await;
    assert_eq!(
        versions,
        "VERSION  STATUS  PRESENT  USES  JOBS  FILES  BYTES  ERROR\n1.0      READY   2/2      0     0     2      6      -\n"
    );
    let one = site.ok("icp status lib:1.0").await;
    let digest = site.json("icp status lib:1.0").await["digest"].as_str().expect("a digest").to_owned();
    let head = format!("lib:1.0 READY\ndigest {digest}, 2 files, 6 bytes\nNODE  STATUS   ALIVE");
    assert!(one.starts_with(&head), "{one}");
    assert_eq!(site.json("icp status lib").await["packages"][0], site.json("icp status lib:1.0").await);
    std::fs::create_dir_all(site.dir.path().join("n1/icp/by-hand/2")).unwrap();
    let node = site.ok("icp status --node n1").await;
    let lines: Vec<Vec<&str>> = node.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["n1", "ALIVE"]);
    assert_eq!(lines[1], ["PACKAGE", "STATUS", "DISK", "OP", "USES", "BYTES", "DRIFT", "ERROR"]);
    assert_eq!(lines[2], ["by-hand:2", "-", "UNREGISTERED", "-", "0", "0", "no", "-"]);
    assert_eq!((lines[3][0], lines[3][1], lines[3][2], lines[3][6]), ("lib:1.0", "PRESENT", "PRESENT", "no"));
    let filtered = site.json("icp status lib:1.0 --node n1").await;
    assert_eq!(filtered["packages"].as_array().unwrap().len(), 1);
    site.fails("icp status lib:2.0 --node n1", 5, "node n1 has no lib:2.0").await;
    site.fails("icp status --node n9", 5, "there is no node n9").await;
    let (_, end_of_n2) = nodes.remove(1);
    end_of_n2.finish(PATIENCE).await;
    let dead = site.ok("icp status lib --node n2").await;
    assert!(dead.starts_with("n2 OFFLINE: the node is not alive\n") && dead.contains("UNKNOWN"), "{dead}");
    let degraded = site.ok("icp status lib:1.0").await;
    assert!(degraded.starts_with("lib:1.0 DEGRADED"), "{degraded}");
    end(site, nodes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removal_says_what_it_would_do_what_it_does_and_who_is_in_the_way() {
    let (site, nodes) = with_lib().await;
    let refs = site.ok("icp refs lib:1.0").await;
    assert_eq!(
        refs,
        "KIND  JOB  RUN  NODE  STATE\ncopy  -    -    n1    PRESENT\ncopy  -    -    n2    PRESENT\n"
    );
    let before = site.json("icp refs lib:1.0").await;
    let dry = site.ok("icp remove lib:1.0 --dry-run").await;
    assert_eq!(
        dry,
        format!(
            "lib:1.0 would go from READY to REMOVING\nthese nodes would delete their copies: n1, n2\n{refs}"
        )
    );
    let forced = site.json("icp remove lib:1.0 --dry-run --force").await;
    assert_eq!(
        (&forced["from"], &forced["to"], &forced["refs"]),
        (&json!("READY"), &json!("PURGING"), &before)
    );
    assert_eq!(site.json("icp refs lib:1.0").await, before, "a dry run changes nothing");

    // One that is refused says who holds it, and why it is refused.
    site.stuck().await;
    for line in ["icp remove slow:1", "icp remove slow:1 --dry-run"] {
        assert_eq!(
            site.fails(line, 4, "slow:1 is being created").await,
            "KIND  JOB  RUN  NODE  STATE\n",
            "{line}"
        );
        let told = site.json(line).await;
        assert!(told["refused"].as_str().unwrap().contains("being created"), "{told}");
        assert_eq!(told["refs"]["status"], "CREATING");
    }
    site.fails("icp remove lib:2.0 --dry-run", 5, "there is no package lib:2.0").await;
    let removed = site.ctl("icp remove lib:1.0 --wait --timeout 30s").await;
    assert_eq!(removed.code, 0, "{removed:?}");
    site.fails("icp refs lib:1.0", 5, "there is no package lib:1.0").await;
    assert!(!site.file("n1", "a.jar").exists() && !site.file("n2", "a.jar").exists());
    end(site, nodes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_package_goes_into_a_file_and_comes_back() {
    let (site, nodes) = with_lib().await;
    let digest = site.json("icp status lib:1.0").await["digest"].clone();
    let archive = site.dir.path().join("lib.tar").display().to_string();
    let said = site.ok(&format!("icp export lib:1.0 {archive}")).await;
    assert_eq!(said, format!("lib:1.0: 2 files, 6 bytes, in {archive}\n"));
    site.fails(&format!("icp export lib:1.0 {archive}"), 2, "is there already").await;
    site.fails(&format!("icp export lib:9.0 {archive}-9"), 5, "there is no package lib:9.0").await;
    let second = site.json(&format!("icp export lib:1.0 {archive}-2")).await;
    assert_eq!((&second["digest"], &second["files"]), (&digest, &json!(2)));
    assert_eq!(std::fs::read(&archive).unwrap(), std::fs::read(format!("{archive}-2")).unwrap());

    let removed = site.ctl("icp remove lib:1.0 --wait --timeout 30s").await;
    assert_eq!(removed.code, 0, "{removed:?}");
    let imported = site.ctl(&format!("icp import {archive}")).await;
    assert_eq!((imported.code, imported.out.as_str()), (0, "lib:1.0 READY\n"), "{imported:?}");
    assert_eq!(site.json("icp status lib:1.0").await["digest"], digest);
    assert_eq!(std::fs::read(site.file("n2", "lib/b.jar")).unwrap(), b"two");
    let renamed = site.ctl(&format!("icp import {archive} --as other:2.0")).await;
    assert_eq!((renamed.code, renamed.out.as_str()), (0, "other:2.0 READY\n"), "{renamed:?}");

    // A damaged archive makes nothing.
    let mut bytes = std::fs::read(&archive).unwrap();
    let at = bytes.windows(3).rposition(|three| three == b"two").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&archive, bytes).unwrap();
    site.fails(&format!("icp import {archive} --as bad:1"), 2, "lib/b.jar is damaged").await;
    site.fails("icp status bad:1", 5, "there is no package bad:1").await;

    // A node's damaged file does not become an archive.
    for node in ["n1", "n2"] {
        flip(&site.file(node, "lib/b.jar"));
    }
    site.fails(&format!("icp export lib:1.0 {archive}-3"), 1, "lib/b.jar came damaged").await;
    assert!(!std::path::Path::new(&format!("{archive}-3")).exists());
    assert!(!std::path::Path::new(&format!("{archive}-3.partial")).exists());
    end(site, nodes).await;
}
