//! A checkpoint on a connection of its own: start, blocks of records, end with count and checksum, then the answer.
//!
//! ```text
//!  sender                                       receiver
//!  Start{vote?, position, extra}         -->    generation under a temporary name
//!  Records (tail: records)  ...          -->    written as they come
//!  End{records, checksum}                -->    checked, before the generation counts; reopened, decoded
//!                                        <--    Installed{vote} or Failed
//! ```
//!
//! A broken or wrong stream leaves nothing behind. A leader sends with its vote and openraft decides about the
//! installation; a replica that has no state to start from asks for a checkpoint and takes it before openraft runs.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use meta_store::Position;
use meta_store::generation::{Record, RecordStream};
use openraft::type_config::alias::SnapshotOf;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use super::frame::{self, Outgoing};
use super::link;
use super::message::Purpose;
use super::peers::Peers;
use crate::checkpoint::{CheckpointData, Checkpoints};
use crate::types::{SnapshotMeta, TypeConfig, Vote};

/// Bytes of records in one frame.
const BLOCK_BYTES: usize = 256 * 1024;
/// A sender that says nothing for this long is gone.
const IDLE: Duration = Duration::from_secs(30);
/// Blocks between the network and the disk.
const QUEUE_BLOCKS: usize = 4;

/// What the sender says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Part {
    /// First.
    Start(Start),
    /// Records, in the tail: `key length u32 | value length u32 | key | value`.
    Records,
    /// Last.
    End {
        /// How many there were.
        records: u64,
        /// crc32c over the tails.
        checksum: u32,
    },
    /// Instead of a start: there is no checkpoint to give.
    None,
}

/// What comes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Start {
    /// The leader's vote; none for a checkpoint that was asked for.
    pub(crate) vote: Option<Vote>,
    term: u64,
    index: u64,
    extra: Vec<u8>,
}

impl Start {
    pub(crate) fn position(&self) -> Position {
        Position { term: self.term, index: self.index }
    }
}

/// What the receiver says at the end.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Done {
    /// openraft has it, or had no use for it; this is its vote now.
    Installed(Vote),
    /// It could not be taken.
    Failed(String),
}

/// Sends a checkpoint to member `to`; its vote afterwards.
pub(crate) async fn send(
    peers: &Peers,
    to: u64,
    addr: &str,
    vote: Vote,
    snapshot: SnapshotOf<TypeConfig, CheckpointData>,
) -> io::Result<Vote> {
    let hello = peers.me.hello(Purpose::Checkpoint, to);
    let mut stream = link::open(peers.net.as_ref(), &hello, addr, peers.connect_timeout).await?;
    write(&mut stream, Some(vote), snapshot.snapshot).await?;
    match frame::read(&mut stream).await?.ok_or(io::ErrorKind::UnexpectedEof)?.head::<Done>()? {
        Done::Installed(vote) => Ok(vote),
        Done::Failed(why) => Err(io::Error::other(why)),
    }
}

/// Writes a generation to a connection.
pub(crate) async fn write<W>(to: &mut W, vote: Option<Vote>, data: CheckpointData) -> io::Result<()>
where
    W: AsyncWrite + Unpin,
{
    let source = data.source.clone();
    let generation = data.into_parts().0.ok_or_else(|| invalid("there is no checkpoint".into()))?;
    let Position { term, index } = generation.position;
    let start = Start { vote, term, index, extra: generation.extra.clone() };
    frame::write(to, &Outgoing::new(&Part::Start(start), vec![])?).await?;
    let (tx, mut blocks) = mpsc::channel(QUEUE_BLOCKS);
    let reading = tokio::task::spawn_blocking(move || {
        let records = source.open(&generation).map_err(io::Error::other)?;
        read_blocks(records, &tx)
    });
    let mut checksum = 0;
    while let Some(block) = blocks.recv().await {
        checksum = crc32c::crc32c_append(checksum, &block);
        frame::write(to, &Outgoing::new(&Part::Records, vec![block])?).await?;
        to.flush().await?;
    }
    // A damaged generation ends here, before the end part: the receiver takes nothing of it.
    let records = reading.await.map_err(io::Error::other)??;
    frame::write(to, &Outgoing::new(&Part::End { records, checksum }, vec![])?).await?;
    to.flush().await
}

