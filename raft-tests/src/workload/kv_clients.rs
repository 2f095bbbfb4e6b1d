//! Clients that put, delete, read and compare-and-set a few hot keys.
//!
//! Every value that is written is written by one call only, so that whoever reads it knows which call that was. A
//! call whose answer is lost is never sent again as it was: a compare-and-set goes again under the same guard and
//! with a value of its own, so that at most one of the two takes place; anything else is left alone.

use std::time::Duration;

use bytes::Bytes;
use meta_client::{Kv, KvError, Revisioned};
use meta_types::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, KeyRange, Op, PutRequest, RangeReply,
    RangeRequest, Revision, SortOrder, SortTarget, Txn, TxnReply,
};

use super::env::Client;

/// Where the keys are.
pub const PREFIX: &str = "k/";
/// How often a compare-and-set whose answer was lost goes again.
const RETRIES: usize = 3;
/// Longest value; most are short.
const LONG_VALUE: usize = 6_000;

/// How the clients go about it.
#[derive(Debug, Clone, Copy)]
pub struct KvOptions {
    /// Keys: few, so that they are hot.
    pub keys: usize,
    /// Mean pause between two calls of a client.
    pub pause: Duration,
}

/// A client of the keys.
pub struct KvClient {
    client: Client,
    options: KvOptions,
    written: u64,
}

impl KvClient {
    /// A client that has not begun.
    pub fn new(client: Client, options: KvOptions) -> Self {
        Self { client, options, written: 0 }
    }

    /// Calls until everything is over.
    pub async fn run(mut self) {
        let env = self.client.env.clone();
        env.until_over(async {
            loop {
                self.client.pause(self.options.pause).await;
                self.step().await;
            }
        })
        .await;
    }

    async fn step(&mut self) {
        match self.client.chance.below(100) {
            0..20 => self.put().await,
            20..28 => self.delete().await,
            28..55 => self.read().await,
            55..62 => self.read_old().await,
            62..82 => self.compare_and_set().await,
            82..92 => self.change_several().await,
            _ => self.read_several().await,
        }
    }

    fn key(&mut self) -> Bytes {
        format!("{PREFIX}{}", self.client.chance.below(self.options.keys)).into()
    }

    /// A value that no other call writes.
    fn value(&mut self) -> Bytes {
        self.written += 1;
        let mut value = format!("{}.{}", self.client.id, self.written);
        if self.client.chance.one_in(40) {
            value.push_str(&"x".repeat(self.client.chance.below(LONG_VALUE)));
        }
        value.into()
    }

    async fn put(&mut self) {
        let request = PutRequest {
            key: self.key(),
            value: self.value(),
            prev_kv: self.client.chance.one_in(3),
            ..PutRequest::default()
        };
        self.client.count("put");
        if let Ok(reply) = self.client.kv.put(request).await {
            self.client.env.heard_of(reply.revision);
        }
    }

    async fn delete(&mut self) {
        let range = match self.client.chance.below(8) {
            0 => KeyRange::prefix(PREFIX),
            1 => KeyRange::between(self.key(), self.key()),
            _ => KeyRange::one(self.key()),
        };
        self.client.count("delete");
        let request = DeleteRangeRequest { range, prev_kv: self.client.chance.one_in(2) };
        if let Ok(reply) = self.client.kv.delete_range(request).await {
            self.client.env.heard_of(reply.revision);
        }
    }

    async fn range(&mut self, request: RangeRequest) -> Option<Revisioned<RangeReply>> {
        let reply = self.client.kv.range(request).await.ok()?;
        self.client.env.heard_of(reply.revision);
        Some(reply)
    }

    async fn read(&mut self) {
        let single = self.client.chance.one_in(2);
        let mut request = if single { RangeRequest::get(self.key()) } else { RangeRequest::prefix(PREFIX) };
        match self.client.chance.below(10) {
            0 => request.limit = 1 + self.client.chance.below(3) as i64,
            1 => request.keys_only = true,
            2 => request.count_only = true,
            3 => (request.sort_order, request.sort_target) = (SortOrder::Descend, SortTarget::Mod),
            _ => {}
        }
        request.serializable = self.client.chance.one_in(3);
        self.client.count(if request.serializable { "read serializable" } else { "read" });
        self.range(request).await;
    }

