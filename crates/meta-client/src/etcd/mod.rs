//! [`EtcdKv`]: the store over the network, by etcd's client protocol: any of its endpoints will do.
//!
//! A call goes to the current endpoint. What happens when it fails depends on what is known ([`KvError`]):
//!
//! | outcome | reads, keep-alives | writes |
//! |---|---|---|
//! | not sent (no connection, no leader, overload) | next endpoint | next endpoint |
//! | unknown (no answer, time-out) | next endpoint | told to the caller: it may have been carried out |
//! | rejected, compacted | told to the caller | told to the caller |
//!
//! until the call's deadline. Grants, revokes and compactions can be told apart from their own repetition, so they
//! are repeated too.

mod calls;
mod connection;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use meta_types::seams::Rng;
use tonic::transport::Channel;

pub use connection::{EtcdOptions, endpoint};

use crate::kv::KvError;
use connection::Connections;

/// A client of the store over the network. Clones share connections.
#[derive(Clone)]
pub struct EtcdKv {
    connections: Arc<Connections>,
}

impl EtcdKv {
    /// Makes a client of these endpoints (`HOST:PORT` or `http://HOST:PORT`). Connects when it is first used, so it
    /// succeeds while no replica is up; must be called inside of a runtime, which then drives the connections.
    pub fn connect(
        endpoints: impl IntoIterator<Item = impl AsRef<str>>,
        options: EtcdOptions,
    ) -> Result<Self, KvError> {
        Ok(Self { connections: Arc::new(Connections::new(endpoints, options)?) })
    }

    /// A client over channels to named endpoints that were made elsewhere, say in a simulated network, with its own
    /// chance. [`endpoint`] gives a channel the bounds of this client.
    pub fn over(
        channels: Vec<(String, Channel)>,
        options: EtcdOptions,
        rng: Arc<dyn Rng>,
    ) -> Result<Self, KvError> {
        Ok(Self { connections: Arc::new(Connections::over(channels, options, rng)?) })
    }

    /// The endpoint that calls go to now.
    pub fn endpoint(&self) -> &str {
        self.connections.current_name()
    }

    /// How long a call may take in all.
    pub fn call_timeout(&self) -> Duration {
        self.connections.options().call_timeout
    }
}
