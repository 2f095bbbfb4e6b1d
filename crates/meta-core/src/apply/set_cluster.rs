//! Describe the cluster. Its identity is set once; its feature level only rises.

use bytes::Bytes;
use meta_types::{Refusal, Response};

use super::Effect;
use crate::core::{ClusterInfo, Core};

pub(super) fn apply(core: &mut Core, id: u64, name: &Bytes, feature_level: u32) -> Result<Effect, Refusal> {
    let level = match &core.cluster {
        None => feature_level,
        Some(is) if is.cluster_id == id && is.name == *name => is.feature_level.max(feature_level),
        Some(_) => return Err(Refusal::OtherCluster),
    };
    core.cluster = Some(ClusterInfo { cluster_id: id, name: name.clone(), feature_level: level });
    Ok(Effect::silent(Response::Done))
}
