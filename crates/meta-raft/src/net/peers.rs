//! The standing connections to every peer, made as members become known and remade when an address changes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::Net;
use super::link::Link;
use super::message::{Hello, MAGIC, PROTOCOL, Purpose};
use crate::status::RaftStatus;

/// Who this replica is to its peers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Me {
    pub(crate) cluster_id: u64,
    pub(crate) cluster_name: String,
    pub(crate) member_id: u64,
}

impl Me {
    /// The hello for a connection to member `to`.
    pub(crate) fn hello(&self, purpose: Purpose, to: u64) -> Hello {
        Hello {
            magic: MAGIC,
            protocol: PROTOCOL,
            purpose,
            cluster_id: self.cluster_id,
            cluster_name: self.cluster_name.clone(),
            from: self.member_id,
            to,
        }
    }
}

/// The connections to one peer, one for each kind of traffic that must not wait for another.
pub(crate) struct PeerLinks {
    addr: String,
    /// Entries.
    pub(crate) appends: Arc<Link>,
    /// Heartbeats and read confirmations.
    pub(crate) heartbeats: Arc<Link>,
    /// Votes, transfers, forwarded batches, read indexes.
    pub(crate) control: Arc<Link>,
}

/// Where a member is.
pub(crate) enum Place {
    /// It is this replica.
    Here,
    /// Behind these connections.
    There(Arc<PeerLinks>),
}

/// All peers.
pub(crate) struct Peers {
    pub(crate) net: Arc<dyn Net>,
    pub(crate) me: Me,
    pub(crate) connect_timeout: Duration,
    links: Mutex<HashMap<u64, Arc<PeerLinks>>>,
}

impl Peers {
    pub(crate) fn new(net: Arc<dyn Net>, me: Me, connect_timeout: Duration) -> Self {
        Self { net, me, connect_timeout, links: Mutex::default() }
    }

    /// The connections to member `id` at `addr`.
    pub(crate) fn links(&self, id: u64, addr: &str) -> Arc<PeerLinks> {
        let mut links = self.links.lock();
        if let Some(known) = links.get(&id).filter(|known| known.addr == addr) {
            return known.clone();
        }
        let made = Arc::new(PeerLinks {
            addr: addr.to_owned(),
            appends: self.link(id, addr),
            heartbeats: self.link(id, addr),
            control: self.link(id, addr),
        });
        links.insert(id, made.clone());
        made
    }

    /// Where member `id` is; `None` if there is no such member.
    pub(crate) fn place(&self, id: Option<u64>, status: &RaftStatus) -> Option<Place> {
        let found = status.member(id?)?;
        let there = || Place::There(self.links(found.id, &found.member.peer_addr));
        Some(if found.id == status.member_id { Place::Here } else { there() })
    }

    /// Closes every connection.
    pub(crate) fn close(&self) {
        self.links.lock().clear();
    }

    fn link(&self, id: u64, addr: &str) -> Arc<Link> {
        let hello = self.me.hello(Purpose::Calls, id);
        Arc::new(Link::new(self.net.clone(), hello, addr.to_owned(), self.connect_timeout))
    }
}
