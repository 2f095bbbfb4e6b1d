//! `GET /run-async`: filters, and pages that are all of one moment.

use meta_client::Kv;
use serde_json::{Value, json};

use crate::support::{Answer, Cluster};

fn ids(answer: &Answer) -> Vec<String> {
    assert_eq!(answer.status, 200, "{}", answer.text);
    let rows = answer.json.as_array().unwrap().iter();
    rows.map(|row| row["request-id"].as_str().unwrap().to_owned()).collect()
}

/// The path of the next page.
fn next(answer: &Answer) -> Option<String> {
    let link = answer.headers.get("link")?.to_str().unwrap();
    let (path, relation) = link.strip_prefix('<').unwrap().split_once('>').unwrap();
    assert_eq!(relation, "; rel=\"next\"");
    Some(path.to_owned())
}

async fn submit(cluster: &Cluster, trigger: &str, jar: &str, class: &str) {
    let body = json!({ "triggerId": trigger, "jarId": jar, "entryClass": class }).to_string();
    let answer = cluster.post(0, "/run-async", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

/// Follows the links to the end.
async fn all_pages(cluster: &Cluster, first: &str) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    let mut path = Some(first.to_owned());
    while let Some(asked) = path {
        let page = cluster.get(pages.len() % 2, &asked).await;
        pages.push(ids(&page));
        path = next(&page);
        assert!(pages.len() < 50, "it ends");
    }
    pages
}

#[tokio::test]
async fn all_pages_are_of_the_first_ones_revision() {
    let cluster = Cluster::start(2).await;
    cluster.node("n1", 1).await;
    let jar = cluster.upload().await;
    for trigger in ["a", "b", "d/x", "e"] {
        submit(&cluster, trigger, &jar, "Block").await;
    }
    let first = cluster.get(0, "/run-async?limit=2").await;
    assert_eq!(ids(&first), ["a", "b"]);
    // One comes, one goes, one ends, all behind the first page.
    submit(&cluster, "c", &jar, "Block").await;
    assert_eq!(cluster.delete(0, "/run-async/e").await.status, 200);
    assert_eq!(cluster.delete(0, "/run-async/a").await.status, 200);
    submit(&cluster, "f", &jar, "Block").await;
    let second = cluster.get(1, &next(&first).unwrap()).await;
    assert_eq!((ids(&second), next(&second)), (vec!["d/x".to_owned(), "e".to_owned()], None));
    assert_eq!(ids(&cluster.get(1, "/run-async").await), ["b", "c", "d/x", "f"], "a list of now");
    cluster.stop().await;
}

#[tokio::test]
async fn a_page_of_a_forgotten_revision_is_410_and_one_of_the_future_400() {
    let cluster = Cluster::start(1).await;
    cluster.node("n1", 0).await;
    let jar = cluster.upload().await;
    for trigger in ["a", "b"] {
        submit(&cluster, trigger, &jar, "Block").await;
    }
    let first = cluster.get(0, "/run-async?limit=1").await;
    submit(&cluster, "c", &jar, "Block").await;
    cluster.kv.compact(cluster.kv.revision()).await.unwrap();
    let gone = cluster.get(0, &next(&first).unwrap()).await;
    assert_eq!(gone.status, 410, "{}", gone.text);
    assert!(gone.error().contains("list from the beginning"), "{}", gone.text);
    let future = cluster.get(0, "/run-async?revision=1000000").await;
    assert_eq!((future.status, future.error().contains("Link")), (400, true), "{}", future.text);
    cluster.stop().await;
}

#[tokio::test]
async fn filters_count_before_the_limit_and_go_along_in_the_link() {
    let cluster = Cluster::start(2).await;
    cluster.node("n1", 9).await;
    let jar = cluster.upload().await;
    for n in 0..9 {
        let class = if n % 3 == 0 { "Block" } else { "Finish" };
        submit(&cluster, &format!("r{n}"), &jar, class).await;
        if class == "Finish" {
            cluster.completed(0, &format!("r{n}")).await;
        }
    }
    // The synchronous call's inner run is in the store, and in no list.
    cluster.post(0, &format!("/jars/{jar}/run"), r#"{"entryClass":"Finish"}"#).await;
    assert_eq!(cluster.count("/run/"), 10);
    let completed = all_pages(&cluster, "/run-async?status=COMPLETED&limit=4").await;
    assert_eq!(completed, [vec!["r1", "r2", "r4", "r5"], vec!["r7", "r8"]]);
    // A page that is exactly full is the last one.
    let waiting = all_pages(&cluster, "/run-async?status=IN_PROGRESS&limit=3").await;
    assert_eq!(waiting, [vec!["r0", "r3", "r6"]]);
    let one_by_one = all_pages(&cluster, "/run-async?limit=1").await;
    assert_eq!(one_by_one.concat(), (0..9).map(|n| format!("r{n}")).collect::<Vec<_>>());
    assert_eq!(one_by_one.len(), 9, "no empty page");
    cluster.stop().await;
}

#[tokio::test]
async fn since_is_a_time_in_either_form() {
    let cluster = Cluster::start(2).await;
    cluster.node("n1", 0).await;
    let jar = cluster.upload().await;
    for trigger in ["a", "b", "c"] {
        submit(&cluster, trigger, &jar, "Block").await;
    }
    let accepted = |run: &Answer| run.json["run"]["accepted-at"].as_u64().unwrap();
    let last = accepted(&cluster.get(0, "/run-async/c").await);
    let from_the_last = ids(&cluster.get(0, &format!("/run-async?since={last}")).await);
    assert!(from_the_last.contains(&"c".to_owned()), "at that very time counts: {from_the_last:?}");
    assert_eq!(ids(&cluster.get(0, &format!("/run-async?since={}", last + 1)).await), [""; 0]);
    let written = records::time::rfc3339(last).replace(':', "%3A");
    let pages = all_pages(&cluster, &format!("/run-async?since={written}&limit=2")).await.concat();
    assert!(pages.contains(&"c".to_owned()), "{pages:?}");
    assert_eq!(ids(&cluster.get(0, "/run-async?since=2999-01-01T00:00:00Z").await), [""; 0]);
    assert_eq!(ids(&cluster.get(0, "/run-async?since=1970-01-01T00:00:00Z").await), ["a", "b", "c"]);
    cluster.stop().await;
}

#[tokio::test]
async fn what_a_list_or_a_run_cannot_be_asked_is_refused() {
    let cluster = Cluster::start(1).await;
    for (path, says) in [
        ("/run-async?limit=0", "limit: expected a number above 0"),
        ("/run-async?limit=-1", "limit: expected a number above 0"),
        ("/run-async?status=FINISHED", "status: expected IN_PROGRESS or COMPLETED"),
        ("/run-async?since=yesterday", "since: expected a time such as"),
        ("/run-async?revision=0", "revision: expected a number above 0"),
        ("/run-async?stale=maybe", "stale: expected true or false"),
        ("/run-async?limits=7", "unknown query parameter \"limits\"; did you mean \"limit\"?"),
        ("/run-async/T?wait=soon", "wait: expected a duration such as 15s"),
        ("/run-async/T?wait=30", "wait: expected a duration such as 15s"),
        ("/run-async/T?revision=7", "needs wait=DURATION"),
        ("/run-async/T?timeout=3s", "unknown query parameter \"timeout\""),
    ] {
        let answer = cluster.get(0, path).await;
        assert_eq!(answer.status, 400, "{path}: {}", answer.text);
        assert!(answer.error().contains(says), "{path}: {}", answer.text);
    }
    let answer = cluster.delete(0, "/run-async/T?wait=3s").await;
    assert_eq!((answer.status, answer.error().contains("timeout_ms")), (400, true), "{}", answer.text);
    assert_eq!(cluster.get(0, "/run-async").await.json, Value::Array(Vec::new()));
    cluster.stop().await;
}
