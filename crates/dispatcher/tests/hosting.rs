//! `single.enable = false`: the dispatcher is a server node too. Packages are real here, only Java is missing.

mod support;

use serde_json::json;
use support::http::Part;
use support::{Cluster, hello_jar};

/// One dispatcher that hosts JobMasters, in a directory of its own.
async fn hosting() -> (Cluster, tempfile::TempDir) {
    let mut cluster = Cluster::start(0).await;
    let directory = cluster.host("d1").await;
    (cluster, directory)
}

#[tokio::test]
async fn a_dispatcher_that_hosts_is_a_server_node() {
    let (cluster, _directory) = hosting().await;
    let nodes = cluster.get(0, "/nodes").await;
    let node = &nodes.json["nodes"][0];
    assert_eq!(
        (&node["node"], &node["roles"]),
        (&json!("d1"), &json!(["dispatcher", "jobmaster"])),
        "{}",
        nodes.text
    );
    assert_eq!((&node["slots"], &node["single-enable"]), (&json!(2), &json!(false)));
    let overview = cluster.get(0, "/overview").await;
    assert_eq!((&overview.json["taskmanagers"], &overview.json["slots-available"]), (&json!(1), &json!(2)));
    assert_eq!(cluster.get(0, "/readyz").await.status, 200);

    let jar = cluster.upload().await;
    let list = cluster.get(0, "/jars").await;
    assert_eq!(list.json["files"][0]["entry"], json!([{ "name": "Hello", "description": null }]));
    let body = json!({ "triggerId": "T1", "jarId": jar }).to_string();
    assert_eq!(cluster.post(0, "/run-async", &body).await.status, 200);
    let done = cluster.completed(0, "T1").await;
    let cause = &done.json["operation"]["failure-cause"];
    assert_eq!(cause["class"], "NO_JAVA", "{}", done.text);
    assert!(cause["stack-trace"].as_str().unwrap().contains("JAVA_HOME"), "{}", done.text);
    cluster.stop().await;
}

#[tokio::test]
async fn a_deleted_jar_is_gone_from_the_store_and_the_disk() {
    let (cluster, directory) = hosting().await;
    let jar = cluster.upload().await;
    let packages = directory.path().join("work/icp");
    assert_eq!(std::fs::read_dir(&packages).unwrap().count(), 1);
    assert_eq!(cluster.delete(0, &format!("/jars/{jar}")).await.text, "{}");
    assert_eq!(cluster.get(0, "/jars").await.json["files"], json!([]));
    cluster
        .until(|| async {
            let left = cluster.get(0, "/icp").await.json["packages"].as_array().unwrap().len();
            (left == 0 && cluster.count("/icp/") == 0).then_some(())
        })
        .await;
    let left = std::fs::read_dir(&packages).unwrap().flatten();
    assert_eq!(left.filter(|entry| std::fs::read_dir(entry.path()).unwrap().count() > 0).count(), 0);
    let run = cluster.post(0, "/run-async", &json!({ "jarId": jar }).to_string()).await;
    assert_eq!(run.status, 404);
    cluster.stop().await;
}

