//! Make a lease that lives its TTL from this entry's lease time on.

use meta_types::{LeaseId, Refusal, Response};

use super::Effect;
use crate::core::Core;

pub(super) fn apply(core: &mut Core, id: LeaseId, ttl: i64) -> Result<Effect, Refusal> {
    let ttl = core.leases.grant(id, ttl)?;
    Ok(Effect::silent(Response::LeaseGrant { id, ttl }))
}
