//! `metactl run`: asynchronous run operations.

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, Subcommand};
use records::{
    Scope, TriggerId, View,
    keys::{JobKey, RunKey, RunOwnerKey, RunTokenKey, encode_segment},
    record::{JobState, Phase, Run as RunRecord, RunResult, RunToken, TokenEnd},
};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    icp::{deploy_file, file_part},
    job::{exit_code, print_fields},
    logs::{self, WhichLogs},
};
use crate::{
    changes,
    cli::{Globals, duration},
    exit::{Done, Failure, JOB_CANCELLED, JOB_FAILED, OK},
    rest::{Dispatchers, json as answer_json},
    show, view,
};

const EXAMPLES: &str = "Examples:
  metactl run submit --trigger-id nightly-7 --wait job.jar -- --date 2025-01-01
  metactl run submit -c com.example.Main -C lib:1.0 -C other:latest -C target/dep.jar -p 2 job.jar
  metactl run status nightly-7
  metactl run logs nightly-7 -f

A run that is submitted again under its trigger id is not run again: the answer is the same.";

/// Asynchronous runs of JARs.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Run {
    /// Submits a run.
    Submit(Submit),
    /// Lists the runs.
    List,
    /// One run.
    Status {
        /// The run.
        trigger: TriggerId,
    },
    /// Waits until the run's job has ended.
    Wait {
        /// The run.
        trigger: TriggerId,
        /// How long at most.
        #[arg(long, value_parser = duration)]
        timeout: Option<Duration>,
    },
    /// Deletes a run; one that is in progress is cancelled, and its trigger id stays used.
    Delete {
        /// The run.
        trigger: TriggerId,
    },
    /// Prints the output of the run's job.
    Logs {
        /// The run.
        trigger: TriggerId,
        /// Flags.
        #[command(flatten)]
        which: WhichLogs,
    },
}

/// What is to be run.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Submit {
    /// The JAR to send along, or the id of one that was uploaded.
    jar: String,
    /// Arguments of the program.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
    /// The class whose main() is run; the JAR's own if left out.
    #[arg(short, long = "class", value_name = "CLASS")]
    class: Option<String>,
    /// A package for the class path; `NAME` or `NAME:latest` is its newest release now. A file is deployed as a
    /// package first, which goes when no job needs it any more. May be repeated.
    #[arg(short = 'C', long = "classpath", value_name = "NAME:VERSION|FILE.jar")]
    class_path: Vec<String>,
    /// Parallelism.
    #[arg(short, long)]
    parallelism: Option<u32>,
    /// Savepoint to start from.
    #[arg(short, long, value_name = "PATH")]
    savepoint: Option<String>,
    /// Drops savepoint state that the job does not know.
    #[arg(short = 'n', long)]
    allow_non_restored_state: bool,
    /// Id of the run, for safe repeats; made up and printed if left out.
    #[arg(long, value_name = "ID")]
    trigger_id: Option<TriggerId>,
    /// Waits for the job's end: exit 0 finished, 10 failed, 11 cancelled.
    #[arg(long)]
    wait: bool,
}

impl Run {
    /// Runs it.
    pub async fn run(self, globals: &Globals) -> Done {
        match self {
            Self::Submit(submit) => submit.run(globals).await,
            Self::List => list(globals).await,
            Self::Status { trigger } => status(globals, &trigger).await,
            Self::Wait { trigger, timeout } => wait(globals, &trigger, timeout).await,
            Self::Delete { trigger } => delete(globals, &trigger).await,
            Self::Logs { trigger, which } => {
                let view = view::load(globals, Scope::run(&trigger)).await?;
                let seen = Seen::find(&view, &trigger)?;
                logs::print(globals, &seen.job(), &which).await
            }
        }
    }
}

impl Submit {
    async fn run(self, globals: &Globals) -> Done {
        let trigger = self.trigger_id.clone().unwrap_or_else(|| TriggerId::from_random(rand::random()));
        let file = file_of(&self.jar)?;
        let packages = self.packages(globals).await?;
        let body = self.body(&trigger, file.is_none(), &packages);
        let dispatchers = Dispatchers::find(globals).await?;
        // The trigger id makes a repeat through another dispatcher harmless.
        let sent = dispatchers
            .call(Method::POST, "/run-async", true, async |request| match &file {
                None => Ok(request.timeout(globals.command_timeout).json(&body)),
                Some(path) => Ok(request.multipart(form(path, &body).await?)),
            })
            .await;
        let answer = match sent {
            Ok(answer) => answer_json(answer).await?,
            Err(failure) if failure.code == crate::exit::UNAVAILABLE => {
                return Err(Failure::unavailable(format!(
                    "{failure}; it may have been carried out: ask with metactl run status {trigger}"
                )));
            }
            Err(failure) => return Err(failure),
        };
        if !self.wait {
            if globals.json() {
                show::json_line(&answer)?;
            } else {
                println!("{trigger}");
            }
            return Ok(OK);
        }
        eprintln!("run {trigger} is accepted, waiting for its end");
        wait(globals, &trigger, None).await
    }

