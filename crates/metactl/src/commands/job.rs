//! `metactl job`.

use clap::{Args, Subcommand};
use records::{
    JobId, Scope, View,
    jobs::{job as job_view, lost_host},
    keys::{JobKey, JobOwnerKey},
    record::{Job as JobRecord, JobState},
};
use reqwest::Method;
use serde_json::{Value, json};

use super::logs::{self, WhichLogs};
use crate::{
    cli::Globals,
    exit::{Done, Failure, JOB_CANCELLED, JOB_FAILED, OK},
    rest::Dispatchers,
    show, view,
};

const EXAMPLES: &str = "Examples:
  metactl job list
  metactl job status 4f9c...
  metactl job logs 4f9c... --stderr --attempt 1
  metactl job logs 4f9c... -f
  metactl job cancel 4f9c...
  metactl job cancel 4f9c... --force";

/// Jobs.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Job {
    /// Lists the jobs.
    List,
    /// One job.
    Status {
        /// The job.
        id: JobId,
    },
    /// Cancels a job; returns when the wish is written, the job's owner carries it out.
    Cancel {
        /// The job.
        id: JobId,
        /// Do not wait for a node that is away: a job that was started with on-lost-store = keep, and whose node is gone,
        /// is CANCELED at once. What that node still runs of it is killed only when it is back. Any other job is
        /// cancelled as without this flag.
        #[arg(long)]
        force: bool,
    },
    /// Prints a job's output, all that is kept of it.
    Logs(Logs),
}

/// Which output.
#[derive(Debug, Args)]
pub struct Logs {
    /// The job.
    id: JobId,
    /// Flags.
    #[command(flatten)]
    pub which: WhichLogs,
}

impl Job {
    /// Runs it.
    pub async fn run(self, globals: &Globals) -> Done {
        match self {
            Self::List => list(globals).await,
            Self::Status { id } => status(globals, &id).await,
            Self::Cancel { id, force } => cancel(globals, &id, force).await,
            Self::Logs(logs) => logs::print(globals, &logs.id, &logs.which).await,
        }
    }
}

async fn list(globals: &Globals) -> Done {
    let view = view::load(globals, Scope::jobs()).await?;
    let jobs = view.all::<JobKey>()?;
    if globals.json() {
        let jobs: Result<Vec<_>, _> = jobs.iter().map(|(key, job)| object(&view, &key.job, job)).collect();
        show::json_line(&Value::Array(jobs?))?;
        return Ok(OK);
    }
    let mut rows = Vec::new();
    for (key, job) in &jobs {
        rows.push(vec![
            key.job.to_string(),
            job.state.as_str().to_owned(),
            job.attempt.to_string(),
            owner(&view, &key.job)?.unwrap_or_default(),
            show::time(job.admitted_at_ms),
            job.spec.name.clone(),
        ]);
    }
    show::table(&["job", "state", "attempt", "node", "admitted", "name"], &rows)?;
    Ok(OK)
}

/// The job in a view.
pub fn find(view: &View, id: &JobId) -> Result<JobRecord, Failure> {
    let found = view.get(&JobKey::new(id))?;
    Ok(found.ok_or_else(|| Failure::not_found(format!("there is no job {id}")))?.value)
}

async fn status(globals: &Globals, id: &JobId) -> Done {
    let view = view::load(globals, Scope::default().and_job(id).and_nodes()).await?;
    let job = find(&view, id)?;
    let object = object(&view, id, &job)?;
    if globals.json() {
        show::json_line(&object)?;
    } else {
        print_fields(&object)?;
    }
    Ok(OK)
}

/// Prints an object's fields, a line each; what is null is left out.
pub fn print_fields(object: &Value) -> std::io::Result<()> {
    for (name, value) in object.as_object().into_iter().flatten() {
        match value {
            Value::Null => {}
            Value::String(text) => show::bytes_line(format!("{name}: {}", text.trim_end()).as_bytes())?,
            other => show::bytes_line(format!("{name}: {other}").as_bytes())?,
        }
    }
    Ok(())
}

fn owner(view: &View, id: &JobId) -> Result<Option<String>, Failure> {
    Ok(view.get(&JobOwnerKey::new(id))?.map(|owner| owner.value.node))
}

/// What it waits for, in words.
fn waiting(view: &View, id: &JobId) -> Result<Option<String>, Failure> {
    let Some(job) = job_view(view, id)? else { return Ok(None) };
    Ok(lost_host(view, &job)?.or(job.job.value.waiting))
}

fn object(view: &View, id: &JobId, job: &JobRecord) -> Result<Value, Failure> {
    let packages: Vec<_> = job.packages().map(|package| package.unit.to_string()).collect();
    Ok(json!({
        "job": id,
        "name": job.spec.name,
        "state": job.state,
        "trigger": job.trigger,
        "attempt": job.attempt,
        "node": owner(view, id)?,
        "waiting": waiting(view, id)?,
        "parallelism": job.spec.parallelism,
        "onLostStore": job.spec.on_lost_store,
        "packages": packages,
        "exit": job.exit,
        "admittedAt": show::time(job.admitted_at_ms),
        "endedAt": job.ended_at_ms.map(show::time),
    }))
}

async fn cancel(globals: &Globals, id: &JobId, force: bool) -> Done {
    // Flink's words for it, which dispatchers keep, do not name the job.
    find(&view::load(globals, Scope::default().and_job(id)).await?, id)?;
    let dispatchers = Dispatchers::find(globals).await?;
    let force = if force { "&force=true" } else { "" };
    let path = format!("/jobs/{id}?mode=cancel{force}");
    dispatchers.simple(Method::PATCH, &path, globals.command_timeout).await?;
    if !globals.json() {
        eprintln!("job {id} is being cancelled: ask with metactl job status {id}");
    }
    Ok(OK)
}

/// The exit code that a job's end means to `--wait`.
pub fn exit_code(state: JobState) -> u8 {
    match state {
        JobState::Finished => OK,
        JobState::Canceled => JOB_CANCELLED,
        JobState::Failed => JOB_FAILED,
        JobState::Initializing | JobState::Running | JobState::Restarting | JobState::Cancelling => OK,
    }
}
