//! Revoke a lease: its keys go with it, sorted, in one revision.

use meta_types::{LeaseId, Refusal, Response, RevisionEvents};

use super::Effect;
use crate::core::Core;
use crate::write::Write;

pub(super) fn apply(core: &mut Core, id: LeaseId) -> Result<Effect, Refusal> {
    if !core.leases.exists(id) {
        return Err(Refusal::LeaseNotFound);
    }
    Ok(Effect::new(Response::Done, revoke(core, id)))
}

/// Removes a lease that exists, and its keys.
pub(super) fn revoke(core: &mut Core, id: LeaseId) -> Option<RevisionEvents> {
    let keys = core.leases.keys(id);
    core.leases.remove(id);
    let mut write = Write::begin(&mut core.keys, &mut core.leases);
    write.delete_keys(&keys);
    write.finish()
}
