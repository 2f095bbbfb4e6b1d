//! What happened, step by step: a line an event, and a hash over all of them. Two runs of a seed must agree on it.

use std::fmt;
use std::io::{BufWriter, Write};
use std::time::Duration;

/// Events of one seed.
pub struct Trace {
    hash: u64,
    lines: u64,
    to: Option<BufWriter<std::fs::File>>,
}

impl Trace {
    /// A trace that is only hashed, or also written to a file.
    pub fn new(to: Option<std::fs::File>) -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, lines: 0, to: to.map(BufWriter::new) }
    }

    /// Notes an event at a virtual time.
    pub fn note(&mut self, at: Duration, event: impl fmt::Display) {
        let line = format!("{:>10.4} {event}\n", at.as_secs_f64());
        for byte in line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        self.lines += 1;
        if let Some(to) = &mut self.to
            && let Err(error) = to.write_all(line.as_bytes())
        {
            eprintln!("the event log cannot be written: {error}");
            self.to = None;
        }
    }

    /// Writes a line for whoever reads the event log; it does not count.
    pub fn explain(&mut self, text: impl fmt::Display) {
        if let Some(to) = &mut self.to {
            // A log that cannot be written was complained of when that began.
            let _ = writeln!(to, "           {text}");
        }
    }

    /// The hash so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Events so far.
    pub fn lines(&self) -> u64 {
        self.lines
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if let Some(to) = &mut self.to {
            let _ = to.flush();
        }
    }
}
