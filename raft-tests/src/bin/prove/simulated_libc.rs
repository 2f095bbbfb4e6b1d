//! libc's chance and time, simulated: the linker takes these instead of libc's. With them the order of hash maps,
//! the choices of `select!` and every `Instant` are functions of the seed. In this binary only.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// State of the generator behind `getrandom`.
static CHANCE: AtomicU64 = AtomicU64::new(0);
/// Virtual nanoseconds.
static NOW: AtomicU64 = AtomicU64::new(0);
/// Every clock stands here when a seed begins: late enough for whoever subtracts from it.
const START: Duration = Duration::from_secs(1_700_000_000);

/// A seed begins.
pub fn begin(seed: u64) {
    CHANCE.store(seed, Ordering::Relaxed);
    set_time(Duration::ZERO);
}

/// Virtual time goes on.
pub fn set_time(now: Duration) {
    NOW.store((START + now).as_nanos() as u64, Ordering::Relaxed);
}

fn next() -> u64 {
    let mut z = CHANCE.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// # Safety
/// As libc's: `buffer` has room for `length` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut u8, length: usize, _flags: u32) -> isize {
    for at in 0..length {
        // SAFETY: the caller says that there is room.
        unsafe { buffer.add(at).write(next() as u8) };
    }
    length as isize
}

/// # Safety
/// As libc's: `time` is a valid place.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(_clock: libc::clockid_t, time: *mut libc::timespec) -> libc::c_int {
    let now = Duration::from_nanos(NOW.load(Ordering::Relaxed));
    let now = libc::timespec { tv_sec: now.as_secs() as libc::time_t, tv_nsec: now.subsec_nanos().into() };
    // SAFETY: the caller says that it is a valid place.
    unsafe { time.write(now) };
    0
}
