//! Replays what real Flink clusters were asked (crates/flink-rest/testdata) against a dispatcher and compares the
//! answers, with ids, times, addresses and directories masked. Deliberate differences are in [`DIFFERENT`] and in
//! docs/flink-compat.md; any other fails.

mod support;

use std::collections::BTreeMap;
use std::io::{Cursor, Write};
use std::path::PathBuf;

use serde_json::Value;
use support::http::Part;
use support::{Answer, Cluster};

/// Cases that are answered differently on purpose: name, our status, why.
const DIFFERENT: &[(&str, u16, &str)] = &[
    ("run_b_flinkConfiguration_bad_value", 400, "refused before anything is stored"),
    ("run_two_executes_with_jobId", 200, "a run is one process"),
    ("run_b_savepointPath_missing", 200, "only the job can read its savepoint"),
    ("run_q_savepointPath_missing", 200, "only the job can read its savepoint"),
];

/// Cases whose bodies are compared by status and headers only, and why.
const OTHER_BODY: &[(&str, &str)] = &[
    ("get_taskmanagers", "server nodes instead of JVMs"),
    ("get_jars_empty", "the JARs are uploaded before the replay"),
    ("get_jars_", "the JARs are uploaded before the replay"),
    ("run_not_a_jar", "the missing entry class is named, not the archive"),
    ("jobs", "Flink lists its own jobs"),
    ("jobs_overview", "Flink lists its own jobs"),
    ("job_FAILED_detail", "no vertices"),
    ("job_FINISHED_detail", "no vertices"),
    ("job_CANCELED_detail", "no vertices"),
];

/// One recorded exchange.
struct Case {
    file: String,
    name: String,
    method: String,
    path: String,
    content_type: Option<String>,
    body: Option<String>,
    note: Option<String>,
    status: u16,
    headers: BTreeMap<String, String>,
    answer: Value,
}

fn cases(version: &str) -> Vec<Case> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../flink-rest/testdata").join(version);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|file| read(&file)).collect()
}

fn read(file: &std::path::Path) -> Case {
    let recorded: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let (request, response) = (&recorded["request"], &recorded["response"]);
    let headers = response["headers"].as_array().unwrap().iter();
    Case {
        file: file.file_name().unwrap().to_string_lossy().into_owned(),
        name: text(&recorded["case"]).unwrap(),
        method: text(&request["method"]).unwrap(),
        path: text(&request["path"]).unwrap(),
        content_type: text(&request["headers"]["Content-Type"]),
        body: text(&request["body"]),
        note: text(&request["body_note"]),
        status: response["status"].as_u64().unwrap() as u16,
        headers: headers.map(|pair| (text(&pair[0]).unwrap(), text(&pair[1]).unwrap())).collect(),
        answer: answer(response["body"].as_str().unwrap_or_default()),
    }
}

/// A recorded body; one that was cut at its stack trace is an error up to there.
fn answer(body: &str) -> Value {
    let cut = || {
        let text = body.strip_prefix("{\"errors\":[\"")?.lines().next()?;
        Some(serde_json::json!({ "errors": [text.split("\\n").next()?] }))
    };
    serde_json::from_str(body).ok().or_else(cut).unwrap_or(Value::Null)
}

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
                bytes: if size.as_deref() == Some("0") { &[] } else { &bytes },
            })
            .collect();
        assert_eq!(case.method, "POST");
        self.cluster.post_multipart(0, path, &parts).await
    }

    async fn replay(&mut self, case: &Case) {
        let answer = self.ask(case).await;
        if let (Some(theirs), Some(ours)) = (case.answer["jobid"].as_str(), answer.json["jobid"].as_str()) {
            self.jobs.push((theirs.to_owned(), ours.to_owned()));
        }
        self.settle(case, &answer).await;
        if let Some(difference) = difference(case, &answer) {
            self.failures.push(format!("{}: {difference}", case.file));
        }
    }

    /// Real jobs had time to end between the recorded requests.
    async fn settle(&self, case: &Case, answer: &Answer) {
        let Some(job) = answer.json["jobid"].as_str() else { return };
        let wanted = match case.path.split("/run").next().unwrap_or_default() {
            path if path.ends_with("ForeverJob.jar") => "RUNNING",
            path if path.ends_with("FailTask.jar") => "FAILED",
            _ => "FINISHED",
        };
        self.cluster
            .until(|| async {
                let status = self.cluster.get(0, &format!("/jobs/{job}/status")).await;
                (status.json["status"] == wanted).then_some(())
            })
            .await;
    }
}

