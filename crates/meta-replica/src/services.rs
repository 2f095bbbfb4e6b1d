//! The gRPC services, one file each. They turn messages into commands and reads, and answers into messages.

mod cluster;
mod health;
mod kv;
mod lease;
mod maintenance;
mod watch;

use std::sync::Arc;

use meta_api::pb::etcdserverpb::cluster_server::ClusterServer;
use meta_api::pb::etcdserverpb::kv_server::KvServer;
use meta_api::pb::etcdserverpb::lease_server::LeaseServer;
use meta_api::pb::etcdserverpb::maintenance_server::MaintenanceServer;
use meta_api::pb::etcdserverpb::watch_server::WatchServer;
use meta_api::pb::health::health_server::HealthServer;
use meta_types::limits::MAX_GRPC_MESSAGE_BYTES;
use tonic::service::Routes;

use crate::context::Context;

/// All services as routes.
pub(crate) fn routes(context: &Arc<Context>) -> Routes {
    let kv = KvServer::new(kv::KvService(context.clone()));
    let watch = WatchServer::new(watch::WatchService(context.clone()));
    let lease = LeaseServer::new(lease::LeaseService::new(context.clone()));
    let cluster = ClusterServer::new(cluster::ClusterService(context.clone()));
    let maintenance = MaintenanceServer::new(maintenance::MaintenanceService(context.clone()));
    let mut routes = Routes::builder();
    routes
        .add_service(kv.max_decoding_message_size(MAX_GRPC_MESSAGE_BYTES))
        .add_service(watch.max_decoding_message_size(MAX_GRPC_MESSAGE_BYTES))
        .add_service(lease.max_decoding_message_size(MAX_GRPC_MESSAGE_BYTES))
        .add_service(cluster.max_decoding_message_size(MAX_GRPC_MESSAGE_BYTES))
        .add_service(maintenance.max_decoding_message_size(MAX_GRPC_MESSAGE_BYTES))
        .add_service(HealthServer::new(health::HealthService(context.clone())));
    routes.routes()
}
