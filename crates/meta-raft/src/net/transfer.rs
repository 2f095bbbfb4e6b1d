//! A checkpoint on a connection of its own: start, blocks of records, end with count and checksum, then the answer.
//!
//! ```text
//!  sender                                       receiver
//!  Start{vote?, position, extra}         -->    generation under a temporary name
//!  Records (tail: records)  ...          -->    written as they come
//!  End{records, checksum}                -->    checked, before the generation counts; reopened, decoded
//!                                        <--    Working, once a second all the while
//!                                        <--    Installed{vote} or Failed
//! ```
//!
//! A receiver that lost its power says nothing, and nothing says so: a sender that hears nothing for a while gives up
//! and begins again, or the receiver would stay behind for as long as a transfer may take.
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

use super::frame::{self, Outgoing};
use super::link;
use super::message::Purpose;
use super::peers::Peers;
use crate::checkpoint::{CheckpointData, Checkpoints};
use crate::types::{SnapshotMeta, TypeConfig, Vote};
use crate::workers::{Workers, blocking};

/// Bytes of records in one frame.
const BLOCK_BYTES: usize = 256 * 1024;
/// A sender that says nothing for this long is gone.
const IDLE: Duration = Duration::from_secs(30);
/// Who works for the other one says so this often,
const SAY_EVERY: Duration = Duration::from_secs(1);
/// and is gone if it says nothing for this long.
const SILENCE: Duration = Duration::from_secs(5);

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
    /// Before the start: it is being written.
    Working,
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
    /// Not yet.
    Working,
}

/// Waits for `work`, and tells whoever waits on the other side that it goes on. Nobody there any more is no reason to
/// stop in the middle.
pub(crate) async fn saying<T, W, M>(to: &mut W, working: &M, work: impl Future<Output = T>) -> T
where
    W: AsyncWrite + Unpin,
    M: Serialize,
{
    tokio::pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = tokio::time::sleep(SAY_EVERY) => {}
        }
        let said = async {
            frame::write(to, &Outgoing::new(working, vec![])?).await?;
            to.flush().await
        };
        if !matches!(tokio::time::timeout(SAY_EVERY, said).await, Ok(Ok(()))) {
            return work.await;
        }
    }
}

/// Sends a checkpoint to member `to`; its vote afterwards.
pub(crate) async fn send(
    peers: &Peers,
    workers: &dyn Workers,
    to: u64,
    addr: &str,
    vote: Vote,
    snapshot: SnapshotOf<TypeConfig, CheckpointData>,
) -> io::Result<Vote> {
    let hello = peers.me.hello(Purpose::Checkpoint, to);
    let stream = link::open(peers.net.as_ref(), &hello, addr, peers.connect_timeout).await?;
    let (mut reader, mut writer) = tokio::io::split(stream);
    let answered = answer(&mut reader);
    let written = write(&mut writer, workers, Some(vote), snapshot.snapshot);
    tokio::pin!(answered, written);
    tokio::select! {
        done = &mut answered => return done,
        written = &mut written => written?,
    }
    answered.await
}

/// The receiver's last word. An error if it falls silent before.
async fn answer<R: AsyncRead + Unpin>(from: &mut R) -> io::Result<Vote> {
    loop {
        let frame = tokio::time::timeout(SILENCE, frame::read(from)).await;
        let frame = frame.map_err(|_| io::ErrorKind::TimedOut)??.ok_or(io::ErrorKind::UnexpectedEof)?;
        match frame.head::<Done>()? {
            Done::Installed(vote) => return Ok(vote),
            Done::Failed(why) => return Err(io::Error::other(why)),
            Done::Working => {}
        }
    }
}

/// Writes a generation to a connection.
pub(crate) async fn write<W>(
    to: &mut W,
    workers: &dyn Workers,
    vote: Option<Vote>,
    data: CheckpointData,
) -> io::Result<()>
where
    W: AsyncWrite + Unpin,
{
    let source = data.source.clone();
    let generation = data.into_parts().0.ok_or_else(|| invalid("there is no checkpoint".into()))?;
    let Position { term, index } = generation.position;
    let start = Start { vote, term, index, extra: generation.extra.clone() };
    frame::write(to, &Outgoing::new(&Part::Start(start), vec![])?).await?;
    let open = move || source.open(&generation).map_err(io::Error::other);
    let mut blocks = Blocks { records: blocking(workers, open).await??, count: 0 };
    let mut checksum = 0;
    loop {
        let block;
        (blocks, block) = blocking(workers, move || blocks.next()).await?;
        // A damaged generation ends here, before the end part: the receiver takes nothing of it.
        let Some(block) = block? else { break };
        checksum = crc32c::crc32c_append(checksum, &block);
        frame::write(to, &Outgoing::new(&Part::Records, vec![block])?).await?;
        to.flush().await?;
    }
    frame::write(to, &Outgoing::new(&Part::End { records: blocks.count, checksum }, vec![])?).await?;
    to.flush().await
}

