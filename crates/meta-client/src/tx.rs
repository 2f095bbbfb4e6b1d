//! Small transactions in code: reading arms the guard, the closure runs again on a conflict.
//!
//! Every key that was read is compared at the end, so the transaction takes place only if all reads still hold; they
//! need not have been of one revision. For what dispatchers and nodes do there are planners (crate `records`); this is
//! for tools and tests.

use std::collections::BTreeMap;

use meta_types::{Compare, Op, RangeRequest, Revision, Txn};

use crate::commit::{Commit, commit};
use crate::key::{Stored, TypedKey};
use crate::kv::{Kv, KvError};
use crate::record::{RecordError, to_bytes};
use thiserror::Error;

/// How often a closure is run before others are too fast for it.
pub const MAX_RUNS: u32 = 16;

/// Why a transaction did not take place.
#[derive(Debug, Error)]
pub enum TxError<E> {
    /// The store did not take it; its error knows whether it may have been carried out.
    #[error(transparent)]
    Store(#[from] KvError),
    /// A record cannot be read.
    #[error("{key}: {error}")]
    Record {
        /// Its key.
        key: String,
        /// Why.
        error: RecordError,
    },
    /// The closure said no.
    #[error("{0}")]
    Refused(E),
    /// Others kept changing the same keys.
    #[error("gave up after {MAX_RUNS} tries: others kept changing the same keys")]
    Contended,
}

/// One run of a transaction.
pub struct Tx<'a> {
    kv: &'a dyn Kv,
    guards: BTreeMap<String, Revision>,
    writes: BTreeMap<String, Op>,
    read_at: Revision,
}

impl Tx<'_> {
    /// Reads a record; from now on the transaction depends on it.
    pub async fn get<K: TypedKey, E>(&mut self, key: &K) -> Result<Option<Stored<K::Value>>, TxError<E>> {
        let text = key.encode();
        let reply = self.kv.range(RangeRequest::get(text.clone())).await?;
        let found = reply.value.kvs.first();
        self.read_at = self.read_at.max(reply.revision);
        self.guards.entry(text.clone()).or_insert_with(|| found.map_or(0, |kv| kv.mod_revision));
        found.map(|kv| Stored::read(kv)).transpose().map_err(|error| TxError::Record { key: text, error })
    }

    /// Writes a record at the end. A key that was not read is written whatever lies there.
    pub fn put<K: TypedKey>(&mut self, key: &K, record: &K::Value) {
        let text = key.encode();
        self.writes.insert(text.clone(), Op::put(text, to_bytes(record)));
    }

    /// Deletes a key at the end.
    pub fn delete<K: TypedKey>(&mut self, key: &K) {
        let text = key.encode();
        self.writes.insert(text.clone(), Op::delete(text));
    }
}

/// Runs the closure until its reads still hold when its writes take place.
pub async fn transact<T, E>(
    kv: &dyn Kv,
    mut body: impl AsyncFnMut(&mut Tx<'_>) -> Result<T, TxError<E>>,
) -> Result<T, TxError<E>> {
    for _ in 0..MAX_RUNS {
        let mut tx = Tx { kv, guards: BTreeMap::new(), writes: BTreeMap::new(), read_at: 0 };
        let answer = body(&mut tx).await?;
        if tx.writes.is_empty() {
            return Ok(answer);
        }
        let compare = tx.guards.iter().map(|(key, at)| Compare::unchanged(key.clone(), *at)).collect();
        let txn = Txn { compare, success: tx.writes.into_values().collect(), failure: vec![] };
        if let Commit::Done(_) = commit(kv, &txn, tx.read_at).await? {
            return Ok(answer);
        }
    }
    Err(TxError::Contended)
}
