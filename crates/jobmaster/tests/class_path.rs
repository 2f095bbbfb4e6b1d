//! Several packages of one job: all are on its class path, and each is kept for it.

mod common;

use common::{Cluster, deploy, spec};
use records::Scope;
use records::keys::UnitKey;
use records::record::{JobState, UnitState};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_packages_are_on_the_class_path_and_a_removal_of_one_waits_for_the_job() {
    let cluster = Cluster::new().await;
    let a = cluster.node("a").await;
    let program = deploy(&cluster, &a, "app", "").await;
    let (lib, other) = (deploy(&cluster, &a, "lib", "").await, deploy(&cluster, &a, "other", "").await);
    let wish = |class: &str| {
        let mut wish = spec(&program, class, &[]);
        wish.class_path = vec![lib.clone(), other.clone()];
        wish
    };
    let job = cluster.admit(wish("finish")).await;
    let (state, exit, _) = cluster.until_over(&job).await;
    assert_eq!(state, JobState::Finished, "{exit:?}");
    let (_, output) = a.get(&format!("/jobs/{job}/attempts/1/stdout")).await;
    let class_path = output.lines().find_map(|line| line.strip_prefix("class_path=")).unwrap();
    let entries: Vec<&str> = class_path.split(':').collect();
    let at = |name: &str, file: &str| a.work_dir.join("icp").join(name).join("1.0.0").join(file);
    let wanted: Vec<String> = [("lib", "app.jar"), ("lib", "lib/dep.jar"), ("other", "app.jar")]
        .map(|(name, file)| at(name, file).display().to_string())
        .to_vec();
    for entry in &wanted {
        assert!(entries.contains(&entry.as_str()), "{entry} is missing in {class_path}");
    }
    let place = |entry: &String| entries.iter().position(|it| it == entry);
    assert!(
        entries[0].ends_with("app/1.0.0/app.jar") && place(&wanted[1]) < place(&wanted[2]),
        "{class_path}"
    );

    let job = cluster.admit(wish("forever")).await;
    cluster.until_running(&job).await;
    cluster.remove(&other.unit, false).await;
    let key = UnitKey::new(&other.unit);
    let state = |view: &records::View| view.get(&key).unwrap().map(|unit| unit.state);
    let view = cluster.view(Scope::package(&other.unit)).await;
    assert_eq!(state(&view), Some(UnitState::Removing));
    // Another package comes and goes meanwhile: whoever deletes copies had its turn, and this one is still here.
    let extra = deploy(&cluster, &a, "extra", "").await;
    cluster.remove(&extra.unit, false).await;
    cluster.until_absent(&extra.unit).await;
    assert!(a.has(&other.unit, "app.jar"));
    assert_eq!(cluster.job(&job).await.state, JobState::Running);
    cluster.cancel(&job).await;
    cluster.until_over(&job).await;
    cluster.until_absent(&other.unit).await;
    assert!(!a.has(&other.unit, "app.jar") && a.has(&lib.unit, "app.jar"));
    a.stop().await;
}
