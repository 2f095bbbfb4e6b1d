//! Packages whose files are listed first: only what no node has is sent, broken uploads go on where they ended, and a
//! create whose coordinator is lost is finished by a node that has it all.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::flaky::{Fate, FlakyKv};
use common::{BOUND, Cluster, TestNode, unit};
use icp_store::{Digest, FileEntry, Manifest, peer};
use process_kit::ByteSize;
use records::keys::{CopyKey, ReqKey, UnitKey};
use records::nodes::{Register, register};
use records::packages::{Reserve, Targets, reserve};
use records::record::{CopyState, Node as NodeRecord, Policy, ReqOutcome, Role, UnitOrigin, UnitState};
use records::{Scope, UnitId, carry_out};
use serde_json::{Value, json};

/// One client of one node.
struct Client<'a> {
    node: &'a TestNode,
    unit: UnitId,
}

impl Client<'_> {
    async fn begin(&self, query: &str, files: &[(&str, &[u8])]) -> (u16, Value) {
        let files: Vec<Value> = files
            .iter()
            .map(|(path, bytes)| json!({ "path": path, "size": bytes.len(), "blake3": Digest::of(bytes) }))
            .collect();
        let url = self.node.url(&format!("/packages/{}/{}?{query}", self.unit.name, self.unit.version));
        answer(peer::client().post(url).json(&json!({ "files": files }))).await
    }

    async fn missing(&self, op: &str) -> (u16, Value) {
        let UnitId { name, version, .. } = &self.unit;
        answer(peer::client().get(self.node.url(&format!("/packages/{name}/{version}/upload?op={op}")))).await
    }

    fn file_url(&self, op: &str, bytes: &[u8], offset: usize) -> String {
        let (UnitId { name, version, .. }, digest) = (&self.unit, Digest::of(bytes));
        self.node.url(&format!("/packages/{name}/{version}/files/{digest}?op={op}&offset={offset}"))
    }

    async fn send(&self, op: &str, file: &[u8], offset: usize, bytes: &[u8]) -> (u16, Value) {
        answer(peer::client().put(self.file_url(op, file, offset)).body(bytes.to_vec())).await
    }
}

async fn answer(request: reqwest::RequestBuilder) -> (u16, Value) {
    let answer = request.timeout(BOUND).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap_or_default())
}

fn asked_for(answer: &Value) -> Vec<(Digest, u64)> {
    let files = answer["missing"].as_array().unwrap();
    let one = |file: &Value| {
        (file["blake3"].as_str().unwrap().parse().unwrap(), file["received"].as_u64().unwrap())
    };
    files.iter().map(one).collect()
}

async fn until_state(cluster: &Cluster, unit: &UnitId, state: UnitState) -> records::record::Unit {
    let key = UnitKey::new(unit);
    let found = cluster.until("the package's state", Scope::package(unit), |view| {
        view.get(&key).unwrap().filter(|unit| unit.state == state)
    });
    found.await.value
}

