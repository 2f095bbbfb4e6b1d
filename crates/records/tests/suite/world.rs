//! A store, processes on leases, and a commit that checks every invariant after every transaction.

use std::time::Duration;

use meta_client::MemKv;
use meta_types::{LeaseId, Txn};
use records::jobs;
use records::nodes::{Register, register};
use records::packages::{self, BeginUse, CopyReport, Reserve, Targets};
use records::record::{
    JobSpec, Manifest, ManifestFile, Node, NodeRef, PackageRef, Policy, RestartStrategy, Role, StatedRequest,
    UnitOrigin,
};
use records::runs::{self, Admit};
use records::{JobId, Plan, Refusal, TriggerId, UnitId, View, invariants, step_violations};

/// A registered process.
#[derive(Debug, Clone)]
pub struct Proc {
    pub me: NodeRef,
    pub lease: LeaseId,
}

#[derive(Clone, Default)]
pub struct World {
    pub kv: MemKv,
    /// Transactions without a guard are let pass: of the literal protocol.
    pub unguarded: bool,
    /// Invariants are looked at after each `sparse + 1`th transaction only: parsing every record is what costs.
    pub sparse: i64,
}

pub fn unit(text: &str) -> UnitId {
    text.parse().unwrap()
}

pub fn trigger(text: &str) -> TriggerId {
    text.parse().unwrap()
}

pub fn job(number: u128) -> JobId {
    JobId::from_random(number)
}

/// A manifest of one file; its digest is the content's name.
pub fn content(name: &str) -> (String, Manifest) {
    let file = ManifestFile { path: "app.jar".into(), size: 3, hash: name.into(), executable: false };
    (format!("digest-{name}"), Manifest { files: vec![file], holders: vec![], extra: Default::default() })
}

pub fn spec(program: &PackageRef, parallelism: u32, restart: RestartStrategy) -> JobSpec {
    JobSpec {
        name: "app".into(),
        program: program.clone(),
        jar_file: "app.jar".into(),
        class_path: vec![],
        entry_class: None,
        args: vec![],
        parallelism,
        savepoint_path: None,
        restore_mode: None,
        allow_non_restored_state: false,
        configuration: Default::default(),
        restart,
        on_lost_store: Default::default(),
    }
}

pub fn stated(digest: &str) -> StatedRequest {
    StatedRequest { jar_digest: Some(digest.into()), ..StatedRequest::default() }
}

impl World {
    pub fn view(&self) -> View {
        self.kv.snapshot().into()
    }

    /// Applies a transaction and checks everything. Sent again at once it must not take place again: that is what
    /// makes resending after an unknown outcome safe.
    pub fn apply(&self, txn: &Txn) -> Option<i64> {
        self.try_apply(txn).unwrap_or_else(|wrong| panic!("{wrong}"))
    }

    /// The same; what is wrong is handed back.
    pub fn try_apply(&self, txn: &Txn) -> Result<Option<i64>, String> {
        let before = self.view();
        let reply = match self.kv.apply_txn(txn) {
            Ok(reply) if reply.value.succeeded => reply,
            // A failed guard, or a lease that ran out.
            Ok(_) | Err(_) => return Ok(None),
        };
        let after = self.view();
        let mut wrong = step_violations(&before, &after);
        if after.revision() % (self.sparse + 1) == 0 {
            wrong.extend(invariants(&after));
        }
        if !wrong.is_empty() {
            return Err(format!("{wrong:#?}\nafter {txn:#?}"));
        }
        if self.unguarded {
            return Ok(Some(reply.revision));
        }
        let again = self.kv.apply_txn(txn).map(|reply| reply.value.succeeded);
        if matches!(again, Ok(true)) {
            return Err(format!("took place twice: {txn:#?}"));
        }
        Ok(Some(reply.revision))
    }

    /// Commits a plan; `None` if a guard failed.
    pub fn commit<T>(&self, plan: Plan<T>) -> Option<T> {
        if plan.is_empty() {
            return Some(plan.answer(self.view().revision()));
        }
        let revision = self.apply(plan.txn())?;
        Some(plan.answer(revision))
    }

    /// Plans on a fresh view and commits.
    pub fn must<T>(&self, planner: impl FnOnce(&View) -> Result<Plan<T>, Refusal>) -> T {
        let plan = planner(&self.view()).unwrap_or_else(|refusal| panic!("refused: {refusal}"));
        self.commit(plan).expect("nobody else writes")
    }

