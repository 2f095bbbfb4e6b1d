//! `metactl endpoint`.

use std::time::Instant;

use clap::{Args, Subcommand};
use meta_api::{convert::range_request_to_wire, pb::etcdserverpb as pb};
use meta_types::RangeRequest;
use serde_json::{Value, json};

use super::member::members;
use crate::{
    cli::Globals,
    exit::{Done, Failure, OK, UNAVAILABLE},
    show,
    store::Store,
};

const EXAMPLES: &str = "Examples:
  metactl --endpoints 127.0.0.1:2379,127.0.0.1:3379 endpoint status
  metactl endpoint health --cluster

Exits 3 if any endpoint does not answer.";

/// Each replica on its own.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Endpoint {
    /// What each replica says of itself.
    Status(Which),
    /// Whether each replica carries out a linearizable read.
    Health(Which),
}

/// Which replicas.
#[derive(Debug, Args)]
pub struct Which {
    /// Every member of the cluster, not only those of --endpoints.
    #[arg(long)]
    cluster: bool,
}

impl Endpoint {
    /// Runs it.
    pub async fn run(self, globals: &Globals) -> Done {
        match self {
            Self::Status(which) => status(globals, &which.endpoints(globals).await?).await,
            Self::Health(which) => health(globals, &which.endpoints(globals).await?).await,
        }
    }
}

impl Which {
    async fn endpoints(&self, globals: &Globals) -> Result<Vec<String>, Failure> {
        if !self.cluster {
            return Ok(globals.endpoints.clone());
        }
        let reply = members(&Store::connect(globals).await?).await?;
        let address = |url: &String| url.trim_start_matches("http://").to_owned();
        Ok(reply.members.iter().filter_map(|member| member.client_ur_ls.first()).map(address).collect())
    }
}

/// One replica's own state.
pub async fn status_of(globals: &Globals, endpoint: &str) -> Result<pb::StatusResponse, Failure> {
    let store = Store::connect_to(endpoint, globals.command_timeout).await?;
    let reply = store.maintenance().status(pb::StatusRequest {}).await;
    Ok(reply.map_err(|status| store.failure(&status, ""))?.into_inner())
}

async fn status(globals: &Globals, endpoints: &[String]) -> Done {
    let (mut rows, mut objects, mut failed) = (Vec::new(), Vec::new(), false);
    for endpoint in endpoints {
        match status_of(globals, endpoint).await {
            Ok(status) => {
                rows.push(status_row(endpoint, &status));
                objects.push(status_json(endpoint, &status));
            }
            Err(failure) => {
                failed = true;
                eprintln!("metactl: {failure}");
            }
        }
    }
    if globals.json() {
        show::json_line(&Value::Array(objects))?;
    } else if !rows.is_empty() {
        let columns = [
            "endpoint", "id", "version", "db-size", "leader", "learner", "term", "index", "applied",
            "revision", "errors",
        ];
        show::table(&columns, &rows)?;
    }
    Ok(if failed { UNAVAILABLE } else { OK })
}

fn status_row(endpoint: &str, status: &pb::StatusResponse) -> Vec<String> {
    let header = status.header.unwrap_or_default();
    vec![
        endpoint.to_owned(),
        format!("{:x}", header.member_id),
        status.version.clone(),
        status.db_size.to_string(),
        (status.leader == header.member_id && status.leader != 0).to_string(),
        status.is_learner.to_string(),
        status.raft_term.to_string(),
        status.raft_index.to_string(),
        status.raft_applied_index.to_string(),
        header.revision.to_string(),
        status.errors.join(", "),
    ]
}

fn status_json(endpoint: &str, status: &pb::StatusResponse) -> Value {
    json!({
        "Endpoint": endpoint,
        "Status": {
            "header": show::header(status.header.as_ref()),
            "version": status.version,
            "dbSize": status.db_size,
            "leader": status.leader,
            "raftIndex": status.raft_index,
            "raftTerm": status.raft_term,
            "raftAppliedIndex": status.raft_applied_index,
            "dbSizeInUse": status.db_size_in_use,
            "isLearner": status.is_learner,
            "errors": status.errors,
        },
    })
}

async fn health(globals: &Globals, endpoints: &[String]) -> Done {
    let (mut rows, mut objects, mut failed) = (Vec::new(), Vec::new(), false);
    for endpoint in endpoints {
        let start = Instant::now();
        let error = read_something(globals, endpoint).await.err().map(|failure| failure.to_string());
        let took = format!("{:.1}ms", start.elapsed().as_secs_f64() * 1000.0);
        failed |= error.is_some();
        rows.push(vec![
            endpoint.clone(),
            error.is_none().to_string(),
            took.clone(),
            error.clone().unwrap_or_default(),
        ]);
        let mut object = json!({ "endpoint": endpoint, "health": error.is_none(), "took": took });
        if let Some(error) = error {
            object["error"] = json!(error);
        }
        objects.push(object);
    }
    if globals.json() {
        show::json_line(&Value::Array(objects))?;
    } else {
        show::table(&["endpoint", "health", "took", "error"], &rows)?;
    }
    if failed {
        return Err(Failure::unavailable("unhealthy cluster"));
    }
    Ok(OK)
}

/// A linearizable read of a key that need not exist: it needs a leader and a majority.
async fn read_something(globals: &Globals, endpoint: &str) -> Result<(), Failure> {
    let store = Store::connect_to(endpoint, globals.command_timeout).await?;
    let request = range_request_to_wire(RangeRequest { limit: 1, ..RangeRequest::get("health") });
    store.kv().range(request).await.map(drop).map_err(|status| store.failure(&status, ""))
}