#[tokio::test]
async fn a_package_is_created_looked_at_and_removed_through_the_front() {
    let (cluster, _directory) = hosting().await;
    let files = [Part::file("file", "lib/a.txt", b"one"), Part::file("file", "b.bin", b"two")];
    let (content_type, body) = support::multipart(&files);
    let put = |body: Vec<u8>| {
        let headers = [("content-type", content_type.clone())];
        let cluster = &cluster;
        async move {
            let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
            cluster.send(0, "PUT", "/icp/mylib/1.0.0?nodes=all", &headers, body).await
        }
    };
    let created = put(body.clone()).await;
    assert_eq!(created.status, 200, "{}", created.text);
    assert_eq!((&created.json["status"], &created.json["nodes"][0]["node"]), (&json!("READY"), &json!("d1")));
    assert_eq!(put(body).await.status, 200, "the same content again");
    let (_, other) = support::multipart(&[Part::file("file", "b.bin", b"three")]);
    let refused = put(other).await;
    assert_eq!(refused.status, 409, "{}", refused.text);
    assert!(refused.error().contains("already exists"), "{}", refused.text);

    let status = cluster.get(0, "/icp/mylib/latest").await;
    assert_eq!(
        (&status.json["version"], &status.json["files"]),
        (&json!("1.0.0"), &json!(2)),
        "{}",
        status.text
    );
    let on_node = cluster.get(0, "/nodes/d1/icp").await;
    assert_eq!(on_node.json["packages"][0]["name"], "mylib", "{}", on_node.text);
    let row = &on_node.json["packages"][0];
    assert_eq!(
        (&row["disk"]["state"], &row["drift"]),
        (&json!("PRESENT"), &json!(false)),
        "{}",
        on_node.text
    );

    // A run that names it waits for nothing; one that names another is refused.
    let jar = cluster.upload().await;
    let with = |package: &str| json!({ "jarId": jar, "packages": [package] }).to_string();
    assert_eq!(cluster.post(0, "/run-async", &with("mylib")).await.status, 200);
    assert_eq!(cluster.post(0, "/run-async", &with("mylib:2.0.0")).await.status, 404);

    let removed = cluster.delete(0, "/icp/mylib/1.0.0").await;
    assert_eq!((removed.status, &removed.json["status"]), (200, &json!("REMOVING")), "{}", removed.text);
    let gone = || async { (cluster.get(0, "/icp/mylib/1.0.0").await.status == 404).then_some(()) };
    cluster.until(gone).await;
    let not_ready = cluster.post(0, "/run-async", &with("mylib:1.0.0")).await;
    assert_eq!(not_ready.status, 404, "{}", not_ready.text);
    assert_eq!(cluster.delete(0, "/icp/mylib/1.0.0").await.status, 404);
    assert_eq!(cluster.delete(0, "/icp/My_Lib/1.0.0?mode=x").await.status, 400);
    cluster.stop().await;
}

/// Files that were put there by hand, from the front to the disk and back.
#[tokio::test]
async fn files_in_their_place_are_registered_through_the_front() {
    let (cluster, directory) = hosting().await;
    let root = directory.path().join("work/icp/mylib/1.0.0");
    let register = async || cluster.post(0, "/icp/mylib/1.0.0/register?nodes=all", "").await;
    let missing = register().await;
    assert_eq!(
        (missing.status, &missing.json["reason"]),
        (404, &json!("CONTENT_MISSING")),
        "{}",
        missing.text
    );
    assert_eq!(missing.json["rows"], json!([{ "node": "d1", "file": "*", "state": "MISSING" }]));
    assert_eq!(cluster.get(0, "/icp/mylib/1.0.0").await.status, 404, "no record stays");
    std::fs::create_dir_all(root.join("lib")).unwrap();
    std::fs::write(root.join("lib/a.txt"), "one").unwrap();
    let done = register().await;
    assert_eq!((done.status, &done.json["status"]), (200, &json!("READY")), "{}", done.text);
    assert_eq!(done.json["rows"], json!([{ "node": "d1", "file": "*", "state": "OK" }]));
    assert!(std::fs::metadata(root.join("lib/a.txt")).unwrap().permissions().readonly());
    assert_eq!(cluster.delete(0, "/icp/mylib/1.0.0").await.status, 200);
    let gone = || async { (cluster.get(0, "/icp/mylib/1.0.0").await.status == 404).then_some(()) };
    cluster.until(gone).await;
    assert!(!root.exists());
    cluster.stop().await;
}

/// A JAR sent along lives as long as its job.
#[tokio::test]
async fn a_private_package_goes_when_its_job_is_over() {
    let (cluster, _directory) = hosting().await;
    let jar = hello_jar();
    let parts = [Part::text("triggerId", "T1"), Part::file("jarfile", "hello.jar", &jar)];
    assert_eq!(cluster.post_multipart(0, "/run-async", &parts).await.status, 200);
    assert_eq!(cluster.get(0, "/jars").await.json["files"], json!([]), "it is no uploaded JAR");
    cluster.completed(0, "T1").await;
    cluster.until(|| async { (cluster.count("/icp/") == 0).then_some(()) }).await;
    cluster.stop().await;
}

/// What metactl deploys for a run alone: it waits for the run, and goes when no job needs it.
#[tokio::test]
async fn a_package_created_as_private_goes_by_itself() {
    let (cluster, directory) = hosting().await;
    let (content_type, body) = support::multipart(&[Part::file("file", "dep.jar", b"one")]);
    let headers = [("content-type", content_type.as_str())];
    let put = async |query: &str| {
        cluster.send(0, "PUT", &format!("/icp/dep/1.0.0{query}"), &headers, body.clone()).await
    };
    let refused = put("?private=perhaps").await;
    assert_eq!(
        (refused.status, refused.error()),
        (400, "private: expected true or false, found \"perhaps\"")
    );
    let created = put("?private").await;
    assert_eq!(created.status, 200, "{}", created.text);
    cluster.until(|| async { (cluster.count("/icp/") == 0).then_some(()) }).await;
    let left = std::fs::read_dir(directory.path().join("work/icp")).unwrap().flatten();
    assert_eq!(left.filter(|entry| std::fs::read_dir(entry.path()).unwrap().count() > 0).count(), 0);
    cluster.stop().await;
}

