//! Records as of one revision, read from a replica.

use meta_api::convert::{txn_reply_from_wire, txn_to_wire};
use meta_client::Snapshot;
use meta_types::{Op, OpReply, RangeRequest, Txn};
use records::{Scope, View};

use crate::{cli::Globals, exit::Failure, store::Store};

/// Reads a scope, linearizably and at one revision, from the first endpoint that can.
pub async fn load(globals: &Globals, scope: Scope) -> Result<View, Failure> {
    let mut last = None;
    for endpoint in &globals.endpoints {
        let read = async {
            let store = Store::connect_to(endpoint, globals.command_timeout).await?;
            load_from(&store, scope.clone()).await
        };
        match read.await {
            Err(failure) if failure.code == crate::exit::UNAVAILABLE => last = Some(failure),
            other => return other,
        }
    }
    Err(last.unwrap_or_else(|| Failure::usage("--endpoints is empty")))
}

/// Reads a scope from one replica.
pub async fn load_from(store: &Store, scope: Scope) -> Result<View, Failure> {
    let read = |range: &meta_types::KeyRange| {
        Op::Range(RangeRequest { range: range.clone(), ..RangeRequest::default() })
    };
    let txn = Txn { success: scope.ranges().iter().map(read).collect(), ..Txn::default() };
    let reply =
        store.kv().txn(txn_to_wire(txn)).await.map_err(|status| store.failure(&status, ""))?.into_inner();
    let revision = reply.header.as_ref().map_or(0, |header| header.revision);
    let reply = txn_reply_from_wire(reply).map_err(|error| Failure::failed(error.to_string()))?;
    let kvs = reply.replies.into_iter().flat_map(|reply| match reply {
        OpReply::Range(range) => range.kvs,
        OpReply::Put(_) | OpReply::DeleteRange(_) => Vec::new(),
    });
    Ok(Snapshot::new(revision, scope.ranges().to_vec(), kvs).into())
}