fn read_blocks(records: RecordStream, to: &mpsc::Sender<Bytes>) -> io::Result<u64> {
    let mut count = 0;
    let mut block = BytesMut::new();
    let send = |block: &mut BytesMut| {
        let sent = to.blocking_send(block.split().freeze());
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    };
    for record in records {
        let (key, value) = record.map_err(io::Error::other)?;
        block.put_u32_le(key.len() as u32);
        block.put_u32_le(value.len() as u32);
        block.put_slice(&key);
        block.put_slice(&value);
        count += 1;
        if block.len() >= BLOCK_BYTES {
            send(&mut block)?;
        }
    }
    if !block.is_empty() {
        send(&mut block)?;
    }
    Ok(count)
}

/// Reads the start of a transfer; `None` if the peer has nothing to give.
pub(crate) async fn read_start<R: AsyncRead + Unpin>(from: &mut R) -> io::Result<Option<Start>> {
    match frame::read(from).await?.ok_or(io::ErrorKind::UnexpectedEof)?.head::<Part>()? {
        Part::Start(start) => Ok(Some(start)),
        Part::None => Ok(None),
        other => Err(invalid(format!("a transfer that begins with {other:?}"))),
    }
}

/// Takes the rest of a transfer onto this replica's disk.
pub(crate) async fn receive<R: AsyncRead + Unpin>(
    from: &mut R,
    start: Start,
    checkpoints: Arc<Checkpoints>,
) -> io::Result<(CheckpointData, SnapshotMeta)> {
    let (tx, blocks) = mpsc::channel(QUEUE_BLOCKS);
    let writing = tokio::task::spawn_blocking(move || {
        let mut records = Incoming { blocks, block: Bytes::new(), ended: false };
        checkpoints.receive(start.position(), &start.extra, &mut records).map_err(io::Error::other)
    });
    let read = read_records(from, &tx).await;
    // Without the end the writer sees an error and gives up; so it does when the stream broke.
    if let Ok(()) = read {
        let _ = tx.send(Block::End).await;
    }
    drop(tx);
    let written = writing.await.map_err(io::Error::other)?;
    read.and(written)
}

enum Block {
    Records(Bytes),
    End,
}

async fn read_records<R: AsyncRead + Unpin>(from: &mut R, to: &mpsc::Sender<Block>) -> io::Result<()> {
    let (mut count, mut sum) = (0, 0);
    loop {
        let frame = tokio::time::timeout(IDLE, frame::read(from)).await;
        let frame = frame.map_err(|_| io::ErrorKind::TimedOut)??.ok_or(io::ErrorKind::UnexpectedEof)?;
        match frame.head::<Part>()? {
            Part::Records => {
                sum = crc32c::crc32c_append(sum, &frame.tail);
                count += count_records(&frame.tail)?;
                if to.send(Block::Records(frame.tail)).await.is_err() {
                    // The writer knows better why.
                    return Ok(());
                }
            }
            Part::End { records, checksum } if records == count && checksum == sum => return Ok(()),
            Part::End { .. } => return Err(invalid("a transfer whose count or checksum is wrong".into())),
            other => return Err(invalid(format!("a transfer with {other:?} in it"))),
        }
    }
}

/// Counts the records of a block, so that a malformed one is refused before it is handed on.
fn count_records(block: &Bytes) -> io::Result<u64> {
    let mut rest = block.clone();
    let mut count = 0;
    while !rest.is_empty() {
        take_record(&mut rest)?;
        count += 1;
    }
    Ok(count)
}

fn take_record(block: &mut Bytes) -> io::Result<(Bytes, Bytes)> {
    if block.len() < 8 {
        return Err(invalid("a block that ends inside a record".into()));
    }
    let (key, value) = (block.get_u32_le() as usize, block.get_u32_le() as usize);
    if block.len() < key.saturating_add(value) {
        return Err(invalid("a block that ends inside a record".into()));
    }
    Ok((block.split_to(key), block.split_to(value)))
}

/// The records as they come. Ends in an error unless the end part was right.
struct Incoming {
    blocks: mpsc::Receiver<Block>,
    block: Bytes,
    ended: bool,
}

impl Iterator for Incoming {
    type Item = io::Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.block.is_empty() {
            if self.ended {
                return None;
            }
            match self.blocks.blocking_recv() {
                Some(Block::Records(block)) => self.block = block,
                Some(Block::End) => self.ended = true,
                None => {
                    self.ended = true;
                    return Some(Err(invalid("the transfer broke".into())));
                }
            }
        }
        Some(take_record(&mut self.block).map(|(key, value)| (key.to_vec(), value.to_vec())))
    }
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
