//! `POST /jars/:jarid/run`: the synchronous submission. The same admission with an inner run that is not listed; the
//! answer comes when main() has made the job.

use axum::extract::{Path, Request, State};
use axum::response::Response;
use flink_rest::answers::JarRun;
use flink_rest::{RestError, Route, RunRequest, respond};
use http::StatusCode;
use records::keys::RunKey;
use records::record::{FailureCause, RunResult};
use records::{Class, JobId, Scope, TriggerId};
use tokio::time::Instant;

use crate::admission::{Accepted, admit_run, detached};
use crate::api_error::ApiError;
use crate::front::Front;
use crate::limits::SYNC_RUN_WAIT;
use crate::receive;
use crate::request::{jar_id_in_path, query_of, raw_path};
use crate::run_submission::{Submission, stated_of};
use crate::wait::wait_until;

const COMPLETION: &str = "java.util.concurrent.CompletionException: ";
const NOT_EXECUTED: &str = "Could not execute application.";

/// The handler. A client that hangs up changes nothing.
pub async fn run(
    State(front): State<Front>,
    path: Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    front.check_submit_enabled()?;
    let jar_id = jar_id_in_path(path, &raw_path(&request), request.method())?;
    let room = front.room_for_a_run()?;
    let submission = read(jar_id.clone(), request).await?;
    let admitting = front.clone();
    let accepted = detached(async move {
        let admitted = admit_run(&admitting, submission, true).await;
        drop(room);
        admitted
    });
    let accepted = accepted.await;
    let accepted = accepted.map_err(|error| in_flinks_words(error, &jar_id))?;
    let job = accepted.admitted.job.clone();
    match await_result(&front, &accepted).await? {
        Some(RunResult::Jobid(job)) => Ok(respond::ok(&JarRun { jobid: job.to_string() })),
        Some(RunResult::FailureCause(cause)) => Err(main_failed(&job, &cause).into()),
        None => {
            let text = format!("job {job} is not created yet; it goes on: ask GET /jobs/{job}/status");
            Err(RestError::new(StatusCode::GATEWAY_TIMEOUT, text).into())
        }
    }
}

async fn read(jar_id: String, request: Request) -> Result<Submission, RestError> {
    if receive::is_multipart(&request) {
        return Err(RestError::new(StatusCode::BAD_REQUEST, "File upload not allowed").without_cors());
    }
    let query = RunRequest::from_query(Route::JarsRun, &query_of(&request)?)?;
    let body = RunRequest::from_body(Route::JarsRun, &receive::json_body(request).await?)?;
    let request = RunRequest::merge(query, body)?.checked(Route::JarsRun)?;
    let mut stated = stated_of(request)?;
    stated.jar_id = Some(jar_id);
    Ok(Submission { trigger: None, stated, jar: None })
}

/// The result of the inner run; `None` if there is none within the longest wait.
async fn await_result(front: &Front, accepted: &Accepted) -> Result<Option<RunResult>, ApiError> {
    let trigger: &TriggerId = &accepted.trigger;
    let key = RunKey::new(trigger);
    wait_until(front, Scope::run(trigger), Instant::now() + SYNC_RUN_WAIT, |view| {
        let run = view.get(&key)?;
        Ok(run.and_then(|run| run.value.result))
    })
    .await
}

/// Flink's 500 of a JAR that is not there.
pub fn missing_jar(jar_id: &str) -> RestError {
    RestError::internal(format!(
        "{COMPLETION}{}: Jar file /flink-web-upload/{jar_id} does not exist",
        flink_rest::error::REST_HANDLER_EXCEPTION
    ))
}

/// Flink's codes and texts where its clients know them.
fn in_flinks_words(error: ApiError, jar_id: &str) -> ApiError {
    const INVOCATION: &str = "org.apache.flink.client.program.ProgramInvocationException: ";
    match error {
        ApiError::Rest(rest) if rest.status() == StatusCode::NOT_FOUND => missing_jar(jar_id).into(),
        ApiError::Rest(rest) if rest.errors().iter().any(|text| text.contains("names no entry class")) => {
            RestError::internal(format!(
                "{COMPLETION}{INVOCATION}Neither a 'Main-Class', nor a 'program-class' entry was found in the jar \
                 file."
            ))
            .into()
        }
        ApiError::Refused(refusal) if refusal.class == Class::JobIdInUse => {
            RestError::handler(StatusCode::BAD_REQUEST, NOT_EXECUTED)
                .caused_by(&format!(
                    "org.apache.flink.runtime.client.DuplicateJobSubmissionException: Job has already been \
                     submitted. {}",
                    refusal.text
                ))
                .into()
        }
        other => other,
    }
}

/// Of what main() wrote, the first line; the rest is in its output.
fn main_failed(job: &JobId, cause: &FailureCause) -> RestError {
    if cause.stack_trace.contains("No jobs included in application.") {
        return RestError::handler(StatusCode::BAD_REQUEST, "No jobs included in application.");
    }
    let mut lines = cause.stack_trace.lines();
    let exit = lines.next().unwrap_or_default();
    let said = lines.next().map(|line| format!(": {line}")).unwrap_or_default();
    RestError::handler(StatusCode::BAD_REQUEST, NOT_EXECUTED)
        .caused_by(&format!("{}: {exit}{said} (GET /jobs/{job}/execution-result has all of it)", cause.class))
}
