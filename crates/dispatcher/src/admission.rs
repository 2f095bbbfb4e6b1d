//! Admission: what `/run-async` and `/jars/:jarid/run` share. The run is looked up first, then its packages are
//! resolved, a JAR that was sent along becomes a private package, and one transaction makes run, job and pins.

use std::collections::BTreeMap;

use flink_rest::RestError;
use http::StatusCode;
use jobmaster::options::CreatedBy;
use meta_client::{KvError, TypedKey};
use meta_types::KeyRange;
use records::jobs::{on_lost_store, restart_strategy};
use records::keys::{JarKey, RunOwnerKey, UnitKey};
use records::packages::{resolve, sweep_private};
use records::record::{Jar, JobSpec, OnLostStore, PackageRef, RestartStrategy, StatedRequest};
use records::runs::{Admit, Admitted, admit, lookup};
use records::{Class, Failure, JobId, Scope, TriggerId, View};

use crate::api_error::{ApiError, retry_later};
use crate::deploy::{self, JAR_PATH};
use crate::front::{Front, now_ms};
use crate::jar_handlers::{inspect, of_failure};
use crate::receive::SpooledFile;
use crate::run_submission::Submission;

/// A run as it was admitted, now or before.
#[derive(Debug, Clone)]
pub struct Accepted {
    /// Its id, made here if the client gave none.
    pub trigger: TriggerId,
    /// Job and whether this request made it.
    pub admitted: Admitted,
}

/// What is known of the JAR before the run is admitted.
struct Program {
    package: PackageRef,
    file_name: String,
    entry_classes: Vec<String>,
    /// True if it was uploaded for this request alone.
    private: bool,
}

/// How often a lost registration of this dispatcher is waited for.
const SESSION_TRIES: usize = 3;

/// Admits a submission. `hidden`: an inner run of the synchronous call.
pub async fn admit_run(front: &Front, submission: Submission, hidden: bool) -> Result<Accepted, ApiError> {
    let Submission { trigger, mut stated, jar } = submission;
    let trigger = trigger.unwrap_or_else(|| TriggerId::from_random(rand::random()));
    let known = Known::read(front, &trigger, stated.jar_id.as_deref()).await?;
    stated.jar_digest = match &jar {
        Some(file) => Some(file.digest.clone()),
        None => known.jar.as_ref().map(|jar| jar.digest.clone()),
    };
    if let Some(admitted) = lookup(&known.view, &trigger, &stated)? {
        front.metrics.run("repeated");
        return Ok(Accepted { trigger, admitted });
    }
    front.check_queue(known.in_progress)?;
    // Before a JAR that was sent along is stored.
    let settings = Settings::of(front, &stated)?;
    let class_path = resolve_packages(front, stated.packages.as_deref().unwrap_or_default()).await?;
    let program = match &jar {
        Some(file) => private_program(front, &stated, file).await?,
        None => uploaded_program(&stated, known.jar.as_ref())?,
    };
    let private = program.private.then(|| program.package.clone());
    let spec = job_spec(&stated, program, class_path, settings);
    let admitted = carry_admission(front, &trigger, stated, spec, hidden).await;
    drop_loser(front, private, &admitted).await;
    let admitted = admitted?;
    front.metrics.run(if admitted.new { "accepted" } else { "repeated" });
    let node = &front.options.node_name;
    tracing::info!(%trigger, job = %admitted.job, node, new = admitted.new, "run accepted");
    Ok(Accepted { trigger, admitted })
}

/// What the store knows before the run is admitted, at one revision.
struct Known {
    /// The run and its token.
    view: View,
    /// The JAR that the request names.
    jar: Option<Jar>,
    /// How many runs have an owner, hidden ones too.
    in_progress: i64,
}

impl Known {
    async fn read(front: &Front, trigger: &TriggerId, jar_id: Option<&str>) -> Result<Self, ApiError> {
        let key = jar_id.map(|id| JarKey { jar: id.to_owned() });
        let scope = Scope::run(trigger);
        let scope = key.iter().fold(scope, |scope, key| scope.and_key(key));
        let owners = KeyRange::prefix(RunOwnerKey::PREFIX);
        let (view, in_progress) = front.view_and_count(scope, owners).await?;
        let jar = key.map(|key| view.get(&key)).transpose()?.flatten().map(|jar| jar.value);
        Ok(Self { view, jar, in_progress })
    }
}

