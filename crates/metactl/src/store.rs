//! Calls to replicas: the first that answers, within the command's time.

use std::time::Duration;

use meta_api::pb::etcdserverpb::{
    cluster_client::ClusterClient, kv_client::KvClient, lease_client::LeaseClient,
    maintenance_client::MaintenanceClient, watch_client::WatchClient,
};
use meta_types::limits::MAX_GRPC_MESSAGE_BYTES;
use tonic::transport::{Channel, Endpoint};

use crate::{cli::Globals, exit::Failure};

/// How long a connection may take, all addresses together bounded by the command's time.
const CONNECT: Duration = Duration::from_secs(2);
/// A range's answer may be far larger than a request.
const MAX_ANSWER_BYTES: usize = 1 << 31;

/// A replica that answers.
#[derive(Debug, Clone)]
pub struct Store {
    /// Its address.
    pub endpoint: String,
    channel: Channel,
}

impl Store {
    /// Connects to the first endpoint that can be reached.
    pub async fn connect(globals: &Globals) -> Result<Self, Failure> {
        let mut reasons = Vec::new();
        for endpoint in &globals.endpoints {
            match Self::connect_to(endpoint, globals.command_timeout).await {
                Ok(store) => return Ok(store),
                Err(failure) => reasons.push(failure.to_string()),
            }
        }
        Err(Failure::unavailable(reasons.join("; ")))
    }

    /// Connects to one endpoint.
    pub async fn connect_to(endpoint: &str, timeout: Duration) -> Result<Self, Failure> {
        let address = endpoint.trim_start_matches("http://").trim_end_matches('/');
        let built = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|error| Failure::usage(format!("--endpoints {endpoint}: {error}; wants HOST:PORT")))?;
        let built = built.connect_timeout(CONNECT.min(timeout)).timeout(timeout).tcp_nodelay(true);
        match tokio::time::timeout(CONNECT.min(timeout), built.connect()).await {
            Ok(Ok(channel)) => Ok(Self { endpoint: address.to_owned(), channel }),
            Ok(Err(error)) => {
                Err(Failure::unavailable(format!("cannot reach {address}: {}", innermost(&error))))
            }
            Err(_) => Err(Failure::unavailable(format!("cannot reach {address}: no answer in time"))),
        }
    }

    /// Keys and transactions.
    pub fn kv(&self) -> KvClient<Channel> {
        KvClient::new(self.channel.clone())
            .max_decoding_message_size(MAX_ANSWER_BYTES)
            .max_encoding_message_size(MAX_GRPC_MESSAGE_BYTES)
    }

    /// Leases.
    pub fn lease(&self) -> LeaseClient<Channel> {
        LeaseClient::new(self.channel.clone())
    }

    /// Watches.
    pub fn watch(&self) -> WatchClient<Channel> {
        WatchClient::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    /// Members.
    pub fn cluster(&self) -> ClusterClient<Channel> {
        ClusterClient::new(self.channel.clone())
    }

    /// One replica's own state.
    pub fn maintenance(&self) -> MaintenanceClient<Channel> {
        MaintenanceClient::new(self.channel.clone())
    }

    /// A call on this replica failed; see [`Failure::of_status`].
    pub fn failure(&self, status: &tonic::Status, ask: &str) -> Failure {
        Failure::of_status(&self.endpoint, status, ask)
    }
}

/// The cause that says most: "Connection refused (os error 111)".
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut at = error;
    while let Some(next) = at.source() {
        at = next;
    }
    at.to_string()
}
