//! Runs with several packages, names that can be none, and warnings, as the operator's tool has them.

mod site;

use serde_json::json;
use site::{PATIENCE, Site, end, with_lib};

async fn create(site: &Site, package: &str) -> site::Did {
    site.ctl(&format!("icp create {package} {}", site.dir.path().join("tree").display())).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_takes_several_packages_and_shows_which_they_were() {
    let (site, nodes) = with_lib().await;
    assert_eq!(create(&site, "other:2.0.0").await.code, 0);
    let jar = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/hello.jar");
    let submit =
        |trigger: &str, packages: &str| format!("run submit --trigger-id {trigger} {packages} {jar}");
    site.ok(&submit("T1", "-C lib:1.0 -C other:latest")).await;
    let status = site.json("run status T1").await;
    assert_eq!(status["packages"], json!(["lib:1.0", "other:2.0.0"]));
    assert_eq!(create(&site, "other:3.0.0").await.code, 0);
    assert_eq!(site.json("run status T1").await["packages"], status["packages"], "it does not move");
    assert!(site.ok("run status T1").await.contains("packages: [\"lib:1.0\",\"other:2.0.0\"]\n"));
    site.fails(&submit("T2", "-C lib:1.0 -C other:9.0.0"), 5, "there is no package other:9.0.0").await;
    site.fails(&submit("T2", "-C lib:1.0 -C con:1"), 2, "device name").await;
    site.fails("run status T2", 5, "there is no run T2").await;
    end(site, nodes).await;
}

/// D6, at the operator's end: a bad name is usage, a name that differs in case only is a conflict, and is not found.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d6_names_that_can_be_none_are_usage_errors() {
    let (site, nodes) = with_lib().await;
    let long = "x".repeat(300);
    for name in ["..", "a/b", "con", long.as_str(), ".", "-a"] {
        for line in [
            "create U PATH",
            "register U",
            "check U",
            "remove U",
            "refs U",
            "status U",
            "wait U",
            "pull U --node n1",
        ] {
            let tree = site.dir.path().join("tree").display().to_string();
            let line = line.replace('U', &format!("{name}:1.0")).replace("PATH", &tree);
            let did = site.ctl(&format!("icp {line}")).await;
            assert_eq!(did.code, 2, "{line}: {did:?}");
        }
    }
    let other_case = create(&site, "LIB:2.0").await;
    assert_eq!(other_case.code, 4, "{other_case:?}");
    assert!(other_case.err.contains("only in upper and lower case"), "{other_case:?}");
    site.fails("icp status LIB:1.0", 5, "there is no package LIB:1.0").await;
    site.fails("icp remove LIB:1.0", 5, "there is no package LIB:1.0").await;
    assert!(site.ok("icp status lib:1.0").await.starts_with("lib:1.0 READY"));
    end(site, nodes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_package_on_one_node_only_is_created_with_a_warning() {
    let (site, mut nodes) = with_lib().await;
    assert_eq!(create(&site, "two:1.0").await.err.matches("warning").count(), 0);
    let (_, end_of_n2) = nodes.remove(1);
    end_of_n2.finish(PATIENCE).await;
    let warns =
        "warning: only node n1 holds one:1.0: it is lost if that node is lost before others have it\n";
    // Made now, and there already.
    for _ in 0..2 {
        let did = create(&site, "one:1.0").await;
        assert_eq!((did.code, did.out.as_str()), (0, "one:1.0 READY\n"), "{did:?}");
        assert!(did.err.ends_with(warns), "{did:?}");
    }
    end(site, nodes).await;
}