async fn resolve_packages(front: &Front, stated: &[String]) -> Result<Vec<PackageRef>, ApiError> {
    if stated.is_empty() {
        return Ok(Vec::new());
    }
    let mut scope = Scope::default();
    for text in stated {
        scope = scope.and_versions(text.split(':').next().unwrap_or(text));
    }
    let view = front.fresh(scope).await?;
    let packages = stated.iter().map(|text| resolve(&view, text));
    Ok(packages.collect::<Result<_, _>>()?)
}

/// The JAR is looked at before it is sent to a node: what can never run is not stored.
async fn private_program(
    front: &Front,
    stated: &StatedRequest,
    file: &SpooledFile,
) -> Result<Program, ApiError> {
    let info = inspect(file).await;
    if !info.is_archive {
        return Err(bad(&format!("{} is not a JAR", file.name)).into());
    }
    check_entry_class(stated, &file.name, &info.entry_classes)?;
    let package = deploy::deploy_jar(front, "private", file).await?.package;
    Ok(Program { package, file_name: file.name.clone(), entry_classes: info.entry_classes, private: true })
}

fn uploaded_program(stated: &StatedRequest, jar: Option<&Jar>) -> Result<Program, RestError> {
    let Some(jar) = jar else {
        let id = stated.jar_id.as_deref().unwrap_or_default();
        let text = format!("there is no JAR \"{id}\"; GET /jars lists them, POST /jars/upload adds one");
        return Err(RestError::new(StatusCode::NOT_FOUND, text));
    };
    check_entry_class(stated, &jar.file_name, &jar.entry_classes)?;
    Ok(Program {
        package: PackageRef { unit: jar.unit.clone(), op: jar.op.clone() },
        file_name: jar.file_name.clone(),
        entry_classes: jar.entry_classes.clone(),
        private: false,
    })
}

fn check_entry_class(stated: &StatedRequest, file: &str, found: &[String]) -> Result<(), RestError> {
    if stated.entry_class.is_some() || !found.is_empty() {
        return Ok(());
    }
    Err(bad(&format!(
        "{file} names no entry class: it is no JAR, or neither a Main-Class nor a program-class is in its manifest; \
         set entryClass"
    )))
}

/// What the request's configuration says of the job, with the defaults of this dispatcher.
struct Settings {
    parallelism: u32,
    restart: RestartStrategy,
    on_lost_store: OnLostStore,
}

impl Settings {
    fn of(front: &Front, stated: &StatedRequest) -> Result<Self, RestError> {
        let none = BTreeMap::new();
        let configuration = stated.flink_configuration.as_ref().unwrap_or(&none);
        let refuse = |why: &str| bad(&format!("flinkConfiguration: {why}"));
        let setting = |key: &str| configuration.get(key).map(String::as_str);
        let parallelism = match (stated.parallelism, setting("parallelism.default")) {
            (Some(stated), _) => stated,
            (None, None) => front.options.parallelism,
            (None, Some(text)) => text.parse().ok().filter(|p| *p > 0).ok_or_else(|| {
                refuse(&format!("parallelism.default must be at least 1, found \"{text}\""))
            })?,
        };
        if let Some(Err(why)) = setting("engine.process.created").map(str::parse::<CreatedBy>) {
            return Err(refuse(&why.to_string()));
        }
        let restart = restart_strategy(configuration, &front.options.restart.settings())
            .map_err(|refusal| refuse(&refusal.text))?;
        let on_lost_store = on_lost_store(configuration, &front.options.on_lost_store)
            .map_err(|refusal| refuse(&refusal.text))?;
        Ok(Self { parallelism, restart, on_lost_store })
    }
}

/// The job with every default filled in.
fn job_spec(
    stated: &StatedRequest,
    program: Program,
    class_path: Vec<PackageRef>,
    settings: Settings,
) -> JobSpec {
    let entry_class = stated.entry_class.clone().or_else(|| program.entry_classes.first().cloned());
    JobSpec {
        name: entry_class.clone().unwrap_or(program.file_name),
        program: program.package,
        jar_file: JAR_PATH.to_owned(),
        class_path,
        entry_class,
        args: stated.program_args.clone().unwrap_or_default(),
        parallelism: settings.parallelism,
        savepoint_path: stated.savepoint_path.clone(),
        restore_mode: stated.restore_mode,
        allow_non_restored_state: stated.allow_non_restored_state.unwrap_or(false),
        configuration: stated.flink_configuration.clone().unwrap_or_default(),
        restart: settings.restart,
        on_lost_store: settings.on_lost_store,
    }
}

