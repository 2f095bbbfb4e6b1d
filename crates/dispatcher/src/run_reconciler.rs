//! Runs: adopts orphans, lets each run of this dispatcher follow its job, and completes it. The run's record is
//! written only under the epoch of `/run-owner/<trigger>`, which hangs on this dispatcher's lease: what a dead or cut
//! off dispatcher drove becomes an orphan by itself.

use std::collections::{BTreeSet, HashMap};

use futures_util::{StreamExt, stream};
use meta_client::{Commit, commit};
use meta_types::Revision;
use process_kit::Did;
use records::keys::{JobKey, JobOwnerKey, RunKey, RunOwnerKey};
use records::record::{NodeRef, Phase, Run};
use records::runs::{Advance, adopt, advance, would_complete};
use records::{Changes, JobId, Parsed, Plan, Refusal, TriggerId, View};

use crate::api_error::ApiError;
use crate::front::{Front, now_ms};

use crate::reconcile::Reconciler;
use crate::session::Session;

/// Transactions under way at once.
const IN_FLIGHT: usize = 16;

/// The reconciler.
pub struct RunReconciler {
    front: Front,
    runs: Parsed<RunKey>,
    owners: Parsed<RunOwnerKey>,
    jobs: Changes<JobKey>,
    job_owners: Changes<JobOwnerKey>,
    /// The run of each job whose run is not over.
    of_job: HashMap<JobId, TriggerId>,
    /// Runs to look at: something changed that they depend on, or the last look could not do what was due. A run
    /// that waits is not among them, however many do.
    open: BTreeSet<TriggerId>,
    /// The registration that the looks so far were made with.
    me: Option<NodeRef>,
}

/// What is due.
#[derive(Default)]
struct Due {
    orphans: Vec<TriggerId>,
    mine: Vec<(TriggerId, Run, Revision)>,
}

impl RunReconciler {
    /// A reconciler for this dispatcher's runs.
    pub fn new(front: Front) -> Self {
        Self {
            front,
            runs: Parsed::default(),
            owners: Parsed::default(),
            jobs: Changes::default(),
            job_owners: Changes::default(),
            of_job: HashMap::new(),
            open: BTreeSet::new(),
            me: None,
        }
    }

    /// Notes which runs are to be looked at because of what changed.
    fn note(&mut self, view: &View) {
        for RunKey { trigger } in self.runs.update(view) {
            if let Some(run) = self.runs.get(&RunKey::new(&trigger)) {
                match run.phase {
                    Phase::Completed => self.of_job.remove(&run.job),
                    _ => self.of_job.insert(run.job.clone(), trigger.clone()),
                };
            }
            self.open.insert(trigger);
        }
        self.open.extend(self.owners.update(view).into_iter().map(|key| key.trigger));
        let jobs = self.jobs.keys_since(view).into_iter().map(|(key, _)| key.job);
        let owners = self.job_owners.keys_since(view).into_iter().map(|(key, _)| key.job);
        self.open.extend(jobs.chain(owners).filter_map(|job| self.of_job.get(&job).cloned()));
    }

    fn due(&mut self, view: &View, session: &Session) -> Due {
        self.note(view);
        if self.me.as_ref() != Some(&session.me) {
            self.me = Some(session.me.clone());
            self.open.extend(self.runs.iter().map(|(key, _)| key.trigger.clone()));
        }
        let mut due = Due::default();
        let (runs, owners) = (&self.runs, &self.owners);
        self.open.retain(|trigger| {
            let run = runs.get(&RunKey::new(trigger)).filter(|run| run.phase != Phase::Completed);
            let Some(run) = run else { return false };
            let Some(owner) = owners.get(&RunOwnerKey::new(trigger)) else {
                due.orphans.push(trigger.clone());
                return true;
            };
            let is_mine = owner.node == session.me.node && owner.incarnation == session.me.incarnation;
            if is_mine {
                due.mine.push((trigger.clone(), run.value.clone(), owner.create_revision));
            }
            is_mine
        });
        due
    }

    async fn adopt_all(
        &self,
        view: &View,
        session: &Session,
        orphans: Vec<TriggerId>,
        did: &mut Did,
    ) -> Result<(), ApiError> {
        let adopting = stream::iter(orphans).map(|trigger| self.adopt_one(view, session, trigger));
        let mut adopting = std::pin::pin!(adopting.buffer_unordered(IN_FLIGHT));
        while let Some(done) = adopting.next().await {
            did.add("adopted", done?.count());
        }
        Ok(())
    }

    async fn adopt_one(&self, view: &View, session: &Session, trigger: TriggerId) -> Result<Done, ApiError> {
        let plan = adopt(view, &trigger, &session.me, session.lease);
        let done = self.commit(view, plan).await?;
        if done == Done::Written {
            self.front.metrics.adopted.inc();
            let job = self.runs.get(&RunKey::new(&trigger)).map(|run| run.job.to_string());
            tracing::info!(%trigger, job, node = session.me.node, "run adopted");
        }
        Ok(done)
    }

    /// Answers the runs with which there is nothing to do until a record changes.
    async fn advance_all(
        &self,
        view: &View,
        mine: Vec<(TriggerId, Run, Revision)>,
        did: &mut Did,
    ) -> Result<Vec<TriggerId>, ApiError> {
        let advancing = stream::iter(mine).map(|(trigger, run, epoch)| async move {
            let (done, completes) = self.advance_one(view, &trigger, &run, epoch).await?;
            Ok::<_, ApiError>((trigger, done, completes))
        });
        let mut advancing = std::pin::pin!(advancing.buffer_unordered(IN_FLIGHT));
        let mut settled = Vec::new();
        while let Some(advanced) = advancing.next().await {
            let (trigger, done, completes) = advanced?;
            did.add(if completes { "completed" } else { "advanced" }, done.count());
            if done == Done::Nothing {
                settled.push(trigger);
            }
        }
        Ok(settled)
    }

    async fn advance_one(
        &self,
        view: &View,
        trigger: &TriggerId,
        run: &Run,
        epoch: Revision,
    ) -> Result<(Done, bool), ApiError> {
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
        Ok((done, completes))
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
    fn count(self) -> u64 {
        u64::from(self == Self::Written)
    }
}

impl Reconciler for RunReconciler {
    const NAME: &'static str = "runs";

    async fn round(&mut self, view: &View, did: &mut Did) -> Result<(), ApiError> {
        let Some(session) = self.front.session.borrow().clone() else { return Ok(()) };
        let due = self.due(view, &session);
        self.adopt_all(view, &session, due.orphans, did).await?;
        let settled = self.advance_all(view, due.mine, did).await?;
        for trigger in settled {
            self.open.remove(&trigger);
        }
        Ok(())
    }
}
