//! A network that can be cut around one replica: its connections break, and no new ones are made.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use meta_raft::{BoxFuture, Connection, Listener, Net, TcpNet};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;

/// The replica's own network; clones cut together.
#[derive(Clone)]
pub struct CutNet {
    cut: watch::Sender<bool>,
}

impl CutNet {
    /// Whole.
    pub fn new() -> Self {
        Self { cut: watch::Sender::new(false) }
    }

    /// Cuts the replica off, or lets it back.
    pub fn set_cut(&self, cut: bool) {
        self.cut.send_replace(cut);
    }

    fn guard(&self, inner: Box<dyn Connection>) -> io::Result<Box<dyn Connection>> {
        if *self.cut.borrow() {
            return Err(io::ErrorKind::NetworkUnreachable.into());
        }
        let mut cut = self.cut.subscribe();
        let broken = Box::pin(async move {
            let _ = cut.wait_for(|cut| *cut).await;
        });
        Ok(Box::new(Guarded { inner, broken, is_broken: false }))
    }
}

impl Net for CutNet {
    fn bind<'a>(&'a self, addr: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let port = TcpNet.bind(addr).await?;
            Ok(Box::new(CutListener { port, net: self.clone() }) as Box<dyn Listener>)
        })
    }

    fn connect<'a>(&'a self, addr: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Connection>>> {
        Box::pin(async move { self.guard(TcpNet.connect(addr).await?) })
    }
}

struct CutListener {
    port: Box<dyn Listener>,
    net: CutNet,
}

impl Listener for CutListener {
    fn accept(&self) -> BoxFuture<'_, io::Result<Box<dyn Connection>>> {
        Box::pin(async move {
            loop {
                // One that comes while it is cut off is closed at once.
                if let Ok(guarded) = self.net.guard(self.port.accept().await?) {
                    return Ok(guarded);
                }
            }
        })
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.port.local_addr()
    }
}

struct Guarded {
    inner: Box<dyn Connection>,
    broken: Pin<Box<dyn Future<Output = ()> + Send>>,
    is_broken: bool,
}

impl Guarded {
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        self.is_broken = self.is_broken || self.broken.as_mut().poll(cx).is_ready();
        if self.is_broken { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
    }
}

impl AsyncRead for Guarded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
