//! A JobMaster: supervises one job from the claim to its end.
//!
//! ```text
//! claimed -> packages PRESENT and in use -> attempt counted -> guard started -> created -> ended
//! ```
//! Everything it writes is fenced by its epoch. It stops early when somebody wants the job gone, when the epoch or
//! the registration is over, when a package is removed by force, or when the node is drained or stops; whatever the
//! reason, nothing of the attempt runs any more when it returns. A guard that is being started is waited for first.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use meta_types::Revision;
use records::jobs::{created, start_attempt};
use records::keys::{JobCancelKey, JobKey, JobOwnerKey};
use records::packages::{BeginUse, begin_use};
use records::record::{Exit, Job, JobState, PackageRef, RestartStrategy};
use records::{Class, JobId, Refusal, Scope, View};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use tracing::field::Empty;

use crate::attempt::Attempt;
use crate::engines::failure;
use crate::engines::process::{Start, judge, look_pause, lost_its_container, was_created};
use crate::gates::Hold;
use crate::guard::control::Order;
use crate::guard::spec::{AttemptDir, ExitRecord, Spec};
use crate::halt::{Halt, look};
use crate::host::{Host, blocking, now_ms};
use crate::kept::{Running, right_to_run};
use crate::limits::{
    ALIVE_AFTER, MAX_FALSE_STARTS, RELEASE_PAUSE, RENEWAL_LOOK, STORE_RETRY, SUCCESSOR_PAUSE,
};
use crate::metrics::End;
use crate::package_copy::{EnsureError, For, ensure};
use crate::session::Tenure;

/// How an attempt ended whose guard could not say it.
const LOST: &str = "lost";

/// Supervises one claimed job.
pub struct JobMaster {
    /// The node.
    pub host: Arc<Host>,
    /// Its right to run anything.
    pub tenure: Tenure,
    /// The job.
    pub id: JobId,
    /// The epoch of the claim.
    pub epoch: Revision,
    /// Cancelled when the node lets go of all its jobs.
    pub stop: CancellationToken,
}

/// What a JobMaster has done so far that its last writes depend on.
#[derive(Default)]
pub(crate) struct Trace {
    /// Packages that a use was begun of, or may have been.
    pub in_use: Vec<PackageRef>,
    /// Whether main() was started, or may have been.
    pub main_started: bool,
}

impl JobMaster {
    /// Runs until nothing is left to do for the job here, going on with an attempt that an earlier JobMaster left if
    /// there is one. True if it ended the epoch. Every line it logs carries job, trigger and node.
    pub async fn run(self, left: Option<Running>) -> bool {
        let node = self.host.options.name.as_str();
        let span = tracing::info_span!("job", job = %self.id, trigger = Empty, node, epoch = self.epoch);
        self.run_to_the_end(left).instrument(span).await
    }

    async fn run_to_the_end(&self, left: Option<Running>) -> bool {
        let mut trace = Trace::default();
        let halt = match left {
            None => {
                tracing::info!("claimed");
                self.supervise(&mut trace).await
            }
            Some(running) => {
                tracing::info!(attempt = running.spec.attempt, "going on with what was kept");
                self.go_on(running, &mut trace).await
            }
        };
        tracing::info!(?halt, "left");
        self.settle(halt, trace).await
    }

    pub(crate) fn scope(&self) -> Scope {
        Scope::default().and_job(&self.id)
    }

    /// The job, if this is its owner. The mirror that led here may be behind: a job that is over, or has moved, is not
    /// started again.
    pub(crate) async fn read(&self) -> Result<Job, Halt> {
        let view = loop {
            match View::load(&*self.host.kv, self.scope()).await {
                Ok(view) => break view,
                Err(_) if self.tenure.lost.is_cancelled() => {
                    return Err(Halt::Fenced("registration lost".into()));
                }
                Err(_) => sleep(STORE_RETRY).await,
            }
        };
        let owner = view.get(&JobOwnerKey::new(&self.id)).ok().flatten();
        if owner.is_none_or(|owner| owner.create_revision != self.epoch) {
            return Err(Halt::Fenced(format!("epoch {} is over", self.epoch)));
        }
        let job = view.get(&JobKey::new(&self.id))?;
        let job = job.ok_or_else(|| Halt::Fenced("the record is gone".into()))?.value;
        tracing::Span::current().record("trigger", job.trigger.as_str());
        Ok(job)
    }

