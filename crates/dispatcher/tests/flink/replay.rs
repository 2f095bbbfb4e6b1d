//! Replays what real Flink clusters were asked, all of it, against a dispatcher and compares the answers.

use std::collections::BTreeMap;
use std::io::{Cursor, Write};

use serde_json::Value;

use crate::recordings::{Case, VERSIONS, cases};
use crate::support::http::Part;
use crate::support::{Answer, Cluster};
use crate::{compare, differences};

/// A part that is larger than this is sent in the size it was recorded with.
const LARGE: usize = 1 << 20;

fn jar(main_class: Option<&str>) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let main = main_class.map(|class| format!("Main-Class: {class}\r\n")).unwrap_or_default();
    let manifest = format!("Manifest-Version: 1.0\r\n{main}\r\n");
    writer.start_file("META-INF/MANIFEST.MF", zip::write::SimpleFileOptions::default()).unwrap();
    writer.write_all(manifest.as_bytes()).unwrap();
    writer.finish().unwrap().into_inner()
}

/// Replays one version's recordings in order, carrying jar and job ids over.
struct Replay {
    cluster: Cluster,
    jars: BTreeMap<String, String>,
    jobs: Vec<(String, String)>,
    failures: Vec<String>,
}

impl Replay {
    async fn start() -> Self {
        let cluster = Cluster::start(1).await;
        cluster.node("n1", 4).await;
        let mut jars = BTreeMap::new();
        for name in
            ["FinishJob", "ThrowJob", "NoJob", "TwoJobs", "FailTask", "ForeverJob", "nomain", "notajar"]
        {
            let bytes = match name {
                "nomain" => jar(None),
                "notajar" => b"this is no archive".to_vec(),
                class => jar(Some(class)),
            };
            let file = format!("{name}.jar");
            let id = cluster.upload_as(&file, &bytes).await;
            jars.insert(file, id);
        }
        Self { cluster, jars, jobs: Vec::new(), failures: Vec::new() }
    }

    /// The recorded text with our ids.
    fn ours(&self, text: &str) -> String {
        let mut ours = text.to_owned();
        for (theirs, our) in &self.jobs {
            ours = ours.replace(theirs, our);
        }
        let Some(at) = ours.find("/jars/") else { return ours };
        let rest = &ours[at + 6..];
        let segment = rest.split(['/', '?']).next().unwrap_or_default();
        // <uuid>_NAME is a JAR that was uploaded there; 32 digits without dashes were made up.
        let name = segment.split_once('_').filter(|(uuid, _)| uuid.len() == 36).map(|(_, name)| name);
        match name.and_then(|name| self.jars.get(name)) {
            Some(id) => ours.replace(segment, id),
            None => ours,
        }
    }

    async fn ask(&self, case: &Case) -> Answer {
        let path = self.ours(&case.path);
        if let Some(parts) = case.note.as_deref().and_then(|note| note.strip_prefix("multipart/form-data: "))
        {
            return self.ask_multipart(case, &path, parts).await;
        }
        let body = match (&case.body, &case.note) {
            (Some(body), _) => self.ours(body).into_bytes(),
            (None, Some(_)) => jar(Some("FinishJob")),
            (None, None) => Vec::new(),
        };
        let headers: Vec<_> = case.content_type.iter().map(|text| ("content-type", text.as_str())).collect();
        self.cluster.send(0, &case.method, &path, &headers, body).await
    }

    async fn ask_multipart(&self, case: &Case, path: &str, notes: &str) -> Answer {
        let field = |part: &str, name: &str| {
            let at = part.find(&format!("{name}="))? + name.len() + 1;
            let end = ["field=", "filename=", "content-type=", "bytes="]
                .iter()
                .filter_map(|next| part[at..].find(&format!(" {next}")))
                .min()
                .unwrap_or(part.len() - at);
            Some(part[at..at + end].to_owned()).filter(|value| value != "None")
        };
        let bytes = jar(Some("FinishJob"));
        let sizes = notes.rsplit("bytes=").filter_map(|size| size.split(';').next()?.parse::<usize>().ok());
        let large = vec![0; sizes.max().filter(|size| *size > LARGE).unwrap_or_default()];
        let described: Vec<_> = notes
            .split("; ")
            .filter(|part| part.starts_with("field="))
            .map(|part| (field(part, "field").unwrap(), field(part, "filename"), field(part, "bytes")))
            .collect();
        let parts: Vec<Part<'_>> = described
            .iter()
            .map(|(field, file_name, size)| Part {
                field,
                file_name: file_name.as_deref(),
                bytes: match size.as_deref().and_then(|size| size.parse::<usize>().ok()) {
                    Some(0) => &[],
                    Some(size) if size == large.len() => &large,
                    _ => &bytes,
                },
            })
            .collect();
        assert_eq!(case.method, "POST");
        self.cluster.post_multipart(0, path, &parts).await
    }

