//! What a dispatcher is asked for, written as it writes it, to any store.

use meta_client::Kv;
use meta_types::LeaseId;
use records::jobs::{Cancel, request_cancel};
use records::keys::UnitKey;
use records::nodes::{Register, register};
use records::packages::{Remove, force_remove, remove as remove_safely};
use records::record::{JobSpec, Node, NodeRef, PackageRef, RestartStrategy, Role, StatedRequest};
use records::runs::{Admit, admit as plan_admission};
use records::{Failure, JobId, Scope, TriggerId, UnitId, carry_out};

/// A dispatcher on paper.
pub async fn register_dispatcher(kv: &dyn Kv, lease: LeaseId) -> Result<NodeRef, Failure> {
    let node = Node {
        roles: vec![Role::Dispatcher],
        rest_address: Some("127.0.0.1:1".into()),
        node_address: None,
        slots: 0,
        version: String::new(),
        java: None,
        single_enable: Some(true),
        boot: "d".into(),
        started_at_ms: 0,
        work_dir: None,
        stopping: false,
        extra: Default::default(),
    };
    let request = Register { name: "d".into(), node, lease };
    Ok(carry_out(kv, &Scope::nodes(), |view| register(view, &request)).await?.answer)
}

/// A run of its own for the job.
pub async fn admit(
    kv: &dyn Kv,
    dispatcher: &NodeRef,
    lease: LeaseId,
    spec: &JobSpec,
) -> Result<JobId, Failure> {
    let job = JobId::from_random(rand::random());
    let wish = Admit {
        trigger: TriggerId::from_random(rand::random()),
        stated: StatedRequest::default(),
        job: job.clone(),
        spec: spec.clone(),
        dispatcher: dispatcher.clone(),
        lease,
        hidden: false,
        now_ms: 0,
    };
    let mut scope = Scope::run(&wish.trigger).and_job(&job).and_nodes();
    for package in std::iter::once(&spec.program).chain(&spec.class_path) {
        scope = scope.and_key(&UnitKey::new(&package.unit));
    }
    carry_out(kv, &scope, |view| plan_admission(view, &wish)).await?;
    Ok(job)
}

pub async fn cancel(kv: &dyn Kv, id: &JobId) -> Result<(), Failure> {
    let wish = Cancel { job: id.clone(), reason: "cancel".into(), retention: 0, now_ms: 0 };
    let scope = Scope::default().and_job(id);
    carry_out(kv, &scope, |view| request_cancel(view, &wish)).await.map(drop)
}

pub async fn remove(kv: &dyn Kv, unit: &UnitId, force: bool) -> Result<(), Failure> {
    let wish = Remove { unit: unit.clone(), op: None, reason: "removed".into() };
    let planner = if force { force_remove } else { remove_safely };
    carry_out(kv, &Scope::package(unit), |view| planner(view, &wish)).await.map(drop)
}

pub fn spec(program: &PackageRef, class: &str, args: &[&str]) -> JobSpec {
    JobSpec {
        name: class.into(),
        program: program.clone(),
        jar_file: "app.jar".into(),
        class_path: vec![program.clone()],
        entry_class: Some(class.into()),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        parallelism: 1,
        savepoint_path: None,
        restore_mode: None,
        allow_non_restored_state: false,
        configuration: Default::default(),
        restart: RestartStrategy::OnContainerLoss,
        on_lost_store: Default::default(),
    }
}