    async fn supervise(&self, trace: &mut Trace) -> Halt {
        let job = match self.read().await {
            Ok(job) => job,
            Err(halt) => return halt,
        };
        // Held by this process before the store knows, and until nothing runs any more.
        let ops: BTreeSet<&str> = job.packages().map(|package| package.op.as_str()).collect();
        let holds: Vec<Hold> = ops.into_iter().map(|op| self.host.gates.hold(op)).collect();
        let prepared = tokio::select! {
            halt = self.unwanted(&job, false) => return halt,
            prepared = self.prepare(&job, trace) => prepared,
        };
        let launched = match prepared {
            // From here on a guard may be on its way: it is waited for, whoever wants the job gone.
            Ok(number) => self.launch(&job, number).await,
            Err(halt) => Err(halt),
        };
        let (attempt, spec) = match launched {
            Ok(started) => started,
            Err(halt) => {
                if matches!(halt, Halt::Released(_)) {
                    self.pause_before_release().await;
                }
                return halt;
            }
        };
        let (epoch, started_at) = (self.epoch, Instant::now());
        let (is_created, is_left) = (false, false);
        let running = Running { job, epoch, attempt, spec, started_at, is_created, is_left, holds };
        self.see_to_the_end(running, trace).await
    }

    pub(crate) async fn see_to_the_end(&self, running: Running, trace: &mut Trace) -> Halt {
        trace.main_started = true;
        self.host.metrics.running.inc();
        let (started_at, may_move) = (running.started_at, running.job.spec.restart != RestartStrategy::None);
        let (halt, end) = self.attend(running, trace).await;
        self.host.metrics.running.dec();
        if may_move && end == Some(LOST) && started_at.elapsed() < ALIVE_AFTER {
            self.pause_before_release().await;
        }
        if let Some(end) = end {
            self.host.metrics.attempts.get_or_create(&End { end }).inc();
        }
        halt
    }

    /// What could not be started, or was lost at once, is not given back at once: the next placement may be here again.
    async fn pause_before_release(&self) {
        let _ = timeout(RELEASE_PAUSE, self.stop.cancelled()).await;
    }

    /// Packages, and the attempt is counted.
    async fn prepare(&self, job: &Job, trace: &mut Trace) -> Result<u32, Halt> {
        self.use_packages(job, job.attempt + 1, trace).await?;
        if !job.ended_cleanly() {
            // Whatever ran before counted its deadline by another clock.
            sleep(SUCCESSOR_PAUSE).await;
        }
        // The right to run may be over until the next renewal: what started now would be killed at once.
        while self.host.pipes.deadline().left().is_zero() {
            sleep(RENEWAL_LOOK).await;
        }
        let packages: Vec<PackageRef> = job.packages().cloned().collect();
        let scope = Scope::start(&self.id, &packages, &self.tenure.session.me.node);
        let number = self
            .host
            .insist(&self.tenure, &scope, |view| start_attempt(view, &self.id, self.epoch, now_ms()))
            .await;
        match number {
            Ok(number) => Ok(number),
            Err(refusal) => Err(self.or_cancelled(refusal).await),
        }
    }

    pub(crate) async fn use_packages(&self, job: &Job, attempt: u32, trace: &mut Trace) -> Result<(), Halt> {
        for package in job.packages() {
            if trace.in_use.contains(package) {
                continue;
            }
            self.ensure(package).await?;
            trace.in_use.push(package.clone());
            self.begin_use(package, attempt).await?;
        }
        Ok(())
    }

