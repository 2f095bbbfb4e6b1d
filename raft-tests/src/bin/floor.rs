//! The floor under every figure: an etcd-shaped server that does next to nothing.
//!
//! `floor bare --listen HOST:PORT` answers each put at once; `floor group-commit --listen HOST:PORT --file FILE`
//! first appends the put to FILE and answers after one fdatasync for whatever was queued. What a load generator
//! measures here is the price of gRPC and of the disk, below which no server of this kind can go.

use std::fs::File;
use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use futures_util::Stream;
use meta_api::pb::etcdserverpb::kv_server::{Kv, KvServer};
use meta_api::pb::etcdserverpb::{
    CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse,
    RangeRequest, RangeResponse, RangeStreamResponse, ResponseHeader, TxnRequest, TxnResponse,
};
use tokio::sync::{mpsc, oneshot};
use tonic::{Request, Response, Status};

/// Puts that may wait for the disk: as many as a load generator has in flight.
const QUEUE: usize = 4096;

type Queued = (Vec<u8>, oneshot::Sender<()>);

struct Floor {
    disk: Option<mpsc::Sender<Queued>>,
}

#[tonic::async_trait]
impl Kv for Floor {
    type RangeStreamStream = Pin<Box<dyn Stream<Item = Result<RangeStreamResponse, Status>> + Send>>;

    async fn range(&self, _: Request<RangeRequest>) -> Result<Response<RangeResponse>, Status> {
        Ok(Response::new(RangeResponse { header: header(), ..RangeResponse::default() }))
    }

    async fn put(&self, request: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        if let Some(disk) = &self.disk {
            let put = request.into_inner();
            let (done, answered) = oneshot::channel();
            let record = [put.key.as_ref(), put.value.as_ref()].concat();
            disk.send((record, done)).await.map_err(|_| Status::internal("the disk thread ended"))?;
            answered.await.map_err(|_| Status::internal("the disk thread ended"))?;
        }
        Ok(Response::new(PutResponse { header: header(), ..PutResponse::default() }))
    }

    async fn delete_range(
        &self,
        _: Request<DeleteRangeRequest>,
    ) -> Result<Response<DeleteRangeResponse>, Status> {
        Err(Status::unimplemented("the floor only puts and reads nothing"))
    }

    async fn txn(&self, _: Request<TxnRequest>) -> Result<Response<TxnResponse>, Status> {
        Err(Status::unimplemented("the floor only puts and reads nothing"))
    }

    async fn compact(&self, _: Request<CompactionRequest>) -> Result<Response<CompactionResponse>, Status> {
        Err(Status::unimplemented("the floor only puts and reads nothing"))
    }

    async fn range_stream(
        &self,
        _: Request<RangeRequest>,
    ) -> Result<Response<Self::RangeStreamStream>, Status> {
        Err(Status::unimplemented("the floor only puts and reads nothing"))
    }
}

fn header() -> Option<ResponseHeader> {
    Some(ResponseHeader { cluster_id: 1, member_id: 1, revision: 1, raft_term: 1 })
}

/// Appends whatever is queued, syncs once, answers all.
fn commit_groups(mut file: File, mut queue: mpsc::Receiver<Queued>) -> Result<()> {
    let mut bytes = Vec::new();
    let mut waiting = Vec::new();
    while let Some(first) = queue.blocking_recv() {
        let mut next = Some(first);
        while let Some((record, done)) = next {
            bytes.extend_from_slice(&record);
            waiting.push(done);
            next = queue.try_recv().ok();
        }
        file.write_all(&bytes)?;
        file.sync_data()?;
        bytes.clear();
        for done in waiting.drain(..) {
            // A client that hung up waits no more.
            let _ = done.send(());
        }
    }
    Ok(())
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |flag: &str| {
        let at = args.iter().position(|a| a == flag).with_context(|| format!("{flag} is missing"))?;
        args.get(at + 1).cloned().with_context(|| format!("{flag} wants a value"))
    };
    let disk = match args.first().map(String::as_str) {
        Some("bare") => None,
        Some("group-commit") => {
            let file = File::options().create(true).append(true).open(value("--file")?)?;
            let (send, receive) = mpsc::channel(QUEUE);
            std::thread::spawn(move || commit_groups(file, receive));
            Some(send)
        }
        _ => bail!("usage: floor bare|group-commit --listen HOST:PORT [--file FILE]"),
    };
    let listen = value("--listen")?.parse().context("--listen wants HOST:PORT")?;
    let service = KvServer::from_arc(Arc::new(Floor { disk }));
    println!("floor serves on {listen}");
    tonic::transport::Server::builder().tcp_nodelay(true).add_service(service).serve(listen).await?;
    Ok(())
}
