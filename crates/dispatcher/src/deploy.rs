//! One file becomes a package: streamed to a live node, which makes as many copies as asked and says when it is READY.

use std::time::Duration;

use flink_rest::RestError;
use http::StatusCode;
use records::packages::{JAR_UNIT_PREFIX, package_status, ready_package};
use records::record::PackageRef;
use records::{Class, Scope, UnitId};
use serde_json::Value;
use tokio::time::Instant;

use crate::api_error::{self, ApiError};
use crate::front::Front;
use crate::node_client::{Deploy, NodeAnswer, NodeError};
use crate::receive::SpooledFile;
use crate::warning::holders_of;

/// The path of the JAR in its package. Users' names may hold what a class path cannot.
pub const JAR_PATH: &str = "job.jar";
/// The one version of a package that was made from a JAR.
pub const JAR_VERSION: &str = "1";
/// Nodes that hold an uploaded JAR, if there are so many.
const JAR_COPIES: usize = 2;
/// How long the store is watched for the end of a deploy whose node gave no answer.
const LOST_NODE_WAIT: Duration = Duration::from_secs(5);
/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A JAR's package.
#[derive(Debug, Clone)]
pub struct JarPackage {
    /// The random part of its name and of a jar id.
    pub uuid: String,
    /// The package.
    pub package: PackageRef,
    /// Live nodes that held it when it was READY.
    pub holders: Vec<String>,
}

/// 128 random bits in the usual spelling.
pub fn random_uuid() -> String {
    let bits = (rand::random::<u128>() & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// Name of the package of a JAR.
pub fn jar_unit(uuid: &str) -> Result<UnitId, ApiError> {
    Ok(UnitId::new(&format!("{JAR_UNIT_PREFIX}{uuid}"), JAR_VERSION)?)
}

/// Deploys a JAR as a package of its own; `origin` is `jar` or `private`. Nodes are tried in random order.
pub async fn deploy_jar(
    front: &Front,
    origin: &'static str,
    file: &SpooledFile,
) -> Result<JarPackage, ApiError> {
    let servers = front.live_servers().await?;
    let deploy = Deploy { origin, copies: JAR_COPIES.min(servers.len()) };
    let mut last = api_error::no_server_node();
    for (name, node) in servers {
        let Some(address) = node.value.node_address.as_deref() else { continue };
        let uuid = random_uuid();
        let unit = jar_unit(&uuid)?;
        match front.nodes.put_file(address, &unit, &deploy, file, JAR_PATH).await {
            Ok(answer) if answer.status.is_success() => {
                return find_ready(front, &uuid, &unit).await;
            }
            Ok(answer) => {
                let refusal = of_answer(&name, &answer);
                if !answer.status.is_server_error() {
                    return Err(refusal.into());
                }
                last = refusal;
            }
            Err(error @ NodeError::NotReached { .. }) => last = error.into(),
            Err(error @ NodeError::Lost { .. }) => {
                if let Some(jar) = await_ready(front, &uuid, &unit).await {
                    return Ok(jar);
                }
                last = error.into();
            }
        }
        tracing::warn!(node = name, error = %last, "the node did not take an upload; trying the next");
    }
    Err(last.into())
}

async fn find_ready(front: &Front, uuid: &str, unit: &UnitId) -> Result<JarPackage, ApiError> {
    let view = front.fresh(Scope::package(unit)).await?;
    let package = ready_package(&view, unit)?;
    Ok(JarPackage { uuid: uuid.to_owned(), package, holders: holders_of(&package_status(&view, unit)?) })
}

/// The node is lost, its create may go on: the record knows.
async fn await_ready(front: &Front, uuid: &str, unit: &UnitId) -> Option<JarPackage> {
    let deadline = Instant::now() + LOST_NODE_WAIT;
    loop {
        match find_ready(front, uuid, unit).await {
            Ok(jar) => return Some(jar),
            Err(ApiError::Refused(refusal)) if refusal.class == Class::NotFound => return None,
            Err(_) if Instant::now() >= deadline => return None,
            Err(_) => tokio::time::sleep(LOOK_EVERY).await,
        }
    }
}

/// A node's refusal as ours.
fn of_answer(name: &str, answer: &NodeAnswer) -> RestError {
    let status = match answer.status {
        status if status.is_client_error() || status.is_server_error() => status,
        _ => StatusCode::BAD_GATEWAY,
    };
    RestError::new(status, format!("node {name}: {}", text_of(&answer.body)))
}

/// The sentence in a node's answer.
pub fn text_of(body: &Value) -> String {
    let first = body.get("errors").and_then(|errors| errors.get(0)).or_else(|| body.get("error"));
    match first.unwrap_or(body) {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_spelled_as_usual_and_makes_a_package_name() {
        let uuid = random_uuid();
        assert_eq!(uuid.len(), 36);
        assert_eq!(uuid.as_bytes()[14], b'4');
        assert!(matches!(uuid.as_bytes()[19], b'8' | b'9' | b'a' | b'b'));
        assert!(jar_unit(&uuid).is_ok());
        assert_ne!(random_uuid(), uuid);
    }
}
