//! What nobody needs any more on this node's disk goes, without a restart: staging and trash of operations that are
//! over, and blobs that no package and no receive links to.
//!
//! Woken by the package agent and by a timer, it starts from the disk alone. An operation is over when the records do
//! not know it (asked linearizably, *after* it was seen on disk: it is reserved before anything of it is staged),
//! nothing here carries or uses it, and its turn is free. So what it deletes nobody comes back for; if it is wrong
//! about that, files are fetched again, nothing more.

use std::collections::HashSet;
use std::sync::Arc;

use process_kit::Did;
use records::keys::UnitKey;
use records::{Refusal, Scope};
use tokio::time::{Instant, sleep};

use crate::host::Host;
use crate::limits::{LEFTOVERS_EVERY, LEFTOVERS_PAUSE};
use crate::package_copy::load;
use crate::session::Tenure;

/// Its name among the reconcilers.
const NAME: &str = "leftovers";

/// Works until the tenure is lost.
pub async fn run(host: Arc<Host>, tenure: Tenure) {
    let rounds = host.rounds.of(NAME);
    loop {
        let (begun, mut did) = (Instant::now(), Did::default());
        let outcome = round(&host, &tenure, &mut did).await;
        if let Err(error) = &outcome {
            tracing::warn!(error, "leftovers stay until the next look");
        }
        rounds.ended(begun.elapsed(), &did, outcome.err().as_deref());
        tokio::select! {
            () = tenure.lost.cancelled() => return,
            () = sleep(LEFTOVERS_PAUSE) => {}
        }
        tokio::select! {
            () = tenure.lost.cancelled() => return,
            () = host.leftovers.notified() => {}
            () = sleep(LEFTOVERS_EVERY) => {}
        }
    }
}

/// One look; the error is for people.
async fn round(host: &Arc<Host>, tenure: &Tenure, did: &mut Did) -> Result<(), String> {
    let unfinished = host.on_disk(icp_store::PackageStore::unfinished).await.map_err(|e| e.to_string())?;
    if !unfinished.is_empty() {
        let known = known_ops(host, tenure).await.map_err(|refusal| refusal.to_string())?;
        for op in unfinished.into_iter().filter(|op| !known.contains(op)) {
            let dropped = drop_if_over(host, &op).await.map_err(|e| e.to_string())?;
            did.add("operations-cleared", u64::from(dropped));
        }
    }
    let collected = host.on_disk(icp_store::PackageStore::collect_blobs).await.map_err(|e| e.to_string())?;
    did.add("blobs-collected", collected);
    Ok(())
}

async fn known_ops(host: &Arc<Host>, tenure: &Tenure) -> Result<HashSet<String>, Refusal> {
    let view = load(host, tenure, Scope::packages()).await?;
    Ok(view.all::<UnitKey>()?.into_iter().map(|(_, unit)| unit.value.op).collect())
}

/// Of an operation that the records do not know. Somebody who has its turn is left alone until the next look.
async fn drop_if_over(host: &Arc<Host>, op: &str) -> Result<bool, icp_store::StoreError> {
    let turn = host.turns.of(op);
    let Ok(_mine) = turn.try_lock() else { return Ok(false) };
    if host.creates.count(op) > 0 || host.gates.count(op) > 0 {
        return Ok(false);
    }
    let gone = op.to_owned();
    let dropped = host.on_disk(move |store| store.drop_unfinished(&gone)).await?;
    if dropped {
        tracing::info!(op, "what was left of an operation is deleted");
    }
    Ok(dropped)
}
