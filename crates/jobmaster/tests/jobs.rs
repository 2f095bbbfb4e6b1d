//! Jobs on real processes (a script stands in for java): created, ended, cancelled, moved, reported.

mod common;

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::flaky::FlakyKv;
use common::{BOUND, Cluster, deploy, spec, until_guard_is_gone};
use jobmaster::engines::process::find_program;
use jobmaster::guard::control::Boottime;
use jobmaster::guard::spec::{ATTEMPT_VERSION, AttemptDir, Cause, Isolation, Limits, Spec};
use meta_client::TypedKey;
use records::jobs::{claim, start_attempt};
use records::keys::{JobOwnerKey, PinKey, UseKey, below};
use records::nodes::{Register, register};
use records::packages::{BeginUse, CopyReport, begin_use, present};
use records::record::{JobState, Node as NodeRecord, PackageRef, RestartStrategy, Role};
use records::{Scope, carry_out};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_runs_finishes_and_its_output_is_served() {
    let cluster = Cluster::new().await;
    let a = cluster.node("a").await;
    let program = deploy(&cluster, &a, "app", "").await;
    let job = cluster.admit(spec(&program, "finish", &["one", "two words"])).await;
    let (state, exit, record) = cluster.until_over(&job).await;
    assert_eq!((state, exit.code), (JobState::Finished, Some(0)), "{exit:?}");
    assert!(record.is_created());
    assert_eq!(record.attempt, 1);
    let path = format!("/jobs/{job}/attempts/1/stdout");
    let (status, output) = a.get(&path).await;
    assert_eq!(status, 200);
    let root = a.work_dir.canonicalize().unwrap().join("icp/app/1.0.0");
    let jars = format!("{0}/app.jar:{0}/app.jar:{0}/lib/dep.jar:{0}\n", root.display());
    assert!(output.contains(&format!("class_path={jars}")), "{output}");
    assert!(output.contains("class=finish args=one two words"), "{output}");
    for line in [
        format!("JOB_ID={job}"),
        format!("JOB_EPOCH={}", record.attempts[0].epoch),
        "JOB_ATTEMPT=1".into(),
        "JOB_PARALLELISM=1".into(),
    ] {
        assert!(output.contains(&line), "{line} is missing in {output}");
    }
    assert!(output.ends_with("hello\n"));
    assert_eq!(a.get(&format!("{path}?offset=-6")).await.1, "hello\n");
    assert_eq!(a.get(&format!("/jobs/{job}/attempts/2/stdout")).await.0, 404);
    assert_eq!(a.get(&format!("/jobs/{job}/attempts/1/passwd")).await.0, 404);
    let view = cluster.view(Scope::package(&program.unit)).await;
    assert_eq!(view.count(&below(PinKey::PREFIX, &program.unit)).unwrap(), 0);
    cluster
        .until("no use", Scope::package(&program.unit), |view| {
            (view.count(&below(UseKey::PREFIX, &program.unit)).unwrap() == 0).then_some(())
        })
        .await;
    a.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_ends_badly_says_why() {
    let cluster = Cluster::new().await;
    let a = cluster.node("a").await;
    let program = deploy(&cluster, &a, "app", "").await;

    let job = cluster.admit(spec(&program, "throw", &[])).await;
    let (state, exit, record) = cluster.until_over(&job).await;
    assert_eq!((state, exit.code, record.is_created()), (JobState::Failed, Some(3), false));
    assert_eq!(exit.text.lines().count(), 20);
    assert!(exit.text.starts_with("at line 30\n") && exit.text.ends_with("at line 49"), "{}", exit.text);

    let job = cluster.admit(spec(&program, "noflink", &[])).await;
    let (_, exit, _) = cluster.until_over(&job).await;
    assert!(exit.text.starts_with("this JAR needs a Flink cluster: set engine = flink\n"), "{}", exit.text);

    let mut nameless = spec(&program, "", &[]);
    nameless.entry_class = None;
    let (_, exit, _) = cluster.until_over(&cluster.admit(nameless).await).await;
    assert_eq!(exit.class.as_deref(), Some("NO_ENTRY_CLASS"));

    // After the moment that makes it a job, the job failed and the run did not.
    let job = cluster.admit(spec(&program, "exit", &["4", "1.3"])).await;
    let (state, exit, record) = cluster.until_over(&job).await;
    assert_eq!((state, exit.code, record.is_created()), (JobState::Failed, Some(4), true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_java_names_java_home_and_the_package_to_install() {
    let cluster = Cluster::new().await;
    let mut options = cluster.options("a");
    options.host.java = "/no/java/here".into();
    let a = cluster.node_with(options).await;
    let program = deploy(&cluster, &a, "app", "").await;
    let (_, exit, record) = cluster.until_over(&cluster.admit(spec(&program, "finish", &[])).await).await;
    assert_eq!(exit.class.as_deref(), Some("NO_JAVA"));
    for word in ["node a", "/no/java/here", "JAVA_HOME", "default-jre-headless"] {
        assert!(exit.text.contains(word), "{word} is missing in {}", exit.text);
    }
    assert!(!record.is_created());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_signal_only_the_created_file_makes_a_job() {
    let cluster = Cluster::new().await;
    let a = cluster.node("a").await;
    let program = deploy(&cluster, &a, "app", "").await;
    let with_signal = |class: &str, args: &[&str]| {
        let mut spec = spec(&program, class, args);
        spec.configuration.insert("engine.process.created".into(), "signal".into());
        spec
    };
    let (state, _, record) = cluster.until_over(&cluster.admit(with_signal("signal", &["0"])).await).await;
    assert_eq!((state, record.is_created()), (JobState::Finished, true));
    let (state, _, record) = cluster.until_over(&cluster.admit(with_signal("signal", &["9"])).await).await;
    assert_eq!((state, record.is_created()), (JobState::Failed, true));
    let (state, exit, record) = cluster.until_over(&cluster.admit(with_signal("nosignal", &[])).await).await;
    assert_eq!((state, record.is_created()), (JobState::Failed, false));
    assert_eq!(exit.text, "No jobs included in application.");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_job_may_end_itself_and_is_killed_if_it_does_not() {
    let cluster = Cluster::new().await;
    let a = cluster.node("a").await;
    let program = deploy(&cluster, &a, "app", "").await;
    for class in ["forever", "stubborn"] {
        let job = cluster.admit(spec(&program, class, &[])).await;
        cluster.until_running(&job).await;
        cluster.cancel(&job).await;
        let (state, exit, _) = cluster.until_over(&job).await;
        assert_eq!((state, exit.text.as_str()), (JobState::Canceled, "cancel"), "{class}");
        let (_, output) = a.get(&format!("/jobs/{job}/attempts/1/stdout")).await;
        assert_eq!(output.contains("terminated"), class == "forever", "{output}");
        let mark =
            AttemptDir::at(a.work_dir.canonicalize().unwrap().join("jobs").join(job.as_str()).join("1"));
        assert!(mark.lock().is_ok(), "the guard is gone");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lost_its_lease_kills_and_the_job_moves() {
    let cluster = Cluster::new().await;
    let a = cluster.node("a").await;
    let program = deploy(&cluster, &a, "app", "").await;
    let moving = cluster.admit(spec(&program, "forever", &[])).await;
    let mut once = spec(&program, "forever", &[]);
    once.restart = RestartStrategy::None;
    let once = cluster.admit(once).await;
    cluster.until_running(&moving).await;
    cluster.until_running(&once).await;
    let b = cluster.node("b").await;
    let session = a.node.session().borrow().clone().unwrap();
    cluster.kv.revoke(session.lease);
    let moved = cluster
        .until_job(&moving, "the second attempt", |job| job.attempt == 2 && job.state == JobState::Running)
        .await;
    assert!(moved.attempts[1].epoch > moved.attempts[0].epoch);
    let (state, exit, _) = cluster.until_over(&once).await;
    assert_eq!((state, exit.class.as_deref()), (JobState::Failed, Some("OWNER_LOST")));
    for job in [&moving, &once] {
        let first = AttemptDir::at(a.work_dir.join("jobs").join(job.as_str()).join("1"));
        let exit = first.read_exit().unwrap().expect("the first attempt is over");
        assert_eq!(exit.signal, Some(9), "{exit:?}");
    }
    // The node is back under a new incarnation, with the same packages.
    let mut sessions = a.node.session();
    let again = sessions.wait_for(|s| s.as_ref().is_some_and(|s| s.me.incarnation > session.me.incarnation));
    tokio::time::timeout(BOUND, again).await.unwrap().unwrap();
    a.stop().await;
    b.stop().await;
}

/// P5's price: without the store for longer than the lease, nothing runs; with it again, the job goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_cut_off_from_the_store_kills_at_its_deadline_and_starts_again_afterwards() {
    let cluster = Cluster::new().await;
    let kv = Arc::new(FlakyKv::new(cluster.kv.clone()));
    let mut options = cluster.options("a");
    options.lease = Duration::from_secs(3);
    options.host.keep_alive = Duration::from_millis(200);
    options.host.lease_margin = Duration::from_millis(500);
    let a = cluster.node_over(kv.clone(), options).await;
    let program = deploy(&cluster, &a, "app", "").await;
    let job = cluster.admit(spec(&program, "forever", &[])).await;
    cluster.until_running(&job).await;
    let cut_off_at = Boottime::now();
    kv.down.store(true, Ordering::SeqCst);
    let dir = AttemptDir::at(a.work_dir.canonicalize().unwrap().join("jobs").join(job.as_str()).join("1"));
    until_guard_is_gone(&dir).await;
    let exit = dir.read_exit().unwrap().expect("it says how the attempt ended");
    assert_eq!((exit.cause, exit.signal), (Cause::Deadline, Some(9)));
    // Before the store, which counts from the receipt of the last renewal, could give the job to anybody else.
    assert!(cut_off_at.plus(Duration::from_secs(3)).left() > Duration::ZERO, "killed too late");
    kv.down.store(false, Ordering::SeqCst);
    let again = cluster
        .until_job(&job, "the second attempt", |job| job.attempt == 2 && job.state == JobState::Running)
        .await;
    assert_eq!(again.attempts[1].owner.node, "a");
    a.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopping_node_gives_its_jobs_back_at_once() {
    let cluster = Cluster::new().await;
    let (a, b) = (cluster.node("a").await, cluster.node("b").await);
    let program = deploy(&cluster, &a, "app", "nodes=all").await;
    let job = cluster.admit(spec(&program, "forever", &[])).await;
    let first = cluster.until_running(&job).await.attempts[0].owner.node.clone();
    let (stopping, staying) = if first == "a" { (&a, &b) } else { (&b, &a) };
    stopping.stop().await;
    let moved = cluster
        .until_job(&job, "the second attempt", |job| job.attempt == 2 && job.state == JobState::Running)
        .await;
    assert_eq!(moved.attempts[1].owner.node, staying.name);
    staying.stop().await;
}

/// The example of the repository on a Java, where there is one; a damaged JAR fails its job and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_java_runs_the_example_and_a_damaged_jar_fails_only_its_job() {
    let hello = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/hello.jar");
    let (Ok(java), Ok(hello)) = (find_program("java"), std::fs::read(hello)) else {
        eprintln!("no java here: nothing to see");
        return;
    };
    let cluster = Cluster::new().await;
    let mut options = cluster.options("a");
    options.host.java = java.to_string_lossy().into_owned();
    let a = cluster.node_with(options).await;
    let unit = common::unit("hello");
    let (status, body) =
        a.put(&unit, "", &[("app.jar", &hello), ("bad.jar", &hello[..hello.len() / 2])]).await;
    assert_eq!(status, 200, "{body}");
    let op = body["op"].as_str().unwrap().to_owned();
    let program = PackageRef { unit, op };
    let mut wish = spec(&program, "", &[]);
    wish.entry_class = None;
    wish.class_path.clear();
    let mut bad = wish.clone();
    bad.jar_file = "bad.jar".into();
    bad.entry_class = Some("Hello".into());
    let (state, exit, _) = cluster.until_over(&cluster.admit(bad).await).await;
    assert_eq!(state, JobState::Failed, "{exit:?}");
    let job = cluster.admit(wish).await;
    let (state, exit, _) = cluster.until_over(&job).await;
    let (_, output) = a.get(&format!("/jobs/{job}/attempts/1/stdout")).await;
    assert_eq!(state, JobState::Finished, "{exit:?} {output}");
    assert!(!output.is_empty());
}

/// A boot of node `a` that claimed a job and died; its guard went on to the end of the program.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_returning_node_reports_how_the_job_ended_and_takes_its_name_back_at_once() {
    let cluster = Cluster::new().await;
    let b = cluster.node("b").await;
    let program = deploy(&cluster, &b, "app", "").await;
    b.stop().await;
    let lease = cluster.kv.grant(Duration::from_secs(15)).id;
    let node = NodeRecord {
        roles: vec![Role::Jobmaster],
        rest_address: None,
        node_address: Some("127.0.0.1:1".into()),
        slots: 4,
        version: String::new(),
        java: None,
        single_enable: None,
        boot: "the-boot-before".into(),
        started_at_ms: 0,
        work_dir: None,
        stopping: false,
        extra: Default::default(),
    };
    let request = Register { name: "a".into(), node, lease };
    let me = carry_out(&*cluster.kv, &Scope::nodes(), |view| register(view, &request)).await.unwrap().answer;
    let job = cluster.admit(spec(&program, "finish", &[])).await;
    cluster.until_job(&job, "the placement", |job| job.placed.is_some()).await;
    let claimed =
        carry_out(&*cluster.kv, &Scope::jobs(), |view| claim(view, &job, &me, lease)).await.unwrap();
    let epoch = claimed.answer;
    let unit = program.unit.clone();
    let report = CopyReport { unit: unit.clone(), op: program.op.clone(), me: me.clone(), for_job: None };
    let scope = Scope::package(&unit);
    carry_out(&*cluster.kv, &scope, |view| present(view, &report, 1)).await.unwrap();
    let begin = BeginUse {
        unit,
        op: program.op.clone(),
        me: me.clone(),
        lease,
        holder: job.to_string(),
        job: Some(job.clone()),
        epoch: Some(epoch),
        attempt: 1,
        now_ms: 0,
    };
    let scope = scope.and_key(&JobOwnerKey::new(&job));
    carry_out(&*cluster.kv, &scope, |view| begin_use(view, &begin)).await.unwrap();
    let scope = Scope::start(&job, std::slice::from_ref(&program), "a");
    carry_out(&*cluster.kv, &scope, |view| start_attempt(view, &job, epoch, 0)).await.unwrap();

    let work_dir = cluster.dir.path().join("a");
    let dir = AttemptDir::at(work_dir.join("jobs").join(job.as_str()).join("1"));
    let spec = Spec {
        v: ATTEMPT_VERSION,
        job: job.to_string(),
        attempt: 1,
        epoch,
        program: "/bin/true".into(),
        args: vec![],
        env: Default::default(),
        current_dir: dir.current_dir(),
        stream_limit_bytes: 1000,
        limits: Limits::default(),
        isolation: Isolation::Namespace,
        created_file: None,
    };
    dir.prepare(&spec).unwrap();
    std::fs::write(work_dir.join("boots"), "the-boot-before\n").unwrap();
    let mut guard = Command::new(env!("CARGO_BIN_EXE_jobmaster-guard"))
        .arg(dir.path())
        .arg(Boottime::now().plus(BOUND).as_ns().to_string())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    // Kept open: the guard ends because the program does.
    let pipe = guard.stdin.take();
    guard.wait().unwrap();
    drop(pipe);
    assert!(dir.read_exit().unwrap().unwrap().is_success());

    let a = cluster.node("a").await;
    let (state, _, record) = cluster.until_over(&job).await;
    assert_eq!((state, record.is_created(), record.attempt), (JobState::Finished, true, 1));
    let view = cluster.view(Scope::jobs()).await;
    assert!(view.get(&JobOwnerKey::new(&job)).unwrap().is_none());
    a.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_work_directory_has_one_process() {
    let cluster = Cluster::new().await;
    let a = cluster.node("a").await;
    let mut options = cluster.options("other");
    options.host.work_dir = a.work_dir.clone();
    let kv: std::sync::Arc<dyn meta_client::Kv> = cluster.kv.clone();
    let refused = jobmaster::Node::start(kv, options, process_kit::Shutdown::new()).await;
    let text = refused.err().expect("refused").to_string();
    assert!(text.contains("work-dir") && text.contains(&std::process::id().to_string()), "{text}");
}
