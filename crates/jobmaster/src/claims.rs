//! Claims jobs that are placed on this node and starts their JobMasters.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use meta_types::Revision;
use records::jobs::{claim, is_claimable, is_kept};
use records::keys::{JobKey, JobOwnerKey, NodeKey};
use records::nodes::say_stopping;
use records::record::NodeRef;
use records::{Changes, Failure, JobId, Scope, View, carry_out, mod_revision};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::fates::answer_for;
use crate::host::{Host, blocking};
use crate::job_master::JobMaster;
use crate::kept::Running;
use crate::limits::{RESCAN_EVERY, SAY_STOPPING, STORE_RETRY};
use crate::session::Tenure;

/// Claims jobs that are placed here and starts their JobMasters.
pub struct Claims<'a> {
    host: &'a Arc<Host>,
    tenure: &'a Tenure,
    /// Tasks by their id: the job and its epoch.
    running: HashMap<tokio::task::Id, (JobId, Revision)>,
    /// Each tells whether it ended its epoch.
    masters: JoinSet<bool>,
    /// Tells them to let go.
    stop: CancellationToken,
    here: Here,
}

/// Which jobs concern this node, kept up to date with what changed alone: very many others may wait.
#[derive(Default)]
struct Here {
    jobs: Changes<JobKey>,
    owners: Changes<JobOwnerKey>,
    /// Placed here and not over, oldest first.
    placed: BTreeSet<(Revision, JobId)>,
    age: HashMap<JobId, Revision>,
    /// Epochs of the jobs that this boot owns.
    owned: HashMap<JobId, Revision>,
    /// Epochs that their JobMasters ended: the owner keys show until the mirror has caught up.
    done: HashMap<JobId, Revision>,
    /// Epochs of the jobs that an earlier boot on this work directory kept.
    left: HashMap<JobId, Revision>,
    /// Jobs that somebody owns.
    taken: HashSet<JobId>,
    /// Jobs whose claim was refused, until they change or slots become free.
    refused: HashSet<JobId>,
}

impl Here {
    /// Takes over what changed since the last view; answers how many records that was.
    fn update(&mut self, view: &View, me: &NodeRef, work_dir: &str) -> usize {
        let mut looked_at = 0;
        for (JobKey { job }, record) in self.jobs.since(view) {
            looked_at += 1;
            self.refused.remove(&job);
            if let Some(age) = self.age.remove(&job) {
                self.placed.remove(&(age, job.clone()));
            }
            if let Some(record) = record.filter(|record| is_claimable(record, me)) {
                self.age.insert(job.clone(), record.create_revision);
                self.placed.insert((record.create_revision, job));
            }
        }
        for (JobOwnerKey { job }, owner) in self.owners.since(view) {
            looked_at += 1;
            if self.owned.remove(&job).or(self.left.remove(&job)).is_some() {
                self.refused.clear();
            }
            let Some(owner) = owner else {
                self.taken.remove(&job);
                continue;
            };
            if owner.node == me.node && owner.incarnation == me.incarnation {
                self.owned.insert(job.clone(), owner.create_revision);
            } else if owner.node == me.node && is_kept(&owner) && owner.work_dir.as_deref() == Some(work_dir)
            {
                self.left.insert(job.clone(), owner.create_revision);
            }
            self.taken.insert(job);
        }
        self.done.retain(|job, epoch| self.owned.get(job) == Some(epoch));
        looked_at
    }

    /// Owned by this boot and not done: a claim whose answer was lost, unless its JobMaster runs.
    fn owned_and_open(&self) -> impl Iterator<Item = (&JobId, &Revision)> {
        self.owned.iter().filter(|(job, epoch)| self.done.get(*job) != Some(*epoch))
    }

    /// Placed here, owned by nobody, not refused as it is, oldest first.
    fn claimable(&self) -> Vec<JobId> {
        let open = |job: &JobId| !self.taken.contains(job) && !self.refused.contains(job);
        self.placed.iter().filter(|(_, job)| open(job)).map(|(_, job)| job.clone()).collect()
    }
}

