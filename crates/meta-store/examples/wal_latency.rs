//! What a durable append of 256 bytes costs on this disk, by how much is written ahead:
//! `cargo run --example wal_latency -- DIRECTORY`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use meta_store::{LogEntry, Position, RealDisk, Wal, WalOptions};

const PAYLOAD_BYTES: usize = 256;
const RUN: Duration = Duration::from_secs(2);

fn main() {
    let home = PathBuf::from(std::env::args().nth(1).expect("a directory on the disk to measure"));
    for batch in [1, 64] {
        for prewrite_kib in [0, 64, 256, 1024] {
            let dir = home.join(format!("wal-latency-{}", std::process::id()));
            let mut took = measure(&dir, batch, prewrite_kib << 10);
            std::fs::remove_dir_all(&dir).expect("the scratch log can be removed");
            took.sort_unstable();
            let at = |permille: usize| took[(took.len() - 1) * permille / 1000].as_micros();
            println!(
                "batch {batch:3}, {prewrite_kib:5} KiB ahead: {:6} syncs, p50 {} us, p99 {} us, p99.9 {} us",
                took.len(),
                at(500),
                at(990),
                at(999)
            );
        }
    }
}

fn measure(dir: &std::path::Path, batch: u64, prewrite_bytes: u64) -> Vec<Duration> {
    let options = WalOptions { prewrite_bytes, ..WalOptions::default() };
    let (wal, _) = Wal::open(Arc::new(RealDisk), dir, options).expect("a log opens here");
    let payload = Bytes::from(vec![7; PAYLOAD_BYTES]);
    let (start, mut index, mut took) = (Instant::now(), 0, Vec::new());
    while start.elapsed() < RUN {
        let begun = Instant::now();
        let entries = (index..index + batch)
            .map(|index| LogEntry { position: Position { term: 1, index }, payload: payload.clone() });
        wal.append(entries).expect("the log takes entries");
        wal.sync().expect("the disk syncs");
        took.push(begun.elapsed());
        index += batch;
    }
    took
}
