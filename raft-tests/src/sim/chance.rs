//! All chance of a seed: one generator, forked by name so that a change of one part does not shift the others.

use std::sync::Arc;
use std::time::Duration;

use meta_types::seams::Rng;
use parking_lot::Mutex;

/// splitmix64, seeded. Clones share the state.
#[derive(Debug, Clone)]
pub struct Chance(Arc<Mutex<u64>>);

impl Chance {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(seed)))
    }

    /// A generator of its own for the part `name` of the world.
    pub fn fork(&self, name: &str) -> Self {
        let mut hash = 0xcbf2_9ce4_8422_2325 ^ *self.0.lock();
        for byte in name.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        Self::new(mix(hash))
    }

    /// A number below `n`, which is above 0.
    pub fn below(&self, n: u64) -> u64 {
        self.next_u64() % n
    }

    /// A number from `low` to `high`, both included.
    pub fn within(&self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// A time from `low` to `high` milliseconds.
    pub fn millis(&self, low: u64, high: u64) -> Duration {
        Duration::from_millis(self.within(low, high))
    }

    /// True once in `n` times.
    pub fn one_in(&self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of them.
    pub fn pick<'a, T>(&self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }

    /// Puts them into another order.
    pub fn shuffle<T>(&self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

impl Rng for Chance {
    fn next_u64(&self) -> u64 {
        let mut state = self.0.lock();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(*state)
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_depends_on_its_name_and_the_seed_only() {
        let of = |seed: u64, name: &str| Chance::new(seed).fork(name).next_u64();
        assert_eq!(of(1, "disk"), of(1, "disk"));
        assert_ne!(of(1, "disk"), of(1, "net"));
        assert_ne!(of(1, "disk"), of(2, "disk"));
    }

    #[test]
    fn a_shuffle_keeps_everything() {
        let mut items: Vec<u32> = (0..100).collect();
        Chance::new(3).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