    /// Plans on a fresh view and expects a refusal.
    pub fn refused<T>(&self, planner: impl FnOnce(&View) -> Result<Plan<T>, Refusal>) -> Refusal {
        match planner(&self.view()) {
            Err(refusal) => refusal,
            Ok(plan) => panic!("not refused: {plan:?}"),
        }
    }

    pub fn start(&self, name: &str, roles: &[Role], slots: u32) -> Proc {
        let lease = self.kv.grant(Duration::from_secs(15)).id;
        let node = node(roles, slots, &format!("{name}-{lease}"));
        let me = self.must(|view| register(view, &Register { name: name.into(), node: node.clone(), lease }));
        Proc { me, lease }
    }

    pub fn server(&self, name: &str) -> Proc {
        self.start(name, &[Role::Jobmaster], 4)
    }

    pub fn dispatcher(&self, name: &str) -> Proc {
        self.start(name, &[Role::Dispatcher], 0)
    }

    /// The process is dead and its lease ran out.
    pub fn kill(&self, proc: &Proc) {
        assert!(self.kv.revoke(proc.lease));
        let wrong = invariants(&self.view());
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    /// Creates a package on one node, READY.
    pub fn package(&self, id: &str, coordinator: &Proc, name: &str) -> PackageRef {
        let wish = reserve(id, name, coordinator);
        self.must(|view| packages::reserve(view, &wish));
        self.must(|view| packages::present(view, &report(&wish.unit, &wish.op, coordinator), 3));
        self.must(|view| packages::ready(view, &wish.unit, &wish.op, 1));
        PackageRef { unit: wish.unit, op: wish.op }
    }

    /// Claims, fetches, begins uses and starts: what a node does for a job that is placed on it.
    pub fn launch(&self, id: &JobId, node: &Proc) -> i64 {
        let epoch = self.must(|view| jobs::claim(view, id, &node.me, node.lease));
        self.must(|view| {
            let program = jobs::job(view, id)?.unwrap().job.spec.program.clone();
            packages::begin_use(view, &BeginUse { epoch: Some(epoch), ..begin(&program, id, node) })
        });
        self.must(|view| jobs::start_attempt(view, id, epoch, 0));
        epoch
    }

    pub fn admit(&self, wish: &Admit) -> runs::Admitted {
        self.must(|view| runs::admit(view, wish))
    }
}

pub fn node(roles: &[Role], slots: u32, boot: &str) -> Node {
    Node {
        roles: roles.to_vec(),
        rest_address: None,
        node_address: None,
        slots,
        version: String::new(),
        java: None,
        single_enable: None,
        boot: boot.into(),
        started_at_ms: 0,
        work_dir: Some(boot.split('-').next().unwrap().to_owned()),
        stopping: false,
        extra: Default::default(),
    }
}

pub fn reserve(id: &str, name: &str, coordinator: &Proc) -> Reserve {
    Reserve {
        unit: unit(id),
        op: format!("op-{name}"),
        origin: UnitOrigin::Icp,
        coordinator: coordinator.me.clone(),
        manifest: Some(content(name)),
        uploading: false,
        targets: Targets::Some(1),
        policy: Policy::All,
        request: None,
        now_ms: 0,
        from: None,
    }
}

pub fn report(unit: &UnitId, op: &str, proc: &Proc) -> CopyReport {
    CopyReport { unit: unit.clone(), op: op.into(), me: proc.me.clone(), for_job: None }
}

pub fn begin(package: &PackageRef, job: &JobId, proc: &Proc) -> BeginUse {
    BeginUse {
        unit: package.unit.clone(),
        op: package.op.clone(),
        me: proc.me.clone(),
        lease: proc.lease,
        holder: job.to_string(),
        job: Some(job.clone()),
        epoch: None,
        attempt: 1,
        now_ms: 0,
    }
}

pub fn admit_wish(id: &str, number: u128, program: &PackageRef, dispatcher: &Proc) -> Admit {
    Admit {
        trigger: trigger(id),
        stated: stated("d"),
        job: job(number),
        spec: spec(program, 1, RestartStrategy::OnContainerLoss),
        dispatcher: dispatcher.me.clone(),
        lease: dispatcher.lease,
        hidden: false,
        now_ms: 0,
    }
}

pub fn drive_wish(id: &JobId) -> jobs::Drive {
    jobs::Drive { job: id.clone(), waited_ms: 0, give_up_on: None, retention: 0, now_ms: 0 }
}