    /// A read at a revision a little behind the newest, at it, or one that may not be there yet.
    async fn read_old(&mut self) {
        let back = self.client.chance.below(40) as Revision - 1;
        let request = RangeRequest {
            revision: (self.client.env.newest() - back).max(1),
            serializable: self.client.chance.one_in(2),
            ..RangeRequest::prefix(PREFIX)
        };
        self.client.count("read at a revision");
        self.range(request).await;
    }

    /// Reads a key, then writes it if it is still as it was read.
    async fn compare_and_set(&mut self) {
        let key = self.key();
        let Some(read) = self.range(RangeRequest::get(key.clone())).await else { return };
        let guard = match read.value.kvs.first() {
            Some(found) => Compare::unchanged(key.clone(), found.mod_revision),
            None => Compare::absent(key.clone()),
        };
        for attempt in 0..RETRIES {
            self.client.count(if attempt == 0 { "compare-and-set" } else { "compare-and-set again" });
            let txn = Txn {
                compare: vec![guard.clone()],
                success: vec![Op::put(key.clone(), self.value())],
                failure: vec![Op::get(key.clone())],
            };
            match self.txn(txn).await {
                Err(KvError::Unknown(_)) => self.client.pause(self.options.pause).await,
                Ok(reply) if reply.value.succeeded => return self.client.count("compare-and-set won"),
                Ok(_) => return self.client.count("compare-and-set lost"),
                Err(_) => return,
            }
        }
    }

    async fn txn(&mut self, txn: Txn) -> Result<Revisioned<TxnReply>, KvError> {
        let reply = self.client.kv.txn(txn).await?;
        self.client.env.heard_of(reply.revision);
        Ok(reply)
    }

    /// A transaction over several keys: moves what is under one key to another, or gives a third one a value.
    async fn change_several(&mut self) {
        let (from, to) = (self.key(), self.key());
        let other: Bytes = format!("{PREFIX}{}", self.options.keys).into();
        if from == to {
            return;
        }
        let (one, two, three) = (self.value(), self.value(), self.value());
        let compare = match self.client.chance.below(4) {
            0 => Compare::exists(from.clone()),
            1 => Compare::empty_prefix(format!("{PREFIX}none")),
            2 => self.revision_below(from.clone()),
            _ => Compare::absent(to.clone()),
        };
        let txn = Txn {
            compare: vec![compare],
            success: vec![
                Op::get(from.clone()),
                Op::delete(from),
                Op::put(to.clone(), one),
                Op::put(other.clone(), two),
                Op::Range(RangeRequest::prefix(PREFIX)),
            ],
            failure: vec![Op::Range(RangeRequest::prefix(PREFIX)), Op::put(to, three), Op::delete(other)],
        };
        self.client.count("txn");
        // Whatever came of it is in the history.
        let _ = self.txn(txn).await;
    }

    fn revision_below(&mut self, key: Bytes) -> Compare {
        let target = CompareTarget::ModRevision(self.client.env.newest());
        Compare { range: KeyRange::one(key), result: CompareResult::Less, target }
    }

    async fn read_several(&mut self) {
        let serializable = self.client.chance.one_in(4);
        let ranges = [RangeRequest::get(self.key()), RangeRequest::prefix(PREFIX)];
        let success = ranges.into_iter().map(|range| Op::Range(RangeRequest { serializable, ..range }));
        let txn = Txn { success: success.collect(), ..Txn::default() };
        self.client.count("txn that reads");
        // Whatever came of it is in the history.
        let _ = self.txn(txn).await;
    }
}

/// Compacts now and then, mostly a little behind the newest revision.
pub async fn compact(mut client: Client, every: Duration) {
    let env = client.env.clone();
    env.until_over(async {
        loop {
            client.pause(every).await;
            let back = [0, 5, 20, 60][client.chance.below(4)];
            let revision = (client.env.newest() - back).max(1);
            client.count("compact");
            // Refusals are fine: somebody asked for a later one.
            let _ = client.kv.compact(revision).await;
        }
    })
    .await;
}
