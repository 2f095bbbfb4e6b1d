//! Runs: adopts orphans, lets each run of this dispatcher follow its job, and completes it. The run's record is
//! written only under the epoch of `/run-owner/<trigger>`, which hangs on this dispatcher's lease: what a dead or cut
//! off dispatcher drove becomes an orphan by itself.

use std::collections::HashMap;

use futures_util::{StreamExt, TryStreamExt, stream};
use meta_client::{Commit, commit};
use meta_types::Revision;
use records::keys::{JobKey, JobOwnerKey, RunKey, RunOwnerKey};
use records::record::{Phase, Run};
use records::runs::{Advance, adopt, advance, would_complete};
use records::{Parsed, Plan, Refusal, TriggerId, View, mod_revision};

use crate::api_error::ApiError;
use crate::front::{Front, now_ms};

use crate::reconcile::Reconciler;
use crate::session::Session;

/// Transactions under way at once.
const IN_FLIGHT: usize = 16;

/// The revisions a run's next step depends on.
type Signature = [Revision; 4];

/// The reconciler.
pub struct RunReconciler {
    front: Front,
    runs: Parsed<RunKey>,
    owners: Parsed<RunOwnerKey>,
    /// Runs that have nothing to do as long as these revisions stand.
    settled: HashMap<TriggerId, Signature>,
}

/// What is due.
#[derive(Default)]
struct Due {
    orphans: Vec<TriggerId>,
    mine: Vec<(TriggerId, Run, Revision, Signature)>,
}

impl RunReconciler {
    /// A reconciler for this dispatcher's runs.
    pub fn new(front: Front) -> Self {
        Self { front, runs: Parsed::default(), owners: Parsed::default(), settled: HashMap::new() }
    }

    fn due(&mut self, view: &View, session: &Session) -> Due {
        self.runs.update(view);
        self.owners.update(view);
        let mut due = Due::default();
        let mut settled = std::mem::take(&mut self.settled);
        for (key, run) in self.runs.iter().filter(|(_, run)| run.phase != Phase::Completed) {
            let Some(owner) = self.owners.get(&RunOwnerKey::new(&key.trigger)) else {
                due.orphans.push(key.trigger.clone());
                continue;
            };
            if owner.node != session.me.node || owner.incarnation != session.me.incarnation {
                continue;
            }
            let signature = [
                run.mod_revision,
                owner.create_revision,
                mod_revision(view, &JobKey::new(&run.job)),
                mod_revision(view, &JobOwnerKey::new(&run.job)),
            ];
            match settled.remove(&key.trigger) {
                Some(last) if last == signature => {
                    self.settled.insert(key.trigger.clone(), signature);
                }
                _ => {
                    let run = run.value.clone();
                    due.mine.push((key.trigger.clone(), run, owner.create_revision, signature));
                }
            }
        }
        due
    }

    async fn adopt_one(&self, view: &View, session: &Session, trigger: TriggerId) -> Result<usize, ApiError> {
        let plan = adopt(view, &trigger, &session.me, session.lease);
        let done = self.commit(view, plan).await?;
        if done == Done::Written {
            self.front.metrics.adopted.inc();
            let job = self.runs.get(&RunKey::new(&trigger)).map(|run| run.job.to_string());
            tracing::info!(%trigger, job, node = session.me.node, "run adopted");
        }
        Ok(done.count())
    }

    async fn advance_one(
        &self,
        view: &View,
        trigger: &TriggerId,
        run: &Run,
        epoch: Revision,
    ) -> Result<Done, ApiError> {
        let kv = &*self.front.kv;
        let completes = would_complete(view, run)?;
        let (run_retention, token_retention) = if completes {
            (self.front.retentions.run.lease(kv).await?, self.front.retentions.token.lease(kv).await?)
        } else {
            (0, 0)
        };
        let wish =
            Advance { trigger: trigger.clone(), epoch, run_retention, token_retention, now_ms: now_ms() };
        let done = self.commit(view, advance(view, &wish)).await?;
        if done == Done::Written && completes {
            tracing::info!(%trigger, job = %run.job, node = self.front.options.node_name, "run completed");
        }
        Ok(done)
    }

    /// Carries a plan out if there is something to write; a conflict or a refusal is for the next round.
    async fn commit<T: Send + 'static>(
        &self,
        view: &View,
        plan: Result<Plan<T>, Refusal>,
    ) -> Result<Done, ApiError> {
        match plan {
            Ok(plan) if plan.is_empty() => Ok(Done::Nothing),
            Ok(plan) => match commit(&*self.front.kv, plan.txn(), view.revision()).await? {
                Commit::Done(_) => Ok(Done::Written),
                Commit::Conflict => Ok(Done::NotNow),
            },
            Err(refusal) => {
                tracing::debug!(%refusal, "not now");
                Ok(Done::NotNow)
            }
        }
    }
}

/// What became of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Done {
    /// There is nothing to do until a record changes.
    Nothing,
    /// A transaction took place.
    Written,
    /// The view was too old, or something is in the way.
    NotNow,
}

impl Done {
    fn count(self) -> usize {
        usize::from(self == Self::Written)
    }
}

impl Reconciler for RunReconciler {
    const NAME: &'static str = "runs";

    async fn round(&mut self, view: &View) -> Result<usize, ApiError> {
        let Some(session) = self.front.session.borrow().clone() else { return Ok(0) };
        let due = self.due(view, &session);
        let this = &*self;
        let adopted = stream::iter(due.orphans)
            .map(|trigger| this.adopt_one(view, &session, trigger))
            .buffer_unordered(IN_FLIGHT)
            .try_fold(0, |sum, done| async move { Ok(sum + done) })
            .await?;
        let advanced: Vec<(TriggerId, Signature, Done)> = stream::iter(due.mine)
            .map(|(trigger, run, epoch, signature)| async move {
                let done = this.advance_one(view, &trigger, &run, epoch).await?;
                Ok::<_, ApiError>((trigger, signature, done))
            })
            .buffer_unordered(IN_FLIGHT)
            .try_collect()
            .await?;
        let written = advanced.iter().map(|(_, _, done)| done.count()).sum::<usize>();
        for (trigger, signature, done) in advanced {
            if done == Done::Nothing {
                self.settled.insert(trigger, signature);
            }
        }
        Ok(adopted + written)
    }
}