/// The list through one dispatcher, the files through the other, whichever node coordinates.
#[tokio::test]
async fn a_package_is_listed_first_and_its_files_go_through_any_dispatcher() {
    let (mut cluster, one) = hosting().await;
    let two = cluster.host("d2").await;
    let files = [("lib/a.jar", &b"first"[..]), ("b.jar", b"second")];
    let digest = |bytes: &[u8]| blake3::hash(bytes).to_hex().to_string();
    let listed: Vec<_> = files
        .iter()
        .map(|(path, bytes)| json!({ "path": path, "size": bytes.len(), "blake3": digest(bytes) }))
        .collect();
    let list = json!({ "files": listed }).to_string();
    let as_json = [("content-type", "application/json")];
    let put = async |dispatcher: usize, query: &str, body: &str| {
        let path = format!("/icp/app/1.0.0?{query}");
        cluster.send(dispatcher, "PUT", &path, &as_json, body.as_bytes().to_vec()).await
    };
    assert_eq!(put(0, "", "[").await.status, 400);
    assert_eq!(
        put(0, "reqest=x", &list).await.error(),
        "unknown query parameter \"reqest\"; did you mean \"request\"?"
    );
    let begun = put(0, "request=r1", &list).await;
    assert_eq!((begun.status, begun.json["missing"].as_array().unwrap().len()), (202, 2), "{}", begun.text);
    let op = begun.json["op"].as_str().unwrap().to_owned();
    for at in 0..2 {
        let upload = format!("/icp/app/1.0.0/upload?op={op}");
        assert_eq!(cluster.get(at, &upload).await.json["missing"], begun.json["missing"]);
        assert_eq!(cluster.get(at, "/icp/app/1.0.0/upload?op=other").await.status, 404);
        assert_eq!(cluster.get(at, "/icp/app/1.0.0/upload").await.status, 400);
        let again = put(at, "request=r1", &list).await;
        assert_eq!((again.status, again.json["op"].as_str()), (202, Some(&*op)), "{}", again.text);
    }
    for (at, (_, bytes)) in files.iter().enumerate() {
        let path = format!("/icp/app/1.0.0/files/{}?op={op}", digest(bytes));
        let wrong = cluster.send(at, "PUT", &path, &[], b"other".to_vec()).await;
        assert_eq!(wrong.status, if bytes.len() == 5 { 422 } else { 200 }, "{}", wrong.text);
        let offset = if bytes.len() == 5 { 0 } else { 5 };
        let past = cluster.send(at, "PUT", &format!("{path}&offset=3"), &[], b"x".to_vec()).await;
        assert_eq!((past.status, past.json["reason"].as_str()), (409, Some("OFFSET")), "{}", past.text);
        if offset == 0 {
            let sent = cluster.send(at, "PUT", &path, &[], bytes.to_vec()).await;
            assert_eq!((sent.status, &sent.json["received"]), (200, &json!(bytes.len())), "{}", sent.text);
        } else {
            // Five wrong bytes are there, and one more makes the file whole, and wrong: from the start again.
            let last = cluster.send(at, "PUT", &format!("{path}&offset=5"), &[], b"x".to_vec()).await;
            assert_eq!(last.status, 422, "{}", last.text);
            assert_eq!(cluster.send(at, "PUT", &path, &[], bytes.to_vec()).await.status, 200);
        }
    }
    cluster
        .until(|| async { (cluster.get(1, "/icp/app/1.0.0").await.json["status"] == "READY").then_some(()) })
        .await;
    for directory in [&one, &two] {
        for (path, bytes) in files {
            assert_eq!(std::fs::read(directory.path().join("work/icp/app/1.0.0").join(path)).unwrap(), bytes);
        }
    }
    let over = cluster.get(0, &format!("/icp/app/1.0.0/upload?op={op}")).await;
    assert_eq!(over.status, 409);
    assert!(over.error().contains("READY"), "{}", over.text);
    assert_eq!(put(1, "request=r1", &list).await.json["status"], "READY");
    cluster.stop().await;
}