fn difference(case: &Case, answer: &Answer) -> Option<String> {
    let deliberate = DIFFERENT.iter().find(|(name, ..)| *name == case.name);
    let wanted = deliberate.map_or(case.status, |(_, status, _)| *status);
    if answer.status != wanted {
        return Some(format!("status {} instead of {wanted}: {}", answer.status, answer.text));
    }
    for name in ["content-type", "access-control-allow-origin"] {
        let ours = answer.headers.get(name).map(|value| value.to_str().unwrap());
        let theirs = case.headers.get(name).map(String::as_str);
        if ours != theirs {
            return Some(format!("{name} {ours:?} instead of {theirs:?}"));
        }
    }
    if deliberate.is_some() || OTHER_BODY.iter().any(|(name, _)| *name == case.name) {
        return None;
    }
    let (ours, theirs) = (shape(&answer.json), shape(&case.answer));
    (ours != theirs).then(|| format!("body {ours} instead of {theirs}"))
}

/// What is compared of a body: error texts up to their stack trace, else names and types.
fn shape(body: &Value) -> String {
    match body["errors"].as_array() {
        Some(errors) => errors
            .iter()
            .map(|error| error.as_str().unwrap_or_default())
            // The next lines of Flink's first text, which are not compared; here a text of their own.
            .filter(|error| !error.starts_with("Caused by: "))
            .map(mask)
            .collect(),
        None => types(body),
    }
}

fn types(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields
                .iter()
                // 2.3's second name of the job id, and job ids that stand for applications.
                .filter(|(name, _)| !matches!(name.as_str(), "applicationId" | "application-id"))
                .map(|(name, value)| format!("{name}: {}", types(value)))
                .collect();
            fields.sort();
            format!("{{{}}}", fields.join(", "))
        }
        Value::Array(items) => format!("[{}]", items.first().map(types).unwrap_or_default()),
        Value::String(_) => "text".into(),
        Value::Number(_) => "number".into(),
        Value::Bool(flag) => flag.to_string(),
        Value::Null => "null".into(),
    }
}

/// The first line of an error, or of the exception inside of one, without ids and directories.
fn mask(text: &str) -> String {
    let text = text.strip_prefix("<Exception on server side:\n").unwrap_or(text);
    let line = text.lines().next().unwrap_or_default();
    let words = line.split(' ').map(|word| {
        let bare = word.rsplit('/').next().unwrap_or(word);
        let is_path = word.contains("flink-web-upload");
        let hex = |text: &str| text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let after_id =
            bare.split_once('_').map_or(bare, |(id, name)| if id.len() >= 32 { name } else { bare });
        if hex(word) {
            "ID".to_owned()
        } else if word.trim_end_matches(['.', '\'']).ends_with("flink-web-upload") {
            "DIRECTORY".to_owned()
        } else if is_path {
            after_id.to_owned()
        } else if word.starts_with('/') {
            word.split('/')
                .map(|s| s.split_once('_').map_or(s, |(_, name)| name))
                .collect::<Vec<_>>()
                .join("/")
        } else {
            word.split_once('_')
                .map_or(word, |(id, name)| if id.len() >= 32 { name } else { word })
                .to_owned()
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

async fn replay(version: &str) {
    let mut replay = Replay::start().await;
    let cases = cases(version);
    assert!(cases.len() > 90, "{version}: {} recordings", cases.len());
    for case in &cases {
        replay.replay(case).await;
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
