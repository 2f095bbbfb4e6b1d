//! Revoke leases that are due, one revision for each that has keys.
//!
//! The leader that proposed this may be deposed, and a renewal may have come in between. So a lease goes only if it
//! is due at this entry's lease time and the entry was appended in the term of the leader that found it due.

use meta_types::controls::{Control, active};
use meta_types::{LeaseId, Response};

use super::{Effect, lease_revoke};
use crate::core::{Core, EntryPosition};

pub(super) fn apply(core: &mut Core, at: EntryPosition, term: u64, ids: &[LeaseId]) -> Effect {
    let mut events = Vec::new();
    // Positive control: whoever proposed it, and whatever was renewed since, it goes.
    let unconditional = active(Control::RevokeByDeposedLeader);
    if term == at.term || unconditional {
        for id in ids {
            if core.leases.is_due(*id) || (unconditional && core.leases.exists(*id)) {
                events.extend(lease_revoke::revoke(core, *id));
            }
        }
    }
    Effect::new(Response::Done, events)
}