async fn until_nothing_is_staged(node: &TestNode) {
    let staging = node.work_dir.join("icp-store/staging");
    let look = async {
        while std::fs::read_dir(&staging).unwrap().next().is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(BOUND, look).await.expect("nothing is staged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_files_that_no_node_has_are_asked_for() {
    let cluster = Cluster::new().await;
    let (a, b) = (cluster.node("a").await, cluster.node("b").await);
    let lib = vec![7; 100_000];
    // One file lies on b alone, under another package.
    let (status, body) = b.put(&unit("other"), "nodes=b", &[("x.jar", b"on b")]).await;
    assert_eq!(status, 200, "{body}");
    let first = Client { node: &a, unit: unit("app") };
    let files: [(&str, &[u8]); 5] =
        [("lib/dep.jar", &lib), ("copy.jar", &lib), ("app.jar", b"one"), ("b.jar", b"on b"), ("empty", b"")];
    let (status, begun) = first.begin("request=r1", &files).await;
    assert_eq!((status, &begun["status"]), (202, &json!("CREATING")), "{begun}");
    let mut wanted = [(Digest::of(&lib), 0), (Digest::of(b"one"), 0)];
    wanted.sort();
    let mut asked = asked_for(&begun);
    asked.sort();
    assert_eq!(asked, wanted, "each hash once, nothing that b has, no empty file");
    let op = begun["op"].as_str().unwrap();

    // Nobody fetches what is not whole, and the same request again is the same create.
    let row = cluster.view(Scope::package(&first.unit)).await;
    assert!(row.get(&UnitKey::new(&first.unit)).unwrap().unwrap().uploading);
    let (status, again) = first.begin("request=r1", &files).await;
    assert_eq!((status, &again["op"]), (202, &begun["op"]), "{again}");
    let (status, other) = first.begin("request=r2", &files).await;
    assert_eq!((status, &other["reason"]), (409, &json!("IN_PROGRESS")), "{other}");

    for bytes in [&lib[..], b"one"] {
        let (status, sent) = first.send(op, bytes, 0, bytes).await;
        assert_eq!((status, sent["received"].as_u64()), (200, Some(bytes.len() as u64)), "{sent}");
    }
    until_state(&cluster, &first.unit, UnitState::Ready).await;
    for node in [&a, &b] {
        for (path, bytes) in files {
            let at = node.work_dir.join("icp/app/1.0.0").join(path);
            assert_eq!(std::fs::read(at).unwrap(), bytes, "{path} on {}", node.name);
        }
    }
    let view = cluster.view(Scope::package(&first.unit).and_request("r1")).await;
    let outcome = view.get(&ReqKey { request: "r1".into() }).unwrap().unwrap();
    assert_eq!(outcome.outcome, ReqOutcome::Ok);
    let (status, again) = first.begin("request=r1", &files).await;
    assert_eq!((status, &again["status"]), (200, &json!("READY")), "{again}");

    // A second version that changes one file moves only that one; the same content once more moves nothing.
    let second = Client { node: &b, unit: UnitId::new("app", "2.0.0").unwrap() };
    let changed: [(&str, &[u8]); 3] = [("lib/dep.jar", &lib), ("copy.jar", &lib), ("app.jar", b"two")];
    let (_, begun) = second.begin("", &changed).await;
    assert_eq!(asked_for(&begun), [(Digest::of(b"two"), 0)]);
    second.send(begun["op"].as_str().unwrap(), b"two", 0, b"two").await;
    until_state(&cluster, &second.unit, UnitState::Ready).await;
    let (status, same) = second.begin("", &changed).await;
    assert_eq!((status, &same["status"]), (200, &json!("READY")), "{same}");
    let (status, other) = second.begin("", &files).await;
    assert_eq!((status, &other["reason"]), (409, &json!("EXISTS")), "{other}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_upload_goes_on_where_it_ended() {
    let cluster = Cluster::new().await;
    let a = cluster.node("a").await;
    let client = Client { node: &a, unit: unit("app") };
    let bytes: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
    let (_, begun) = client.begin("", &[("big.jar", &bytes)]).await;
    let op = begun["op"].as_str().unwrap();
    // The connection breaks after a third.
    let half = 100_000;
    let path = client.file_url(op, &bytes, 0);
    let path = path.split_once(&a.node.address().to_string()).unwrap().1;
    let head = format!("PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", bytes.len());
    let mut socket = tokio::net::TcpStream::connect(a.node.address()).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut socket, head.as_bytes()).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut socket, &bytes[..half]).await.unwrap();
    let received = loop {
        let (_, answer) = client.missing(op).await;
        let asked = asked_for(&answer);
        assert_eq!(asked[0].0, Digest::of(&bytes));
        if asked[0].1 == half as u64 {
            break half;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    // The first sender is still connected: the later one replaces it.
    let (status, wrong) = client.send(op, &bytes, received + 1, &bytes[received + 1..]).await;
    assert_eq!((status, &wrong["reason"]), (409, &json!("OFFSET")), "{wrong}");
    assert!(wrong["errors"][0].as_str().unwrap().contains("next byte of the file is 100000"), "{wrong}");
    let (status, sent) = client.send(op, &bytes, received, &bytes[received..]).await;
    assert_eq!((status, sent["received"].as_u64()), (200, Some(bytes.len() as u64)), "{sent}");
    drop(socket);
    until_state(&cluster, &client.unit, UnitState::Ready).await;
    assert_eq!(std::fs::read(a.work_dir.join("icp/app/1.0.0/big.jar")).unwrap(), bytes);
    assert_eq!(client.missing(op).await.0, 404, "over");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_bytes_are_refused_and_nothing_of_them_stays() {
    let cluster = Cluster::new().await;
    let a = cluster.node("a").await;
    let client = Client { node: &a, unit: unit("app") };
    for (files, why) in [
        (json!([]), "at least one file"),
        (json!([{ "path": "../x", "size": 1, "blake3": Digest::of(b"x") }]), ".."),
        (json!([{ "path": "x", "size": 1, "blake3": "beef" }]), "list of files"),
        (json!([{ "path": "x", "size": -1, "blake3": Digest::of(b"x") }]), "list of files"),
    ] {
        let url = a.url("/packages/app/1.0.0");
        let (status, body) = answer(peer::client().post(url).json(&json!({ "files": files }))).await;
        assert_eq!(status, 400, "{body}");
        assert!(body["errors"][0].as_str().unwrap().contains(why), "{body}");
    }
    for query in ["request=", "request=a%2Fb", "origin=moon", "unknown=1"] {
        assert_eq!(client.begin(query, &[("x", b"1")]).await.0, 400, "{query}");
    }
    cluster.until_absent(&client.unit).await;

    let (_, begun) = client.begin("request=r", &[("x.jar", b"right")]).await;
    let op = begun["op"].as_str().unwrap().to_owned();
    let (status, body) = client.send(&op, b"right", 0, b"wrong").await;
    assert_eq!((status, &body["reason"]), (422, &json!("HASH")), "{body}");
    assert_eq!(asked_for(&client.missing(&op).await.1), [(Digest::of(b"right"), 0)]);
    let (status, body) = client.send(&op, b"right", 0, b"right and more").await;
    assert_eq!(status, 400, "{body}");
    assert_eq!(client.send(&op, b"never listed", 0, b"x").await.0, 404);
    assert_eq!(client.send("another-op", b"right", 0, b"right").await.0, 404);

    // Given up by its client: undone, and the request says so.
    cluster.remove(&client.unit, true).await;
    cluster.until_absent(&client.unit).await;
    until_nothing_is_staged(&a).await;
    assert_eq!(client.missing(&op).await.0, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_coordinator_says_so_before_any_byte_moves() {
    let cluster = Cluster::new().await;
    let mut full = cluster.options("full");
    full.host.min_free = ByteSize(u64::MAX);
    let full = cluster.node_with(full).await;
    let client = Client { node: &full, unit: unit("app") };
    let (status, body) = client.begin("request=r", &[("x.jar", b"x")]).await;
    assert_eq!(status, 507, "{body}");
    let text = body["errors"][0].as_str().unwrap();
    assert!(text.contains("node full failed") && text.contains("not enough disk space"), "{text}");
    cluster.until_absent(&client.unit).await;
    let view = cluster.view(Scope::default().and_request("r")).await;
    let outcome = view.get(&ReqKey { request: "r".into() }).unwrap().unwrap().value.outcome;
    assert!(matches!(outcome, ReqOutcome::Failed(why) if why.contains("not enough disk space")));
    until_nothing_is_staged(&full).await;
}

/// The coordinator gives a file to two nodes, they give it on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_package_spreads_as_a_tree() {
    let cluster = Cluster::new().await;
    let mut nodes = Vec::new();
    for name in ["n1", "n2", "n3", "n4", "n5"] {
        nodes.push(cluster.node(name).await);
    }
    let client = Client { node: &nodes[0], unit: unit("app") };
    let bytes: Vec<u8> = (0..4u32 << 20).map(|i| (i % 249) as u8).collect();
    let (_, begun) = client.begin("", &[("big.jar", &bytes)]).await;
    let (status, sent) = client.send(begun["op"].as_str().unwrap(), &bytes, 0, &bytes).await;
    assert_eq!(status, 200, "{sent}");
    until_state(&cluster, &client.unit, UnitState::Ready).await;
    let mut given = Vec::new();
    for node in &nodes {
        assert!(node.has(&client.unit, "big.jar"), "{}", node.name);
        let (_, figures) = node.get("/metrics").await;
        let line = figures.lines().find_map(|line| line.strip_prefix("metastore_icp_blob_bytes_total "));
        given.push(line.unwrap().parse::<usize>().unwrap());
    }
    assert_eq!(given.iter().sum::<usize>(), 4 * bytes.len(), "each of the others once: {given:?}");
    assert_eq!(given[0], 2 * bytes.len(), "{given:?}");
}

/// T2': the node that has the whole package finishes what its lost coordinator began.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_create_of_a_lost_coordinator_is_finished_by_a_node_that_has_it() {
    let cluster = Cluster::new().await;
    let b = cluster.node("b").await;
    let content: (&str, &[u8]) = ("app.jar", b"everything");
    assert_eq!(b.put(&unit("same"), "", &[content]).await.0, 200);

    // A coordinator that reserved the package and announced its files: b has their bytes already.
    let lease = cluster.kv.grant(Duration::from_secs(3600)).id;
    let kept = cluster.kv.grant(Duration::from_secs(3600)).id;
    let node = NodeRecord {
        roles: vec![Role::Jobmaster],
        rest_address: None,
        node_address: Some("127.0.0.1:1".into()),
        slots: 0,
        version: String::new(),
        java: None,
        single_enable: None,
        boot: "x".into(),
        started_at_ms: 0,
        work_dir: None,
        stopping: false,
        extra: Default::default(),
    };
    let wish = Register { name: "x".into(), node, lease };
    let lost = carry_out(&*cluster.kv, &Scope::nodes(), |view| register(view, &wish)).await.unwrap().answer;
    let entry =
        FileEntry { path: content.0.into(), size: content.1.len() as u64, blake3: Digest::of(content.1) };
    let manifest = Manifest::new(vec![entry]).unwrap();
    let digest = manifest.digest().to_string();
    let app = unit("app");
    let wish = Reserve {
        unit: app.clone(),
        op: "0".repeat(32),
        origin: UnitOrigin::Icp,
        coordinator: lost,
        manifest: Some((digest.clone(), jobmaster::package_copy::to_record(&manifest))),
        uploading: false,
        targets: Targets::Named(vec!["b".into(), "x".into()]),
        policy: Policy::All,
        request: Some(("r".into(), kept)),
        now_ms: 0,
        from: None,
    };
    let scope = Scope::package(&app).and_manifest(&digest).and_request("r");
    carry_out(&*cluster.kv, &scope, |view| reserve(view, &wish)).await.unwrap();
    let row = CopyKey::new(&app, &"b".to_owned());
    cluster
        .until("PRESENT on b", Scope::package(&app), |view| {
            view.get(&row).unwrap().filter(|row| row.state == CopyState::Present)
        })
        .await;
    let unit = cluster.view(Scope::package(&app)).await.get(&UnitKey::new(&app)).unwrap().unwrap();
    assert_eq!((unit.state, unit.epoch), (UnitState::Creating, 1), "its coordinator lives");

    assert!(cluster.kv.revoke(lease));
    let unit = until_state(&cluster, &app, UnitState::Ready).await;
    assert_eq!((unit.epoch, unit.coordinator.node.as_str()), (2, "b"));
    assert!(b.has(&app, "app.jar"));
    let view = cluster.view(Scope::default().and_request("r")).await;
    assert_eq!(view.get(&ReqKey { request: "r".into() }).unwrap().unwrap().outcome, ReqOutcome::Ok);
}

/// How often the package agent has looked.
async fn looks(node: &TestNode) -> u64 {
    let told: Value = serde_json::from_str(&node.get("/reconcilers").await.1).unwrap();
    let rows = told["reconcilers"].as_array().unwrap();
    rows.iter().find(|row| row["name"] == "package-agent").unwrap()["rounds"].as_u64().unwrap()
}

/// The agent sees the reservation before who made it has the answer: it is not taken for one that nobody carries.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reservation_whose_answer_is_slow_is_not_undone() {
    let cluster = Cluster::new().await;
    let store = Arc::new(FlakyKv::new(cluster.kv.clone()));
    let a = cluster.node_over(store.clone(), cluster.options("a")).await;
    let client = Client { node: &a, unit: unit("app") };
    *store.fate.lock() = Fate::AnswerSlow;
    let seen = async {
        let key = UnitKey::new(&client.unit);
        let there = |view: &records::View| view.get(&key).unwrap().map(|_| ());
        cluster.until("the reservation", Scope::package(&client.unit), there).await;
        let before = looks(&a).await;
        let give_up = tokio::time::Instant::now() + BOUND;
        while looks(&a).await < before + 2 {
            assert!(tokio::time::Instant::now() < give_up, "the agent does not look");
            // Something of its own changes, so that it looks.
            let lease = cluster.kv.grant(BOUND).id;
            let other = records::record::Node {
                roles: vec![Role::Dispatcher],
                rest_address: None,
                node_address: None,
                slots: 0,
                version: String::new(),
                java: None,
                single_enable: None,
                boot: format!("x{lease}"),
                started_at_ms: 0,
                work_dir: None,
                stopping: false,
                extra: Default::default(),
            };
            let request = Register { name: format!("x{lease}"), node: other, lease };
            carry_out(&*cluster.kv, &Scope::nodes(), |view| register(view, &request)).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        store.answer.notify_one();
    };
    let ((status, begun), ()) = tokio::join!(client.begin("nodes=a", &[("a.jar", b"one")]), seen);
    assert_eq!(status, 202, "{begun}");
    let op = begun["op"].as_str().unwrap();
    assert_eq!(client.send(op, b"one", 0, b"one").await.0, 200);
    let ready = |view: &records::View| {
        let found = view.get(&UnitKey::new(&client.unit)).unwrap()?;
        (found.state == UnitState::Ready).then_some(())
    };
    cluster.until("READY", Scope::package(&client.unit), ready).await;
    a.stop().await;
}
