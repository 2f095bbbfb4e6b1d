//! Put one key.

use meta_types::{PutRequest, Refusal, Response};

use super::Effect;
use crate::core::Core;
use crate::write::{Write, check_ignored, check_lease};

pub(super) fn apply(core: &mut Core, request: &PutRequest) -> Result<Effect, Refusal> {
    check_lease(&core.leases, request)?;
    check_ignored(&core.keys, request)?;
    let mut write = Write::begin(&mut core.keys, &mut core.leases);
    let reply = write.put(request);
    Ok(Effect::new(Response::Put(reply), write.finish()))
}
