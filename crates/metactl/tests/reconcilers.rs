//! What the reconcilers did last, as `metactl cluster status` shows it.

mod site;

use std::time::Duration;

use records::nodes::{Register, register};
use records::record::{Node as NodeRecord, Role};
use records::{Scope, carry_out};
use serde_json::{Value, json};
use site::{PATIENCE, Site, end, flip, with_lib};

/// The row of one reconciler once it is as wanted.
async fn until(site: &Site, node: &str, name: &str, is: impl Fn(&Value) -> bool) -> Value {
    testkit::eventually_async(PATIENCE, &format!("{name} of {node}"), || async {
        let page = site.json("cluster status").await;
        let rows = page["reconcilers"].as_array().unwrap().clone();
        let row = rows.into_iter().find(|row| row["node"] == node && row["name"] == name);
        row.filter(|row| is(row)).ok_or_else(|| format!("{page:#}"))
    })
    .await
}

/// A server node that is registered and never answers.
async fn silent_node(site: &Site) -> std::net::TcpListener {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let lease = site.kv.lease_grant(0, Duration::from_secs(600)).await.unwrap().id;
    let node = NodeRecord {
        roles: vec![Role::Jobmaster],
        rest_address: None,
        node_address: Some(silent.local_addr().unwrap().to_string()),
        slots: 0,
        version: String::new(),
        java: None,
        single_enable: None,
        boot: "silent".into(),
        started_at_ms: 0,
        work_dir: None,
        stopping: false,
        extra: Default::default(),
    };
    let request = Register { name: "silent".into(), node, lease };
    carry_out(&*site.kv, &Scope::nodes(), |view| register(view, &request)).await.unwrap();
    silent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_reconciler_shows_when_it_ran_what_it_did_and_its_last_error() {
    let (site, mut nodes) = with_lib().await;
    let fresh = until(&site, "d1", "packages", |row| row["last-run"].is_u64()).await;
    assert_eq!((&fresh["did"], &fresh["last-did"]), (&json!({}), &Value::Null), "{fresh}");
    assert!(fresh["took-ms"].is_number() && fresh["rounds"].as_u64().unwrap() > 0, "{fresh}");
    let counted = |row: &Value, kind: &str| row["did"][kind].as_u64().unwrap_or_default();
    let (n1, n2) = ("n1", "n2");
    // One of them was the coordinator and published its copy itself.
    until(&site, n1, "package-agent", |row| row["last-run"].is_u64()).await;

    let table = site.ok("cluster status").await;
    let at = table.find("NODE  RECONCILER").unwrap_or_else(|| panic!("{table}"));
    let head: Vec<&str> = table[at..].lines().next().unwrap().split_whitespace().collect();
    assert_eq!(head, ["NODE", "RECONCILER", "LAST-RUN", "TOOK", "DID", "LAST-ERROR"]);
    let mut names: Vec<Vec<&str>> =
        table[at..].lines().skip(1).map(|line| line.split_whitespace().take(2).collect()).collect();
    names.retain(|row| row.len() == 2 && ["d1", n1, n2].contains(&row[0]));
    for row in [["d1", "runs"], ["d1", "placement"], ["d1", "packages"], [n1, "package-agent"]] {
        assert!(names.contains(&row.to_vec()), "{row:?}: {table}");
    }

    // A damaged copy that nobody can mend: the error stays on the page, with its time.
    flip(&site.file(n2, "lib/b.jar"));
    let (_, end_of_n1) = nodes.remove(0);
    end_of_n1.finish(PATIENCE).await;
    site.fails("icp check lib:1.0 --repair", 1, "").await;
    let failed = until(&site, n2, "package-agent", |row| row["last-error"].is_object()).await;
    let text = failed["last-error"]["text"].as_str().unwrap();
    assert!(text.contains("lib:1.0") && text.contains("not repaired"), "{text}");
    assert!(failed["last-error"]["at"].as_u64() > fresh["last-run"].as_u64(), "{failed}");
    let table = site.ok("cluster status").await;
    assert!(table.contains("not repaired"), "{table}");

    // n1 keeps its row while it is away, and drops its copy when it is back.
    nodes.push(site.node(n1).await);
    let removed = site.ctl("icp remove lib:1.0 --wait --timeout 30s").await;
    assert_eq!(removed.code, 0, "{removed:?}");
    let finished = until(&site, "d1", "packages", |row| counted(row, "removals-finished") == 1).await;
    assert_eq!(finished["last-did"]["counts"], json!({ "removals-finished": 1 }));
    until(&site, n1, "package-agent", |row| counted(row, "copies-dropped") > 0).await;
    end(site, nodes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_gives_no_answer_is_named_and_the_page_stands() {
    let site = Site::start().await;
    let nobody = site.json("cluster status").await;
    assert_eq!(nobody["reconcilers"].as_array().unwrap().len(), 3, "{nobody}");
    let _silent = silent_node(&site).await;
    let page = site.json("cluster status").await;
    let warnings: Vec<&str> = page["warnings"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let named = "server silent: what its reconcilers did last is not known: ";
    assert!(warnings.iter().any(|text| text.starts_with(named)), "{page}");
    assert_eq!(page["reconcilers"].as_array().unwrap().len(), 3, "the others are there: {page}");
    end(site, Vec::new()).await;
}
