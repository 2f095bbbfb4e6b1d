//! Named limits of a server node, each with what a user sees.

use std::time::Duration;

/// Attempts of a job whose output is kept on a node: older ones are deleted when a new one starts.
pub const ATTEMPTS_KEPT: usize = 5;
/// Lines of stderr in a failure-cause.
pub const CAUSE_LINES: usize = 20;
/// Bytes of a failure-cause: the store's values are small.
pub const CAUSE_BYTES: usize = 8 * 1024;
/// Bytes of output in one answer.
pub const LOG_ANSWER_BYTES: usize = 4 * 1024 * 1024;
/// How long a start waits for the guards of a dead predecessor to let go before it kills them itself.
pub const TAKE_OVER_GRACE: Duration = Duration::from_secs(3);
/// How long a start kills leftovers before it gives up with an error.
pub const TAKE_OVER_WITHIN: Duration = Duration::from_secs(20);
/// `created = started`: alive so long, and main() has made it a job.
pub const ALIVE_AFTER: Duration = Duration::from_secs(1);
/// How often the created file is looked for with `created = signal`, at first: the pause grows with the time that
/// was waited, of which it stays a twentieth.
pub const CREATED_LOOK: Duration = Duration::from_millis(50);
/// The longest such pause.
pub const CREATED_LOOK_MAX: Duration = Duration::from_secs(1);
/// What a successor of a lost owner waits before it starts: the difference of clock rates over a lease, with room to
/// spare. After an owner that gave the job back it starts at once.
pub const SUCCESSOR_PAUSE: Duration = Duration::from_secs(1);
/// Pause before something that the store did not answer is tried again.
pub const STORE_RETRY: Duration = Duration::from_millis(300);
/// Pause before a job is given back because its package cannot be had here, its guard does not start, or its guard
/// died at once.
pub const RELEASE_PAUSE: Duration = Duration::from_secs(2);
/// Pause before a READY package that could not be fetched is fetched again.
pub const FETCH_RETRY: Duration = Duration::from_secs(10);
/// Files named in the answer to a verification, those that are fine aside: "N more" says how many others there are.
pub const VERIFY_ROWS: usize = 1000;
/// Default deadline of a pull.
pub const PULL_DEADLINE: Duration = Duration::from_secs(300);
/// How often a node compares disk and store though nothing changed.
pub const RESCAN_EVERY: Duration = Duration::from_secs(30);
/// How often a node looks for what nobody needs any more on its disk though nothing woke it.
pub const LEFTOVERS_EVERY: Duration = Duration::from_secs(60);
/// Pause between two such looks: each walks the blobs.
pub const LEFTOVERS_PAUSE: Duration = Duration::from_secs(2);
/// Default deadline of a create.
pub const CREATE_DEADLINE: Duration = Duration::from_secs(300);
/// Longest deadline a client may ask for.
pub const CREATE_DEADLINE_MAX: Duration = Duration::from_secs(3600);
/// How long a coordinator that gave up waits for the undoing before it answers.
pub const UNDO_WAIT: Duration = Duration::from_secs(5);
/// A stopping process keeps its registration for so long, so that requests that came before are answered.
pub const DRAIN_WITHIN: Duration = Duration::from_secs(5);
/// How long the last writes of a stopping node may take.
pub const LAST_WRITES: Duration = Duration::from_secs(3);
/// How long a stopping node tries to say so before it lets go of its jobs.
pub const SAY_STOPPING: Duration = Duration::from_secs(1);
/// Starts of a job in a row that came to nothing, on whichever nodes, before it fails with `CANNOT_START`.
pub const MAX_FALSE_STARTS: usize = 5;
/// Changes of the records within so long make one view.
pub const COALESCE: Duration = Duration::from_millis(5);
/// How long a client may send nothing of an upload that is not whole before the create is undone.
pub const UPLOAD_ABANDONED: Duration = Duration::from_secs(60);
/// How long the outcome of a request about a package is kept.
pub const REQUEST_KEPT: Duration = Duration::from_secs(24 * 3600);
/// Bytes of a package's list of files as JSON.
pub const MAX_FILE_LIST_BYTES: usize = 4 * 1024 * 1024;
/// Bytes of a client's name for a request.
pub const MAX_REQUEST_ID: usize = 128;

/// Pause before the next look whether the lease was renewed, of an attempt that may not start before that.
pub const RENEWAL_LOOK: Duration = Duration::from_millis(20);