    /// The guard, which starts main(). On an error nothing was started.
    async fn launch(&self, job: &Job, number: u32) -> Result<(Attempt, Spec), Halt> {
        let dir = AttemptDir::at(self.host.jobs_dir.join(self.id.as_str()).join(number.to_string()));
        let spec = self.spec(job, number, &dir).await.map_err(|exit| Halt::failed(exit, false))?;
        let (host, at, what) = (self.host.clone(), dir, spec.clone());
        let right = right_to_run(job);
        let runtime = tokio::runtime::Handle::current();
        let started = blocking(move || {
            // The guard's exit is watched by this runtime.
            let _entered = runtime.enter();
            Attempt::start(&host.options, &host.pipes, at, &what, right)
        })
        .await;
        let attempt = started.map_err(|error| {
            let text = format!("node {} cannot start the guard: {error}", self.host.options.name);
            tracing::warn!(attempt = number, text, "main() was not started");
            if job.false_starts() + 1 < MAX_FALSE_STARTS {
                return Halt::Released(text);
            }
            let text = format!("{text}; that was start {MAX_FALSE_STARTS} in a row that came to nothing");
            Halt::failed(failure("CANNOT_START", text), false)
        })?;
        tracing::info!(attempt = number, program = spec.program, "started");
        Ok((attempt, spec))
    }

    async fn spec(&self, job: &Job, attempt: u32, dir: &AttemptDir) -> Result<Spec, Exit> {
        let (host, id, job, dir, epoch) =
            (self.host.clone(), self.id.clone(), job.clone(), dir.clone(), self.epoch);
        blocking(move || {
            let start = Start {
                options: &host.options,
                store: &host.store,
                id: &id,
                job: &job,
                attempt,
                epoch,
                dir: &dir,
            };
            start.spec()
        })
        .await
    }

    async fn ensure(&self, package: &PackageRef) -> Result<(), Halt> {
        match ensure(&self.host, &self.tenure, package, For::Start(&self.id)).await {
            Ok(()) => Ok(()),
            Err(EnsureError::Refused(refusal)) => Err(refusal.into()),
            Err(EnsureError::Failed(why)) => {
                let node = &self.host.options.name;
                Err(Halt::Released(format!("node {node} cannot get package {}: {why}", package.unit)))
            }
        }
    }

    async fn begin_use(&self, package: &PackageRef, attempt: u32) -> Result<(), Halt> {
        let wish = BeginUse {
            unit: package.unit.clone(),
            op: package.op.clone(),
            me: self.tenure.session.me.clone(),
            lease: self.tenure.session.lease,
            holder: self.id.to_string(),
            job: Some(self.id.clone()),
            epoch: Some(self.epoch),
            attempt,
            now_ms: now_ms(),
        };
        let scope = Scope::package(&package.unit).and_key(&JobOwnerKey::new(&self.id));
        Ok(self.host.insist(&self.tenure, &scope, |view| begin_use(view, &wish)).await?)
    }

    /// Watches a running attempt to its end. Also answers the end in one word, for the figures; none if it goes on.
    async fn attend(&self, mut running: Running, trace: &mut Trace) -> (Halt, Option<&'static str>) {
        let Running { job, attempt, spec, is_created, is_left, .. } = &mut running;
        let stop = tokio::select! {
            exit = attempt.exited() => Ok(exit),
            halt = self.unwanted(job, true) => Err(halt),
            halt = self.see_it_created(spec, is_created) => Err(halt),
            halt = self.take(job, spec.attempt, trace), if *is_left => Err(halt),
        };
        match stop {
            Ok(exit) => {
                let (halt, end) = self.ended_by_itself(&running, exit);
                (halt, Some(end))
            }
            Err(halt) => self.leave(running, halt, trace).await,
        }
    }

