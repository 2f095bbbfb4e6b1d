//! Lease time runs no faster than time, and a lease never has more than its time to live before it.
//!
//! Source: DESIGN section 5 "Lease time" (it advances by at most the leader's own elapsed time; minimum TTL 2 s).
//! Clocks that drift are allowed for by [`DRIFT`].

use std::time::Duration;

use meta_types::limits::MIN_LEASE_TTL_S;

use super::step::{Invariant, Step};

/// A clock may run fast by one part in so many (1 %).
const DRIFT: u32 = 100;

/// When a replica was first seen: lease time cannot have started before.
#[derive(Default)]
pub struct LeaseBounds {
    start: Option<Duration>,
    most_ms: u64,
}

impl Invariant for LeaseBounds {
    fn name(&self) -> &'static str {
        "lease-bounds"
    }

    fn check(&mut self, step: &Step<'_>, found: &mut Vec<String>) {
        if step.view.replicas.is_empty() {
            return;
        }
        let elapsed = step.view.at - *self.start.get_or_insert(step.view.at);
        let bound_ms = (elapsed + elapsed / DRIFT).as_millis() as u64 + 1;
        for replica in step.alive() {
            if replica.lease_time_ms > bound_ms && replica.lease_time_ms > self.most_ms {
                self.most_ms = replica.lease_time_ms;
                found.push(format!(
                    "{}: lease time is {} ms after {elapsed:?} of time",
                    replica.id, replica.lease_time_ms
                ));
            }
            for lease in &replica.leases {
                if lease.remaining_ms > lease.ttl_ms {
                    found.push(format!(
                        "{}: lease {} has {} ms before it, granted were {}",
                        replica.id, lease.id, lease.remaining_ms, lease.ttl_ms
                    ));
                }
                if lease.ttl_ms < MIN_LEASE_TTL_S as u64 * 1000 {
                    found.push(format!("{}: lease {} was granted {} ms", replica.id, lease.id, lease.ttl_ms));
                }
            }
        }
    }
}
