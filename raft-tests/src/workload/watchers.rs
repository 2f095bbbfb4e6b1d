//! Clients that watch: from now, from revisions that are behind or still to come, one key, a prefix or everything.
//!
//! A watch is followed for a while, then the client leaves and goes on behind the last thing it saw, as a new watch,
//! or turns to something else. That the client library resumes one watch over the loss of a replica is seen by
//! watches that outlive the loss.

use std::time::Duration;

use futures_util::StreamExt;
use meta_client::{Kv, KvError, WatchRequest};
use meta_types::{KeyRange, Revision};

use super::env::Client;

/// Pause after a watch that could not be made.
const RETRY: Duration = Duration::from_millis(150);
/// Shortest and longest time that a watch is followed.
const FOLLOWED: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(8));

/// How a watch that was followed ended.
enum Left {
    /// The client left; everything up to the revision was delivered, if anything was.
    ByClient(Option<Revision>),
    /// It needs history that is gone.
    Compacted,
    /// It ended or was never made.
    Broken,
}

/// Watches until everything is over.
pub async fn watch(mut client: Client) {
    let env = client.env.clone();
    env.until_over(async {
        let mut resume: Option<(WatchRequest, Revision)> = None;
        loop {
            let request = match resume.take() {
                Some((request, seen)) => {
                    client.count("watch resumed");
                    WatchRequest { start_revision: seen + 1, ..request }
                }
                None => fresh(&mut client),
            };
            match follow(&mut client, request.clone()).await {
                Left::ByClient(Some(seen)) if !client.chance.one_in(4) => {
                    client.sleep(Duration::ZERO, RETRY * 4).await;
                    resume = Some((request, seen));
                }
                Left::ByClient(_) => {}
                Left::Compacted => client.count("watch compacted"),
                Left::Broken => client.pause(RETRY).await,
            }
        }
    })
    .await;
}

/// A watch out of nothing.
fn fresh(client: &mut Client) -> WatchRequest {
    let newest = client.env.newest();
    let (start_revision, what) = match client.chance.below(10) {
        0..4 => (0, "watch from now"),
        4..8 => ((newest - client.chance.below(100) as Revision).max(1), "watch from before"),
        _ => (newest + 1 + client.chance.below(10) as Revision, "watch from later"),
    };
    client.count(what);
    let range = match client.chance.below(6) {
        0 => KeyRange::between("\0", "\0"),
        1 => KeyRange::prefix("l/"),
        2 => KeyRange::one(format!("k/{}", client.chance.below(4))),
        3 => KeyRange::prefix("/"),
        _ => KeyRange::prefix("k/"),
    };
    WatchRequest { range, start_revision, prev_kv: client.chance.one_in(2) }
}

async fn follow(client: &mut Client, request: WatchRequest) -> Left {
    let mut watcher = match client.kv.watch(request).await {
        Ok(watcher) => watcher,
        Err(KvError::Compacted { .. }) => return Left::Compacted,
        Err(_) => return Left::Broken,
    };
    client.env.heard_of(watcher.created_at);
    let end = tokio::time::Instant::now() + client.chance.between(FOLLOWED.0, FOLLOWED.1);
    let mut seen = None;
    loop {
        match tokio::time::timeout_at(end, watcher.batches.next()).await {
            Err(_) => return Left::ByClient(seen),
            Ok(Some(Ok(batch))) => {
                client.env.heard_of(batch.revision);
                client.env.tally.count("watch batch");
                seen = Some(batch.revision);
            }
            Ok(Some(Err(KvError::Compacted { .. }))) => return Left::Compacted,
            Ok(Some(Err(_)) | None) => return Left::Broken,
        }
    }
}