    async fn replay(&mut self, case: &Case, twin: Option<&Case>) {
        self.prepare(case).await;
        let answer = self.ask(case).await;
        if let (Some(theirs), Some(ours)) = (case.answer["jobid"].as_str(), answer.json["jobid"].as_str()) {
            self.jobs.push((theirs.to_owned(), ours.to_owned()));
        }
        self.settle(case, &answer).await;
        if let Some(difference) = difference(case, twin, &answer) {
            self.failures.push(format!("{}: {difference}", case.file));
        }
    }

    /// A job that was started in a recording that is not kept.
    async fn prepare(&self, case: &Case) {
        if case.name == "yarn-cancel" {
            let job = case.path.split('/').nth(2).unwrap();
            let path = format!("/jars/{}/run", self.jars["ForeverJob.jar"]);
            let started = self.cluster.post(0, &path, &format!("{{\"jobId\": \"{job}\"}}")).await;
            assert_eq!(started.status, 200, "{}", started.text);
        }
    }

    /// Real jobs had time to end between the recorded requests.
    async fn settle(&self, case: &Case, answer: &Answer) {
        if (case.method.as_str(), answer.status) == ("PATCH", 202) {
            let path = self.ours(&case.path);
            return self.until_it_is(path.split(['/', '?']).nth(2).unwrap(), "CANCELED").await;
        }
        let Some(job) = answer.json["jobid"].as_str() else { return };
        let wanted = match case.path.split("/run").next().unwrap_or_default() {
            path if path.ends_with("ForeverJob.jar") => "RUNNING",
            path if path.ends_with("FailTask.jar") => "FAILED",
            _ => "FINISHED",
        };
        self.until_it_is(job, wanted).await;
    }

    async fn until_it_is(&self, job: &str, wanted: &str) {
        self.cluster
            .until(|| async {
                let status = self.cluster.get(0, &format!("/jobs/{job}/status")).await;
                (status.json["status"] == wanted).then_some(())
            })
            .await;
    }
}

fn difference(case: &Case, twin: Option<&Case>, answer: &Answer) -> Option<String> {
    let wanted = differences::status_of(case).unwrap_or(case.status);
    if answer.status != wanted {
        return Some(format!("status {} instead of {wanted}: {}", answer.status, answer.text));
    }
    if case.status != wanted {
        return formless(answer).map(|what| format!("{what}: {}", answer.text));
    }
    for name in ["content-type", "access-control-allow-origin"] {
        let (ours, theirs) = (answer.header(name), case.headers.get(name).map(String::as_str));
        if ours != theirs {
            return Some(format!("{name} {ours:?} instead of {theirs:?}"));
        }
    }
    if differences::has_other_words(case) {
        return None;
    }
    let other = twin.map_or(&Value::Null, |twin| &twin.answer);
    compare::difference(&answer.json, &case.answer, other, differences::fields_left_out(case))
}

/// What an answer that Flink does not give lacks to be one of a front.
fn formless(answer: &Answer) -> Option<&'static str> {
    if answer.header("content-type") != Some("application/json; charset=UTF-8") {
        return Some("no JSON");
    }
    let is_line = |error: &Value| error.as_str().is_some_and(|text| !text.is_empty() && !text.contains('\n'));
    match answer.json["errors"].as_array() {
        None => (answer.status >= 400).then_some("no errors"),
        Some(errors) if answer.status < 400 || errors.is_empty() => Some("errors that are none"),
        Some(errors) => (!errors.iter().all(is_line)).then_some("an error of several lines"),
    }
}

async fn replay(version: &str) {
    let mut replay = Replay::start().await;
    let other = VERSIONS.iter().find(|other| **other != version).unwrap();
    let (cases, twins) = (cases(version), cases(other));
    assert_eq!(cases.len(), 179, "{version}");
    for case in &cases {
        let twin = twins.iter().find(|twin| twin.name == case.name);
        replay.replay(case, twin).await;
    }
    let failures = std::mem::take(&mut replay.failures);
    replay.cluster.stop().await;
    assert!(failures.is_empty(), "{version}: {} differences\n{}", failures.len(), failures.join("\n"));
}

#[tokio::test]
async fn flink_1_20_5() {
    replay("1.20.5").await;
}

#[tokio::test]
async fn flink_2_3_0() {
    replay("2.3.0").await;
}
