//! Leases of the naive model.

use std::collections::BTreeMap;

use meta_types::limits::{MAX_LEASE_TTL_S, MIN_LEASE_TTL_S};
use meta_types::{LeaseId, Refusal};

/// A lease that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Seconds granted.
    pub ttl_s: i64,
    /// Lease time at which it is due.
    pub due_ms: u64,
}

/// Lease time and all leases.
#[derive(Debug, Clone, Default)]
pub struct Leases {
    now_ms: u64,
    standing: BTreeMap<LeaseId, Standing>,
}

impl Leases {
    /// Lease time.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// A lease, if it exists.
    pub fn standing(&self, id: LeaseId) -> Option<Standing> {
        self.standing.get(&id).copied()
    }

    pub(super) fn pass(&mut self, to_ms: u64) {
        if to_ms > self.now_ms {
            self.now_ms = to_ms;
        }
    }

    pub(super) fn grant(&mut self, id: LeaseId, ttl_s: i64) -> Result<i64, Refusal> {
        if self.standing.contains_key(&id) {
            return Err(Refusal::LeaseExists);
        }
        if id == 0 {
            return Err(Refusal::LeaseNotFound);
        }
        if ttl_s > MAX_LEASE_TTL_S {
            return Err(Refusal::LeaseTtlTooLarge);
        }
        let ttl_s = if ttl_s < MIN_LEASE_TTL_S { MIN_LEASE_TTL_S } else { ttl_s };
        self.standing.insert(id, Standing { ttl_s, due_ms: self.now_ms + 1000 * ttl_s as u64 });
        Ok(ttl_s)
    }

    /// The seconds it lives from now on; 0 if there is no such lease.
    pub(super) fn renew(&mut self, id: LeaseId) -> i64 {
        match self.standing.get_mut(&id) {
            Some(lease) => {
                lease.due_ms = self.now_ms + 1000 * lease.ttl_s as u64;
                lease.ttl_s
            }
            None => 0,
        }
    }

    pub(super) fn is_due(&self, id: LeaseId) -> bool {
        self.standing.get(&id).is_some_and(|lease| self.now_ms >= lease.due_ms)
    }

    pub(super) fn remove(&mut self, id: LeaseId) {
        self.standing.remove(&id);
    }
}
