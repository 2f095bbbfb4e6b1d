//! Gets commands into the log, once each, from whichever replica they came to.
//!
//! ```text
//!  propose -> number, book -> batch of whatever is queued -> leader here: stamp, append
//!                                                        \-> leader elsewhere: forward over the peer connection
//!  apply (here!) -> book -> answer
//! ```
//!
//! The proposer is an *origin*: this boot of this member. Its first command registers it and retires the boot
//! before; nothing else goes before that is applied. Commands keep their numbers for life:
//!
//! * the leader did not append the batch: it goes again, without doubt;
//! * it was discarded, the connection broke, or the leader changed: it goes again, and if the first copy survives
//!   after all, the state drops the second by its number;
//! * the caller's deadline passes: "unknown" if any log may hold it, else "not carried out"; the low-water mark
//!   moves on, and a copy that surfaces later is refused by the state;
//! * a checkpoint replaced the state: what was under way is "unknown", for its entry will never be seen here;
//! * this replica dies: the next boot registers and what was not in the log by then is refused.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use meta_types::codec::encode_body;
use meta_types::{Command, Origin, Outcome};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinSet;

use crate::errors::{NotSent, ProposeError};
use crate::in_flight::{Answer, InFlight, Taken};
use crate::leader::LeaderDesk;
use crate::net::link::LinkError;
use crate::net::message::{Forwarded, Reply, Request};
use crate::net::peers::{Peers, Place};
use crate::options::ProposerOptions;
use crate::payload;
use crate::status::RaftStatus;

/// Pause before a batch goes again to a leader that just refused it.
const RETRY_AFTER: Duration = Duration::from_millis(20);
/// How long a forwarded batch may stay unanswered before it is sent again. Longer than any healthy commit: the
/// usual ways out are the answer, a broken connection and a new leader.
const FORWARD_TIMEOUT: Duration = Duration::from_secs(5);
/// Room for what a batch adds to a single command.
const COMMAND_OVERHEAD: usize = 1024;

/// See the module.
pub(crate) struct Proposer {
    origin: Origin,
    book: Mutex<InFlight>,
    wake: Notify,
}

impl Proposer {
    pub(crate) fn new(origin: Origin, limits: ProposerOptions) -> Self {
        let registration = encode_body(&Command::RegisterOrigin).expect("a unit variant encodes");
        Self { origin, book: Mutex::new(InFlight::new(limits, registration.into())), wake: Notify::new() }
    }

    /// Proposes a command and waits until it is applied here.
    pub(crate) async fn propose(
        &self,
        command: &Command,
        timeout: Duration,
    ) -> Result<Outcome, ProposeError> {
        let command = encode_body(command).map_err(|_| ProposeError::NotSent(NotSent::TooLarge))?;
        if command.len() + COMMAND_OVERHEAD > payload::MAX_BATCH_ENTRY_BYTES {
            return Err(ProposeError::NotSent(NotSent::TooLarge));
        }
        let (waiting, answer) = self.enter(command.into())?;
        match tokio::time::timeout(timeout, answer).await {
            Ok(Ok(Some(outcome))) => Ok(outcome),
            Ok(Ok(None)) => Err(ProposeError::Unknown),
            Ok(Err(_)) => Err(ProposeError::Stopped),
            Err(_) if waiting.give_up() => Err(ProposeError::Unknown),
            Err(_) => Err(ProposeError::NotSent(NotSent::NoLeader)),
        }
    }

    fn enter(&self, command: Bytes) -> Result<(Waiting<'_>, oneshot::Receiver<Answer>), ProposeError> {
        let mut book = self.book.lock();
        if book.is_closed() {
            return Err(ProposeError::Stopped);
        }
        let (seq, answer) = book.add(command).map_err(ProposeError::NotSent)?;
        drop(book);
        self.wake.notify_one();
        Ok((Waiting { proposer: self, seq }, answer))
    }

    /// A batch was applied here.
    pub(crate) fn settle(&self, origin: Origin, outcomes: impl Iterator<Item = (u64, Outcome)>) {
        if origin != self.origin {
            return;
        }
        let mut book = self.book.lock();
        outcomes.for_each(|(seq, outcome)| book.settle(seq, outcome));
        drop(book);
        self.wake.notify_one();
    }

    /// A checkpoint replaced the state.
    pub(crate) fn skipped(&self) {
        self.book.lock().skipped();
        self.wake.notify_one();
    }

