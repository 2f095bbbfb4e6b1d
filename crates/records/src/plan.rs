//! What a planner answers: a guarded transaction and what to say when it took place.

use std::fmt;

use meta_client::{Commit, Kv, KvError, Record, Stored, TypedKey, commit};
use meta_types::{Compare, CompareResult, CompareTarget, KeyRange, LeaseId, Op, Revision, Txn};
use thiserror::Error;

use crate::refusal::Refusal;
use crate::view::{Scope, View};

/// How often a plan is made anew because a guard failed.
pub const MAX_REPLANS: u32 = 32;

/// A guarded transaction and the answer if it takes place. Empty = nothing to write, the answer stands as it is.
pub struct Plan<T> {
    txn: Txn,
    answer: Box<dyn FnOnce(Revision) -> T + Send>,
}

impl<T> fmt::Debug for Plan<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan").field("txn", &self.txn).finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Plan<T> {
    /// Nothing to write: the view already says so.
    pub fn already(answer: T) -> Self {
        Self { txn: Txn::default(), answer: Box::new(move |_| answer) }
    }
}

impl<T> Plan<T> {
    /// The transaction.
    pub fn txn(&self) -> &Txn {
        &self.txn
    }

    /// True if there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.txn.success.is_empty()
    }

    /// The answer, once the transaction took place at `revision` (for an empty plan: the view's revision).
    pub fn answer(self, revision: Revision) -> T {
        (self.answer)(revision)
    }

    /// The same plan with another answer.
    pub fn map<U>(self, change: impl FnOnce(T) -> U + Send + 'static) -> Plan<U>
    where
        T: 'static,
    {
        let answer = self.answer;
        Plan { txn: self.txn, answer: Box::new(move |revision| change(answer(revision))) }
    }
}

/// Builds a guarded transaction.
#[derive(Debug, Default)]
pub struct Steps {
    txn: Txn,
}

impl Steps {
    /// Starts with nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Guard: the key is absent.
    pub fn absent<K: TypedKey>(mut self, key: &K) -> Self {
        self.txn.compare.push(Compare::absent(key.encode()));
        self
    }

    /// Guard: the record is the one that was read.
    pub fn unchanged<K: TypedKey>(mut self, key: &K, read: &Stored<K::Value>) -> Self {
        self.txn.compare.push(Compare::unchanged(key.encode(), read.mod_revision));
        self
    }

    /// Guard: the key is as it was read, there or not.
    pub fn as_read<K: TypedKey>(self, key: &K, read: Option<&Stored<K::Value>>) -> Self {
        match read {
            Some(read) => self.unchanged(key, read),
            None => self.absent(key),
        }
    }

    /// Guard: this generation of the key still stands (an epoch, an incarnation).
    pub fn stands<K: TypedKey>(mut self, key: &K, generation: Revision) -> Self {
        self.txn.compare.push(Compare::created_at(key.encode(), generation));
        self
    }

    /// Guard: this generation of the key is gone.
    pub fn gone<K: TypedKey>(mut self, key: &K, generation: Revision) -> Self {
        self.txn.compare.push(Compare::not_created_at(key.encode(), generation));
        self
    }

    /// Guard: no key starts with the prefix.
    pub fn empty(mut self, prefix: &str) -> Self {
        self.txn.compare.push(Compare::empty_prefix(prefix.to_owned()));
        self
    }

    /// Guard: no key starts with the prefix, `except` aside.
    pub fn empty_except(mut self, prefix: &str, except: &str) -> Self {
        let end = meta_types::kv::prefix_end(prefix.as_bytes());
        for range in [
            KeyRange::between(prefix.to_owned(), except.to_owned()),
            KeyRange::between(format!("{except}\0"), end),
        ] {
            let target = CompareTarget::CreateRevision(0);
            self.txn.compare.push(Compare { range, result: CompareResult::Equal, target });
        }
        self
    }

    /// Effect: put the record.
    pub fn put<K: TypedKey>(self, key: &K, record: &K::Value) -> Self {
        self.put_leased(key, record, 0)
    }

    /// Effect: put the record on a lease.
    pub fn put_leased<K: TypedKey>(mut self, key: &K, record: &K::Value, lease: LeaseId) -> Self {
        let value = meta_client::record::to_bytes(record);
        self.txn.success.push(Op::put_leased(key.encode(), value, lease));
        self
    }

    /// Effect: delete the key.
    pub fn delete<K: TypedKey>(mut self, key: &K) -> Self {
        self.txn.success.push(Op::delete(key.encode()));
        self
    }

    /// Effect: delete every key with the prefix.
    pub fn delete_prefix(mut self, prefix: &str) -> Self {
        let range = KeyRange::prefix(prefix.to_owned());
        self.txn.success.push(Op::DeleteRange(meta_types::DeleteRangeRequest { range, prev_kv: false }));
        self
    }

    /// Applies `change` if `condition`.
    pub fn when(self, condition: bool, change: impl FnOnce(Self) -> Self) -> Self {
        if condition { change(self) } else { self }
    }

    /// The plan with a fixed answer.
    pub fn answer<T: Send + 'static>(self, answer: T) -> Plan<T> {
        self.answer_at(move |_| answer)
    }

    /// The plan whose answer needs the revision it takes place at.
    pub fn answer_at<T>(self, answer: impl FnOnce(Revision) -> T + Send + 'static) -> Plan<T> {
        Plan { txn: self.txn, answer: Box::new(answer) }
    }
}

/// Puts a record under a key, keeping the lease it hangs on.
pub fn put_kept<K: TypedKey>(steps: Steps, key: &K, read: &Stored<K::Value>, record: &K::Value) -> Steps
where
    K::Value: Record,
{
    steps.put_leased(key, record, read.lease)
}

/// Why something was not carried out.
#[derive(Debug, Clone, Error)]
pub enum Failure {
    /// The planner said no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The store did not take it; its error knows whether it may have been carried out.
    #[error(transparent)]
    Store(#[from] KvError),
    /// Others were faster, again and again.
    #[error("gave up after {MAX_REPLANS} tries: others kept changing the same records")]
    Contended,
}

/// An answer and the revision it holds at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carried<T> {
    /// The plan's answer.
    pub answer: T,
    /// The revision of its transaction, or of the view if there was nothing to write.
    pub revision: Revision,
    /// False if there was nothing to write.
    pub wrote: bool,
}

/// Loads the scope, plans, commits; plans anew on a fresh view while guards fail.
pub async fn carry_out<T: Send>(
    kv: &dyn Kv,
    scope: &Scope,
    planner: impl Fn(&View) -> Result<Plan<T>, Refusal> + Send + Sync,
) -> Result<Carried<T>, Failure> {
    for _ in 0..MAX_REPLANS {
        let view = View::load(kv, scope.clone()).await?;
        let plan = planner(&view)?;
        if plan.is_empty() {
            let revision = view.revision();
            return Ok(Carried { answer: plan.answer(revision), revision, wrote: false });
        }
        if let Commit::Done(revision) = commit(kv, plan.txn(), view.revision()).await? {
            return Ok(Carried { answer: plan.answer(revision), revision, wrote: true });
        }
    }
    Err(Failure::Contended)
}
