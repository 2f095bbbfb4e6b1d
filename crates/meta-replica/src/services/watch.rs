//! The Watch service: opens a stream at the hub.

use std::sync::Arc;

use meta_api::pb::etcdserverpb as pb;
use meta_api::pb::etcdserverpb::watch_server::Watch;
use tonic::{Request, Response, Status, Streaming};

use crate::call::requires_leader;
use crate::context::Context;
use crate::watch::{Responses, serve};

/// The Watch service.
#[derive(Clone)]
pub(crate) struct WatchService(pub(crate) Arc<Context>);

#[tonic::async_trait]
impl Watch for WatchService {
    type WatchStream = Responses;

    async fn watch(
        &self,
        request: Request<Streaming<pb::WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let deadline = self.0.admit(&request)?;
        self.0.serving(&deadline).await?;
        let required = requires_leader(request.metadata());
        Ok(Response::new(serve(self.0.stream_env(), request.into_inner(), required)))
    }
}
