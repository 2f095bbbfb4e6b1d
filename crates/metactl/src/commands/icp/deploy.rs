//! Files of this machine become a package on the nodes: `metactl icp create` and `import`.
//!
//! The package is reserved with the list of its files first; then only those are sent that no node has; then the
//! nodes' rows are watched until the request has an outcome. Every step can be repeated under the request's id.

use std::time::Duration;

use clap::Args;
use records::{
    Scope, UnitId, View,
    keys::{NodeKey, ReqKey, UnitKey, encode_segment},
    packages::{PackageStatus, package_status},
    record::{ReqOutcome, Unit, UnitState},
};
use reqwest::{Method, StatusCode, header};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{files::ListedFile, path_of, progress::Progress, upload::Upload};
use crate::{
    cli::{Globals, duration},
    exit::{Done, Failure, OK},
    rest::{Dispatchers, json as answer_json},
    show, view,
};

/// How often the records are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long a run's class path may take to be deployed.
const BEFORE_A_RUN: Duration = Duration::from_secs(300);

/// How a package is deployed.
#[derive(Debug, Args)]
pub struct How {
    /// Which nodes must hold it: all, majority, or names parted by commas.
    #[arg(long, default_value = "all")]
    nodes: String,
    /// Returns when the files are sent, before the nodes have them.
    #[arg(long)]
    no_wait: bool,
    /// How long the deployment may take.
    #[arg(long, default_value = "5m", value_parser = duration)]
    timeout: Duration,
    /// It goes when no job needs it any more.
    #[arg(skip)]
    private: bool,
}

impl How {
    /// On all nodes, ready before a run needs it, and no longer there than jobs need it.
    pub fn before_a_run() -> Self {
        Self { nodes: "all".to_owned(), no_wait: false, timeout: BEFORE_A_RUN, private: true }
    }
}

/// Files of this machine that become a package.
pub struct Deployment {
    /// The package.
    pub unit: UnitId,
    /// Its files.
    pub files: Vec<ListedFile>,
    /// Where it goes.
    pub how: How,
}

impl Deployment {
    /// Carries it out and prints how the package stands.
    pub async fn run(self, globals: &Globals) -> Done {
        let status = self.deploy(globals).await?;
        if globals.json() {
            show::json_line(&status)?;
        } else {
            println!("{} {}", self.unit, status["status"].as_str().unwrap_or("READY"));
        }
        Ok(OK)
    }

    /// Carries it out; how the package stands.
    pub async fn deploy(&self, globals: &Globals) -> Result<Value, Failure> {
        let files = &self.files;
        let dispatchers = Dispatchers::find(globals).await?;
        let deadline = Instant::now() + self.how.timeout;
        let request = format!("{:032x}", rand::random::<u128>());
        let body = serde_json::to_vec(&json!({ "files": files })).expect("a list of files is JSON");
        let path = format!(
            "{}?nodes={}&timeout_ms={}&request={request}&private={}",
            path_of(&self.unit),
            encode_segment(&self.how.nodes).replace("%2C", ","),
            self.how.timeout.as_millis(),
            self.how.private
        );
        let answer = dispatchers.call(Method::PUT, &path, true, async |sent| {
            Ok(sent.header(header::CONTENT_TYPE, "application/json").body(body.clone()))
        });
        let answer = answer.await?;
        if answer.status() != StatusCode::ACCEPTED {
            return answer_json(answer).await;
        }
        let begun = answer_json(answer).await?;
        let mut progress = Progress::new(&self.unit);
        let upload = Upload::new(&dispatchers, &self.unit, &begun, files, deadline)?;
        if let Err(failure) = upload.run(&mut progress).await {
            progress.end();
            return Err(self.give_up(&dispatchers, &begun, failure, globals.command_timeout).await);
        }
        if self.how.no_wait {
            progress.end();
            return Ok(json!({ "status": "CREATING", "op": begun["op"] }));
        }
        let outcome = self.wait(globals, &request, deadline, &mut progress).await;
        progress.end();
        Ok(serde_json::to_value(outcome?).expect("a status is JSON"))
    }

