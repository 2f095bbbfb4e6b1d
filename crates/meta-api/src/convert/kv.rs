//! Keys, ranges, puts and deletes.

use std::sync::Arc;

use meta_types::{
    DeleteRangeReply, DeleteRangeRequest, KeyRange, KeyValue, PutReply, PutRequest, RangeReply, RangeRequest,
    Refusal, SortOrder, SortTarget,
};

use super::WireError;
use crate::pb::etcdserverpb as pb;
use crate::pb::etcdserverpb::range_request::{SortOrder as WireOrder, SortTarget as WireTarget};
use crate::pb::mvccpb;

/// A version of a key, to the wire.
pub fn key_value_to_wire(kv: &KeyValue) -> mvccpb::KeyValue {
    mvccpb::KeyValue {
        key: kv.key.clone(),
        create_revision: kv.create_revision,
        mod_revision: kv.mod_revision,
        version: kv.version,
        value: kv.value.clone(),
        lease: kv.lease,
    }
}

/// A version of a key, from the wire.
pub fn key_value_from_wire(kv: mvccpb::KeyValue) -> Arc<KeyValue> {
    Arc::new(KeyValue {
        key: kv.key,
        value: kv.value,
        create_revision: kv.create_revision,
        mod_revision: kv.mod_revision,
        version: kv.version,
        lease: kv.lease,
    })
}

/// A client's range. A sort order or target that does not exist is refused.
pub fn range_request_from_wire(request: pb::RangeRequest) -> Result<RangeRequest, WireError> {
    let sort_order = match WireOrder::try_from(request.sort_order) {
        Ok(WireOrder::None) => SortOrder::None,
        Ok(WireOrder::Ascend) => SortOrder::Ascend,
        Ok(WireOrder::Descend) => SortOrder::Descend,
        Err(_) => return Err(Refusal::InvalidSortOption.into()),
    };
    let sort_target = match WireTarget::try_from(request.sort_target) {
        Ok(WireTarget::Key) => SortTarget::Key,
        Ok(WireTarget::Version) => SortTarget::Version,
        Ok(WireTarget::Create) => SortTarget::Create,
        Ok(WireTarget::Mod) => SortTarget::Mod,
        Ok(WireTarget::Value) => SortTarget::Value,
        Err(_) => return Err(Refusal::InvalidSortOption.into()),
    };
    Ok(RangeRequest {
        range: KeyRange { key: request.key, end: request.range_end },
        limit: request.limit,
        revision: request.revision,
        sort_order,
        sort_target,
        serializable: request.serializable,
        keys_only: request.keys_only,
        count_only: request.count_only,
        min_mod_revision: request.min_mod_revision,
        max_mod_revision: request.max_mod_revision,
        min_create_revision: request.min_create_revision,
        max_create_revision: request.max_create_revision,
    })
}

/// A range, to the wire.
pub fn range_request_to_wire(request: RangeRequest) -> pb::RangeRequest {
    let sort_order = match request.sort_order {
        SortOrder::None => WireOrder::None,
        SortOrder::Ascend => WireOrder::Ascend,
        SortOrder::Descend => WireOrder::Descend,
    };
    let sort_target = match request.sort_target {
        SortTarget::Key => WireTarget::Key,
        SortTarget::Version => WireTarget::Version,
        SortTarget::Create => WireTarget::Create,
        SortTarget::Mod => WireTarget::Mod,
        SortTarget::Value => WireTarget::Value,
    };
    pb::RangeRequest {
        key: request.range.key,
        range_end: request.range.end,
        limit: request.limit,
        revision: request.revision,
        sort_order: sort_order.into(),
        sort_target: sort_target.into(),
        serializable: request.serializable,
        keys_only: request.keys_only,
        count_only: request.count_only,
        min_mod_revision: request.min_mod_revision,
        max_mod_revision: request.max_mod_revision,
        min_create_revision: request.min_create_revision,
        max_create_revision: request.max_create_revision,
    }
}

/// A range's answer, to the wire.
pub fn range_reply_to_wire(reply: &RangeReply, header: Option<pb::ResponseHeader>) -> pb::RangeResponse {
    pb::RangeResponse {
        header,
        kvs: reply.kvs.iter().map(|kv| key_value_to_wire(kv)).collect(),
        more: reply.more,
        count: reply.count,
    }
}

/// A range's answer, from the wire.
pub fn range_reply_from_wire(response: pb::RangeResponse) -> RangeReply {
    RangeReply {
        kvs: response.kvs.into_iter().map(key_value_from_wire).collect(),
        more: response.more,
        count: response.count,
    }
}

/// A client's put.
pub fn put_request_from_wire(request: pb::PutRequest) -> PutRequest {
    PutRequest {
        key: request.key,
        value: request.value,
        lease: request.lease,
        prev_kv: request.prev_kv,
        ignore_value: request.ignore_value,
        ignore_lease: request.ignore_lease,
    }
}

/// A put, to the wire.
pub fn put_request_to_wire(request: PutRequest) -> pb::PutRequest {
    pb::PutRequest {
        key: request.key,
        value: request.value,
        lease: request.lease,
        prev_kv: request.prev_kv,
        ignore_value: request.ignore_value,
        ignore_lease: request.ignore_lease,
    }
}

/// A put's answer, to the wire.
pub fn put_reply_to_wire(reply: &PutReply, header: Option<pb::ResponseHeader>) -> pb::PutResponse {
    pb::PutResponse { header, prev_kv: reply.prev_kv.as_deref().map(key_value_to_wire) }
}

/// A put's answer, from the wire.
pub fn put_reply_from_wire(response: pb::PutResponse) -> PutReply {
    PutReply { prev_kv: response.prev_kv.map(key_value_from_wire) }
}

/// A client's delete.
pub fn delete_request_from_wire(request: pb::DeleteRangeRequest) -> DeleteRangeRequest {
    DeleteRangeRequest {
        range: KeyRange { key: request.key, end: request.range_end },
        prev_kv: request.prev_kv,
    }
}

/// A delete, to the wire.
pub fn delete_request_to_wire(request: DeleteRangeRequest) -> pb::DeleteRangeRequest {
    pb::DeleteRangeRequest { key: request.range.key, range_end: request.range.end, prev_kv: request.prev_kv }
}

/// A delete's answer, to the wire.
pub fn delete_reply_to_wire(
    reply: &DeleteRangeReply,
    header: Option<pb::ResponseHeader>,
) -> pb::DeleteRangeResponse {
    pb::DeleteRangeResponse {
        header,
        deleted: reply.deleted,
        prev_kvs: reply.prev_kvs.iter().map(|kv| key_value_to_wire(kv)).collect(),
    }
}

/// A delete's answer, from the wire.
pub fn delete_reply_from_wire(response: pb::DeleteRangeResponse) -> DeleteRangeReply {
    DeleteRangeReply {
        deleted: response.deleted,
        prev_kvs: response.prev_kvs.into_iter().map(key_value_from_wire).collect(),
    }
}
