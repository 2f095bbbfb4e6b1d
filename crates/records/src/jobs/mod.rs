//! Jobs: placing, claiming, starting, ending. One writer at a time:
//!
//! * while `/job-owner/<job>` exists, only its holder writes `/job` state, guarded by the key's create revision: the
//!   **epoch**. The key hangs on the node's lease, so a dead node's epoch ends by itself;
//! * while it does not exist, dispatchers write under the guard "owner key absent": [`drive()`] places the job, or ends
//!   it when it was cancelled or may not start again;
//! * the owner key of a job that is kept (`on-lost-store: keep`) hangs on no lease once main() was started: it outlives
//!   the node's lease, and nobody places or claims the job while nobody knows what runs there;
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
mod keep;
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
pub use keep::{ON_LOST_STORE, cancel_by_force, is_kept, lost_host, on_lost_store, resume};
pub use list::{JobView, job, jobs};
pub use owner::{Ending, cancelling, created, ended, release, release_unstarted, start_attempt};
pub use restart::{AfterFailure, MainFailed, main_failed};
pub use restart_settings::{STRATEGY_TYPE, restart_strategy};
pub use slots::{NodeSlots, count_slots, free_slots};
pub(crate) use terminal::{End, terminate};
