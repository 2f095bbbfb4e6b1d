//! Lost answers, lost dispatchers, lost nodes: what was accepted happens once, and nothing waits for ever.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use meta_client::mem::MemKv;
use meta_client::{Kv, KvError, LeaseGranted, Revisioned, WatchRequest, Watcher};
use meta_types::{
    DeleteRangeReply, DeleteRangeRequest, LeaseId, PutReply, PutRequest, RangeReply, RangeRequest, Revision,
    Txn, TxnReply,
};
use serde_json::json;
use support::Cluster;

/// What happens to the answer of a transaction that writes.
#[derive(Clone, Copy, PartialEq)]
enum Loss {
    /// Carried out, the answer is lost.
    Answer,
    /// Never sent.
    Request,
}

/// A store whose next answers to writing transactions on `/run/` are lost.
#[derive(Clone)]
struct Lossy {
    kv: MemKv,
    loss: Loss,
    left: Arc<AtomicU32>,
}

impl Lossy {
    fn new(kv: MemKv, loss: Loss) -> Self {
        Self { kv, loss, left: Arc::default() }
    }

    fn lose(&self, answers: u32) {
        self.left.store(answers, Ordering::SeqCst);
    }

    fn is_lost(&self, txn: &Txn) -> bool {
        let admits = txn
            .success
            .iter()
            .any(|op| matches!(op, meta_types::Op::Put(put) if put.key.starts_with(b"/run/")));
        admits
            && self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
    }
}

#[async_trait]
impl Kv for Lossy {
    async fn range(&self, request: RangeRequest) -> Result<Revisioned<RangeReply>, KvError> {
        self.kv.range(request).await
    }
    async fn put(&self, request: PutRequest) -> Result<Revisioned<PutReply>, KvError> {
        self.kv.put(request).await
    }
    async fn delete_range(
        &self,
        request: DeleteRangeRequest,
    ) -> Result<Revisioned<DeleteRangeReply>, KvError> {
        self.kv.delete_range(request).await
    }
    async fn txn(&self, txn: Txn) -> Result<Revisioned<TxnReply>, KvError> {
        if !self.is_lost(&txn) {
            return self.kv.txn(txn).await;
        }
        match self.loss {
            Loss::Answer => {
                self.kv.txn(txn).await?;
                Err(KvError::Unknown("the answer was lost".into()))
            }
            Loss::Request => Err(KvError::NotSent("no leader".into())),
        }
    }
    async fn compact(&self, revision: Revision) -> Result<(), KvError> {
        self.kv.compact(revision).await
    }
    async fn lease_grant(&self, id: LeaseId, ttl: Duration) -> Result<LeaseGranted, KvError> {
        self.kv.lease_grant(id, ttl).await
    }
    async fn lease_keep_alive(&self, id: LeaseId) -> Result<Option<Duration>, KvError> {
        self.kv.lease_keep_alive(id).await
    }
    async fn lease_revoke(&self, id: LeaseId) -> Result<(), KvError> {
        self.kv.lease_revoke(id).await
    }
    async fn lease_time_to_live(&self, id: LeaseId) -> Result<Option<Duration>, KvError> {
        self.kv.lease_time_to_live(id).await
    }
    async fn watch(&self, request: WatchRequest) -> Result<Watcher, KvError> {
        self.kv.watch(request).await
    }
}

/// Two dispatchers: the first sees the store through a lossy wire.
async fn lossy_cluster(loss: Loss) -> (Cluster, Lossy) {
    let mut cluster = Cluster::start(0).await;
    let lossy = Lossy::new(cluster.kv.clone(), loss);
    cluster.add_dispatcher(Arc::new(lossy.clone())).await;
    let clear = cluster.kv.clone();
    cluster.add_dispatcher(Arc::new(clear)).await;
    (cluster, lossy)
}

