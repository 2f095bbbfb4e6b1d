//! Runs: adopts orphans, lets each run of this dispatcher follow its job, and completes it. The run's record is
//! written only under the epoch of `/run-owner/<trigger>`, which hangs on this dispatcher's lease: what a dead or cut
//! off dispatcher drove becomes an orphan by itself.

use futures_util::{StreamExt, TryStreamExt, stream};
use meta_client::{Commit, commit};
use meta_types::Revision;
use records::runs::{Advance, adopt, advance, mine, orphans, would_complete};
use records::{Plan, Refusal, TriggerId, View};

use crate::api_error::ApiError;
use crate::front::{Front, now_ms};
use crate::reconcile::Reconciler;
use crate::session::Session;

/// Transactions under way at once.
const IN_FLIGHT: usize = 16;

/// The reconciler.
pub struct RunReconciler {
    front: Front,
}

impl RunReconciler {
    /// A reconciler for this dispatcher's runs.
    pub fn new(front: Front) -> Self {
        Self { front }
    }

    async fn adopt_orphans(&self, view: &View, session: &Session) -> Result<usize, ApiError> {
        let found = orphans(view)?;
        let adopted = stream::iter(found).map(|trigger| self.adopt_one(view, session, trigger));
        adopted.buffer_unordered(IN_FLIGHT).try_fold(0, |sum, done| async move { Ok(sum + done) }).await
    }

    async fn adopt_one(&self, view: &View, session: &Session, trigger: TriggerId) -> Result<usize, ApiError> {
        let plan = adopt(view, &trigger, &session.me, session.lease);
        let done = self.commit(view, plan).await?;
        if done {
            self.front.metrics.adopted.inc();
            tracing::info!(%trigger, "run adopted");
        }
        Ok(usize::from(done))
    }

    async fn advance_mine(&self, view: &View, session: &Session) -> Result<usize, ApiError> {
        let found = mine(view, &session.me)?;
        let advanced = stream::iter(found).map(|(trigger, run, epoch)| async move {
            let completes = would_complete(view, &run)?;
            self.advance_one(view, trigger, epoch, completes).await
        });
        advanced.buffer_unordered(IN_FLIGHT).try_fold(0, |sum, done| async move { Ok(sum + done) }).await
    }

    async fn advance_one(
        &self,
        view: &View,
        trigger: TriggerId,
        epoch: Revision,
        completes: bool,
    ) -> Result<usize, ApiError> {
        let kv = &*self.front.kv;
        let (run_retention, token_retention) = if completes {
            (self.front.retentions.run.lease(kv).await?, self.front.retentions.token.lease(kv).await?)
        } else {
            (0, 0)
        };
        let wish = Advance { trigger, epoch, run_retention, token_retention, now_ms: now_ms() };
        let done = self.commit(view, advance(view, &wish)).await?;
        if done && completes {
            tracing::info!(trigger = %wish.trigger, "run completed");
        }
        Ok(usize::from(done))
    }

    /// Carries a plan out if there is something to write; a conflict or a refusal is for the next round.
    async fn commit<T: Send + 'static>(
        &self,
        view: &View,
        plan: Result<Plan<T>, Refusal>,
    ) -> Result<bool, ApiError> {
        match plan {
            Ok(plan) if plan.is_empty() => Ok(false),
            Ok(plan) => {
                let outcome = commit(&*self.front.kv, plan.txn(), view.revision()).await?;
                Ok(matches!(outcome, Commit::Done(_)))
            }
            Err(refusal) => {
                tracing::debug!(%refusal, "not now");
                Ok(false)
            }
        }
    }
}

impl Reconciler for RunReconciler {
    const NAME: &'static str = "runs";

    async fn round(&mut self, view: &View) -> Result<usize, ApiError> {
        let Some(session) = self.front.session.borrow().clone() else { return Ok(0) };
        let adopted = self.adopt_orphans(view, &session).await?;
        let advanced = self.advance_mine(view, &session).await?;
        Ok(adopted + advanced)
    }
}
