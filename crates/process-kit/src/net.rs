//! Binding ports: loopback unless told otherwise, and one clear line when it does not work.

use std::{io, net::SocketAddr};

use thiserror::Error;
use tokio::net::TcpListener;

/// Why a port was not bound.
#[derive(Debug, Error)]
pub enum BindError {
    /// Somebody else has it.
    #[error("{key} = \"{addr}\": the port is in use; stop what holds it or set {key} to another")]
    InUse {
        /// The address.
        addr: SocketAddr,
        /// The config key that sets it.
        key: &'static str,
    },
    /// Not loopback, and nobody said that this is meant.
    #[error(
        "{key} = \"{addr}\" is reachable from other machines, and there is no TLS or authentication yet: {exposes}. \
         Bind 127.0.0.1, or set security.insecure = true if the network is trusted"
    )]
    NeedsInsecure {
        /// The address.
        addr: SocketAddr,
        /// The config key that sets it.
        key: &'static str,
        /// What anybody who reaches the port could do.
        exposes: &'static str,
    },
    /// The system refused.
    #[error("{key} = \"{addr}\": {source}")]
    Refused {
        /// The address.
        addr: SocketAddr,
        /// The config key that sets it.
        key: &'static str,
        /// The system's words.
        source: io::Error,
    },
}

/// A port to bind.
#[derive(Debug, Clone, Copy)]
pub struct Listen {
    /// Where; port 0 takes a free one.
    pub addr: SocketAddr,
    /// The config key that sets it, named in every error.
    pub key: &'static str,
    /// What anybody who reaches the port could do, as a clause.
    pub exposes: &'static str,
    /// Value of `security.insecure`.
    pub insecure: bool,
}

/// Binds a port. Anything but loopback needs `security.insecure = true` and is logged as a warning.
pub async fn bind(listen: Listen) -> Result<TcpListener, BindError> {
    let Listen { addr, key, exposes, insecure } = listen;
    if !addr.ip().is_loopback() {
        if !insecure {
            return Err(BindError::NeedsInsecure { addr, key, exposes });
        }
        tracing::warn!(%addr, key, "open to other machines without TLS or authentication: {exposes}");
    }
    TcpListener::bind(addr).await.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse { addr, key },
        _ => BindError::Refused { addr, key, source },
    })
}

/// Binds the first free port of `addr.port()..=last`; a port 0 takes any free one.
pub async fn bind_range(listen: Listen, last: u16) -> Result<TcpListener, BindError> {
    let mut at = listen;
    loop {
        match bind(at).await {
            Err(BindError::InUse { .. }) if at.addr.port() != 0 && at.addr.port() < last => {
                at.addr.set_port(at.addr.port() + 1);
            }
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(addr: &str) -> Listen {
        Listen {
            addr: addr.parse().unwrap(),
            key: "listen.client",
            exposes: "anybody reads every key",
            insecure: false,
        }
    }

    #[tokio::test]
    async fn a_port_in_use_names_the_port_and_the_key() {
        let held = bind(listen("127.0.0.1:0")).await.unwrap();
        let addr = held.local_addr().unwrap();
        let error = bind(Listen { addr, ..listen("127.0.0.1:0") }).await.unwrap_err().to_string();
        assert!(error.contains(&addr.to_string()) && error.contains("listen.client"), "{error}");
        assert_eq!(error.lines().count(), 1);
    }

    #[tokio::test]
    async fn another_address_than_loopback_needs_the_word() {
        let error = bind(listen("0.0.0.0:0")).await.unwrap_err();
        assert!(matches!(error, BindError::NeedsInsecure { .. }));
        assert!(error.to_string().contains("anybody reads every key"));
    }

    #[tokio::test]
    async fn a_range_takes_the_next_free_port() {
        let held = bind(listen("127.0.0.1:0")).await.unwrap();
        let addr = held.local_addr().unwrap();
        if addr.port() > 65_000 {
            return;
        }
        let next = bind_range(Listen { addr, ..listen("127.0.0.1:0") }, addr.port() + 200).await.unwrap();
        assert!(next.local_addr().unwrap().port() > addr.port());
    }
}