/// The transaction. A registration that was lost meanwhile is waited for: it is this process's matter.
async fn carry_admission(
    front: &Front,
    trigger: &TriggerId,
    stated: StatedRequest,
    spec: JobSpec,
    hidden: bool,
) -> Result<Admitted, ApiError> {
    let job = stated.job_id.clone().unwrap_or_else(|| JobId::from_random(rand::random()));
    let mut scope = Scope::run(trigger).and_job(&job).and_nodes().and_key(&UnitKey::new(&spec.program.unit));
    for package in &spec.class_path {
        scope = scope.and_key(&UnitKey::new(&package.unit));
    }
    let mut tries = 0;
    loop {
        tries += 1;
        let session = front.session_soon().await?;
        let wish = Admit {
            trigger: trigger.clone(),
            stated: stated.clone(),
            job: job.clone(),
            spec: spec.clone(),
            dispatcher: session.me.clone(),
            lease: session.lease,
            hidden,
            now_ms: now_ms(),
        };
        match front.carry(&scope, |view| admit(view, &wish)).await {
            // An answer that was lost is found by planning again: a random job id can only be of this request.
            Ok(done) => {
                let is_ours = stated.job_id.is_none() && done.answer.job == job;
                return Ok(Admitted { new: done.answer.new || is_ours, ..done.answer });
            }
            Err(failure) if tries < SESSION_TRIES && is_session_lost(&failure) => {
                front.session_changed(&session).await;
            }
            Err(failure) if is_session_lost(&failure) => {
                front.metrics.run("refused");
                let text =
                    "this dispatcher stops or lost its registration, and took nothing; ask another one";
                return Err(retry_later(RestError::new(StatusCode::SERVICE_UNAVAILABLE, text)).into());
            }
            Err(failure) => {
                let ask = format!("GET /run-async/{}", records::keys::encode_segment(trigger.as_str()));
                let outcome = if is_unknown(&failure) { "unknown" } else { "refused" };
                front.metrics.run(outcome);
                return Err(of_failure(failure, &ask));
            }
        }
    }
}

fn is_unknown(failure: &Failure) -> bool {
    matches!(failure, Failure::Store(KvError::Unknown(_)))
}

/// This boot's registration or its lease is gone; nothing was written.
fn is_session_lost(failure: &Failure) -> bool {
    match failure {
        Failure::Refused(refusal) => refusal.class == Class::Fenced,
        Failure::Store(KvError::Rejected { code, .. }) => *code == crate::session::NOT_FOUND,
        Failure::Store(_) | Failure::Contended => false,
    }
}

/// A JAR that was uploaded for a request which another one had won, or which was refused, goes at once. After an
/// unknown outcome it stays: if the run was not admitted, the reconciler sweeps it.
async fn drop_loser(front: &Front, private: Option<PackageRef>, admitted: &Result<Admitted, ApiError>) {
    let Some(mine) = private else { return };
    let is_needed = match admitted {
        Ok(admitted) => admitted.program.as_ref() == Some(&mine),
        Err(ApiError::Refused(_)) => false,
        Err(_) => true,
    };
    if is_needed {
        return;
    }
    let dropped = front.carry(&Scope::package(&mine.unit), |view| sweep_private(view, &mine.unit)).await;
    if let Err(failure) = dropped {
        tracing::warn!(package = %mine.unit, %failure, "an upload nobody needs stays until the sweep");
    }
}

fn bad(text: &str) -> RestError {
    RestError::new(StatusCode::BAD_REQUEST, text)
}

/// Runs `work` to its end even if the client hangs up meanwhile.
pub async fn detached<T: Send + 'static>(
    work: impl Future<Output = Result<T, ApiError>> + Send + 'static,
) -> Result<T, ApiError> {
    match tokio::spawn(work).await {
        Ok(done) => done,
        Err(error) => {
            tracing::error!(%error, "a request's task died");
            let text = "internal error: the request's task died; it may have been accepted";
            Err(RestError::new(StatusCode::INTERNAL_SERVER_ERROR, text).into())
        }
    }
}
