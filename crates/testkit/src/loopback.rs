//! Loopback addresses of a test's own: a port that a test leaves for a moment is still free when it comes back. On
//! 127.0.0.1 the system may give it away meanwhile, to an outgoing connection or to another test.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many addresses a process has before it meets those of the next process id.
const PER_PROCESS: u32 = 64;

/// An address of 127.0.0.0/8 that no other test uses at this time. On it bind port 0, and that port again later.
pub fn own_address() -> Ipv4Addr {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    address_of(std::process::id(), GIVEN.fetch_add(1, Ordering::Relaxed))
}

fn address_of(process: u32, given: u32) -> Ipv4Addr {
    let [_, high, middle, low] =
        process.wrapping_mul(PER_PROCESS).wrapping_add(given % PER_PROCESS).to_be_bytes();
    // 127.0.0.0/16 is left to those who ask for 127.0.0.1.
    Ipv4Addr::new(127, high.max(1), middle, low)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn each_is_another_one_and_none_is_the_usual_one() {
        // Two processes side by side. Other tests of this one take addresses meanwhile: the counter is not used.
        let of = |process| (0..PER_PROCESS).map(move |given| address_of(process, given));
        let addresses: BTreeSet<_> = of(4711).chain(of(4712)).collect();
        assert_eq!(addresses.len(), 2 * PER_PROCESS as usize);
        assert!(addresses.iter().all(|address| address.is_loopback() && address.octets()[1] > 0));
    }

    /// What takes a port on 127.0.0.1 does not take it here.
    #[test]
    fn a_port_that_is_taken_elsewhere_is_free_here() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = (own_address(), taken.local_addr().unwrap().port());
        let own = TcpListener::bind(here).unwrap();
        let connection = TcpStream::connect(here).unwrap();
        drop((own, connection));
        TcpListener::bind(here).unwrap();
    }
}
