//! The hash of the logical state: the sum of the hashes of its elements, so that one change costs two elements,
//! whatever the size of the state. Replicas compare it; it guards against faults, not against attackers.
//!
//! The function is part of the checkpoint format: it never changes without a new layout version.

use meta_types::{KeyValue, LeaseId};

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const FACTOR: u64 = 0xd6e8_feb8_6659_fd93;

/// Words and bytes folded into 64 bits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Digest(u64);

/// What an element is, so that equal fields of different kinds differ.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    KeyValue = 1,
    Lease = 2,
    Origin = 3,
    AppliedSeq = 4,
    RetiredBoot = 5,
    Scalars = 6,
}

impl Digest {
    pub(crate) fn new(kind: Kind) -> Self {
        Self(SEED).word(kind as u64)
    }

    pub(crate) fn word(self, word: u64) -> Self {
        let product = u128::from(self.0 ^ word) * u128::from(FACTOR);
        Self(((product as u64) ^ ((product >> 64) as u64)).wrapping_add(SEED))
    }

    pub(crate) fn int(self, int: i64) -> Self {
        self.word(int as u64)
    }

    pub(crate) fn bytes(self, bytes: &[u8]) -> Self {
        let mut digest = self.word(bytes.len() as u64);
        let (chunks, rest) = bytes.as_chunks::<8>();
        for chunk in chunks {
            digest = digest.word(u64::from_le_bytes(*chunk));
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            digest = digest.word(u64::from_le_bytes(last));
        }
        digest
    }

    /// The hash. Two more rounds spread the last word over all bits.
    pub(crate) fn end(self) -> u64 {
        self.word(SEED).word(FACTOR).0
    }
}

/// The element of a live key.
pub(crate) fn of_key_value(kv: &KeyValue) -> u64 {
    Digest::new(Kind::KeyValue)
        .bytes(&kv.key)
        .bytes(&kv.value)
        .int(kv.create_revision)
        .int(kv.mod_revision)
        .int(kv.version)
        .int(kv.lease)
        .end()
}

/// The element of a lease.
pub(crate) fn of_lease(id: LeaseId, ttl_s: i64, expiry_ms: u64) -> u64 {
    Digest::new(Kind::Lease).int(id).int(ttl_s).word(expiry_ms).end()
}

/// A sum of element hashes: a multiset's hash, independent of the order of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sum(u64);

impl Sum {
    pub(crate) fn add(&mut self, element: u64) {
        self.0 = self.0.wrapping_add(element);
    }

    pub(crate) fn remove(&mut self, element: u64) {
        self.0 = self.0.wrapping_sub(element);
    }

    pub(crate) fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_inputs_differ() {
        let hash = |bytes: &[u8]| Digest::new(Kind::KeyValue).bytes(bytes).end();
        let inputs: [&[u8]; 7] = [b"", b"\0", b"\0\0", b"a", b"b", b"12345678", b"12345678\0"];
        for (n, one) in inputs.iter().enumerate() {
            for other in &inputs[n + 1..] {
                assert_ne!(hash(one), hash(other), "{one:?} {other:?}");
            }
        }
        let pair = |a: &[u8], b: &[u8]| Digest::new(Kind::KeyValue).bytes(a).bytes(b).end();
        assert_ne!(pair(b"ab", b"c"), pair(b"a", b"bc"));
    }

    #[test]
    fn the_function_is_frozen() {
        let kv = KeyValue { key: "k".into(), value: "value-of-k".into(), version: 1, ..KeyValue::default() };
        assert_eq!(of_key_value(&kv), 11_593_882_121_860_475_843, "recorded in checkpoints");
    }
}
