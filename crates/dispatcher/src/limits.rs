//! Every limit of the dispatcher in one place, with its reason.

use std::time::Duration;

/// A JSON body: a run's record holds what it states, and a store value is bounded.
pub const MAX_JSON_BYTES: usize = 1 << 20;

/// A text part of a multipart body, the JSON part included.
pub const MAX_TEXT_PART_BYTES: usize = MAX_JSON_BYTES;

/// Parts of one multipart body.
pub const MAX_PARTS: usize = 64;

/// An uploading client that sends nothing for so long is given up.
pub const UPLOAD_IDLE: Duration = Duration::from_secs(60);

/// One read of the store on behalf of a request.
pub const STORE_DEADLINE: Duration = Duration::from_secs(10);

/// A guarded transaction on behalf of a request, with every repeat and every new plan.
pub const WRITE_DEADLINE: Duration = Duration::from_secs(30);

/// A node that does not answer a connection for so long is skipped.
pub const NODE_CONNECT: Duration = Duration::from_secs(3);

/// A node that does not begin a small answer within so long is given up.
pub const NODE_ANSWER: Duration = Duration::from_secs(5);

/// A package's way to its nodes, from the first byte to READY.
pub const DEPLOY_DEADLINE: Duration = Duration::from_secs(300);

/// A node that reads a package again answers within so long, and the time that its bytes take at
/// [`CHECK_BYTES_PER_SECOND`].
pub const CHECK_ANSWER: Duration = Duration::from_secs(30);

/// What a node reads in a second at least: a slow disk that has other things to do.
pub const CHECK_BYTES_PER_SECOND: u64 = 16 << 20;

/// However large a package is, a node that reads it again is not waited for any longer.
pub const CHECK_LONGEST: Duration = Duration::from_secs(1800);

/// Longest time that a request may ask for with `timeout_ms`.
pub const LONGEST_TIMEOUT: Duration = Duration::from_secs(3600);

/// Longest time that a request may ask for with `wait`: proxies give a silent connection up after a few minutes.
pub const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// Records read at once for a list: one page at least, and never the store's largest answer.
pub const LIST_PIECE: usize = 1000;

/// How long a request waits for this dispatcher's registration.
pub const SESSION_WAIT: Duration = Duration::from_secs(5);

/// How long `POST /jars/:jarid/run` waits for main() to make the job; the job goes on beyond it.
pub const SYNC_RUN_WAIT: Duration = Duration::from_secs(600);

/// How long a DELETE of a run waits for the kill before it answers 202.
pub const CANCEL_WAIT: Duration = Duration::from_secs(20);

/// A reconciler looks again after so long even if no watch woke it.
pub const RECONCILE_EVERY: Duration = Duration::from_secs(2);

/// A placed job that its node has not claimed for so long is placed again.
pub const CLAIM_WITHIN: Duration = Duration::from_secs(2);

/// Lines of job output sent to a client at once are read in pieces of this size.
pub const LOG_PIECE_BYTES: u64 = 1 << 20;

/// A dispatcher places the job of another dispatcher's run if that one has not after so long.
pub const STEP_IN_AFTER: Duration = Duration::from_secs(1);
