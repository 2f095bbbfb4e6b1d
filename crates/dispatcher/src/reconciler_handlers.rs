//! `GET /reconcilers`: what every reconciler of the cluster did last. Each process knows its own and is asked for it;
//! nothing of it is in the store.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::Response;
use flink_rest::respond;
use futures_util::future::join_all;
use process_kit::LastResult;
use records::Scope;
use records::keys::NodeKey;
use records::record::Node;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api_error::ApiError;
use crate::front::Front;
use crate::openapi::Reconcilers;
use crate::request::{flag_of, known_parameters, query_of};

/// How long a process is waited for. All are asked at once, and a page of status must not hang on one of them.
const ANSWER: Duration = Duration::from_secs(2);

/// What a process answers about its own.
#[derive(Debug, Deserialize)]
struct Own {
    reconcilers: Vec<LastResult>,
}

/// One process, and where it is asked.
struct Asked {
    node: String,
    role: &'static str,
    /// None: this one.
    address: Option<String>,
    path: &'static str,
}

/// `GET /reconcilers[?local=true]`: `{reconcilers: [{node, name, ...}], unreachable: [{node, role, error}]}`. `local`:
/// only those of this dispatcher.
#[utoipa::path(get, path = "/reconcilers", tag = "nodes", operation_id = "reconcilers",
    params(("local" = Option<bool>, Query, description = "Only those of this dispatcher")),
    responses((status = 200, description = "What each did last", body = Reconcilers)))]
pub async fn reconcilers(State(front): State<Front>, request: Request) -> Result<Response, ApiError> {
    let query = query_of(&request)?;
    known_parameters(&query, &["local"])?;
    if flag_of(&query, "local")? {
        return Ok(respond::ok(&json!({ "reconcilers": front.rounds.all() })));
    }
    let nodes = front.fresh(Scope::nodes()).await?.all::<NodeKey>()?;
    let asked: Vec<Asked> = nodes.iter().flat_map(|(key, node)| asked_of(&front, key, node)).collect();
    let answers = join_all(asked.iter().map(|asked| ask(&front, asked))).await;
    let (mut rows, mut unreachable) = (Vec::new(), Vec::new());
    for (asked, answer) in asked.iter().zip(answers) {
        match answer {
            Ok(results) => rows.extend(results.iter().map(|result| row(&asked.node, result))),
            Err(error) => {
                unreachable.push(json!({ "node": asked.node, "role": asked.role, "error": error }));
            }
        }
    }
    Ok(respond::ok(&json!({ "reconcilers": rows, "unreachable": unreachable })))
}

/// A dispatcher that hosts JobMasters answers at both of its ports, at each for that part.
fn asked_of(front: &Front, key: &NodeKey, node: &Node) -> Vec<Asked> {
    let mut asked = Vec::new();
    if node.is_dispatcher() {
        let address = node.rest_address.clone().filter(|address| **address != *front.address);
        let (node, path) = (key.node.clone(), "/reconcilers?local=true");
        asked.push(Asked { node, role: "dispatcher", address, path });
    }
    if node.is_server() && node.node_address.is_some() {
        let (node, address) = (key.node.clone(), node.node_address.clone());
        asked.push(Asked { node, role: "server", address, path: "/reconcilers" });
    }
    asked
}

async fn ask(front: &Front, asked: &Asked) -> Result<Vec<LastResult>, String> {
    let Some(address) = &asked.address else { return Ok(front.rounds.all()) };
    let answer = tokio::time::timeout(ANSWER, front.nodes.get_json(address, asked.path)).await;
    let answer = answer.map_err(|_| format!("{address} gave no answer within {ANSWER:?}"))?;
    let own: Own = serde_json::from_value(answer.map_err(|error| error.to_string())?).map_err(|error| {
        format!("the answer of {address} makes no sense: {error}; it is of another version of this program")
    })?;
    Ok(own.reconcilers)
}

fn row(node: &str, result: &LastResult) -> Value {
    let mut row = json!(result);
    row["node"] = json!(node);
    row
}