    /// Nothing will be applied here any more.
    pub(crate) fn close(&self) {
        self.book.lock().close();
    }

    fn take(&self) -> Option<(u64, BytesMut)> {
        let Taken { number, low_water, commands } = self.book.lock().take()?;
        let commands = commands.iter().map(|(seq, command)| (*seq, command.as_ref()));
        Some((number, payload::batch(self.origin, low_water, commands)))
    }
}

/// A caller that waits. Leaving early, for whatever reason, strikes its command from the book.
struct Waiting<'a> {
    proposer: &'a Proposer,
    seq: u64,
}

impl Waiting<'_> {
    fn give_up(&self) -> bool {
        self.proposer.book.lock().give_up(self.seq)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// Takes batches to the leader, until it is dropped.
pub(crate) struct Courier {
    pub(crate) proposer: Arc<Proposer>,
    pub(crate) desk: LeaderDesk,
    pub(crate) peers: Arc<Peers>,
    pub(crate) status: watch::Receiver<RaftStatus>,
}

impl Courier {
    /// Runs until the replica stops.
    pub(crate) async fn run(mut self) {
        let mut under_way: JoinSet<(u64, Fate)> = JoinSet::new();
        let mut leadership = self.leadership();
        loop {
            while leadership.0.is_some()
                && let Some((number, batch)) = self.proposer.take()
            {
                self.dispatch(&mut under_way, leadership, number, batch);
            }
            tokio::select! {
                () = self.proposer.wake.notified() => {}
                Some(done) = under_way.join_next() => match done {
                    Ok((number, fate)) => self.came_back(number, fate),
                    Err(_) => self.proposer.book.lock().all_returned(),
                },
                changed = self.status.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let now = self.leadership();
                    if now != leadership {
                        leadership = now;
                        // Tasks on their way to the old leader run on; their batches are not theirs any more.
                        self.proposer.book.lock().all_returned();
                    }
                }
            }
        }
    }

    /// The leader and its term.
    fn leadership(&mut self) -> (Option<u64>, u64) {
        self.status.borrow_and_update().leadership()
    }

    fn dispatch(
        &self,
        under_way: &mut JoinSet<(u64, Fate)>,
        (leader, _): (Option<u64>, u64),
        number: u64,
        batch: BytesMut,
    ) {
        let place = self.peers.place(leader, &self.status.borrow());
        match place {
            None => {
                under_way.spawn(async move { (number, Fate::refused().await) });
            }
            Some(Place::Here) => {
                let desk = self.desk.clone();
                under_way.spawn(async move { (number, Fate::of(desk.propose(batch).await).await) });
            }
            Some(Place::There(links)) => {
                let batch = batch.freeze();
                under_way.spawn(async move {
                    let reply = links.control.call(Request::Forward, vec![batch], FORWARD_TIMEOUT).await;
                    (number, Fate::of_reply(reply).await)
                });
            }
        }
    }

    fn came_back(&self, number: u64, fate: Fate) {
        match fate {
            // Answered by our own apply, which may still be on its way.
            Fate::Applied => {}
            Fate::NotAppended => self.proposer.book.lock().returned(number, false),
            Fate::Doubtful => self.proposer.book.lock().returned(number, true),
        }
    }
}

/// What became of a batch at a leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Applied,
    NotAppended,
    Doubtful,
}

impl Fate {
    async fn of(forwarded: Option<Forwarded>) -> Self {
        match forwarded {
            Some(Forwarded::Applied) => Self::Applied,
            Some(Forwarded::NotAppended(_)) => Self::refused().await,
            Some(Forwarded::Discarded) | None => Self::doubtful().await,
        }
    }

    async fn of_reply(reply: Result<Reply, LinkError>) -> Self {
        match reply {
            Ok(Reply::Forward(forwarded)) => Self::of(Some(forwarded)).await,
            Err(LinkError::Unreachable { .. }) => Self::refused().await,
            Ok(_) | Err(LinkError::NoAnswer(_)) => Self::doubtful().await,
        }
    }

    async fn refused() -> Self {
        tokio::time::sleep(RETRY_AFTER).await;
        Self::NotAppended
    }

    async fn doubtful() -> Self {
        tokio::time::sleep(RETRY_AFTER).await;
        Self::Doubtful
    }
}
