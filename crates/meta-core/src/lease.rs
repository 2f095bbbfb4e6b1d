//! Leases: lease time, which lease is due when, which keys hang on which lease.

use std::collections::BTreeSet;

use bytes::Bytes;
use meta_types::limits::{MAX_LEASE_TTL_S, MIN_LEASE_TTL_S};
use meta_types::{LeaseId, Refusal};

use crate::hash::{Sum, of_lease};
use crate::tree::{Tree, Weigh};

/// One lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Lease {
    /// Seconds granted.
    pub(crate) ttl_s: i64,
    /// Lease time at which it is due.
    pub(crate) expiry_ms: u64,
}

impl Weigh for Lease {
    fn weight(&self) -> u64 {
        1
    }
}

/// A lease as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseInfo {
    /// Its id.
    pub id: LeaseId,
    /// Seconds granted.
    pub ttl_s: i64,
    /// Milliseconds of lease time until it is due; 0 if it is.
    pub remaining_ms: u64,
    /// The keys that hang on it, sorted.
    pub keys: Vec<Bytes>,
}

/// All leases, see the module.
#[derive(Clone)]
pub(crate) struct Leases {
    time_ms: u64,
    table: Tree<LeaseId, Lease>,
    due: BTreeSet<(u64, LeaseId)>,
    keys: BTreeSet<(LeaseId, Bytes)>,
    hash: Sum,
}

impl Leases {
    pub(crate) fn new() -> Self {
        Self::restore(0, Vec::new())
    }

    /// Leases read back from a checkpoint, sorted by id.
    pub(crate) fn restore(time_ms: u64, leases: Vec<(LeaseId, Lease)>) -> Self {
        let mut hash = Sum::default();
        leases.iter().for_each(|(id, lease)| hash.add(of_lease(*id, lease.ttl_s, lease.expiry_ms)));
        let due = leases.iter().map(|(id, lease)| (lease.expiry_ms, *id)).collect();
        Self { time_ms, table: Tree::from_sorted(leases.into_iter()), due, keys: BTreeSet::new(), hash }
    }

    pub(crate) fn time_ms(&self) -> u64 {
        self.time_ms
    }

    /// Lease time never goes back.
    pub(crate) fn advance(&mut self, time_ms: u64) {
        self.time_ms = self.time_ms.max(time_ms);
    }

    pub(crate) fn hash(&self) -> Sum {
        self.hash
    }

    /// The table alone: enough for a checkpoint, since the rest follows from it and from the keys.
    pub(crate) fn table(&self) -> Tree<LeaseId, Lease> {
        self.table.clone()
    }

    pub(crate) fn exists(&self, id: LeaseId) -> bool {
        self.table.get(&id).is_some()
    }

    /// Makes a lease: the seconds granted.
    pub(crate) fn grant(&mut self, id: LeaseId, ttl_s: i64) -> Result<i64, Refusal> {
        if id == 0 {
            return Err(Refusal::LeaseNotFound);
        }
        if ttl_s > MAX_LEASE_TTL_S {
            return Err(Refusal::LeaseTtlTooLarge);
        }
        if self.exists(id) {
            return Err(Refusal::LeaseExists);
        }
        let ttl_s = ttl_s.max(MIN_LEASE_TTL_S);
        self.set(id, ttl_s);
        Ok(ttl_s)
    }

    /// Gives a lease its full TTL from now: its seconds, or `None` if it does not exist.
    pub(crate) fn renew(&mut self, id: LeaseId) -> Option<i64> {
        let ttl_s = self.table.get(&id)?.ttl_s;
        self.set(id, ttl_s);
        Some(ttl_s)
    }

    fn set(&mut self, id: LeaseId, ttl_s: i64) {
        let expiry_ms = self.time_ms.saturating_add((ttl_s as u64).saturating_mul(1000));
        if let Some(old) = self.table.get(&id).copied() {
            self.forget(id, old);
        }
        self.table.alter(&id, |lease| *lease = Lease { ttl_s, expiry_ms });
        self.due.insert((expiry_ms, id));
        self.hash.add(of_lease(id, ttl_s, expiry_ms));
    }

    fn forget(&mut self, id: LeaseId, lease: Lease) {
        self.due.remove(&(lease.expiry_ms, id));
        self.hash.remove(of_lease(id, lease.ttl_s, lease.expiry_ms));
    }

    /// Takes a lease out; the keys stay attached until they are deleted.
    pub(crate) fn remove(&mut self, id: LeaseId) -> bool {
        match self.table.remove(&id) {
            Some(lease) => {
                self.forget(id, lease);
                true
            }
            None => false,
        }
    }

    pub(crate) fn is_due(&self, id: LeaseId) -> bool {
        self.table.get(&id).is_some_and(|lease| lease.expiry_ms <= self.time_ms)
    }

    /// The leases due now, the longest overdue first.
    pub(crate) fn due(&self, max: usize) -> Vec<LeaseId> {
        let due = self.due.iter().take_while(|(expiry_ms, _)| *expiry_ms <= self.time_ms);
        due.take(max).map(|(_, id)| *id).collect()
    }

    /// Moves a key from one lease to another; 0 is no lease.
    pub(crate) fn attach(&mut self, key: &Bytes, from: LeaseId, to: LeaseId) {
        if from == to {
            return;
        }
        if from != 0 {
            self.keys.remove(&(from, key.clone()));
        }
        if to != 0 {
            self.keys.insert((to, key.clone()));
        }
    }

    /// The keys of a lease, sorted.
    pub(crate) fn keys(&self, id: LeaseId) -> Vec<Bytes> {
        let keys = self.keys.range((id, Bytes::new())..).take_while(|(lease, _)| *lease == id);
        keys.map(|(_, key)| key.clone()).collect()
    }

    pub(crate) fn info(&self, id: LeaseId) -> Option<LeaseInfo> {
        let lease = self.table.get(&id)?;
        let remaining_ms = lease.expiry_ms.saturating_sub(self.time_ms);
        Some(LeaseInfo { id, ttl_s: lease.ttl_s, remaining_ms, keys: self.keys(id) })
    }

    pub(crate) fn ids(&self) -> Vec<LeaseId> {
        self.table.ascend(None).map(|(id, _)| *id).collect()
    }
}
