//! What a caller states about a run, gathered from query, headers, JSON and multipart into one submission.

use axum::extract::Request;
use flink_rest::query::Query;
use flink_rest::{RestError, RestoreMode, Route, RunRequest, upload};
use http::{HeaderMap, StatusCode};
use process_kit::Form;
use records::TriggerId;
use records::record::{RestoreMode as RecordedRestoreMode, StatedRequest};

use crate::limits::MAX_PARTS;
use crate::receive::{self, Spool, SpooledFile};
use crate::request::query_of;

/// The header that can carry the trigger id.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// A run as it was asked for.
#[derive(Debug)]
pub struct Submission {
    /// The trigger id; `None`: the server makes one.
    pub trigger: Option<TriggerId>,
    /// The stated fields, without the JAR's digest.
    pub stated: StatedRequest,
    /// A JAR that was sent along.
    pub jar: Option<SpooledFile>,
}

impl Submission {
    /// Reads a request to `/run-async`.
    pub async fn of_run_async(spool: &Spool, request: Request) -> Result<Self, RestError> {
        let query = RunRequest::from_query(Route::RunAsync, &query_of(&request)?)?;
        let header = idempotency_key(request.headers())?;
        let (body, jar) = if receive::is_multipart(&request) {
            read_parts(spool, Form::of(request).await.map_err(receive::broken)?).await?
        } else {
            (RunRequest::from_body(Route::RunAsync, &receive::json_body(request).await?)?, None)
        };
        let request = RunRequest::merge(query, body)?.checked(Route::RunAsync)?;
        let trigger = trigger_of(request.trigger_id.as_deref(), header.as_deref())?;
        match (&jar, &request.jar_id) {
            (Some(_), Some(_)) => return Err(bad("a JAR and a jarId were sent; send one of them")),
            (None, None) => {
                return Err(bad(
                    "neither a JAR nor a jarId was sent; upload one with POST /jars/upload and name its id, or send \
                     it along as multipart",
                ));
            }
            _ => {}
        }
        Ok(Self { trigger, stated: stated_of(request)?, jar })
    }
}

/// Parts: `request` is the JSON, parts named as query parameters count as such, one file of any name is the JAR.
async fn read_parts(spool: &Spool, mut form: Form) -> Result<(RunRequest, Option<SpooledFile>), RestError> {
    let mut json = RunRequest::default();
    let mut pairs = Vec::new();
    let mut jar = None;
    let mut seen = 0;
    while let Some(part) = form.next_part().await.map_err(receive::broken)? {
        seen += 1;
        if seen > MAX_PARTS {
            return Err(bad(&format!("more than {MAX_PARTS} parts")));
        }
        let name = part.name().unwrap_or_default().to_owned();
        let file_name = part.file_name().map(|name| upload::base_name(name).to_owned());
        match file_name {
            _ if name == "request" => {
                let text = receive::text_part(part).await?;
                json = RunRequest::from_body(Route::RunAsync, text.as_bytes())?;
            }
            Some(_) if jar.is_some() => return Err(bad("two files were sent; send the one JAR")),
            Some(file_name) => jar = Some(spool.store(upload::check_name(file_name)?, part).await?),
            None => pairs.push((name, receive::text_part(part).await?)),
        }
    }
    let form = RunRequest::from_query(Route::RunAsync, &Query::of_pairs(pairs)?)?;
    Ok((RunRequest::merge(form, json)?, jar))
}

/// The header's value; the standard's quotes around it are dropped.
fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, RestError> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.any(|other| other != value) {
        return Err(bad("two different Idempotency-Key headers"));
    }
    let text = value.to_str().map_err(|_| bad("Idempotency-Key: 1 to 64 visible ASCII characters"))?.trim();
    let bare = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    Ok(Some(bare.to_owned()))
}

fn trigger_of(stated: Option<&str>, header: Option<&str>) -> Result<Option<TriggerId>, RestError> {
    if let (Some(stated), Some(header)) = (stated, header)
        && stated != header
    {
        return Err(bad(&format!(
            "triggerId is \"{stated}\" in the request and \"{header}\" in the Idempotency-Key header; send one of them"
        )));
    }
    stated.or(header).map(parse_trigger).transpose()
}

/// A trigger id that is also safe as a path: no step of it is `.` or `..`.
pub fn parse_trigger(text: &str) -> Result<TriggerId, RestError> {
    let trigger: TriggerId = text.parse().map_err(|refusal: records::Refusal| bad(&refusal.text))?;
    if text.split('/').any(|step| step == "." || step == "..") {
        return Err(bad(&format!(
            "triggerId \"{text}\" has \".\" or \"..\" between slashes; choose another"
        )));
    }
    Ok(trigger)
}

/// The record's form of what was stated.
pub fn stated_of(request: RunRequest) -> Result<StatedRequest, RestError> {
    let job_id = request.job_id.map(|id| id.parse()).transpose();
    Ok(StatedRequest {
        jar_id: request.jar_id,
        jar_digest: None,
        entry_class: request.entry_class,
        program_args: request.program_args,
        parallelism: request.parallelism.and_then(|p| u32::try_from(p).ok()),
        job_id: job_id.map_err(|refusal: records::Refusal| bad(&refusal.text))?,
        allow_non_restored_state: request.allow_non_restored_state,
        savepoint_path: request.savepoint_path,
        restore_mode: request.restore_mode.map(recorded),
        flink_configuration: request.flink_configuration,
        packages: request.packages,
    })
}

fn recorded(mode: RestoreMode) -> RecordedRestoreMode {
    match mode {
        RestoreMode::Claim => RecordedRestoreMode::Claim,
        RestoreMode::NoClaim => RecordedRestoreMode::NoClaim,
        RestoreMode::Legacy => RecordedRestoreMode::Legacy,
    }
}

fn bad(text: &str) -> RestError {
    RestError::new(StatusCode::BAD_REQUEST, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_trigger_ids_are_refused() {
        for bad in ["", "a b", "\u{f6}", "../x", "a/../b", ".", "..", "./x", "x/.", &"t".repeat(65), "a\n"] {
            assert_eq!(parse_trigger(bad).unwrap_err().status(), 400, "{bad:?}");
        }
        for good in ["T1", "a/b", "...", "~!@#$%^&*()", &"t".repeat(64)] {
            assert_eq!(parse_trigger(good).unwrap().as_str(), good);
        }
    }

    #[test]
    fn the_header_is_a_third_form_of_the_trigger_id() {
        let mut headers = HeaderMap::new();
        assert_eq!(idempotency_key(&headers).unwrap(), None);
        headers.insert(IDEMPOTENCY_KEY, "\"T1\"".parse().unwrap());
        assert_eq!(idempotency_key(&headers).unwrap().as_deref(), Some("T1"));
        assert_eq!(trigger_of(None, Some("T1")).unwrap().unwrap().as_str(), "T1");
        assert_eq!(trigger_of(Some("T1"), Some("T1")).unwrap().unwrap().as_str(), "T1");
        assert_eq!(trigger_of(Some("T1"), Some("T2")).unwrap_err().status(), 400);
    }
}
