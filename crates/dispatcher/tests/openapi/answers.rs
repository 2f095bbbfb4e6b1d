//! What a dispatcher answers is what the description says.

use std::collections::BTreeSet;

use dispatcher::openapi::{FileList, ListedFile};
use flink_rest::Route;
use flink_rest::run_request::{BODY_FIELDS, RunRequest};
use http::HeaderValue;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::support::http::Part;
use crate::support::{Answer, Cluster, hello_jar, multipart};
use crate::{document, operations, schema};

/// Asks, and compares the answer with the description of its operation.
struct Asking {
    cluster: Cluster,
    directory: tempfile::TempDir,
    document: Value,
    /// Operations that answered with success.
    answered: Mutex<BTreeSet<String>>,
}

impl Asking {
    async fn ask(&self, operation: &str, path: &str, status: u16) -> Answer {
        self.ask_with(operation, path, status, &[], vec![]).await
    }

    async fn ask_with(
        &self,
        operation: &str,
        path: &str,
        status: u16,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Answer {
        let found = operations(&self.document).into_iter().find(|(_, _, of)| of["operationId"] == operation);
        let (template, method, described) = found.unwrap_or_else(|| panic!("no operation {operation}"));
        let answer = self.cluster.send(0, &method.to_uppercase(), path, headers, body).await;
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.text);
        let responses = &described["responses"];
        let code = status.to_string();
        let response = if responses[&code].is_null() { &responses["default"] } else { &responses[&code] };
        let content =
            response["content"].as_object().unwrap_or_else(|| panic!("{template} {code} has no content"));
        let (media_type, content) = content.iter().next().unwrap();
        let sent = answer.headers["content-type"].to_str().unwrap();
        assert!(sent.starts_with(media_type), "{method} {path}: {sent}");
        if media_type == "application/json" {
            let compared = schema::conforms(&self.document, &content["schema"], &answer.json);
            compared.unwrap_or_else(|why| panic!("{method} {path} {status}: {why} in {}", answer.text));
        }
        if status < 300 {
            self.answered.lock().insert(operation.to_owned());
        }
        answer
    }
}

#[tokio::test]
async fn answers_are_as_described() {
    let mut cluster = Cluster::start(0).await;
    let directory = cluster.host("d1").await;
    let asking = Asking { cluster, directory, document: document(), answered: Mutex::default() };
    packages(&asking).await;
    runs(&asking).await;
    refusals(&asking).await;
    forgotten(&asking).await;
    let described: BTreeSet<String> = operations(&asking.document)
        .iter()
        .map(|(_, _, of)| of["operationId"].as_str().unwrap().to_owned())
        .collect();
    let mut answered = asking.answered.into_inner();
    // Needs a Java; its refusal is compared.
    answered.insert("job_output".to_owned());
    assert_eq!(answered, described, "every operation was asked");
    asking.cluster.stop().await;
}

async fn packages(asking: &Asking) {
    let (form, body) = multipart(&[Part::file("file", "lib/a.txt", b"one")]);
    asking.ask_with("icp_create", "/icp/mylib/1.0.0", 200, &[("content-type", &form)], body).await;
    let content = b"listed first";
    let listed = ListedFile {
        path: "b.txt".into(),
        size: content.len() as u64,
        blake3: blake3::hash(content).to_hex().to_string(),
    };
    let digest = listed.blake3.clone();
    let list = serde_json::to_vec(&FileList { files: vec![listed] }).unwrap();
    let as_json = [("content-type", "application/json")];
    let begun = asking.ask_with("icp_create", "/icp/listed/1.0.0?request=r1", 202, &as_json, list).await;
    let op = begun.json["op"].as_str().unwrap();
    asking.ask("icp_upload", &format!("/icp/listed/1.0.0/upload?op={op}"), 200).await;
    let file = format!("/icp/listed/1.0.0/files/{digest}?op={op}");
    asking.ask_with("icp_upload_file", &file, 422, &[], b"another one!".to_vec()).await;
    asking.ask_with("icp_upload_file", &file, 200, &[], content.to_vec()).await;
    let ready = || async {
        let status = asking.cluster.get(0, "/icp/listed/1.0.0").await;
        (status.json["status"] == "READY").then_some(())
    };
    asking.cluster.until(ready).await;
    let file = format!("/icp/listed/1.0.0/files/{digest}");
    let whole = asking.ask("icp_file", &file, 200).await;
    assert_eq!(whole.text.as_bytes(), content);
    let rest = asking.ask_with("icp_file", &file, 206, &[("range", "bytes=7-")], vec![]).await;
    assert_eq!(
        (rest.text.as_str(), &rest.headers["content-range"]),
        ("first", &HeaderValue::from_static("bytes 7-11/12"))
    );
    asking.ask_with("icp_file", &file, 416, &[("range", "bytes=99-")], vec![]).await;
    asking.ask("icp_list", "/icp", 200).await;
    asking.ask("icp_versions", "/icp/mylib", 200).await;
    asking.ask("icp_status", "/icp/mylib/1.0.0", 200).await;
    asking.ask("icp_check", "/icp/mylib/1.0.0/check", 200).await;
    asking.ask("icp_check", "/icp/mylib/1.0.0/check?repair=true", 200).await;
    asking.ask("icp_refs", "/icp/mylib/1.0.0/refs", 200).await;
    asking.ask("icp_pull", "/icp/mylib/1.0.0/pull?node=d1", 200).await;
    asking.ask("nodes", "/nodes", 200).await;
    asking.ask("reconcilers", "/reconcilers", 200).await;
    asking.ask("reconcilers", "/reconcilers?local=true", 200).await;
    asking.ask("node_icp", "/nodes/d1/icp", 200).await;
    asking.ask("icp_remove", "/icp/mylib/1.0.0?dry-run=true", 200).await;
    asking.ask("icp_remove", "/icp/mylib/1.0.0", 200).await;
    let root = asking.directory.path().join("work/icp/byhand/1.0.0");
    std::fs::create_dir_all(&root).unwrap();
    std::fs::write(root.join("a.txt"), "one").unwrap();
    asking.ask("icp_register", "/icp/byhand/1.0.0/register", 200).await;
    asking.ask("openapi", "/openapi.json", 200).await;
}

