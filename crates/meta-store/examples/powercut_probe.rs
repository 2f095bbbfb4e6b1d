//! Writes a log and sled generations as fast as it can, and says what is durable; or checks that all of it is
//! there. For a power cut between the two: `powercut_probe write|verify DATA_DIR ACKNOWLEDGED_FILE`.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use meta_store::{Generations, LogEntry, Position, RealDisk, SledGenerations, Wal, WalOptions};

type Outcome = Result<(), Box<dyn std::error::Error>>;

const SYNCS_PER_GENERATION: u64 = 8;

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, mode, data, acknowledged] = &arguments[..] else {
        return Err("powercut_probe write|verify DATA_DIR ACKNOWLEDGED_FILE".into());
    };
    let (data, acknowledged) = (Path::new(data), Path::new(acknowledged));
    if mode == "write" { write(data, acknowledged) } else { verify(data, acknowledged) }
}

fn open(data: &Path) -> Result<(Wal, SledGenerations), Box<dyn std::error::Error>> {
    let options = WalOptions { segment_bytes: 1 << 20, ..WalOptions::default() };
    let (wal, recovered) = Wal::open(Arc::new(RealDisk), &data.join("wal"), options)?;
    if let Some((file, offset, bytes)) = recovered.torn_tail {
        println!("cut a torn tail of {bytes} bytes at {offset} of {}", file.display());
    }
    Ok((wal, SledGenerations::open_dir(&data.join("checkpoints"))?))
}

/// Everything about entry `index` follows from its index: 1 byte to 100 KB, now and then.
fn payload(index: u64) -> Vec<u8> {
    let mixed = index.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let len = if mixed >> 59 == 0 { 100_000 } else { 1 + (mixed >> 50) % 3000 };
    (0..len).map(|at| (mixed >> (at % 8 * 8)) as u8).collect()
}

fn write(data: &Path, acknowledged: &Path) -> Outcome {
    let (wal, generations) = open(data)?;
    let mut ack = OpenOptions::new().append(true).create(true).open(acknowledged)?;
    let mut index = wal.last().map_or(1, |last| last.index + 1);
    for syncs in 1.. {
        let until = index + 1 + index % 40;
        wal.append((index..until).map(entry))?;
        index = until;
        wal.sync()?;
        writeln!(ack, "entry {}", index - 1)?;
        if syncs % SYNCS_PER_GENERATION == 0 {
            let position = Position { term: 1, index: index - 1 };
            let records = (0..500).map(|i| Ok((format!("{i:08}").into_bytes(), payload(index + i))));
            let built = generations.build(position, &[], &mut records.into_iter())?;
            generations.prune(2)?;
            wal.purge(position)?;
            writeln!(ack, "generation {}", built.number)?;
        }
    }
    Ok(())
}

fn entry(index: u64) -> LogEntry {
    LogEntry { position: Position { term: 1, index }, payload: payload(index).into() }
}

fn verify(data: &Path, acknowledged: &Path) -> Outcome {
    let (wal, generations) = open(data)?;
    let text = std::fs::read_to_string(acknowledged)?;
    let largest = |what: &str| {
        text.lines().filter_map(|line| line.strip_prefix(what)?.trim().parse().ok()).max().unwrap_or(0u64)
    };
    let last = wal.last().map_or(0, |last| last.index);
    if last < largest("entry ") {
        return Err(format!("entry {} was acknowledged, the log ends at {last}", largest("entry ")).into());
    }
    for index in wal.first_index().unwrap_or(last + 1)..=last {
        if wal.read(index..index + 1)? != [entry(index)] {
            return Err(format!("entry {index} is another").into());
        }
    }
    let mut newest = 0;
    for found in generations.list()? {
        let generation = found.map_err(|bad| io::Error::other(format!("{}: {}", bad.name, bad.error)))?;
        generations.verify(&generation)?;
        newest = newest.max(generation.number);
    }
    if newest < largest("generation ") {
        return Err(format!("generation {} was acknowledged, not {newest}", largest("generation ")).into());
    }
    println!("entries {:?}..={last}, newest generation {newest}", wal.first_index());
    Ok(())
}
