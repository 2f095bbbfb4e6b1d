//! `metactl cluster`.

use clap::Subcommand;
use meta_api::pb::etcdserverpb as pb;
use records::{
    Scope, View,
    keys::{JobKey, NodeKey, RunKey, UnitKey},
    record::{Phase, UnitState},
};
use reqwest::Method;
use serde_json::{Value, json};

use super::{endpoint::status_of, member::members};
use crate::{
    cli::Globals,
    exit::{Done, Failure, OK},
    rest::{self, Dispatchers},
    show,
    store::Store,
    view,
};

/// The whole installation.
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:\n  metactl cluster status")]
pub enum Cluster {
    /// Replicas, dispatchers, server nodes, packages, runs, jobs, and what the reconcilers did last, on one page.
    Status,
}

impl Cluster {
    /// Runs it.
    pub async fn run(self, globals: &Globals) -> Done {
        match self {
            Self::Status => status(globals).await,
        }
    }
}

async fn status(globals: &Globals) -> Done {
    let store = Store::connect(globals).await?;
    let members = members(&store).await?.members;
    let view = view::load(globals, Scope::everything()).await?;
    let mut replicas = Vec::new();
    for member in &members {
        replicas.push(replica(globals, member).await);
    }
    let mut warnings = warnings(&view)?;
    let reconcilers = reconcilers(globals, &view, &mut warnings).await?;
    let counts = counts(&view)?;
    if globals.json() {
        show::json_line(&json!({
            "revision": view.revision(), "replicas": replicas, "counts": counts,
            "reconcilers": reconcilers, "warnings": warnings,
        }))?;
        return Ok(OK);
    }
    println!("revision {}", view.revision());
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let row = |replica: &Value| {
        ["name", "address", "state", "term", "applied"].iter().map(|name| text(&replica[*name])).collect()
    };
    show::table(
        &["replica", "address", "state", "term", "applied"],
        &replicas.iter().map(row).collect::<Vec<_>>(),
    )?;
    if !reconcilers.is_empty() {
        let columns = ["node", "reconciler", "last-run", "took", "did", "last-error"];
        show::table(&columns, &reconcilers.iter().map(reconciler_row).collect::<Vec<_>>())?;
    }
    for (name, count) in counts.as_object().into_iter().flatten() {
        println!("{name}: {count}");
    }
    for warning in &warnings {
        println!("warning: {warning}");
    }
    Ok(OK)
}

async fn replica(globals: &Globals, member: &pb::Member) -> Value {
    let address = member.client_ur_ls.first().map(|url| url.trim_start_matches("http://").to_owned());
    let status = match &address {
        Some(address) => status_of(globals, address).await,
        None => Err(Failure::unavailable("it has not started yet")),
    };
    match status {
        Ok(status) => {
            let state = match status.leader {
                0 => "no leader",
                leader if leader == member.id => "leader",
                _ if status.is_learner => "learner",
                _ => "follower",
            };
            json!({
                "name": member.name, "address": address, "state": state,
                "term": status.raft_term, "applied": status.raft_applied_index,
            })
        }
        Err(failure) => json!({
            "name": member.name, "address": address, "state": "unreachable", "term": "-", "applied": "-",
            "error": failure.to_string(),
        }),
    }
}

/// What each reconciler of the cluster did last, by one dispatcher, which asks all. Who cannot be asked is a warning:
/// the rest of the page stands.
async fn reconcilers(
    globals: &Globals,
    view: &View,
    warnings: &mut Vec<String>,
) -> Result<Vec<Value>, Failure> {
    if !view.all::<NodeKey>()?.iter().any(|(_, node)| node.is_dispatcher()) {
        return Ok(Vec::new());
    }
    let asked = async {
        let dispatchers = Dispatchers::find(globals).await?;
        rest::json(dispatchers.simple(Method::GET, "/reconcilers", globals.command_timeout).await?).await
    };
    let answer = match asked.await {
        Ok(answer) => answer,
        Err(failure) => {
            warnings.push(format!("what the reconcilers did last is not known: {failure}"));
            return Ok(Vec::new());
        }
    };
    for silent in answer["unreachable"].as_array().into_iter().flatten() {
        let text = |name: &str| silent[name].as_str().unwrap_or_default().to_owned();
        warnings.push(format!(
            "{} {}: what its reconcilers did last is not known: {}",
            text("role"),
            text("node"),
            text("error")
        ));
    }
    Ok(answer["reconcilers"].as_array().cloned().unwrap_or_default())
}

