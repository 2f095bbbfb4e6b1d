//! Delete the live keys of a range. Deleting nothing takes no revision.

use meta_types::{DeleteRangeRequest, Response};

use super::Effect;
use crate::core::Core;
use crate::write::Write;

pub(super) fn apply(core: &mut Core, request: &DeleteRangeRequest) -> Effect {
    let mut write = Write::begin(&mut core.keys, &mut core.leases);
    let reply = write.delete_range(request);
    Effect::new(Response::DeleteRange(reply), write.finish())
}