impl<'a> Claims<'a> {
    /// Nothing is claimed yet.
    pub fn new(host: &'a Arc<Host>, tenure: &'a Tenure) -> Self {
        let (running, masters) = (HashMap::new(), JoinSet::new());
        Self { host, tenure, running, masters, stop: CancellationToken::new(), here: Here::default() }
    }

    /// Returns when the last JobMaster let go of its job, after the tenure was lost or the process stops.
    pub async fn run(mut self) {
        self.claim_until_the_end().await;
        self.say_stopping().await;
        self.stop.cancel();
        tracing::info!(jobs = self.running.len(), "letting go of jobs");
        while self.masters.join_next().await.is_some() {}
    }

    /// Before any job is given back: its place is then on another node. A store that does not answer is not waited for.
    async fn say_stopping(&self) {
        if self.tenure.lost.is_cancelled() {
            return;
        }
        let me = &self.tenure.session.me;
        let scope = Scope::default().and_key(&NodeKey::new(&me.node));
        let said = self.host.insist(self.tenure, &scope, |view| say_stopping(view, me));
        match timeout(SAY_STOPPING, said).await {
            Ok(Ok(())) => {}
            Ok(Err(refusal)) => {
                tracing::warn!(%refusal, "the registration does not say that this node stops")
            }
            Err(_) => tracing::warn!("the store does not answer: not said that this node stops"),
        }
    }

    async fn claim_until_the_end(&mut self) {
        let mut views = self.host.views.clone();
        let end = self.host.shutdown.token();
        let mut again = false;
        let mut pruned_at = Instant::now();
        loop {
            let view = views.borrow_and_update().clone();
            if view.revision() >= self.tenure.session.me.incarnation {
                again = tokio::select! {
                    biased;
                    // A claim on its way ends with the lease if it took place.
                    () = end.cancelled() => return,
                    again = self.look(&view) => again,
                };
                if pruned_at.elapsed() > RESCAN_EVERY {
                    pruned_at = Instant::now();
                    self.prune(&view).await;
                }
            }
            let pause = if again { STORE_RETRY } else { RESCAN_EVERY };
            tokio::select! {
                () = self.tenure.lost.cancelled() => return,
                () = end.cancelled() => return,
                changed = views.changed() => if changed.is_err() { return },
                Some(done) = self.masters.join_next_with_id() => {
                    match done {
                        Ok((id, is_over)) => {
                            let ended = self.running.remove(&id);
                            self.here.done.extend(ended.filter(|_| is_over));
                        }
                        Err(error) => {
                            tracing::error!(%error, "a JobMaster panicked");
                            self.running.remove(&error.id());
                        }
                    }
                    self.here.refused.clear();
                }
                () = sleep(pause) => self.here.refused.clear(),
            }
        }
    }

    fn is_running(&self, job: &JobId) -> bool {
        self.running.values().any(|(running, _)| running == job)
    }

    /// True if something is to be tried again soon.
    async fn look(&mut self, view: &View) -> bool {
        let me = &self.tenure.session.me;
        self.here.update(view, me, &self.host.work_dir_id);
        // What the last lease left goes on, if the records still say so: that is looked at by who takes it.
        for (job, running) in self.host.kept.take() {
            self.start(job, running.epoch, Some(running));
        }
        let left = self.here.left.iter().filter(|(job, _)| !self.is_running(job));
        let left: Vec<(JobId, Revision)> = left.map(|(job, epoch)| (job.clone(), *epoch)).collect();
        for (job, epoch) in left {
            let (host, tenure, id) = (self.host.clone(), self.tenure.clone(), job.clone());
            let answer = async move {
                answer_for(&host, &tenure, &id, epoch).await;
                false
            };
            let task = self.masters.spawn(answer);
            self.running.insert(task.id(), (job, epoch));
        }
        // A claim whose answer was lost: the epoch is known from the record.
        let lost = self.here.owned_and_open().filter(|(job, _)| !self.is_running(job));
        let lost: Vec<(JobId, Revision)> = lost.map(|(job, epoch)| (job.clone(), *epoch)).collect();
        for (job, epoch) in lost {
            self.start(job, epoch, None);
        }
        for job in self.here.claimable() {
            if self.is_running(&job) {
                continue;
            }
            let lease = self.tenure.session.lease;
            let scope = Scope::claim(&job);
            let claimed = carry_out(&*self.host.kv, &scope, |view| claim(view, &job, me, lease)).await;
            match claimed {
                Ok(done) => self.start(job, done.answer, None),
                Err(Failure::Refused(refusal)) => {
                    tracing::debug!(%job, %refusal, "not claimed");
                    self.here.refused.insert(job);
                }
                Err(error) => {
                    tracing::warn!(%job, %error, "not claimed; trying again");
                    // It may be owned already and take slots: no other before this is known.
                    return true;
                }
            }
        }
        false
    }

