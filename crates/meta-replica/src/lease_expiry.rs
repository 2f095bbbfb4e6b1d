//! The leader's lease duty: let lease time pass, and revoke what is due.
//!
//! Lease time is part of the state and moves with the stamp of each batch. While leases exist and nobody
//! writes, an empty batch is proposed so that it moves. What is due is asked of the state each time anew: a
//! revoke that fails is simply found again.

use std::sync::Arc;
use std::time::Duration;

use meta_types::{Command, LeaseId};
use tokio::time::MissedTickBehavior;

use crate::context::Context;

/// How often the leader looks. Twice the rate that lease time must keep (500 ms).
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Leases revoked by one entry.
const LEASES_PER_ENTRY: usize = 1_024;
/// How long one proposal may take before the leader looks again.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs until the shutdown; does nothing on a replica that does not lead.
pub(crate) async fn run(context: Arc<Context>) {
    let mut every = tokio::time::interval(LOOK_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut seen_time = 0;
    loop {
        tokio::select! {
            () = context.shutdown.cancelled() => return,
            _ = every.tick() => {}
        }
        if !context.status.borrow().is_leader() {
            continue;
        }
        let (leases, time) = {
            let core = context.core.read();
            (!core.leases().is_empty(), core.lease_time_ms())
        };
        if !leases {
            continue;
        }
        if time == seen_time {
            propose(&context, Command::LeaseTick).await;
        }
        while expire_some(&context).await {}
        seen_time = context.core.read().lease_time_ms();
    }
}

/// Revokes the leases longest due; true if there may be more.
async fn expire_some(context: &Context) -> bool {
    let ids: Vec<LeaseId> = context.core.read().due_leases(LEASES_PER_ENTRY);
    let (leads, term) = {
        let now = context.status.borrow().clone();
        (now.is_leader(), now.term)
    };
    if ids.is_empty() || !leads || context.shutdown.is_cancelled() {
        return false;
    }
    let count = ids.len();
    let done = propose(context, Command::LeaseExpire { term, ids }).await;
    if done {
        context.metrics.leases_expired.inc_by(count as u64);
        tracing::debug!(count, "leases expired");
    }
    done && count == LEASES_PER_ENTRY
}

async fn propose(context: &Context, command: Command) -> bool {
    match context.consensus.propose(command, PATIENCE).await {
        Ok(outcome) => outcome.result.is_ok(),
        Err(error) => {
            tracing::debug!(%error, "lease duty not done, will look again");
            false
        }
    }
}