    /// The packages of the class path. All names are looked at before a file is deployed.
    async fn packages(&self, globals: &Globals) -> Result<Vec<String>, Failure> {
        let files: Vec<_> = self.class_path.iter().map(|text| file_of(text)).collect::<Result<_, _>>()?;
        let mut packages = Vec::new();
        for (text, file) in self.class_path.iter().zip(files) {
            packages.push(match file {
                Some(file) => deploy_file(globals, &file).await?.to_string(),
                None => text.clone(),
            });
        }
        Ok(packages)
    }

    fn body(&self, trigger: &TriggerId, by_id: bool, packages: &[String]) -> Value {
        let mut body = json!({ "triggerId": trigger });
        let mut state = |name: &str, value: Value| body[name] = value;
        if by_id {
            state("jarId", json!(self.jar));
        }
        if !self.args.is_empty() {
            state("programArgsList", json!(self.args));
        }
        if let Some(class) = &self.class {
            state("entryClass", json!(class));
        }
        if !packages.is_empty() {
            state("packages", json!(packages));
        }
        if let Some(parallelism) = self.parallelism {
            state("parallelism", json!(parallelism));
        }
        if let Some(savepoint) = &self.savepoint {
            state("savepointPath", json!(savepoint));
        }
        if self.allow_non_restored_state {
            state("allowNonRestoredState", json!(true));
        }
        body
    }
}

/// What the text names, if it is a file.
fn file_of(text: &str) -> Result<Option<PathBuf>, Failure> {
    if Path::new(text).is_file() {
        return Ok(Some(text.into()));
    }
    // The name of a JAR or package never has a slash: then a file was meant.
    if text.contains('/') {
        return Err(Failure::usage(format!("there is no file {text}")));
    }
    Ok(None)
}

async fn form(path: &Path, body: &Value) -> Result<reqwest::multipart::Form, Failure> {
    let name = path.file_name().map_or_else(|| "job.jar".into(), |name| name.to_string_lossy().into_owned());
    let request = reqwest::multipart::Part::text(body.to_string())
        .mime_str("application/json")
        .map_err(|error| Failure::failed(error.to_string()))?;
    let jar = file_part(path, name).await?;
    Ok(reqwest::multipart::Form::new().part("request", request).part("jarfile", jar))
}

/// A run, or what is remembered of it.
enum Seen {
    Run(Box<RunRecord>, Option<String>),
    Token(Box<RunToken>),
}

impl Seen {
    fn find(view: &View, trigger: &TriggerId) -> Result<Self, Failure> {
        if let Some(run) = view.get(&RunKey::new(trigger))? {
            let owner = view.get(&RunOwnerKey::new(trigger))?.map(|owner| owner.value.node);
            return Ok(Self::Run(Box::new(run.value), owner));
        }
        match view.get(&RunTokenKey::new(trigger))? {
            Some(token) => Ok(Self::Token(Box::new(token.value))),
            None => Err(Failure::not_found(format!("there is no run {trigger}"))),
        }
    }

    fn job(&self) -> records::JobId {
        match self {
            Self::Run(run, _) => run.job.clone(),
            Self::Token(token) => token.job.clone(),
        }
    }

    fn result(&self) -> Option<&RunResult> {
        match self {
            Self::Run(run, _) => run.result.as_ref(),
            Self::Token(token) => match &token.end {
                TokenEnd::Completed(result) => Some(result),
                TokenEnd::Deleted => None,
            },
        }
    }

    fn is_deleted(&self) -> bool {
        matches!(self, Self::Token(token) if token.end == TokenEnd::Deleted)
    }

    /// The exit code that a wait ends with, if it does: the job tells. A run that was deleted after it had made its job
    /// leaves it running.
    fn end(&self, job: Option<JobState>) -> Result<Option<u8>, Failure> {
        if matches!(self.result(), Some(RunResult::FailureCause(_))) {
            return Ok(Some(JOB_FAILED));
        }
        match (job, self) {
            (Some(state), _) if state.is_terminal() => Ok(Some(exit_code(state))),
            (Some(_), _) | (None, Self::Run(..)) => Ok(None),
            (None, Self::Token(_)) if self.is_deleted() => Ok(Some(JOB_CANCELLED)),
            (None, Self::Token(token)) => Err(Failure::not_found(format!(
                "how job {} ended is not remembered any more; its run ended at {}",
                token.job,
                show::time(token.ended_at_ms)
            ))),
        }
    }

