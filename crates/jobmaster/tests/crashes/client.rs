//! What clients send to the nodes.

use std::time::Duration;

use futures_util::stream::iter;
use icp_store::Digest;
use icp_store::peer::{self, Peer};
use records::UnitId;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::judge::{BOUND, FILES};

/// Creates the package on `nodes`; the answer's status, if there was one.
pub async fn create_on(unit: UnitId, address: String, nodes: &str) -> Option<u16> {
    let files = FILES
        .map(|(path, bytes)| (path.to_owned(), iter([Ok::<_, std::io::Error>(bytes::Bytes::from(bytes))])));
    let (peer, query) = (Peer::new(peer::client(), address), format!("nodes={nodes}"));
    let sent = peer.put_package(&unit.name, &unit.version, &query, files.into(), BOUND).await;
    sent.ok().map(|(status, _)| status)
}

/// Creates it on the live nodes.
pub async fn create(unit: UnitId, address: String) -> Option<u16> {
    create_on(unit, address, "all").await
}

/// A client that lists the files, sends what is missing, and does not come back.
pub async fn create_listed(app: UnitId, address: String) -> Option<()> {
    let files: Vec<_> = FILES
        .iter()
        .map(|(path, bytes)| json!({ "path": path, "size": bytes.len(), "blake3": Digest::of(bytes.as_bytes()) }))
        .collect();
    let (client, unit) = (peer::client(), of(&app, &address, ""));
    let begun = client.post(&unit).json(&json!({ "files": files })).timeout(BOUND).send().await.ok()?;
    let begun: Value = begun.json().await.ok()?;
    let op = begun["op"].as_str()?;
    for (_, bytes) in FILES {
        let file = format!("{unit}/files/{}?op={op}&offset=0", Digest::of(bytes.as_bytes()));
        client.put(file).body(bytes).timeout(BOUND).send().await.ok()?;
    }
    Some(())
}

/// Where a node at `address` takes requests about the package.
pub fn of(unit: &UnitId, address: &str, what: &str) -> String {
    format!("http://{address}/packages/{}/{}{what}", unit.name, unit.version)
}

/// The answer's status.
pub async fn post(url: String) -> Option<u16> {
    peer::client().post(url).timeout(BOUND).send().await.ok().map(|answer| answer.status().as_u16())
}

/// The client tries again, as long as the store is away.
pub async fn create_again(unit: &UnitId, address: &str) -> Result<(), String> {
    let trying = async {
        loop {
            match create(unit.clone(), address.to_owned()).await {
                Some(200) => return Ok(()),
                Some(503) | None => sleep(Duration::from_millis(50)).await,
                Some(other) => return Err(format!("the next try is answered {other}")),
            }
        }
    };
    timeout(BOUND, trying).await.map_err(|_| "the next try does not end".to_owned())?
}
