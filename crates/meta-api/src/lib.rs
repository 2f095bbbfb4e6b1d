//! The wire: etcd v3 messages and services, and their conversions to our own types.
//!
//! [`pb`] holds what is generated from `proto/`; everything else in the workspace speaks `meta_types` and
//! passes through [`convert`]. [`status`] fixes which gRPC code and text each refusal has, and what a client
//! may conclude from a code it receives.

pub mod convert;
pub mod status;

/// Generated messages, clients and servers.
#[allow(missing_docs, clippy::all, clippy::pedantic)]
pub mod pb {
    /// Keys, values, events.
    pub mod mvccpb {
        tonic::include_proto!("mvccpb");
    }
    /// The client protocol.
    pub mod etcdserverpb {
        tonic::include_proto!("etcdserverpb");
    }
    /// The health service.
    pub mod health {
        tonic::include_proto!("grpc.health.v1");
    }
}
