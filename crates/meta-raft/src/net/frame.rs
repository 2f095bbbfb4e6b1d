//! Frames on a peer connection: `length u32 | crc32c u32 | head length u32 | head | tail`, little endian.
//!
//! The head is a small codec-encoded message, the tail raw bytes that belong to it (entries, a batch, records of a
//! checkpoint), which are neither re-encoded nor copied on receipt. Length and checksum cover what follows them.

use std::io;

use bytes::{Bytes, BytesMut};
use meta_types::codec::{decode_body, encode_body};
use meta_types::limits::MAX_ENCODED_BYTES;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Largest frame read or written: one largest entry beside an otherwise full append.
pub(crate) const MAX_FRAME_BYTES: usize = 2 * MAX_ENCODED_BYTES;
const HEADER: usize = 8;

/// A message that came in.
#[derive(Debug)]
pub(crate) struct Frame {
    head: Bytes,
    /// The raw bytes behind the message.
    pub(crate) tail: Bytes,
}

impl Frame {
    /// The message itself.
    pub(crate) fn head<T: DeserializeOwned>(&self) -> io::Result<T> {
        decode_body(&self.head).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
    }
}

/// A message to send.
#[derive(Debug)]
pub(crate) struct Outgoing {
    head: Vec<u8>,
    tail: Vec<Bytes>,
}

impl Outgoing {
    pub(crate) fn new<T: Serialize>(head: &T, tail: Vec<Bytes>) -> io::Result<Self> {
        let head = encode_body(head).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
        let out = Self { head, tail };
        if out.body_len() > MAX_FRAME_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a message of {} bytes is over the frame limit of {MAX_FRAME_BYTES}", out.body_len()),
            ));
        }
        Ok(out)
    }

    fn body_len(&self) -> usize {
        4 + self.head.len() + self.tail.iter().map(Bytes::len).sum::<usize>()
    }
}

/// Writes one frame; the caller flushes.
pub(crate) async fn write<W: AsyncWrite + Unpin>(to: &mut W, frame: &Outgoing) -> io::Result<()> {
    let head_len = (frame.head.len() as u32).to_le_bytes();
    let mut crc = crc32c::crc32c(&head_len);
    crc = crc32c::crc32c_append(crc, &frame.head);
    for part in &frame.tail {
        crc = crc32c::crc32c_append(crc, part);
    }
    to.write_all(&(frame.body_len() as u32).to_le_bytes()).await?;
    to.write_all(&crc.to_le_bytes()).await?;
    to.write_all(&head_len).await?;
    to.write_all(&frame.head).await?;
    for part in &frame.tail {
        to.write_all(part).await?;
    }
    Ok(())
}

/// Reads one frame; `None` at a clean end.
pub(crate) async fn read<R: AsyncRead + Unpin>(from: &mut R) -> io::Result<Option<Frame>> {
    let mut header = [0; HEADER];
    if let Err(e) = from.read_exact(&mut header).await {
        return if e.kind() == io::ErrorKind::UnexpectedEof { Ok(None) } else { Err(e) };
    }
    let number = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
    let (len, crc) = (number(0) as usize, number(4));
    if !(4..=MAX_FRAME_BYTES).contains(&len) {
        return Err(invalid(format!("a frame of {len} bytes")));
    }
    // Grown as bytes come, not reserved at once: the length is a stranger's word.
    let mut body = BytesMut::with_capacity(len.min(64 * 1024));
    let mut limited = from.take(len as u64);
    while body.len() < len {
        if limited.read_buf(&mut body).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let mut body = body.freeze();
    if crc32c::crc32c(&body) != crc {
        return Err(invalid("a frame with a wrong checksum".into()));
    }
    let head_len = u32::from_le_bytes(body[..4].try_into().expect("four bytes")) as usize;
    if head_len > len - 4 {
        return Err(invalid(format!("a head of {head_len} bytes in a frame of {len}")));
    }
    let tail = body.split_off(4 + head_len);
    Ok(Some(Frame { head: body.slice(4..), tail }))
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn bytes_of(head: &(u64, String), tail: Vec<Bytes>) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out, &Outgoing::new(head, tail).unwrap()).await.unwrap();
        out
    }

    #[tokio::test]
    async fn a_frame_survives_and_each_flipped_bit_is_noticed() {
        let head = (7u64, "hello".to_owned());
        let good = bytes_of(&head, vec![Bytes::from_static(b"ab"), Bytes::from_static(b"cd")]).await;
        let frame = read(&mut good.as_slice()).await.unwrap().unwrap();
        assert_eq!(frame.head::<(u64, String)>().unwrap(), head);
        assert_eq!(frame.tail, Bytes::from_static(b"abcd"));
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&mut bad.as_slice()).await.is_err(), "bit {bit} went unnoticed");
        }
    }

    #[tokio::test]
    async fn a_length_bomb_and_a_cut_are_refused() {
        let mut bomb = (u32::MAX).to_le_bytes().to_vec();
        bomb.extend_from_slice(&[0; 64]);
        assert!(read(&mut bomb.as_slice()).await.is_err());
        let good = bytes_of(&(1, String::new()), vec![]).await;
        assert!(read(&mut &good[..good.len() - 1]).await.is_err());
        assert!(read(&mut &good[..0]).await.unwrap().is_none());
    }
}