    pub(crate) fn ended_by_itself(
        &self,
        running: &Running,
        exit: Option<ExitRecord>,
    ) -> (Halt, &'static str) {
        let Running { attempt, spec, is_created, is_left, started_at, .. } = running;
        let Some(exit) = exit.filter(|exit| !lost_its_container(Some(exit))) else {
            let why =
                format!("node {} lost the right to run it, or its guard was killed", self.host.options.name);
            return (Halt::Released(why), LOST);
        };
        // The file may have appeared in the last moment, and anything while nobody watched.
        let is_created = *is_created
            || spec.created_file.as_ref().is_some_and(|file| file.exists())
            || (*is_left && was_created(spec, &exit));
        match judge(attempt.dir(), spec, &exit, is_created) {
            Ok(exit) => (Halt::Over { state: JobState::Finished, exit, created: true }, "finished"),
            Err(exit) => {
                let ran = started_at.elapsed();
                (Halt::MainFailed { exit, created: is_created, ran }, "failed")
            }
        }
    }

    /// Waits for the moment that makes it a job and writes it down. Returns only if that is refused.
    async fn see_it_created(&self, spec: &Spec, is_created: &mut bool) -> Halt {
        match &spec.created_file {
            None => sleep(ALIVE_AFTER).await,
            Some(file) => {
                let since = Instant::now();
                while !file.exists() {
                    sleep(look_pause(since.elapsed())).await;
                }
            }
        }
        *is_created = true;
        let written = self
            .host
            .insist(&self.tenure, &self.scope(), |view| created(view, &self.id, self.epoch, now_ms()))
            .await;
        match written {
            Ok(()) => {
                tracing::info!("created: RUNNING");
                std::future::pending().await
            }
            Err(refusal) => self.or_cancelled(refusal).await,
        }
    }

    /// A refusal of the owner's step: if somebody wants the job gone, that is why.
    pub(crate) async fn or_cancelled(&self, refusal: Refusal) -> Halt {
        let intent = match View::load(&*self.host.kv, self.scope()).await {
            Ok(view) => view.get(&JobCancelKey::new(&self.id)).ok().flatten(),
            Err(_) => None,
        };
        match intent {
            Some(intent) if refusal.class == Class::WrongState => Halt::Cancelled(intent.value.reason),
            _ => refusal.into(),
        }
    }

    /// Ends a running attempt, and returns when nothing of it runs.
    pub(crate) async fn stop(&self, attempt: &mut Attempt, halt: &Halt) -> Option<ExitRecord> {
        let options = &self.host.options.host;
        let grace = match halt {
            Halt::Fenced(_) => Duration::ZERO,
            Halt::Released(_) => options.stop_timeout,
            Halt::Cancelled(_) | Halt::Over { .. } | Halt::MainFailed { .. } => options.cancel_grace,
        };
        if let Halt::Cancelled(_) = halt {
            self.say_cancelling().await;
        }
        if !grace.is_zero() {
            attempt.tell(Order::Terminate);
            if let Ok(exit) = timeout(grace, attempt.exited()).await {
                return exit;
            }
            tracing::info!(?grace, "did not end by itself; killing it");
        }
        attempt.tell(Order::Kill);
        attempt.exited().await
    }

    /// Returns when the job is not to run here any more, and why.
    async fn unwanted(&self, job: &Job, main_started: bool) -> Halt {
        let mut views = self.host.views.clone();
        let lost = &self.tenure.lost;
        let may_move = !main_started || job.spec.restart != RestartStrategy::None;
        loop {
            let view = views.borrow_and_update().clone();
            if let Some(halt) = look(&view, &self.id, self.epoch, job, may_move) {
                return halt;
            }
            tokio::select! {
                biased;
                // First: with the lease the node lets go of all its jobs, and that is no wish to stop them.
                () = lost.cancelled() => return Halt::Fenced("the registration of this node is gone".into()),
                () = self.stop.cancelled() => {
                    return Halt::Released(format!("node {} is stopping", self.host.options.name));
                }
                changed = views.changed() => if changed.is_err() {
                    return Halt::Released(format!("node {} is stopping", self.host.options.name));
                }
            }
        }
    }
}
