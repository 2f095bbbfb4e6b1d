//! The whole state at one entry as sorted records, and back.
//!
//! `freeze` pins the state by cloning the roots of its trees; `export_step` then walks the pinned trees while
//! writes go on; `import` builds an equal state from the records: same hash, same answers, same watch history.

mod export;
mod import;
mod layout;

pub use self::export::Frozen;
pub use self::import::ImportError;

use crate::core::Core;

/// A key and a value of a checkpoint. First bytes 0x10 to 0x1f are this crate's; a container may add records of
/// its own before and after them.
pub type Record = (Vec<u8>, Vec<u8>);

impl Core {
    /// Pins the state at the applied entry, cheaply. Writers copy what they touch until the pin is dropped.
    pub fn freeze(&self) -> Frozen {
        Frozen::of(self)
    }

    /// The next records in ascending order of keys, about `max_bytes` of them and at least one; empty when all
    /// are out. Needs nothing of `self`: the same as `Frozen::step`.
    pub fn export_step(&self, frozen: &mut Frozen, max_bytes: usize) -> Vec<Record> {
        frozen.step(max_bytes)
    }

    /// Lets go of a pin. Dropping it does the same.
    pub fn thaw(&self, frozen: Frozen) {
        drop(frozen);
    }

    /// Builds the state from all records of a checkpoint, in order. Checked: order, completeness, that history has
    /// no gap, and that the hash is the one recorded.
    pub fn import<K, V>(records: impl Iterator<Item = (K, V)>) -> Result<Self, ImportError>
    where
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        import::import(records)
    }
}
