//! A create that cannot become READY is undone on every node.

use std::future::Future;

use meta_client::TypedKey;
use records::keys::{CopyKey, UnitKey, below};
use records::packages::{abort, finish};
use records::{Class, Failure, Plan, Refusal, View, carry_out};
use tokio::time::{Instant, sleep, timeout_at};

use super::coordinator::Coordinator;
use crate::limits::{STORE_RETRY, UNDO_WAIT};

impl Coordinator {
    /// T4, and a moment for the nodes to delete what they have, so that the name is free when the client reads the
    /// answer. If it takes longer a dispatcher finishes it.
    pub(super) async fn undo(&self, reason: &str) {
        let (unit, op, epoch) = (&self.unit, &self.op, self.epoch);
        tracing::warn!(package = %unit, op, reason, "UploadNewICPDone: failed; undoing it everywhere");
        let until = Instant::now() + UNDO_WAIT;
        let given_up = within(until, self.host_write(|view| abort(view, unit, op, epoch, reason)));
        if let Some(Err(refusal)) = given_up.await {
            tracing::warn!(package = %unit, %refusal, "the undoing is somebody else's");
            return;
        }
        within(until, self.finish_when_empty()).await;
    }

    async fn host_write<T: Send>(
        &self,
        planner: impl Fn(&View) -> Result<Plan<T>, Refusal> + Send + Sync,
    ) -> Result<T, Refusal> {
        loop {
            match carry_out(&*self.host.kv, &self.scope(), &planner).await {
                Ok(done) => return Ok(done.answer),
                Err(Failure::Refused(refusal)) => return Err(refusal),
                Err(_) => sleep(STORE_RETRY).await,
            }
        }
    }

    async fn finish_when_empty(&self) {
        let (unit, op) = (&self.unit, &self.op);
        let mut views = self.host.views.clone();
        loop {
            let view = views.borrow_and_update().clone();
            let rows = view.count(&below(CopyKey::PREFIX, unit)).unwrap_or(1);
            let found = view.get(&UnitKey::new(unit)).ok().flatten().filter(|unit| unit.op == *op);
            match found {
                Some(found) if rows == 0 => {
                    let scope = match &found.manifest {
                        Some(digest) => self.scope().and_manifest(digest),
                        None => self.scope(),
                    };
                    match carry_out(&*self.host.kv, &scope, |view| finish(view, unit, op)).await {
                        Ok(_) => return,
                        Err(Failure::Refused(refusal)) if refusal.class != Class::NotYet => return,
                        Err(_) => {}
                    }
                }
                _ => {}
            }
            if views.changed().await.is_err() {
                return;
            }
        }
    }
}

async fn within<T>(until: Instant, work: impl Future<Output = T>) -> Option<T> {
    timeout_at(until, work).await.ok()
}
