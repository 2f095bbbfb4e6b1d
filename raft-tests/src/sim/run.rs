//! One seed from its start to its verdict.
//!
//! ```text
//!  settle   all replicas start, form a cluster, elect
//!  safety   faults come and go while clients work; every step is checked
//!  heal     faults end: the cluster must converge, serve, and converge again, in bounded time
//!  verdict  the histories are checked, the log is replayed, every acknowledged write must be in it
//! ```

use std::path::PathBuf;
use std::time::Duration;

use meta_types::controls::Control;

use super::chance::Chance;
use super::inject::Faults;
use super::load::Load;
use super::plan::Plan;
use super::report::Report;
use super::trace::Trace;
use super::verdict;
use super::world::World;
use crate::controls;
use crate::workload::Stage;

/// How long a healthy cluster may take to form.
const SETTLE: Duration = Duration::from_secs(15);
/// How long faults that have not found their moment are waited for.
const OVERTIME: Duration = Duration::from_secs(15);
/// How long a cluster may take to converge once faults ended: connections that nobody resets have to time out, and
/// a checkpoint may have to be sent.
const CONVERGE: Duration = Duration::from_secs(40);
/// How long clients work after faults ended.
const SERVE: Duration = Duration::from_secs(3);
/// How long what is in progress in the domain may take to end: leases of the dead have to run out.
const SETTLED: Duration = Duration::from_secs(60);
/// How long clients may take to end.
const FINISH: Duration = Duration::from_secs(30);

/// What may be set beside the seed.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the event log goes.
    pub log: Option<PathBuf>,
    /// Told the virtual time after each step.
    pub tell_time: fn(Duration),
    /// The known bug that is on while the cluster runs (in a build that has them).
    pub control: Option<Control>,
}

/// Runs a seed.
pub fn run(seed: u64, options: &Options) -> Report {
    let plan = Plan::of(&Chance::new(seed).fork("plan"));
    run_plan(seed, &plan, options)
}

/// Runs a plan, with all other chances those of the seed.
fn run_plan(seed: u64, plan: &Plan, options: &Options) -> Report {
    let chance = Chance::new(seed);
    let log = options.log.as_ref().map(std::fs::File::create).transpose();
    let trace = Trace::new(log.expect("the event log can be written"));
    let clients = vec!["c1".to_owned(), "c2".to_owned()];
    let mut world = World::new(plan, &clients, &chance, trace, options.tell_time);
    let load = Load::start(&mut world, plan, &clients, &chance);
    world.trace.note(Duration::ZERO, format_args!("seed {seed} {:?}", plan.setting));
    controls::turn_on(options.control);
    let injected = phases(&mut world, plan, &load);
    // Before the verdict, which replays the log through the same code.
    let control_passed = controls::turn_off();
    let history = load.history();
    for text in load.findings() {
        world.violation("domain", text);
    }
    let replicas = world.nodes.len() as u64;
    let mut report = Report { seed, replicas, control_passed, ..Report::default() };
    if world.violations.is_empty() {
        verdict::check(&mut world, &history, &mut report);
    }
    if injected.is_none() && world.violations.is_empty() {
        world.violation("run", "it ended early and says nothing about why".into());
    }
    verdict::explain(&mut world);
    report.count(&world);
    report
}

/// All phases up to the verdict; none if one of them failed, and then there is a violation.
fn phases(world: &mut World, plan: &Plan, load: &Load) -> Option<()> {
    if !world.step_until(SETTLE, World::converged) {
        world.stuck("settle", "no cluster was formed");
        return None;
    }
    let mut faults = Faults::new(world, &plan.faults, &plan.setting);
    let end = world.now() + plan.safety;
    let last = end + OVERTIME;
    while world.now() < end || (faults.any() && world.now() < last) {
        if !world.violations.is_empty() {
            return None;
        }
        faults.drive(world);
        world.step();
    }
    for missed in faults.pending() {
        world.violation("fault-not-injected", missed);
    }
    world.trace.note(world.now(), "faults end");
    faults.end(world);
    load.stage(Stage::Calm);
    if !world.step_until(CONVERGE, |world| load.serves(world.now()) && world.nodes_up()) {
        world.stuck("heal", "the cluster does not serve again");
        return None;
    }
    let serve_until = world.now() + SERVE;
    if !world.step_until(SETTLED, |world| world.now() >= serve_until && load.unsettled().is_empty()) {
        world.stuck("settle", &format!("the domain does not come to an end: {:?}", load.unsettled()));
        return None;
    }
    load.stage(Stage::Over);
    if !world.step_until(FINISH, |_| load.ended()) {
        world.stuck("finish", "clients do not come to an end");
        return None;
    }
    if !world.step_until(CONVERGE, World::converged) {
        world.stuck("converge", "the replicas do not become equal");
        return None;
    }
    world.violations.is_empty().then_some(())
}

impl World {
    /// Notes that nothing goes on, unless something else is wrong already, which says more.
    fn stuck(&mut self, phase: &'static str, what: &str) {
        if self.violations.is_empty() {
            let text = format!("{what}; {}", self.describe());
            self.violation(phase, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fault::{Fault, Kind};
    use super::super::plan::Planned;
    use super::*;

    fn report_of(fault: Fault, kind: Kind) -> Report {
        let mut plan = Plan::of(&Chance::new(1).fork("plan"));
        let (at, lasts) = (Duration::from_millis(500), Duration::from_millis(500));
        plan.faults = vec![Planned { at, lasts, kind, fault }];
        plan.safety = Duration::from_secs(1);
        plan.domain = false;
        // No log grows so large that it is checkpointed.
        plan.setting.checkpoint_bytes = 1 << 30;
        run_plan(1, &plan, &Options { log: None, tell_time: |_| (), control: None })
    }

    #[test]
    fn a_fault_that_cannot_be_injected_fails_the_run() {
        let fault = Fault::DamagedCheckpoint { replica: 0, newest: true, lost: false };
        let report = report_of(fault, Kind::DamagedCheckpoint);
        let [violation] = report.violations.as_slice() else { panic!("{:?}", report.violations) };
        assert!(violation.starts_with("fault-not-injected at "), "{violation}");
        assert!(report.faults.is_empty(), "{:?}", report.faults);
    }

    #[test]
    fn a_fault_that_can_be_is_counted() {
        let report = report_of(Fault::Crash { replica: Some(0), power_cut: true }, Kind::PowerCutShort);
        assert_eq!(report.violations, Vec::<String>::new());
        assert_eq!(report.faults.get("PowerCutShort"), Some(&1));
        assert_eq!(report.histories, 1);
    }
}