async fn runs(asking: &Asking) {
    let jar = hello_jar();
    let (form, body) = multipart(&[Part::text("triggerId", "T1"), Part::file("jarfile", "hello.jar", &jar)]);
    asking.ask_with("run_submit", "/run-async", 200, &[("content-type", &form)], body).await;
    asking.ask("run_status", "/run-async/T1", 200).await;
    asking.cluster.completed(0, "T1").await;
    asking.ask("run_status", "/run-async/T1", 200).await;
    asking.ask("run_list", "/run-async?limit=1", 200).await;
    asking.ask("run_delete", "/run-async/T1", 200).await;
    asking.ask("run_status", "/run-async/T1", 404).await;
}

async fn refusals(asking: &Asking) {
    asking.ask("icp_create", "/icp/mylib/latest", 400).await;
    asking.ask("icp_create", "/icp/app/1.0.0", 415).await;
    asking.ask("icp_status", "/icp/none/1.0.0", 404).await;
    asking.ask("icp_file", &format!("/icp/listed/1.0.0/files/{}", "a".repeat(64)), 404).await;
    asking.ask("icp_register", "/icp/none/1.0.0/register", 404).await;
    asking.ask("icp_pull", "/icp/none/1.0.0/pull?node=d1", 404).await;
    asking.ask("node_icp", "/nodes/none/icp", 404).await;
    asking.ask("run_submit", "/run-async", 400).await;
    asking.ask("job_output", &format!("/jobs/{}/attempts/1/stdout", "a".repeat(32)), 404).await;
}

/// The clock goes on by more than a day: the details of a run are gone.
async fn forgotten(asking: &Asking) {
    let jar = hello_jar();
    let (form, body) = multipart(&[Part::text("triggerId", "T2"), Part::file("jarfile", "hello.jar", &jar)]);
    asking.ask_with("run_submit", "/run-async", 200, &[("content-type", &form)], body).await;
    asking.cluster.completed(0, "T2").await;
    asking.ask("run_status", "/run-async/T2?wait=1s", 200).await;
    asking.cluster.kv.advance(std::time::Duration::from_secs(25 * 3600));
    asking.ask("run_status", "/run-async/T2", 410).await;
}

/// A request is read by another crate than the one that describes it.
#[test]
fn a_run_is_asked_for_as_described() {
    let document = document();
    let described = document["components"]["schemas"]["RunRequest"]["properties"].as_object().unwrap();
    let described: BTreeSet<&str> = described.keys().map(String::as_str).collect();
    assert_eq!(described, BTreeSet::from_iter(BODY_FIELDS.iter().copied()));
    let body = json!({
        "triggerId": "T1", "jarId": "x.jar", "entryClass": "Main", "programArgsList": ["a"], "parallelism": 1,
        "jobId": "a".repeat(32), "packages": ["lib:1.0.0"], "savepointPath": "file:///s", "claimMode": "CLAIM",
        "allowNonRestoredState": true, "flinkConfiguration": { "k": "v" },
    });
    let schema = &document["components"]["schemas"]["RunRequest"];
    schema::conforms(&document, schema, &body).unwrap();
    let read = RunRequest::from_body(Route::RunAsync, body.to_string().as_bytes()).unwrap();
    assert!(read.packages.is_some() && read.flink_configuration.is_some());
}
