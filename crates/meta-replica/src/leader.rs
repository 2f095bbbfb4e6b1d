//! What a replica knows of its leader: who it is said to be, and whether a majority still answers.
//!
//! A replica that is cut off from the majority goes on naming its last leader, so the name alone proves
//! nothing. The probe asks for a read position now and then: only a leader with a majority behind it can give
//! one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use meta_raft::RaftStatus;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::consensus::Consensus;

/// Election timeouts after which a leader that does not answer counts as lost, as etcd.
const PATIENCE: u32 = 3;

/// Keeps the term of answers up to date and logs who leads.
pub(crate) async fn follow(
    mut status: watch::Receiver<RaftStatus>,
    term: Arc<AtomicU64>,
    shutdown: CancellationToken,
) {
    let mut leader = None;
    loop {
        let now = status.borrow_and_update().clone();
        term.store(now.term, Ordering::Relaxed);
        if leader != now.leader {
            leader = now.leader;
            match now.leader {
                Some(leader) => tracing::info!(term = now.term, leader, me = now.is_leader(), "leader known"),
                None => tracing::warn!(term = now.term, "no leader known"),
            }
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            changed = status.changed() => if changed.is_err() { return },
        }
    }
}

/// Keeps the flag "a leader with a majority answers". `election` is the longest election timeout.
pub(crate) async fn probe(
    consensus: Arc<dyn Consensus>,
    known: watch::Sender<bool>,
    election: Duration,
    shutdown: CancellationToken,
) {
    loop {
        let answered = tokio::select! {
            () = shutdown.cancelled() => return,
            answer = consensus.read_index(election * PATIENCE) => answer.is_ok(),
        };
        let changed = known.send_if_modified(|known| std::mem::replace(known, answered) != answered);
        match (changed, answered) {
            (true, true) => tracing::info!("a majority answers"),
            (true, false) => tracing::warn!("no majority answers: only stale reads are served"),
            (false, _) => {}
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(election) => {}
        }
    }
}