/// A generation, block by block.
struct Blocks {
    records: RecordStream,
    count: u64,
}

impl Blocks {
    /// The next block, none at the end. Blocks for the disk.
    fn next(mut self) -> (Self, io::Result<Option<Bytes>>) {
        let block = self.read();
        (self, block)
    }

    fn read(&mut self) -> io::Result<Option<Bytes>> {
        let mut block = BytesMut::new();
        while block.len() < BLOCK_BYTES
            && let Some(record) = self.records.next()
        {
            let (key, value) = record.map_err(io::Error::other)?;
            block.put_u32_le(key.len() as u32);
            block.put_u32_le(value.len() as u32);
            block.put_slice(&key);
            block.put_slice(&value);
            self.count += 1;
        }
        Ok((!block.is_empty()).then(|| block.freeze()))
    }
}

/// Reads the start of a transfer; `None` if the peer has nothing to give.
pub(crate) async fn read_start<R: AsyncRead + Unpin>(from: &mut R) -> io::Result<Option<Start>> {
    loop {
        let frame = tokio::time::timeout(SILENCE, frame::read(from)).await;
        let frame = frame.map_err(|_| io::ErrorKind::TimedOut)??.ok_or(io::ErrorKind::UnexpectedEof)?;
        match frame.head::<Part>()? {
            Part::Start(start) => return Ok(Some(start)),
            Part::None => return Ok(None),
            Part::Working => {}
            other => return Err(invalid(format!("a transfer that begins with {other:?}"))),
        }
    }
}

/// Takes the rest of a transfer onto this replica's disk.
pub(crate) async fn receive<R: AsyncRead + Unpin>(
    from: &mut R,
    start: Start,
    checkpoints: Arc<Checkpoints>,
) -> io::Result<(CheckpointData, SnapshotMeta)> {
    let receipt = checkpoints.receive(start.position(), start.extra).await;
    let mut receipt = receipt.map_err(io::Error::other)?;
    let (mut count, mut sum) = (0, 0);
    loop {
        let frame = tokio::time::timeout(IDLE, frame::read(from)).await;
        let frame = frame.map_err(|_| io::ErrorKind::TimedOut)??.ok_or(io::ErrorKind::UnexpectedEof)?;
        match frame.head::<Part>()? {
            Part::Records => {
                sum = crc32c::crc32c_append(sum, &frame.tail);
                let records = records(frame.tail)?;
                count += records.len() as u64;
                receipt = receipt.push(records).await.map_err(io::Error::other)?;
            }
            Part::End { records, checksum } if records == count && checksum == sum => {
                return receipt.finish().await.map_err(io::Error::other);
            }
            Part::End { .. } => return Err(invalid("a transfer whose count or checksum is wrong".into())),
            other => return Err(invalid(format!("a transfer with {other:?} in it"))),
        }
    }
}

/// The records of a block.
fn records(mut block: Bytes) -> io::Result<Vec<Record>> {
    let mut records = Vec::new();
    while !block.is_empty() {
        let (key, value) = take_record(&mut block)?;
        records.push((key.to_vec(), value.to_vec()));
    }
    Ok(records)
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

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vote() -> Vote {
        Vote::new(7, 1)
    }

    async fn reply<W: AsyncWrite + Unpin>(to: &mut W, done: &Done) {
        frame::write(to, &Outgoing::new(done, vec![]).unwrap()).await.unwrap();
        to.flush().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_receiver_that_fell_silent_is_given_up() {
        let (mut ours, mut theirs) = tokio::io::duplex(1024);
        reply(&mut theirs, &Done::Working).await;
        let started = tokio::time::Instant::now();
        assert_eq!(answer(&mut ours).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(started.elapsed(), SILENCE);
        let error = read_start(&mut ours).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "nor is a giver waited for");
    }

    #[tokio::test(start_paused = true)]
    async fn a_receiver_that_works_for_long_is_waited_for() {
        let (mut ours, mut theirs) = tokio::io::duplex(1024);
        let receiver = async {
            let work = tokio::time::sleep(SILENCE * 10);
            saying(&mut theirs, &Done::Working, work).await;
            reply(&mut theirs, &Done::Installed(vote())).await;
        };
        let (answered, ()) = tokio::join!(answer(&mut ours), receiver);
        assert_eq!(answered.unwrap(), vote());
    }

    #[tokio::test(start_paused = true)]
    async fn work_goes_on_when_nobody_listens() {
        for closed in [true, false] {
            let (ours, mut theirs) = tokio::io::duplex(16);
            let ours = (!closed).then_some(ours);
            let work = tokio::time::sleep(SILENCE * 10);
            tokio::time::timeout(SILENCE * 11, saying(&mut theirs, &Done::Working, work)).await.unwrap();
            drop(ours);
        }
    }
}
