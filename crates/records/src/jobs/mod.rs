//! Jobs: placing, claiming, starting, ending. One writer at a time:
//!
//! * while `/job-owner/<job>` exists, only its holder writes `/job` state, guarded by the key's create revision: the
//!   **epoch**. The key hangs on the node's lease, so a dead node's epoch ends by itself;
//! * while it does not exist, dispatchers write under the guard "owner key absent": [`drive()`] places the job, or ends
//!   it when it was cancelled or may not start again;
//! * everybody else writes a wish: `/job-cancel/<job>`.
//!
//! ```text
//! INITIALIZING -claim, start_attempt, created-> RUNNING -ended-> FINISHED | FAILED | CANCELED
//!      ^  owner lost before created     |  owner lost, or main() failed and its strategy has a restart left
//!      +--------------------------------+--> RESTARTING -> (next attempt) RUNNING
//! ```
//! The txn that makes a job terminal also removes its pins, its owner key and any wish to cancel it.

mod cancel;
mod claim;
mod drive;
mod list;
mod owner;
mod restart;
mod restart_settings;
mod slots;
mod terminal;

pub(crate) use cancel::cancel_live;
pub use cancel::{Cancel, CancelAnswer, request_cancel};
pub use claim::{claim, claimable, is_claimable};
pub use drive::{Drive, Driven, drive, drive_among, ownerless};
pub use list::{JobView, job, jobs};
pub use owner::{Ending, cancelling, created, ended, release, release_unstarted, start_attempt};
pub use restart::{AfterFailure, MainFailed, main_failed};
pub use restart_settings::{STRATEGY_TYPE, restart_strategy};
pub use slots::{NodeSlots, count_slots, free_slots};
pub(crate) use terminal::{End, terminate};
