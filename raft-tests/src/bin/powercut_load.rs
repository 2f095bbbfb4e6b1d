//! The load and the check behind `raft-tests/powercut.sh`: a replica under writes whose power is cut.
//!
//! `powercut_load write|verify -- REPLICA COMMAND...` starts the replica as a child in its own process group.
//! `write` puts values of 1 B to 1 MB for ever and appends each acknowledged one to `$POWERCUT_ACK`, after the
//! acknowledgement came. `verify` waits until the replica serves and wants every slot at or above the counter that
//! was last acknowledged, whole. `$POWERCUT_ENDPOINTS`: where to write and read.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use meta_client::{EtcdKv, EtcdOptions, Kv};
use meta_types::{PutRequest, RangeRequest};
use rand::Rng;

/// Clients that write, each with slots of its own, one write in flight each.
const CLIENTS: usize = 8;
/// Slots of one client: bounds the live data.
const SLOTS: usize = 16;
/// Largest value, in bytes.
const LARGEST: f64 = 1_000_000.0;
/// Longest wait for the replica to serve after a cut.
const START: Duration = Duration::from_secs(30);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (mode, command) = match args.split_first() {
        Some((mode, [dashes, command @ ..])) if dashes == "--" && !command.is_empty() => {
            (mode.as_str(), command)
        }
        _ => bail!("usage: powercut_load write|verify -- REPLICA COMMAND..."),
    };
    let ack = std::env::var("POWERCUT_ACK").context("POWERCUT_ACK names the file of acknowledgements")?;
    let endpoints = std::env::var("POWERCUT_ENDPOINTS").context("POWERCUT_ENDPOINTS names the replicas")?;
    let acknowledged = read_acknowledged(&ack)?;
    let mut replica =
        Command::new(&command[0]).args(&command[1..]).spawn().context("starting the replica")?;
    let endpoints: Vec<String> = endpoints.split(',').map(str::to_owned).collect();
    let kv = Arc::new(EtcdKv::connect(&endpoints, EtcdOptions::default())?);
    wait_until_it_serves(&kv, &mut replica).await?;
    match mode {
        "write" => write_for_ever(kv, &ack, acknowledged).await,
        "verify" => {
            let result = verify(&kv, &acknowledged).await;
            replica.kill().context("stopping the replica")?;
            replica.wait()?;
            result
        }
        other => bail!("unknown mode {other}"),
    }
}

fn read_acknowledged(path: &str) -> Result<BTreeMap<String, u64>> {
    let mut last = BTreeMap::new();
    for line in std::fs::read_to_string(path).unwrap_or_default().lines() {
        let (slot, counter) = line.split_once(' ').with_context(|| format!("line {line:?} in {path}"))?;
        let counter: u64 = counter.parse()?;
        let known = last.entry(slot.to_owned()).or_insert(counter);
        *known = counter.max(*known);
    }
    Ok(last)
}

async fn wait_until_it_serves(kv: &EtcdKv, replica: &mut Child) -> Result<()> {
    let deadline = std::time::Instant::now() + START;
    loop {
        if let Some(status) = replica.try_wait()? {
            bail!("the replica ended at start: {status}");
        }
        match kv.range(RangeRequest::get("pc/probe")).await {
            Ok(_) => return Ok(()),
            Err(error) => {
                ensure!(std::time::Instant::now() < deadline, "not serving within {START:?}: {error}")
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn write_for_ever(kv: Arc<EtcdKv>, ack: &str, acknowledged: BTreeMap<String, u64>) -> Result<()> {
    let file = std::fs::OpenOptions::new().create(true).append(true).open(ack)?;
    let file = Arc::new(Mutex::new(file));
    // Above every counter that an earlier cycle may have written without an answer.
    let base = acknowledged.values().max().copied().unwrap_or(0) + 1_000_000;
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..CLIENTS {
        let (kv, file) = (kv.clone(), file.clone());
        clients.spawn(async move {
            for counter in base.. {
                let slot = format!("pc/{client}-{}", counter as usize % SLOTS);
                let size = LARGEST.powf(rand::rng().random_range(0.0..=1.0)) as usize;
                let put = PutRequest {
                    key: slot.clone().into(),
                    value: value_of(&slot, counter, size),
                    ..PutRequest::default()
                };
                kv.put(put).await?;
                // One write a line: the kill must not leave half of one.
                let line = format!("{slot} {counter}\n");
                file.lock().expect("no writer panics").write_all(line.as_bytes())?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = clients.join_next().await {
        done??;
    }
    Ok(())
}

/// `counter size ` and then bytes that follow from the slot and the counter.
fn value_of(slot: &str, counter: u64, size: usize) -> Bytes {
    let mut value = format!("{counter} {size} ").into_bytes();
    let mut state = counter
        ^ slot.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    let end = value.len() + size;
    while value.len() < end {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        value.extend_from_slice(&state.to_le_bytes());
    }
    value.truncate(end);
    value.into()
}

async fn verify(kv: &EtcdKv, acknowledged: &BTreeMap<String, u64>) -> Result<()> {
    for (slot, counter) in acknowledged {
        let found = kv.range(RangeRequest::get(slot.clone())).await?;
        let kv =
            found.value.kvs.first().with_context(|| format!("{slot} is gone, acknowledged at {counter}"))?;
        let text = String::from_utf8_lossy(&kv.value[..kv.value.len().min(40)]).into_owned();
        let mut words = text.split(' ');
        let stored: u64 = words.next().unwrap_or_default().parse().context("the counter in the value")?;
        let size: usize = words.next().unwrap_or_default().parse().context("the size in the value")?;
        ensure!(stored >= *counter, "{slot} went back to {stored}, acknowledged was {counter}");
        ensure!(
            kv.value == value_of(slot, stored, size),
            "{slot} at {stored} has other bytes than were written"
        );
    }
    println!("{} slots are at or above what was acknowledged", acknowledged.len());
    Ok(())
}
