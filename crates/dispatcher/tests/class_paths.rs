//! Several packages of one run: stated, resolved at admission, recorded, shown; names that can be none; and what is
//! acknowledged on one node only.

mod support;

use records::keys::{JobKey, ManifestKey, UnitKey};
use records::record::{Manifest, ManifestFile};
use records::{JobId, Scope, Steps, UnitId, View, carry_out};
use serde_json::{Value, json};
use support::http::{Answer, Part};
use support::{Cluster, multipart};

async fn create(cluster: &Cluster, package: &str) -> Answer {
    let (content_type, body) = multipart(&[Part::file("file", "a.txt", b"one")]);
    let (path, headers) = (format!("/icp/{package}"), [("content-type", content_type.as_str())]);
    cluster.send(0, "PUT", &path, &headers, body).await
}

async fn run(cluster: &Cluster, trigger: &str, jar: &str, field: &str, packages: &Value) -> Answer {
    let mut body = json!({ "triggerId": trigger, "jarId": jar, "entryClass": "Forever" });
    body[field] = packages.clone();
    cluster.post(0, "/run-async", &body.to_string()).await
}

async fn packages_of(cluster: &Cluster, trigger: &str) -> Value {
    cluster.get(0, &format!("/run-async/{trigger}")).await.json["run"]["packages"].clone()
}

