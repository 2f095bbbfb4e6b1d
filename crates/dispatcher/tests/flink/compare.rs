//! Compares answers: ids, times, figures and texts by their kind, names and words of a fixed set exactly, errors by their
//! first line without ids and directories.

use serde_json::Value;

/// Fields whose text is a word of a fixed set.
const WORDS: [&str; 7] =
    ["application-status", "job-type", "jobType", "schedulerType", "state", "status", "type"];

/// Where ours differs from what was recorded. `other` is what the other version of Flink answered to the same request:
/// what only one of them has may be there. Fields in `left_out` are not looked at.
pub fn difference(ours: &Value, theirs: &Value, other: &Value, left_out: &[&str]) -> Option<String> {
    match (ours["errors"].as_array(), theirs["errors"].as_array()) {
        (Some(ours), Some(theirs)) => {
            let (ours, theirs) = (errors(ours), errors(theirs));
            (ours != theirs).then(|| format!("errors {ours:?} instead of {theirs:?}"))
        }
        _ => Fields { left_out }.compare("", ours, theirs, other),
    }
}

struct Fields<'a> {
    left_out: &'a [&'a str],
}

impl Fields<'_> {
    fn compare(&self, at: &str, ours: &Value, theirs: &Value, other: &Value) -> Option<String> {
        match (ours, theirs) {
            (Value::Object(_), Value::Object(_)) => self.objects(at, ours, theirs, other),
            (Value::Array(ours), Value::Array(theirs)) => match (ours.first(), theirs.first()) {
                (Some(ours), Some(theirs)) => self.compare(&format!("{at}[0]"), ours, theirs, &other[0]),
                (None, None) => None,
                _ => Some(format!("{at}: {} elements instead of {}", ours.len(), theirs.len())),
            },
            (Value::String(ours), Value::String(theirs)) => {
                let is_word = at.rsplit('.').next().is_some_and(|name| WORDS.contains(&name));
                let is_word = is_word && !theirs.contains(|c: char| c.is_ascii_lowercase());
                (is_word && ours != theirs).then(|| format!("{at}: {ours} instead of {theirs}"))
            }
            (Value::Number(_), Value::Number(_)) => None,
            _ => (ours != theirs).then(|| format!("{at}: {ours} instead of {theirs}")),
        }
    }

    fn objects(&self, at: &str, ours: &Value, theirs: &Value, other: &Value) -> Option<String> {
        let looked_at = |name: &&String| {
            // 2.3's second name of the job id, and job ids that stand for applications.
            !matches!(name.as_str(), "applicationId" | "application-id")
                && !self.left_out.contains(&name.as_str())
        };
        let fields =
            |of: &Value| of.as_object().into_iter().flat_map(|of| of.keys().cloned()).collect::<Vec<_>>();
        for name in fields(theirs).iter().filter(looked_at) {
            let Some(our) = ours.get(name) else { return Some(format!("{at}.{name} is missing")) };
            let found = self.compare(&format!("{at}.{name}"), our, &theirs[name], &other[name]);
            if found.is_some() {
                return found;
            }
        }
        for name in fields(ours).iter().filter(|name| theirs.get(name).is_none()).filter(looked_at) {
            let Some(known) = other.get(name) else { return Some(format!("{at}.{name} is new")) };
            let found = self.compare(&format!("{at}.{name}"), &ours[name], known, known);
            if found.is_some() {
                return found;
            }
        }
        None
    }
}

fn errors(errors: &[Value]) -> Vec<String> {
    errors
        .iter()
        .map(|error| error.as_str().unwrap_or_default())
        // The next lines of Flink's first text, which are not compared; here a text of their own.
        .filter(|error| !error.starts_with("Caused by: "))
        .map(mask)
        .collect()
}

/// The first line of an error, or of the exception inside of one, without ids and directories.
fn mask(text: &str) -> String {
    let text = text.strip_prefix("<Exception on server side:\n").unwrap_or(text);
    let line = text.lines().next().unwrap_or_default();
    line.split(' ').map(mask_word).collect::<Vec<_>>().join(" ")
}

fn mask_word(word: &str) -> String {
    let is_id = |text: &str| text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
    // <id>_NAME is NAME.
    let named = |text: &str| match text.split_once('_') {
        Some((id, name)) if id.len() >= 32 => name.to_owned(),
        _ => text.to_owned(),
    };
    if is_id(word) {
        "ID".to_owned()
    } else if word.trim_end_matches(['.', '\'']).ends_with("flink-web-upload") {
        "DIRECTORY".to_owned()
    } else if word.contains("flink-web-upload") {
        named(word.rsplit('/').next().unwrap_or(word))
    } else if word.starts_with('/') {
        let steps = word.split('/').map(|step| {
            let bare = step.trim_end_matches('.');
            if is_id(bare) { step.replace(bare, "ID") } else { named(step) }
        });
        steps.collect::<Vec<_>>().join("/")
    } else {
        named(word)
    }
}

#[test]
fn each_kind_of_difference_is_seen() {
    use serde_json::json;
    let theirs = json!({ "a": 1, "state": "RUNNING", "of": [{ "b": "x" }], "none": null });
    let other = json!({ "a": 1, "state": "RUNNING", "of": [{ "b": "x", "c": true }], "none": null });
    let same = |ours: Value| difference(&ours, &theirs, &other, &[]);
    assert_eq!(
        same(json!({ "a": 2, "state": "RUNNING", "of": [{ "b": "y", "c": true }], "none": null })),
        None
    );
    for (ours, seen) in [
        (json!({ "a": 1, "state": "FAILED", "of": [{ "b": "x" }], "none": null }), ".state: FAILED"),
        (json!({ "a": "1", "state": "RUNNING", "of": [{ "b": "x" }], "none": null }), ".a: \"1\""),
        (json!({ "a": 1, "state": "RUNNING", "of": [], "none": null }), ".of: 0 elements"),
        (json!({ "a": 1, "state": "RUNNING", "of": [{}], "none": null }), ".of[0].b is missing"),
        (
            json!({ "a": 1, "state": "RUNNING", "of": [{ "b": "x", "d": 1 }], "none": null }),
            ".of[0].d is new",
        ),
        (json!({ "a": 1, "state": "RUNNING", "of": [{ "b": "x" }], "none": 0 }), ".none: 0 instead of null"),
    ] {
        let found = same(ours).unwrap_or_default();
        assert!(found.contains(seen), "{found}");
    }
    let error = |text: &str| json!({ "errors": [text] });
    let same = |ours: &str, theirs: &str| difference(&error(ours), &error(theirs), &Value::Null, &[]);
    let (one, two) = ("a".repeat(32), "b".repeat(32));
    assert_eq!(same(&format!("Job {one} not found\nat x"), &format!("Job {two} not found")), None);
    assert!(same("Job was found", "Job not found").is_some());
}