    /// What cannot be sent is not left behind half created.
    async fn give_up(
        &self,
        dispatchers: &Dispatchers,
        begun: &Value,
        failure: Failure,
        timeout: Duration,
    ) -> Failure {
        let op = begun["op"].as_str().unwrap_or_default();
        let path = format!("{}?mode=force&op={}", path_of(&self.unit), encode_segment(op));
        let undone = match dispatchers.simple(Method::DELETE, &path, timeout).await {
            Ok(_) => "nothing of it is left".to_owned(),
            Err(_) => format!("it is undone soon: ask with metactl icp status {}", self.unit),
        };
        Failure::new(failure.code, format!("{failure}; {} was not created, {undone}", self.unit))
    }

    /// Until the request has an outcome.
    async fn wait(
        &self,
        globals: &Globals,
        request: &str,
        deadline: Instant,
        progress: &mut Progress,
    ) -> Result<PackageStatus, Failure> {
        let scope = Scope::package(&self.unit).and_request(request);
        let unit = &self.unit;
        loop {
            // A store that does not answer now does so later.
            if let Some(view) = unless_unavailable(view::load(globals, scope.clone()).await)? {
                match view.get(&ReqKey { request: request.to_owned() })?.map(|req| req.value.outcome) {
                    Some(ReqOutcome::Ok) => return self.ready(&view, progress),
                    Some(ReqOutcome::Failed(why)) => {
                        return Err(Failure::failed(format!("{unit} was not created: {why}")));
                    }
                    Some(ReqOutcome::Running) => progress.nodes(&package_status(&view, unit)?),
                    None => return Err(Failure::unavailable(format!("{unit}: {}", self.ask()))),
                }
            }
            if Instant::now() >= deadline {
                let text = format!("{unit} is not READY after {:?}; {}", self.how.timeout, self.ask());
                return Err(Failure::unavailable(text));
            }
            sleep(LOOK_EVERY).await;
        }
    }

    fn ask(&self) -> String {
        format!("it may go on: ask with metactl icp status {}", self.unit)
    }

    /// It is READY: says which targets were dropped and which are still to come.
    fn ready(&self, view: &View, progress: &mut Progress) -> Result<PackageStatus, Failure> {
        let status = package_status(view, &self.unit)?;
        progress.nodes(&status);
        progress.end();
        if let Some(found) =
            view.get(&UnitKey::new(&self.unit))?.filter(|found| found.state == UnitState::Ready)
        {
            for node in without_a_copy(&status, &found.value) {
                let alive = view.get(&NodeKey::new(&node))?.is_some();
                eprintln!("warning: node {node} {}", if alive { STILL_FETCHING } else { DROPPED });
            }
            let mut present = status.nodes.iter().filter(|row| row.alive && row.status == "PRESENT");
            if let (Some(only), None) = (present.next(), present.next()) {
                eprintln!("warning: only node {} holds {}: {LOST_WITH_IT}", only.node, self.unit);
            }
        }
        Ok(status)
    }
}

const LOST_WITH_IT: &str = "it is lost if that node is lost before others have it";
const STILL_FETCHING: &str = "does not have it yet; it goes on fetching in the background";
const DROPPED: &str = "died meanwhile and was dropped; it fetches the package when it is back";

/// Targets that are not PRESENT.
fn without_a_copy(status: &PackageStatus, found: &Unit) -> Vec<String> {
    let is_present = |node: &&String| {
        status.nodes.iter().any(|row| row.node == **node && row.alive && row.status == "PRESENT")
    };
    found.targets.iter().filter(|node| !is_present(node)).cloned().collect()
}

/// None if nobody answered.
fn unless_unavailable<T>(answer: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(failure) if failure.code == crate::exit::UNAVAILABLE => Ok(None),
        Err(failure) => Err(failure),
    }
}
