//! The network between replicas: the `Net` seam, its TCP implementation, and the peer protocol above it.
//!
//! ```text
//!  frame      length, checksum, message head, raw tail
//!  message    what the heads say
//!  link       one standing connection to one peer for one purpose; calls answered by id
//!  peers      the links to every peer
//!  transport  openraft's view: appends pipelined, votes, checkpoints
//!  server     the receiving side: hello, then requests
//! ```
//!
//! A connection serves one purpose, so that a checkpoint never delays an append and an append never delays a
//! heartbeat. It opens with a hello that names cluster, sender and the member it is meant for; a wrong one is
//! refused with the reason in words, and the connection is closed.

pub(crate) mod frame;
pub(crate) mod link;
pub(crate) mod message;
pub(crate) mod peers;

pub(crate) mod server;
pub(crate) mod transfer;
pub(crate) mod transport;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

/// A future in a box.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A byte stream between two replicas.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Connection for T {}

/// An open port.
pub trait Listener: Send + Sync + 'static {
    /// The next connection.
    fn accept(&self) -> BoxFuture<'_, io::Result<Box<dyn Connection>>>;
    /// The address it listens on.
    fn local_addr(&self) -> io::Result<SocketAddr>;
}

/// The seam: opens ports and connections. A simulator puts its own here.
pub trait Net: Send + Sync + 'static {
    /// Opens a port.
    fn bind<'a>(&'a self, addr: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>>;
    /// Connects to `host:port`.
    fn connect<'a>(&'a self, addr: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Connection>>>;
}

/// TCP.
#[derive(Debug, Clone, Copy, Default)]
pub struct TcpNet;

impl Net for TcpNet {
    fn bind<'a>(&'a self, addr: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let listener = TcpListener::bind(addr).await?;
            Ok(Box::new(listener) as Box<dyn Listener>)
        })
    }

    fn connect<'a>(&'a self, addr: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Connection>>> {
        Box::pin(async move {
            let stream = TcpStream::connect(addr).await?;
            // Requests are small and waited for: never hold one back to fill a packet.
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Connection>)
        })
    }
}

impl Listener for TcpListener {
    fn accept(&self) -> BoxFuture<'_, io::Result<Box<dyn Connection>>> {
        Box::pin(async move {
            let (stream, _) = TcpListener::accept(self).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Connection>)
        })
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        TcpListener::local_addr(self)
    }
}