    fn object(&self, trigger: &TriggerId, job_state: Option<Value>) -> Value {
        let failure = match self.result() {
            Some(RunResult::FailureCause(cause)) => {
                json!({ "class": cause.class, "text": cause.stack_trace })
            }
            Some(RunResult::Jobid(_)) | None => Value::Null,
        };
        match self {
            Self::Run(run, owner) => json!({
                "trigger": trigger,
                "status": status_word(run),
                "phase": run.phase,
                "job": run.job,
                "jobState": job_state,
                "owner": owner,
                "waiting": run.waiting,
                "failure": failure,
                "program": run.program.unit.to_string(),
                "packages": run.class_path.iter().map(|it| it.unit.to_string()).collect::<Vec<_>>(),
                "acceptedAt": show::time(run.accepted_at_ms),
                "completedAt": run.completed_at_ms.map(show::time),
            }),
            Self::Token(token) => json!({
                "trigger": trigger,
                "status": if self.is_deleted() { "DELETED" } else { "COMPLETED" },
                "job": token.job,
                "jobState": job_state,
                "failure": failure,
                "endedAt": show::time(token.ended_at_ms),
            }),
        }
    }
}

fn status_word(run: &RunRecord) -> &'static str {
    if run.phase == Phase::Completed { "COMPLETED" } else { "IN_PROGRESS" }
}

async fn list(globals: &Globals) -> Done {
    let scope = Scope::default().and_all::<RunKey>().and_all::<JobKey>();
    let view = view::load(globals, scope).await?;
    let (mut rows, mut objects) = (Vec::new(), Vec::new());
    for (key, run) in view.all::<RunKey>()?.into_iter().filter(|(_, run)| !run.hidden) {
        let state = view.get(&JobKey::new(&run.job))?.map(|job| job.state);
        rows.push(vec![
            key.trigger.to_string(),
            status_word(&run).to_owned(),
            json!(run.phase).as_str().unwrap_or_default().to_owned(),
            run.job.to_string(),
            state.map_or("", |state| state.as_str()).to_owned(),
            run.waiting.clone().unwrap_or_default(),
        ]);
        objects.push(Seen::Run(Box::new(run.value), None).object(&key.trigger, Some(json!(state))));
    }
    if globals.json() {
        show::json_line(&Value::Array(objects))?;
    } else {
        show::table(&["trigger", "status", "phase", "job", "job-state", "waiting"], &rows)?;
    }
    Ok(OK)
}

/// The run and its job; two reads, the job's id never changes once the run is admitted.
async fn look(globals: &Globals, trigger: &TriggerId) -> Result<(Seen, View), Failure> {
    let seen = Seen::find(&view::load(globals, Scope::run(trigger)).await?, trigger)?;
    let jobs = view::load(globals, Scope::default().and_job(&seen.job())).await?;
    Ok((seen, jobs))
}

async fn status(globals: &Globals, trigger: &TriggerId) -> Done {
    let (seen, jobs) = look(globals, trigger).await?;
    let state = jobs.get(&JobKey::new(&seen.job()))?.map(|job| json!(job.state));
    let object = seen.object(trigger, state);
    if globals.json() {
        show::json_line(&object)?;
    } else {
        print_fields(&object)?;
    }
    Ok(OK)
}

async fn wait(globals: &Globals, trigger: &TriggerId, timeout: Option<Duration>) -> Done {
    let (seen, _) = look(globals, trigger).await?;
    let scope = Scope::run(trigger).and_job(&seen.job());
    let ended = changes::until(globals, &scope, timeout, |view| {
        let seen = Seen::find(view, trigger)?;
        let state = view.get(&JobKey::new(&seen.job()))?.map(|job| job.state);
        Ok(seen.end(state)?.map_or(ControlFlow::Continue(()), ControlFlow::Break))
    });
    let Some(code) = ended.await? else {
        return Err(Failure::unavailable(format!(
            "run {trigger} has not ended yet: ask with metactl run status {trigger}"
        )));
    };
    // A dispatcher writes what the job's end means to the run; the end itself is known without it.
    changes::until(globals, &Scope::run(trigger), Some(globals.command_timeout), |view| {
        let completed = match Seen::find(view, trigger)? {
            Seen::Run(run, _) => run.phase == Phase::Completed,
            Seen::Token(_) => true,
        };
        Ok(if completed { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })
    .await?;
    status(globals, trigger).await.map(|_| code)
}

async fn delete(globals: &Globals, trigger: &TriggerId) -> Done {
    let dispatchers = Dispatchers::find(globals).await?;
    // The dispatcher answers while somebody still listens.
    let wait = globals.command_timeout.mul_f32(0.8).as_millis();
    let path = format!("/run-async/{}?timeout_ms={wait}", encode_segment(trigger.as_str()));
    let answer = dispatchers.simple(Method::DELETE, &path, globals.command_timeout).await?;
    let pending = answer.status().as_u16() == 202;
    if pending {
        eprintln!("run {trigger} is deleted; its job is still being cancelled");
    }
    if globals.json() {
        show::json_line(&json!({ "trigger": trigger, "deleted": true, "cancelling": pending }))?;
    }
    Ok(OK)
}