#[tokio::test]
async fn latest_is_resolved_once_recorded_and_does_not_move() {
    let cluster = Cluster::start(2).await;
    cluster.node("n1", 8).await;
    for package in ["lib/1.9.0", "lib/1.10.0", "lib/2.0.0-rc.1", "lib/by-hand", "other/1.0.0"] {
        assert_eq!(create(&cluster, package).await.status, 200, "{package}");
    }
    let jar = cluster.upload().await;
    let wanted = json!(["lib:latest", "other"]);
    let accepted = run(&cluster, "T1", &jar, "classPaths", &wanted).await;
    assert_eq!(accepted.status, 200, "{}", accepted.text);
    let resolved = json!(["lib:1.10.0", "other:1.0.0"]);
    assert_eq!(packages_of(&cluster, "T1").await, resolved);
    let job = cluster.completed(0, "T1").await.json["operation"]["jobid"].as_str().unwrap().to_owned();

    // A newer one appears: the run keeps what it got, also for a retry, under either name of the field.
    assert_eq!(create(&cluster, "lib/1.11.0").await.status, 200);
    for field in ["classPaths", "packages"] {
        assert_eq!(run(&cluster, "T1", &jar, field, &wanted).await.text, r#"{"request-id":"T1"}"#);
    }
    assert_eq!(packages_of(&cluster, "T1").await, resolved);
    let job: JobId = job.parse().unwrap();
    let view = View::load(&cluster.kv, Scope::default().and_job(&job)).await.unwrap();
    let spec = view.get(&JobKey::new(&job)).unwrap().unwrap().value.spec;
    let class_path: Vec<String> = spec.class_path.iter().map(|package| package.unit.to_string()).collect();
    assert_eq!(json!(class_path), resolved, "its job starts again on the same");
    run(&cluster, "T2", &jar, "packages", &wanted).await;
    assert_eq!(packages_of(&cluster, "T2").await, json!(["lib:1.11.0", "other:1.0.0"]));
    // Each is pinned, and shown to who would remove it.
    for package in ["lib/1.10.0", "other/1.0.0"] {
        let refs = cluster.get(1, &format!("/icp/{package}/refs")).await.json;
        // In order of the jobs' ids, which are random.
        let holds = refs["jobs"].as_array().unwrap();
        assert!(holds.contains(&json!({ "job": job, "run": "T1" })), "{package}: {refs}");
    }
    cluster.stop().await;
}

#[tokio::test]
async fn one_missing_package_refuses_the_run_and_nothing_is_pinned() {
    let cluster = Cluster::start(1).await;
    cluster.node("n1", 4).await;
    create(&cluster, "lib/1.0.0").await;
    let jar = cluster.upload().await;
    for (packages, status, says) in [
        (json!(["lib:1.0.0", "other:2.0.0"]), 404, "there is no package other:2.0.0"),
        (json!(["lib:1.0.0", "other"]), 404, "package other has no release that is READY"),
        (json!(["lib:1.0.0", "con:1"]), 400, "device name"),
        (json!(["lib:1.0.0", ""]), 400, "a package name starts with"),
        (json!(["lib:1.0.0", "lib:"]), 400, "version"),
        (json!("lib:1.0.0"), 400, "packages: expected"),
    ] {
        let answer = run(&cluster, "T1", &jar, "packages", &packages).await;
        assert_eq!(answer.status, status, "{packages}: {}", answer.text);
        assert!(answer.error().contains(says), "{packages}: {}", answer.text);
    }
    let two = json!({ "jarId": jar, "packages": ["lib"], "classPaths": ["lib:1.0.0"] }).to_string();
    let answer = cluster.post(0, "/run-async", &two).await;
    assert!(answer.status == 400 && answer.error().contains("two names of one field"), "{}", answer.text);
    let counts = ["/run/", "/job/", "/icp/pin/"].map(|prefix| cluster.count(prefix));
    assert_eq!(counts, [0, 0, 0]);
    cluster.stop().await;
}

/// D6: a name is used as a directory without being looked at. What is no name is refused with 400 by every route that
/// takes one; names are compared exactly, and one that differs from another only in case cannot be created.
#[tokio::test]
async fn d6_names_that_can_be_none_are_refused_by_every_route() {
    let cluster = Cluster::start(1).await;
    cluster.node("n1", 4).await;
    let long = "x".repeat(300);
    let just_too_long = "x".repeat(129);
    for name in
        ["%2E%2E", ".", "a%2Fb", "con", "CON.txt", &long, &just_too_long, "%20", "a%00", "-a", "%C3%A4"]
    {
        // A path step of one or two dots is none to a browser; encoded it is one.
        let name = if name == "." { "%2E" } else { name };
        for (method, rest) in [
            ("PUT", "/1.0"),
            ("GET", ""),
            ("GET", "/1.0"),
            ("GET", "/1.0/refs"),
            ("DELETE", "/1.0"),
            ("POST", "/1.0/register"),
            ("POST", "/1.0/check"),
            ("POST", "/1.0/pull?node=n1"),
        ] {
            let (content_type, body) = multipart(&[Part::file("file", "a.txt", b"one")]);
            let path = format!("/icp/{name}{rest}");
            let answer = cluster.send(0, method, &path, &[("content-type", &content_type)], body).await;
            assert_eq!(answer.status, 400, "{method} {path}: {}", answer.text);
        }
    }
    for version in ["%2E%2E", "a%2Fb", &long, "latest"] {
        assert_eq!(create(&cluster, &format!("lib/{version}")).await.status, 400, "{version}");
    }
    assert_eq!(cluster.count("/icp/"), 0, "nothing is left of them");

    let longest = "x".repeat(128);
    assert_eq!(create(&cluster, &format!("{longest}/1.0")).await.status, 200);
    cluster.stop().await;
}

fn warning(answer: &Answer) -> Option<&str> {
    answer.headers.get("warning").map(|value| value.to_str().unwrap())
}

#[tokio::test]
async fn what_only_one_node_holds_is_acknowledged_with_a_warning() {
    let cluster = Cluster::start(1).await;
    cluster.node("n1", 1).await;
    let jar = [Part::file("jarfile", "hello.jar", b"PK")];
    let uploaded = cluster.post_multipart(0, "/jars/upload", &jar).await;
    assert_eq!(uploaded.status, 200, "{}", uploaded.text);
    let text = warning(&uploaded).unwrap_or_else(|| panic!("{:?}", uploaded.headers));
    assert!(text.starts_with("199 metastore \"only node n1 holds ") && text.ends_with('"'), "{text}");
    cluster.stop().await;
}

/// A manifest and whose it is said to be.
async fn leave_manifest(cluster: &Cluster, digest: &str, holder: &str) {
    let file = ManifestFile { path: "a".into(), size: 1, hash: "h".into(), executable: false };
    let record = Manifest { files: vec![file], holders: vec![holder.into()], extra: Default::default() };
    let key = ManifestKey { digest: digest.into() };
    let scope = Scope::default().and_key(&key);
    carry_out(&cluster.kv, &scope, |_| Ok(Steps::new().absent(&key).put(&key, &record).answer(())))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_manifest_that_no_package_refers_to_is_collected() {
    let cluster = Cluster::start(1).await;
    cluster.node("n1", 1).await;
    create(&cluster, "lib/1.0.0").await;
    leave_manifest(&cluster, "held", "lib:1.0.0").await;
    let key = UnitKey::new(&UnitId::new("lib", "1.0.0").unwrap());
    let scope = Scope::default().and_key(&key);
    carry_out(&cluster.kv, &scope, |view| {
        let found = view.get(&key)?.expect("it was created");
        let mut unit = found.value.clone();
        unit.manifest = Some("held".into());
        Ok(Steps::new().unchanged(&key, &found).put(&key, &unit).answer(()))
    })
    .await
    .unwrap();
    leave_manifest(&cluster, "orphan", "gone:1").await;
    cluster.until(|| async { (cluster.count("/icp/manifest/orphan") == 0).then_some(()) }).await;
    let counted = || async {
        let rows = cluster.get(0, "/reconcilers?local=true").await.json;
        let rows = rows["reconcilers"].as_array().unwrap().clone();
        let packages = rows.into_iter().find(|row| row["name"] == "packages").unwrap();
        (packages["did"]["manifests-collected"] == 1).then_some(())
    };
    cluster.until(counted).await;
    assert_eq!(cluster.count("/icp/manifest/held"), 1, "a package has it");
    cluster.stop().await;
}
