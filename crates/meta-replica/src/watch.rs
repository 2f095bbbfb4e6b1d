//! Watches: every change, in order, exactly once, or a clear end.
//!
//! ```text
//!  apply --hook--> feed --> dispatcher --(hub lock)--> queue of each stream --> client
//!                               |                          ^
//!                               +-- a queue is full: the watch lags         |
//!                                       stream's control task reads history +
//! ```
//!
//! * The apply path only puts a batch into the feed, a bounded channel. If it is full the batch is dropped:
//!   the dispatcher sees the gap by the revision numbers and reads it from the store's history.
//! * The dispatcher matches each event once per distinct key range, whatever the number of watches on it, and
//!   puts the shared result into the bounded queue of each stream. It never waits for a stream.
//! * A watch whose event does not fit its stream's queue *lags*: it leaves the index, and the stream's own
//!   control task brings it back from history, at the client's pace, then rejoins it under the hub's lock.
//!   History that is compacted away ends the watch with `compact_revision`. Never is a revision skipped.
//! * Everything a stream sends goes through its one queue, so `created` precedes events, a progress notice
//!   comes after every event it speaks of, and `canceled` is the last word.
//! * The state replaced by a peer's checkpoint is one more gap.

mod dispatch;
mod hub;
mod index;
mod outbox;
mod stream;
#[cfg(test)]
mod tests;

pub use dispatch::{Dispatcher, Feed, FeedItem};
pub use hub::{History, Hub};
pub use outbox::{Outbox, Responses};
pub use stream::{Headers, StreamEnv, serve};
