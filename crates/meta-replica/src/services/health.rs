//! `grpc.health.v1`: serving once the replica may show its state.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, StreamExt};
use meta_api::pb::health::health_check_response::ServingStatus;
use meta_api::pb::health::health_server::Health;
use meta_api::pb::health::{HealthCheckRequest, HealthCheckResponse};
use tokio_stream::wrappers::WatchStream;
use tonic::{Request, Response, Status};

use crate::context::Context;

/// The health service.
#[derive(Clone)]
pub(crate) struct HealthService(pub(crate) Arc<Context>);

fn answer(serving: bool) -> HealthCheckResponse {
    let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
    HealthCheckResponse { status: status.into() }
}

#[tonic::async_trait]
impl Health for HealthService {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn check(&self, _: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        Ok(Response::new(answer(self.0.status.borrow().serving)))
    }

    async fn watch(&self, _: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let shutdown = self.0.shutdown.clone();
        let mut last = None;
        let changes = WatchStream::new(self.0.status.clone()).filter_map(move |status| {
            let changed = last.replace(status.serving) != Some(status.serving);
            std::future::ready(changed.then(|| Ok(answer(status.serving))))
        });
        Ok(Response::new(changes.take_until(shutdown.cancelled_owned()).boxed()))
    }
}
