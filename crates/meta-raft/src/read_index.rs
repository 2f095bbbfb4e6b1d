//! Linearizable reads from any replica.
//!
//! A read needs the index that was committed when it arrived, from a leader that confirmed with a quorum, *after*
//! the arrival, that it still leads; the state must have applied that index. One round serves every read that was
//! waiting when it started; a read that arrives during a round waits for the next one. A follower asks the leader
//! over its peer connection. A round that fails is tried again until its readers give up.

use std::sync::Arc;
use std::time::Duration;

use meta_types::controls::{Control, active};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};

use crate::errors::ReadError;
use crate::leader::LeaderDesk;
use crate::net::message::{Reply, Request};
use crate::net::peers::{Peers, Place};
use crate::status::RaftStatus;

/// Pause after a failed round.
const RETRY_AFTER: Duration = Duration::from_millis(10);

/// The reads that wait for the next round.
#[derive(Default)]
pub(crate) struct ReadQueue {
    waiting: Mutex<Option<Vec<oneshot::Sender<u64>>>>,
    wake: Notify,
}

impl ReadQueue {
    pub(crate) fn new() -> Self {
        Self { waiting: Mutex::new(Some(Vec::new())), wake: Notify::new() }
    }

    /// Returns once the state here shows everything that was committed when this was called.
    pub(crate) async fn read(
        &self,
        mut applied: watch::Receiver<Option<u64>>,
        timeout: Duration,
    ) -> Result<(), ReadError> {
        // Positive control: whatever is here will do.
        if active(Control::ReadWithoutReadIndex) {
            return Ok(());
        }
        let (tx, index) = oneshot::channel();
        self.waiting.lock().as_mut().ok_or(ReadError::Stopped)?.push(tx);
        self.wake.notify_one();
        let confirmed = async {
            let index = index.await.map_err(|_| ReadError::Stopped)?;
            applied.wait_for(|applied| *applied >= Some(index)).await.map_err(|_| ReadError::Stopped)?;
            Ok(())
        };
        tokio::time::timeout(timeout, confirmed).await.unwrap_or(Err(ReadError::Timeout))
    }

    /// No round will be held any more.
    pub(crate) fn close(&self) {
        *self.waiting.lock() = None;
    }

    /// Those that wait now: they arrived before the round that serves them. Forgets who gave up.
    fn take(&self) -> Vec<oneshot::Sender<u64>> {
        let mut waiting = self.waiting.lock();
        let mut taken = waiting.as_mut().map(std::mem::take).unwrap_or_default();
        taken.retain(|reader| !reader.is_closed());
        taken
    }

    fn put_back(&self, readers: Vec<oneshot::Sender<u64>>) {
        if let Some(waiting) = self.waiting.lock().as_mut() {
            waiting.extend(readers);
        }
        self.wake.notify_one();
    }
}

/// Holds the rounds.
pub(crate) struct ReadRounds {
    pub(crate) queue: Arc<ReadQueue>,
    pub(crate) desk: LeaderDesk,
    pub(crate) peers: Arc<Peers>,
    pub(crate) status: watch::Receiver<RaftStatus>,
    pub(crate) round_timeout: Duration,
}

impl ReadRounds {
    /// Runs until the replica stops.
    pub(crate) async fn run(mut self) {
        loop {
            self.queue.wake.notified().await;
            let readers = self.queue.take();
            if readers.is_empty() {
                continue;
            }
            match self.round_of_this_leader().await {
                Some(index) => {
                    for reader in readers {
                        // It may have given up in this moment.
                        let _ = reader.send(index);
                    }
                }
                None => {
                    self.queue.put_back(readers);
                    // A new leader is worth trying at once.
                    if let Ok(Err(_)) = tokio::time::timeout(RETRY_AFTER, self.status.changed()).await {
                        return;
                    }
                }
            }
        }
    }

    /// One confirmation; `None` if it failed, or as soon as somebody else leads.
    async fn round_of_this_leader(&mut self) -> Option<u64> {
        let asked = self.status.borrow_and_update().leadership();
        let mut status = self.status.clone();
        tokio::select! {
            index = self.round() => index,
            _ = status.wait_for(|status| status.leadership() != asked) => None,
        }
    }

    /// One confirmation; `None` if it failed.
    async fn round(&self) -> Option<u64> {
        let (leader, _) = self.status.borrow().leadership();
        let place = self.peers.place(leader, &self.status.borrow());
        let links = match place? {
            Place::Here => return self.desk.read_index().await.ok()?.ok(),
            Place::There(links) => links,
        };
        match links.control.call(Request::ReadIndex, vec![], self.round_timeout).await {
            Ok(Reply::ReadIndex(Ok(index))) => Some(index),
            _ => None,
        }
    }
}
