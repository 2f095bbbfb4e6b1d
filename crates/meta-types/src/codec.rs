//! The one codec: bincode 2 (serde, from a slice, length-limited) behind `magic u8 | version u16 | len u32 | crc32c u32`.
//!
//! bincode is positional: fields and variants are only ever appended in a new frozen struct under a new version,
//! and old bytes in `testdata/` load for ever. bincode itself is unmaintained but complete; it stays behind this
//! module.

use bincode::config::{Configuration, Fixint, Limit, LittleEndian};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::limits::MAX_ENCODED_BYTES;

/// First byte of every envelope.
pub const MAGIC: u8 = 0xB5;
/// Bytes before the body.
pub const HEADER_BYTES: usize = 11;

const CONFIG: Configuration<LittleEndian, Fixint, Limit<MAX_ENCODED_BYTES>> =
    bincode::config::standard().with_fixed_int_encoding().with_limit::<MAX_ENCODED_BYTES>();

/// Why bytes could not be read.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum CodecError {
    /// Fewer bytes than the header or the length says.
    #[error("{have} bytes where {need} are needed")]
    Short {
        /// Bytes there are.
        have: usize,
        /// Bytes needed.
        need: usize,
    },
    /// Not one of our envelopes.
    #[error("magic byte {0:#04x} is not {MAGIC:#04x}")]
    Magic(u8),
    /// Written by a newer (or unknown) version.
    #[error("format version {found} where this binary reads {supported}: use a newer binary")]
    Version {
        /// Version found.
        found: u16,
        /// Version asked for.
        supported: u16,
    },
    /// Larger than any blob we write.
    #[error("length {0} is over the limit of {MAX_ENCODED_BYTES} bytes")]
    TooLarge(usize),
    /// The checksum does not fit.
    #[error("checksum {found:#010x} where {expected:#010x} is recorded")]
    Checksum {
        /// Of the bytes found.
        found: u32,
        /// As recorded.
        expected: u32,
    },
    /// The body is not what it should be.
    #[error("body cannot be decoded: {0}")]
    Body(String),
}

/// Encodes `value` bare, without an envelope (its container has length and checksum).
pub fn encode_body<T: Serialize>(value: &T) -> Result<Vec<u8>, CodecError> {
    bincode::serde::encode_to_vec(value, CONFIG).map_err(|e| CodecError::Body(e.to_string()))
}

/// Decodes a bare body; every byte must be used.
pub fn decode_body<T: DeserializeOwned>(body: &[u8]) -> Result<T, CodecError> {
    if body.len() > MAX_ENCODED_BYTES {
        return Err(CodecError::TooLarge(body.len()));
    }
    let (value, used) =
        bincode::serde::decode_from_slice(body, CONFIG).map_err(|e| CodecError::Body(e.to_string()))?;
    if used != body.len() {
        return Err(CodecError::Body(format!("{} bytes left over", body.len() - used)));
    }
    Ok(value)
}

/// Encodes `value` in an envelope of `version`.
pub fn encode<T: Serialize>(version: u16, value: &T) -> Result<Vec<u8>, CodecError> {
    let body = encode_body(value)?;
    let mut out = Vec::with_capacity(HEADER_BYTES + body.len());
    out.push(MAGIC);
    out.extend_from_slice(&version.to_le_bytes());
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
    out.extend_from_slice(&body);
    Ok(out)
}

/// Decodes one envelope of exactly `version` that fills `bytes`.
pub fn decode<T: DeserializeOwned>(version: u16, bytes: &[u8]) -> Result<T, CodecError> {
    if bytes.len() < HEADER_BYTES {
        return Err(CodecError::Short { have: bytes.len(), need: HEADER_BYTES });
    }
    if bytes[0] != MAGIC {
        return Err(CodecError::Magic(bytes[0]));
    }
    let found = u16::from_le_bytes([bytes[1], bytes[2]]);
    if found != version {
        return Err(CodecError::Version { found, supported: version });
    }
    let len = u32::from_le_bytes([bytes[3], bytes[4], bytes[5], bytes[6]]) as usize;
    if len > MAX_ENCODED_BYTES {
        return Err(CodecError::TooLarge(len));
    }
    let body = &bytes[HEADER_BYTES..];
    if body.len() != len {
        return Err(CodecError::Short { have: body.len(), need: len });
    }
    let expected = u32::from_le_bytes([bytes[7], bytes[8], bytes[9], bytes[10]]);
    let sum = crc32c::crc32c(body);
    if sum != expected {
        return Err(CodecError::Checksum { found: sum, expected });
    }
    decode_body(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_refused() {
        let good = encode(3, &(7u64, vec![1u8, 2, 3])).unwrap();
        assert_eq!(decode::<(u64, Vec<u8>)>(3, &good).unwrap(), (7, vec![1, 2, 3]));
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode::<(u64, Vec<u8>)>(3, &bad).is_err(), "bit {bit} went unnoticed");
        }
    }

    #[test]
    fn a_length_bomb_is_refused() {
        let mut body = vec![0xff; 8];
        body.extend_from_slice(&[0; 16]);
        assert!(decode_body::<Vec<u8>>(&body).is_err());
    }
}
