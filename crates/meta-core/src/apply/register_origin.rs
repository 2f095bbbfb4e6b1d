//! Register the batch's origin; the member's earlier boot is retired and its commands are refused from now on.

use meta_types::{Batch, Refusal};

use crate::core::Core;

pub(super) fn apply(core: &mut Core, batch: &Batch) -> Result<(), Refusal> {
    core.dedup.register(batch.origin, batch.low_water)
}
