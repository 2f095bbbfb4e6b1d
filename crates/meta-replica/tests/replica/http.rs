//! HTTP/1 on the gRPC port.

use std::net::SocketAddr;

use meta_api::pb::etcdserverpb as pb;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::rig::{Lone, within};

pub async fn http(addr: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    within("an HTTP answer", stream.read_to_string(&mut answer)).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let code = head.split_whitespace().nth(1).unwrap().parse().unwrap();
    (code, body.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_version_and_metrics() {
    let lone = Lone::start().await;
    let addr = lone.replica.client_addr();
    assert_eq!(http(addr, "/livez").await, (200, "ok\n".to_owned()));
    assert_eq!(http(addr, "/readyz").await, (200, "ok\n".to_owned()));
    assert_eq!(http(addr, "/health").await, (200, r#"{"health":"true","reason":""}"#.to_owned()));
    assert_eq!(http(addr, "/health?serializable=true").await.0, 200);
    let (_, version) = http(addr, "/version").await;
    assert_eq!(serde_json::from_str::<Value>(&version).unwrap()["etcdserver"], "3.7.0");
    assert_eq!(http(addr, "/nothing").await.0, 404);
    let (code, metrics) = http(addr, "/metrics").await;
    assert_eq!(code, 200);
    for name in ["metastore_revision 1", "metastore_raft_is_leader 1", "metastore_rpc_seconds_bucket"] {
        assert!(metrics.contains(name), "{name} is missing in\n{metrics}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kv_for_curl() {
    let mut lone = Lone::start().await;
    let addr = lone.replica.client_addr();
    lone.put("/node/a b", "text").await;
    let binary = pb::PutRequest { key: "/node/c".into(), value: vec![0xff, 0].into(), ..Default::default() };
    lone.kv.put(binary).await.unwrap();
    let (code, one) = http(addr, "/kv//node/a%20b").await;
    let one: Value = serde_json::from_str(&one).unwrap();
    assert_eq!((code, &one["key"], &one["value"]), (200, &"/node/a b".into(), &"text".into()));
    assert_eq!((&one["mod_revision"], &one["revision"]), (&2.into(), &3.into()));
    let (_, page) = http(addr, "/kv//node/?prefix=1&limit=1").await;
    let page: Value = serde_json::from_str(&page).unwrap();
    assert_eq!((&page["count"], &page["more"]), (&2.into(), &true.into()));
    let (_, binary) = http(addr, "/kv//node/c?serializable=1").await;
    assert_eq!(serde_json::from_str::<Value>(&binary).unwrap()["value_base64"], "/wA=");
    assert_eq!(http(addr, "/kv/none").await, (404, "{\"error\":\"no such key\"}\n".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_of_metrics_lists_what_is_exported() {
    let page = include_str!("../../../../docs/metrics.md");
    let rows = page.split("## Replica").nth(1).unwrap().split("\n## ").next().unwrap();
    let names =
        |line: &str| line.strip_prefix("| `").and_then(|rest| Some(rest.split_once('`')?.0.to_owned()));
    let mut listed: Vec<_> = rows.lines().filter_map(names).collect();
    let lone = Lone::start().await;
    let (_, text) = http(lone.replica.client_addr(), "/metrics").await;
    let typed =
        |line: &str| line.strip_prefix("# TYPE ").and_then(|rest| Some(rest.split_once(' ')?.0.to_owned()));
    let mut exported: Vec<_> =
        text.lines().filter_map(typed).filter(|name| name != "metastore_build").collect();
    listed.sort();
    exported.sort();
    assert_eq!(listed, exported);
}
