//! What a run leaves behind: its details for one retention, its outcome and its id for another.

use std::sync::Arc;
use std::time::Duration;

use dispatcher::DispatcherOptions;
use futures_util::future::join_all;
use serde_json::json;

use crate::support::Cluster;

const HOUR: Duration = Duration::from_secs(3600);

/// Two dispatchers that keep details for 2 s and ids for 4 s. A lease serves what ends within as long again, and the
/// clock of the store is moved by the test, so that the leases of processes (15 s) stay.
async fn short() -> Cluster {
    let mut cluster = Cluster::start(0).await;
    for _ in 0..2 {
        let kv = Arc::new(cluster.kv.clone());
        let change = |options: &mut DispatcherOptions| {
            options.run_retention = Duration::from_secs(2);
            options.token_retention = Duration::from_secs(4);
        };
        cluster.add_dispatcher_with(kv, change).await;
    }
    cluster
}

#[test]
fn details_are_kept_for_a_day_and_ids_for_a_week_and_never_the_other_way_round() {
    let options = DispatcherOptions::default();
    assert_eq!((options.run_retention, options.token_retention), (24 * HOUR, 7 * 24 * HOUR));
    assert_eq!(options.check(), Ok(()));
    for (run, token, is_fine) in [(2, 1, false), (0, 1, false), (1, 1, true), (2, 0, true), (0, 0, true)] {
        let retention = |hours| HOUR * hours;
        let (run_retention, token_retention) = (retention(run), retention(token));
        let options = DispatcherOptions { run_retention, token_retention, ..DispatcherOptions::default() };
        assert_eq!(options.check().is_ok(), is_fine, "{run} {token}");
    }
}

/// The whole life of an id: details, then 410 with the outcome, then nothing. Retries are answered as long as it lives.
#[tokio::test]
async fn when_the_details_are_gone_the_outcome_and_its_time_are_still_told() {
    let cluster = short().await;
    cluster.node("n1", 2).await;
    let jar = cluster.upload().await;
    let body = |class: &str| json!({ "triggerId": class, "jarId": jar, "entryClass": class }).to_string();
    for class in ["Finish", "Throw"] {
        cluster.post(0, "/run-async", &body(class)).await;
    }
    let (finished, thrown) = (cluster.completed(0, "Finish").await, cluster.completed(1, "Throw").await);
    cluster.kv.advance(Duration::from_secs(5));
    assert_eq!(cluster.count("/run/"), 0, "the details are gone");

    let job = finished.json["operation"]["jobid"].as_str().unwrap();
    let at = records::time::rfc3339(finished.json["run"]["completed-at"].as_u64().unwrap());
    let gone = cluster.get(1, "/run-async/Finish").await;
    assert_eq!(gone.status, 410, "{}", gone.text);
    let says = format!("run \"Finish\" was completed at {at}: job {job} was created");
    assert!(gone.error().starts_with(&says), "{}", gone.text);
    assert_eq!(gone.json["operation"], finished.json["operation"]);
    assert_eq!(gone.json["run"]["completed-at"], finished.json["run"]["completed-at"]);
    let gone = cluster.get(0, "/run-async/Throw?wait=60s").await;
    assert_eq!((gone.status, &gone.json["operation"]), (410, &thrown.json["operation"]), "{}", gone.text);
    assert!(gone.error().contains("no job was created: MAIN_FAILED: exit code 1"), "{}", gone.text);
    assert_eq!(cluster.get(0, "/run-async").await.json, json!([]));

    // A retry finds the first answer; a different request is refused with what the id was used for.
    let again = cluster.post(1, "/run-async", &body("Finish")).await;
    assert_eq!((again.status, again.text.as_str()), (200, r#"{"request-id":"Finish"}"#));
    assert_eq!(again.headers["idempotency-replayed"], "true");
    let other = json!({ "triggerId": "Finish", "jarId": jar, "entryClass": "Other" }).to_string();
    let refused = cluster.post(1, "/run-async", &other).await;
    assert_eq!(refused.status, 409);
    assert!(refused.error().contains("that d1 took at 20"), "{}", refused.text);
    assert!(refused.error().ends_with("these fields differ: entryClass"), "{}", refused.text);

    // Deleted, it is refused at all.
    assert_eq!(cluster.delete(1, "/run-async/Throw").await.status, 200);
    let deleted = cluster.get(0, "/run-async/Throw").await;
    assert_eq!(
        (deleted.status, deleted.error().contains("it was deleted at 20")),
        (404, true),
        "{}",
        deleted.text
    );
    let refused = cluster.post(0, "/run-async", &body("Throw")).await;
    assert_eq!(
        (refused.status, refused.error().contains("was deleted at 20")),
        (409, true),
        "{}",
        refused.text
    );

    // Past its own retention the id is as good as new.
    cluster.kv.advance(Duration::from_secs(8));
    assert_eq!(cluster.count("/run-token/"), 0);
    assert_eq!(cluster.get(0, "/run-async/Finish").await.status, 404);
    let anew = cluster.post(0, "/run-async", &body("Finish")).await;
    assert_eq!(
        (anew.status, anew.headers.contains_key("idempotency-replayed")),
        (200, false),
        "{}",
        anew.text
    );
    let second = cluster.get(0, "/run-async/Finish").await;
    assert_ne!(second.json["run"]["jobid"], json!(job));
    cluster.stop().await;
}

/// Asked all the time while the store forgets: 200 until then, 410 from then on, and never that there was no such run.
#[tokio::test]
async fn nobody_is_told_that_there_was_no_run_while_details_go_under_load() {
    let cluster = short().await;
    cluster.node("n1", 4).await;
    let jar = cluster.upload().await;
    let triggers: Vec<String> = (0..20).map(|n| format!("T{n}")).collect();
    for trigger in &triggers {
        let body = json!({ "triggerId": trigger, "jarId": jar, "entryClass": "Finish" }).to_string();
        cluster.post(0, "/run-async", &body).await;
    }
    for trigger in &triggers {
        cluster.completed(0, trigger).await;
    }
    let ask = |trigger: String| {
        let cluster = &cluster;
        async move {
            let mut told = Vec::new();
            while told.last() != Some(&410) {
                let answer = cluster.get(told.len() % 2, &format!("/run-async/{trigger}")).await;
                told.push(answer.status);
                assert!([200, 410].contains(&answer.status), "{}", answer.text);
                if told.len() == 5 {
                    // Every asker is in the middle of it. One lease after the other goes.
                    cluster.kv.advance(Duration::from_millis(250));
                }
                tokio::task::yield_now().await;
            }
            told.len()
        }
    };
    let asked = tokio::time::timeout(crate::support::PATIENCE, join_all(triggers.into_iter().map(ask)));
    let asked = asked.await.expect("all of them go");
    assert!(asked.iter().all(|times| *times > 1), "its details were told before: {asked:?}");
    cluster.stop().await;
}