    fn start(&mut self, id: JobId, epoch: Revision, left: Option<Running>) {
        let (host, tenure, stop) = (self.host.clone(), self.tenure.clone(), self.stop.clone());
        let master = JobMaster { host, tenure, id: id.clone(), epoch, stop };
        let task = self.masters.spawn(master.run(left));
        self.running.insert(task.id(), (id, epoch));
    }

    /// Output of jobs whose records are gone goes too.
    async fn prune(&self, view: &View) {
        let jobs = self.host.jobs_dir.clone();
        let view = view.clone();
        let running: Vec<JobId> = self.running.values().map(|(job, _)| job.clone()).collect();
        blocking(move || {
            for entry in std::fs::read_dir(jobs).into_iter().flatten().flatten() {
                let Some(job) = entry.file_name().to_str().and_then(|n| n.parse::<JobId>().ok()) else {
                    continue;
                };
                if mod_revision(&view, &JobKey::new(&job)) != 0 || running.contains(&job) {
                    continue;
                }
                if let Err(error) = std::fs::remove_dir_all(entry.path()) {
                    tracing::warn!(%job, %error, "output of a forgotten job cannot be deleted");
                }
            }
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use bytes::Bytes;
    use meta_client::{Snapshot, TypedKey, record::to_bytes};
    use meta_types::{Event, EventKind, KeyRange, KeyValue};
    use records::jobs::claimable;
    use records::record::{Job, JobOwner, JobSpec, JobState, PackageRef, Placed, RestartStrategy};
    use records::{TriggerId, UnitId};

    use super::*;

    const WAITING: usize = 5_000;

    fn me() -> NodeRef {
        NodeRef { node: "n1".into(), incarnation: 7 }
    }

    fn id(number: usize) -> JobId {
        JobId::from_random(number as u128)
    }

    fn job(placed: bool) -> Bytes {
        let program = PackageRef { unit: UnitId::new("p", "1.0.0").unwrap(), op: "op".into() };
        let spec = JobSpec {
            name: "Main".into(),
            program,
            jar_file: "a.jar".into(),
            class_path: Vec::new(),
            entry_class: Some("Main".into()),
            args: Vec::new(),
            parallelism: 1,
            savepoint_path: None,
            restore_mode: None,
            allow_non_restored_state: false,
            configuration: Default::default(),
            restart: RestartStrategy::None,
            on_lost_store: Default::default(),
        };
        to_bytes(&Job {
            spec,
            trigger: TriggerId::from_random(1),
            state: JobState::Initializing,
            attempt: 0,
            attempts: Vec::new(),
            placed: placed.then(|| Placed { node: "n1".into(), incarnation: 7, at_ms: 0 }),
            waiting: None,
            created_at_ms: None,
            exit: None,
            released_epoch: None,
            failures: 0,
            unfit: Vec::new(),
            pause_ms: None,
            last_failure: None,
            admitted_at_ms: 0,
            ended_at_ms: None,
            extra: Default::default(),
        })
    }

    fn put(key: &impl TypedKey, value: Bytes, revision: i64) -> Event {
        let kv = KeyValue {
            key: key.encode().into(),
            value,
            create_revision: revision,
            mod_revision: revision,
            version: 1,
            lease: 0,
        };
        Event { kind: EventKind::Put, kv: Arc::new(kv), prev: None }
    }

    fn many_waiting() -> Snapshot {
        let mut snapshot = Snapshot::new(0, vec![KeyRange::prefix("/")], []);
        let jobs = (0..WAITING).map(|n| put(&JobKey::new(&id(n)), job(false), n as i64 + 1));
        snapshot.advance(WAITING as i64, &jobs.collect::<Vec<_>>());
        snapshot
    }

    #[test]
    fn what_is_placed_here_is_found_and_left_again() {
        let mut snapshot = many_waiting();
        let mut here = Here::default();
        assert_eq!(here.update(&snapshot.clone().into(), &me(), "w"), WAITING);
        assert!(here.claimable().is_empty());
        let revision = WAITING as i64 + 1;
        snapshot.advance(revision, &[put(&JobKey::new(&id(3)), job(true), revision)]);
        assert_eq!(here.update(&snapshot.clone().into(), &me(), "w"), 1);
        assert_eq!(here.claimable(), [id(3)]);
        // Refused: not tried again until something changes.
        here.refused.insert(id(3));
        assert!(here.claimable().is_empty());
        snapshot.advance(revision + 1, &[put(&JobKey::new(&id(3)), job(true), revision + 1)]);
        here.update(&snapshot.clone().into(), &me(), "w");
        assert_eq!(here.claimable(), [id(3)]);
        // A claim whose answer was lost shows as owned; the end of it frees what was refused for want of slots.
        let owner = to_bytes(&JobOwner {
            node: "n1".into(),
            incarnation: 7,
            slots: 1,
            work_dir: None,
            extra: Default::default(),
        });
        let owned = put(&JobOwnerKey::new(&id(3)), owner, revision + 2);
        snapshot.advance(revision + 2, std::slice::from_ref(&owned));
        here.update(&snapshot.clone().into(), &me(), "w");
        assert_eq!(here.owned.get(&id(3)), Some(&(revision + 2)));
        assert_eq!(here.owned_and_open().count(), 1);
        // Its JobMaster is done, and the mirror is behind: it is not started again. Another epoch is.
        here.done.insert(id(3), revision + 2);
        assert_eq!(here.owned_and_open().count(), 0);
        here.done.insert(id(3), revision + 1);
        assert_eq!(here.owned_and_open().count(), 1);
        assert!(here.claimable().is_empty());
        here.refused.insert(id(9));
        let gone = KeyValue { mod_revision: revision + 3, ..(*owned.kv).clone() };
        snapshot.advance(revision + 3, &[Event { kind: EventKind::Delete, kv: Arc::new(gone), prev: None }]);
        here.update(&snapshot.into(), &me(), "w");
        assert!(here.refused.is_empty() && here.owned.is_empty());
    }

    /// What a change costs beside thousands of jobs that wait: as many records are looked at as changed.
    #[test]
    fn a_change_costs_no_look_at_the_jobs_that_wait() {
        let mut snapshot = many_waiting();
        let mut here = Here::default();
        here.update(&snapshot.clone().into(), &me(), "w");
        let (rounds, mut spent) = (100, std::time::Duration::ZERO);
        for n in 0..rounds {
            let revision = (WAITING + n + 1) as i64;
            let event = put(&JobKey::new(&id(WAITING + n)), job(false), revision);
            let started = Instant::now();
            snapshot.advance(revision, &[event]);
            let view = View::from(snapshot.clone());
            assert_eq!(here.update(&view, &me(), "w"), 1);
            assert!(here.claimable().is_empty());
            spent += started.elapsed();
        }
        let started = Instant::now();
        let everything: Snapshot = Snapshot::new(0, vec![KeyRange::prefix("/")], snapshot.iter().cloned());
        assert!(claimable(&View::from(everything), &me()).unwrap().is_empty());
        println!(
            "{WAITING} jobs wait: {:?} a change; a copy and a look at all of them takes {:?}",
            spent / rounds as u32,
            started.elapsed()
        );
    }
}