#[tokio::test]
async fn a_lost_answer_of_the_admission_is_found_by_reading_back() {
    let (cluster, lossy) = lossy_cluster(Loss::Answer).await;
    let node = cluster.node("n1", 2).await;
    let jar = cluster.upload().await;
    let body = json!({ "triggerId": "T1", "jarId": jar }).to_string();
    lossy.lose(1);
    let answer = cluster.post(0, "/run-async", &body).await;
    assert_eq!((answer.status, answer.text.as_str()), (200, r#"{"request-id":"T1"}"#));
    cluster.completed(1, "T1").await;
    assert_eq!(node.starts(), 1);
    cluster.stop().await;
}

#[tokio::test]
async fn an_outcome_nobody_can_find_is_said_to_be_unknown() {
    let (cluster, lossy) = lossy_cluster(Loss::Answer).await;
    let node = cluster.node("n1", 2).await;
    let jar = cluster.upload().await;
    let body = json!({ "triggerId": "T1", "jarId": jar }).to_string();
    lossy.lose(u32::MAX);
    let answer = cluster.post(0, "/run-async", &body).await;
    assert_eq!(answer.status, 503);
    assert!(answer.error().contains("may have been accepted; ask GET /run-async/T1"), "{}", answer.text);
    assert!(answer.headers.contains_key("retry-after"));
    lossy.lose(0);
    // It was accepted, as asking tells; a retry anywhere gets the answer and makes no second job.
    assert_eq!(cluster.get(0, "/run-async/T1").await.status, 200);
    assert_eq!(cluster.post(1, "/run-async", &body).await.text, r#"{"request-id":"T1"}"#);
    cluster.completed(1, "T1").await;
    assert_eq!(node.starts(), 1);
    cluster.stop().await;
}

#[tokio::test]
async fn a_store_without_a_leader_is_503_and_nothing_was_done() {
    let (cluster, lossy) = lossy_cluster(Loss::Request).await;
    cluster.node("n1", 2).await;
    let jar = cluster.upload().await;
    lossy.lose(u32::MAX);
    let answer = cluster.post(0, "/run-async", &json!({ "triggerId": "T1", "jarId": jar }).to_string()).await;
    assert_eq!(answer.status, 503);
    assert!(!answer.error().contains("may have been"), "{}", answer.text);
    assert_eq!(cluster.get(1, "/run-async/T1").await.status, 404);
    cluster.stop().await;
}

#[tokio::test]
async fn the_run_of_a_dead_dispatcher_is_adopted_and_completed() {
    let cluster = Cluster::start(2).await;
    let node = cluster.node("n1", 0).await;
    let jar = cluster.upload().await;
    let body = json!({ "triggerId": "T1", "jarId": jar }).to_string();
    assert_eq!(cluster.post(0, "/run-async", &body).await.status, 200);
    let owner = || async {
        let run = cluster.get(1, "/run-async/T1").await;
        run.json["run"]["owner"].as_str().map(str::to_owned)
    };
    assert_eq!(owner().await.as_deref(), Some("d1"));
    // It dies: its lease runs out. As it is still there it registers anew, as another incarnation.
    let session = cluster.dispatchers[0].session.borrow().clone().unwrap();
    assert!(cluster.kv.revoke(session.lease));
    cluster.until(|| async { owner().await.map(|_| ()) }).await;
    cluster.node("n2", 1).await;
    let done = cluster.completed(1, "T1").await;
    assert!(done.json["operation"]["jobid"].is_string(), "{}", done.text);
    assert_eq!((node.starts(), cluster.count("/run-owner/")), (0, 0));
    cluster.stop().await;
}

#[tokio::test]
async fn the_job_of_a_dead_node_moves_to_the_next_attempt() {
    let cluster = Cluster::start(2).await;
    let first = cluster.node("n1", 1).await;
    let jar = cluster.upload().await;
    let body = json!({ "triggerId": "T1", "jarId": jar, "entryClass": "Forever" }).to_string();
    cluster.post(0, "/run-async", &body).await;
    cluster.completed(0, "T1").await;
    let once = json!({
        "triggerId": "T2", "jarId": jar, "entryClass": "Forever", "flinkConfiguration": { "restart-strategy.type": "none" },
    });
    let second = cluster.node("n2", 2).await;
    first.die();
    cluster.until(|| async { (second.starts() == 1).then_some(()) }).await;
    let run = cluster.get(1, "/run-async/T1").await;
    assert_eq!((&run.json["run"]["attempts"], &run.json["run"]["job-node"]), (&json!(2), &json!("n2")));
    // With restart strategy none it is not started again.
    cluster.post(0, "/run-async", &once.to_string()).await;
    let job = cluster.completed(0, "T2").await.json["operation"]["jobid"].as_str().unwrap().to_owned();
    let third = cluster.node("n3", 2).await;
    second.die();
    cluster
        .until(|| async {
            let result = cluster.get(0, &format!("/jobs/{job}/execution-result")).await;
            (result.json["job-execution-result"]["failure-cause"]["class"] == "OWNER_LOST").then_some(())
        })
        .await;
    cluster.until(|| async { (third.starts() == 1).then_some(()) }).await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_node_that_does_not_claim_loses_the_job_to_another() {
    let cluster = Cluster::start(1).await;
    let deaf = cluster.deaf_node("deaf", 8).await;
    let jar = cluster.upload().await;
    cluster.post(0, "/run-async", &json!({ "triggerId": "T1", "jarId": jar }).to_string()).await;
    cluster
        .until(|| async {
            let run = cluster.get(0, "/run-async/T1").await;
            (run.json["run"]["phase"] == "STAGING").then_some(())
        })
        .await;
    let node = cluster.node("n1", 1).await;
    cluster.completed(0, "T1").await;
    assert_eq!((deaf.starts(), node.starts()), (0, 1));
    cluster.stop().await;
}

#[tokio::test]
async fn a_client_that_hangs_up_changes_nothing() {
    let cluster = Cluster::start(1).await;
    let node = cluster.node("n1", 1).await;
    let jar = cluster.upload().await;
    let path = format!("/jars/{jar}/run");
    let impatient = cluster.post(0, &path, r#"{"entryClass":"Block"}"#);
    assert!(tokio::time::timeout(Duration::from_millis(200), impatient).await.is_err());
    cluster.until(|| async { (node.starts() == 1).then_some(()) }).await;
    assert_eq!(cluster.count("/job/"), 1);
    cluster.stop().await;
}

/// Read your writes across dispatchers: a run is seen everywhere as soon as its POST is answered.
#[tokio::test]
async fn a_run_is_seen_by_the_other_dispatcher_at_once() {
    let cluster = Cluster::start(2).await;
    cluster.node("n1", 0).await;
    let jar = cluster.upload().await;
    for i in 0..200 {
        let trigger = format!("T{i}");
        let body = json!({ "triggerId": trigger, "jarId": jar }).to_string();
        assert_eq!(cluster.post(i % 2, "/run-async", &body).await.status, 200);
        assert_eq!(cluster.get((i + 1) % 2, &format!("/run-async/{trigger}")).await.status, 200);
    }
    cluster.stop().await;
}
