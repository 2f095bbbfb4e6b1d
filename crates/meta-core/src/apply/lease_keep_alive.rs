//! Renew leases: each lives its full TTL from this entry's lease time on. A lease that is due but not yet revoked
//! is renewed too: the log decides which came first.

use meta_types::{LeaseId, Response};

use super::Effect;
use crate::core::Core;

pub(super) fn apply(core: &mut Core, ids: &[LeaseId]) -> Effect {
    let ttls = ids.iter().map(|id| core.leases.renew(*id).unwrap_or(0)).collect();
    Effect::silent(Response::LeaseKeepAlive { ttls })
}
