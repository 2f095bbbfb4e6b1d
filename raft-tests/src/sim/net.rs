//! The simulated network behind the replicas' `Net` seam, and as the way of clients to replicas.

use std::io;
use std::net::SocketAddr;

use hyper_util::rt::TokioIo;
use meta_client::{EtcdKv, EtcdOptions, KvError, etcd};
use meta_raft::{BoxFuture, Connection, Listener, Net};
use meta_types::seams::Rng;
use std::sync::Arc;
use tonic::transport::Uri;
use turmoil::net::{TcpListener, TcpStream};

/// Where clients reach a replica.
pub const CLIENT_PORT: u16 = 2379;
/// Where peers reach it.
pub const PEER_PORT: u16 = 2380;

/// TCP as turmoil has it: a lost segment breaks its connection silently, for nothing is sent again.
#[derive(Debug, Clone, Copy)]
pub struct SimNet;

struct SimListener(TcpListener);

impl Net for SimNet {
    fn bind<'a>(&'a self, addr: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let listener = TcpListener::bind(addr).await?;
            Ok(Box::new(SimListener(listener)) as Box<dyn Listener>)
        })
    }

    fn connect<'a>(&'a self, addr: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Connection>>> {
        Box::pin(async move { Ok(Box::new(TcpStream::connect(addr).await?) as Box<dyn Connection>) })
    }
}

impl Listener for SimListener {
    fn accept(&self) -> BoxFuture<'_, io::Result<Box<dyn Connection>>> {
        Box::pin(async move {
            let (stream, _) = self.0.accept().await?;
            Ok(Box::new(stream) as Box<dyn Connection>)
        })
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

/// A client of the replicas with these names. To be called on a simulated host.
pub fn client(replicas: &[String], options: EtcdOptions, rng: Arc<dyn Rng>) -> Result<EtcdKv, KvError> {
    let mut channels = Vec::new();
    for replica in replicas {
        let name = format!("{replica}:{CLIENT_PORT}");
        let endpoint = etcd::endpoint(&name, &options)?;
        let channel = endpoint.connect_with_connector_lazy(tower::service_fn(|uri: Uri| async move {
            let host = uri.host().unwrap_or_default().to_owned();
            let stream = TcpStream::connect((host, uri.port_u16().unwrap_or(CLIENT_PORT))).await?;
            Ok::<_, io::Error>(TokioIo::new(stream))
        }));
        channels.push((name, channel));
    }
    EtcdKv::over(channels, options, rng)
}
