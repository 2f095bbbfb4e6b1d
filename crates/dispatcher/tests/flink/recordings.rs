//! What real Flink clusters were asked and what they answered: crates/flink-rest/testdata, a file an exchange.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

/// The versions that were recorded.
pub const VERSIONS: [&str; 2] = ["1.20.5", "2.3.0"];

/// One recorded exchange.
pub struct Case {
    pub file: String,
    pub name: String,
    pub method: String,
    pub path: String,
    pub content_type: Option<String>,
    pub body: Option<String>,
    pub note: Option<String>,
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub answer: Value,
}

/// A file below the recordings.
pub fn testdata(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../flink-rest/testdata").join(path)
}

/// All of a version, in the order they were recorded in. The index names them, so that none can be lost.
pub fn cases(version: &str) -> Vec<Case> {
    let directory = testdata(version);
    let index = std::fs::read_to_string(directory.join("INDEX.tsv")).unwrap();
    let named: Vec<&str> = index.lines().filter_map(|line| line.split('\t').next()).collect();
    let mut files: Vec<String> = std::fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".json"))
        .collect();
    files.sort();
    assert_eq!(files, named, "{version}: the index and the files");
    files.iter().map(|name| read(&directory.join(name))).collect()
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
        answer: response["json"].clone(),
    }
}

/// Flink's REST handlers of both versions: method and path, as Flink writes them.
pub fn endpoints() -> Vec<(String, String)> {
    let mut all: Vec<_> = VERSIONS
        .iter()
        .flat_map(|version| {
            let table = std::fs::read_to_string(testdata(&format!("{version}.endpoints.tsv"))).unwrap();
            let rows = table.lines().filter_map(|line| {
                let mut columns = line.split('\t');
                let path = columns.next()?.to_owned();
                Some((columns.next()?.to_owned(), path))
            });
            rows.collect::<Vec<_>>()
        })
        .collect();
    all.sort();
    all.dedup();
    all
}