/// What it did is since its process started, how long it took is the last round.
fn reconciler_row(result: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let last_run = result["last-run"].as_u64();
    let did = result["did"].as_object().into_iter().flatten();
    let error = &result["last-error"];
    vec![
        text(&result["node"]),
        text(&result["name"]),
        last_run.map(show::time).unwrap_or_default(),
        last_run.map(|_| format!("{}ms", result["took-ms"])).unwrap_or_default(),
        did.map(|(kind, count)| format!("{kind}={count}")).collect::<Vec<_>>().join(","),
        error["at"]
            .as_u64()
            .map(|at| format!("{} {}", show::time(at), text(&error["text"])))
            .unwrap_or_default(),
    ]
}

fn counts(view: &View) -> Result<Value, Failure> {
    let nodes = view.all::<NodeKey>()?;
    let units = view.all::<UnitKey>()?;
    let runs = view.all::<RunKey>()?;
    let jobs = view.all::<JobKey>()?;
    Ok(json!({
        "dispatchers": nodes.iter().filter(|(_, node)| node.is_dispatcher()).count(),
        "server nodes": nodes.iter().filter(|(_, node)| node.is_server()).count(),
        "packages": units.len(),
        "packages ready": units.iter().filter(|(_, unit)| unit.state == UnitState::Ready).count(),
        "runs": runs.len(),
        "runs in progress": runs.iter().filter(|(_, run)| run.phase != Phase::Completed).count(),
        "jobs": jobs.len(),
        "jobs alive": jobs.iter().filter(|(_, job)| !job.state.is_terminal()).count(),
    }))
}

/// What an operator should know.
fn warnings(view: &View) -> Result<Vec<String>, Failure> {
    let nodes = view.all::<NodeKey>()?;
    let mut warnings = Vec::new();
    let dispatchers: Vec<_> = nodes.iter().filter(|(_, node)| node.is_dispatcher()).collect();
    if let Some((_, first)) = dispatchers.first()
        && dispatchers.iter().any(|(_, node)| node.single_enable != first.single_enable)
    {
        let say = |(key, node): &&(NodeKey, _)| {
            let node: &meta_client::Stored<records::record::Node> = node;
            format!("{}={}", key.node, node.single_enable.unwrap_or_default())
        };
        let values: Vec<_> = dispatchers.iter().map(say).collect();
        warnings.push(format!(
            "jobmanager.jobmaster.single.enable differs among dispatchers ({}): set one value on all",
            values.join(", ")
        ));
    }
    if !nodes.is_empty() && !nodes.iter().any(|(_, node)| node.is_server()) {
        warnings.push("no server node is alive: start a jobmaster or set single.enable=false".to_owned());
    }
    Ok(warnings)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use meta_client::{Snapshot, TypedKey as _};
    use meta_types::{KeyRange, KeyValue};

    use super::*;

    /// Nodes as they are in the store: name, roles, `single.enable`.
    fn view(nodes: &[(&str, &str, Option<bool>)]) -> View {
        let kvs = nodes.iter().map(|(name, role, single)| {
            let record = json!({ "v": 1, "roles": [role], "single_enable": single, "boot": "b" });
            let key = NodeKey::new(&(*name).to_owned()).encode();
            Arc::new(KeyValue { key: key.into(), value: record.to_string().into(), ..KeyValue::default() })
        });
        Snapshot::new(1, vec![KeyRange::prefix("/node")], kvs.collect::<Vec<_>>()).into()
    }

    #[test]
    fn differing_modes_of_dispatchers_are_a_warning() {
        let said = |nodes: &[_]| warnings(&view(nodes)).unwrap();
        let differ =
            [("d1", "dispatcher", Some(true)), ("d2", "dispatcher", Some(false)), ("j1", "jobmaster", None)];
        let said_of_two = said(&differ);
        assert_eq!(said_of_two.len(), 1, "{said_of_two:?}");
        assert!(said_of_two[0].contains("differs among dispatchers (d1=true, d2=false)"), "{said_of_two:?}");
        assert!(said(&[differ[0], differ[2]]).is_empty());
        assert!(said(&[differ[0]])[0].contains("no server node is alive"));
        assert!(said(&[]).is_empty());
    }
}
