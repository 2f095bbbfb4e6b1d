//! Forget history below a revision. It is unreadable at once; its memory is freed in steps.

use meta_types::{Refusal, Response, Revision};

use super::Effect;
use crate::core::Core;

pub(super) fn apply(core: &mut Core, revision: Revision) -> Result<Effect, Refusal> {
    core.keys.compact(revision)?;
    Ok(Effect::silent(Response::Done))
}
