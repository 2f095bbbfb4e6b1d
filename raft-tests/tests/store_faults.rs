//! The store while all of its replicas die at once: what was acknowledged is there (P1).

use std::sync::Arc;
use std::time::Duration;

use meta_client::{EtcdKv, EtcdOptions, Kv};
use meta_types::{PutRequest, RangeRequest};
use testkit::{Cluster, ClusterOptions, eventually_async};

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_puts_survive_the_death_of_all_three_replicas() {
    let mut cluster = Cluster::start(&ClusterOptions::new(3, 0, 0));
    let kv = Arc::new(EtcdKv::connect(&cluster.endpoints, EtcdOptions::default()).expect("endpoints"));
    let mut puts = tokio::task::JoinSet::new();
    for client in 0..10 {
        let kv = kv.clone();
        puts.spawn(async move {
            for number in 0..100 {
                let key = format!("survives/{client}/{number:03}");
                let value = format!("value {client} {number}");
                kv.put(PutRequest { key: key.into(), value: value.into(), ..PutRequest::default() })
                    .await
                    .expect("the put is acknowledged");
            }
        });
    }
    while let Some(done) = puts.join_next().await {
        done.unwrap();
    }
    for name in ["replica-1", "replica-2", "replica-3"] {
        cluster.kill(name);
    }
    cluster.restart_all(&["replica-1", "replica-2", "replica-3"]);
    let kv = EtcdKv::connect(&cluster.endpoints, EtcdOptions::default()).expect("endpoints");
    let found = eventually_async(Duration::from_secs(30), "the cluster reads again", || async {
        kv.range(RangeRequest::prefix("survives/")).await.map_err(|e| e.to_string())
    })
    .await;
    assert_eq!(found.value.count, 1000);
    for kv in &found.value.kvs {
        let key = std::str::from_utf8(&kv.key).unwrap();
        let mut parts = key.split('/').skip(1);
        let (client, number) = (parts.next().unwrap(), parts.next().unwrap());
        let expected = format!("value {client} {}", number.parse::<u32>().unwrap());
        assert_eq!(kv.value, expected.as_bytes(), "{key}");
    }
}
