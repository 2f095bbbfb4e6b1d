//! A replica whose checkpoints are all damaged and whose log is purged asks its peers for a state to start from,
//! before openraft runs. It keeps its vote and its log: it is no empty voter.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use meta_store::{Generations, Position, Wal};

use crate::checkpoint::Checkpoints;
use crate::errors::StartError;
use crate::net::frame::{self, Outgoing};
use crate::net::link;
use crate::net::message::Purpose;
use crate::net::peers::Peers;
use crate::net::transfer;
use crate::options::RaftOptions;
use crate::payload::decode_entry;
use crate::recover::Start;
use crate::state::State;
use crate::types::{EntryPayload, StoredMembership};
use crate::workers::Workers;
use tokio::io::AsyncWriteExt;

/// Between two rounds over all peers.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// Rounds between two log lines.
const SAY_EVERY: u32 = 20;
/// One transfer.
const TRANSFER: Duration = Duration::from_secs(300);

/// Where peers may be: the last membership in the log, and `cluster.initial`.
pub(crate) fn addresses(options: &RaftOptions, wal: &Wal) -> Vec<String> {
    let mut addrs: Vec<String> =
        options.initial.iter().filter(|m| m.name != options.node_name).map(|m| m.peer_addr.clone()).collect();
    let (first, last) = (wal.first_index(), wal.last().map(|last| last.index));
    let logged = first.zip(last).and_then(|(first, last)| wal.read(first..last + 1).ok()).unwrap_or_default();
    for entry in logged {
        let decoded = decode_entry(entry.position.term, entry.position.index, entry.payload);
        if let Ok(EntryPayload::Membership(membership)) = decoded.map(|entry| entry.payload) {
            let others = membership.nodes().filter(|(_, member)| member.name != options.node_name);
            addrs.extend(others.map(|(_, member)| member.peer_addr.clone()));
        }
    }
    addrs.sort();
    addrs.dedup();
    addrs
}

/// Fetches a checkpoint at or above `purged`; tries until a peer gives one.
pub(crate) async fn checkpoint(
    peers: &Arc<Peers>,
    workers: &Arc<dyn Workers>,
    addrs: &[String],
    purged: Position,
    generations: &Arc<dyn Generations>,
) -> Result<Start, StartError> {
    let why = "no checkpoint of this replica can be used, and its log is purged";
    if addrs.is_empty() {
        return Err(StartError::Recovery(format!(
            "{why}; there is no peer to fetch one from: restore a backup"
        )));
    }
    tracing::warn!(?purged, "{why}; fetching one from a peer");
    for round in 0u32.. {
        for addr in addrs {
            let fetched = fetch_from(peers, workers, addr, purged, generations);
            match tokio::time::timeout(TRANSFER, fetched).await.unwrap_or(Err(io::ErrorKind::TimedOut.into()))
            {
                Ok(start) => return Ok(start),
                Err(error) if round % SAY_EVERY == 0 => {
                    tracing::warn!(addr, %error, "no checkpoint from this peer")
                }
                Err(_) => {}
            }
        }
        tokio::time::sleep(RETRY_AFTER).await;
    }
    unreachable!("the rounds do not end")
}

async fn fetch_from(
    peers: &Arc<Peers>,
    workers: &Arc<dyn Workers>,
    addr: &str,
    purged: Position,
    generations: &Arc<dyn Generations>,
) -> io::Result<Start> {
    let hello = peers.me.hello(Purpose::FetchCheckpoint, 0);
    let mut stream = link::open(peers.net.as_ref(), &hello, addr, peers.connect_timeout).await?;
    frame::write(&mut stream, &Outgoing::new(&purged.index, vec![])?).await?;
    stream.flush().await?;
    let start = transfer::read_start(&mut stream).await?;
    let start = start.ok_or_else(|| io::Error::other("it has none that is new enough"))?;
    if start.position().index < purged.index {
        return Err(io::Error::other("its checkpoint is older than this log"));
    }
    // Nothing is running yet: a book-keeper of its own is enough to receive it.
    let empty = Arc::new(State::new(meta_core::Core::new(), StoredMembership::default()));
    let checkpoints = Arc::new(Checkpoints::new(workers.clone(), generations.clone(), empty, None));
    let (data, meta) = transfer::receive(&mut stream, start, checkpoints).await?;
    let (generation, core) = data.into_parts();
    let (Some(generation), Some(core)) = (generation, core) else {
        return Err(io::Error::other("it came without content"));
    };
    let membership = meta.last_membership;
    Ok(Start { core, membership: membership.clone(), newest: Some((generation, membership)) })
}
