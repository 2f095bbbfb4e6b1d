//! One server node in a process of its own. It says on stdout what happens to it, a line each, and is told on stdin what
//! to do:
//!
//!     registered ADDRESS       once, at the start
//!     trap POINT  -> armed     whoever comes to the step of this point (its place in the table) is held there
//!                    sprung    somebody came
//!     go                       the held one goes on
//!
//! It ends with its stdin: nothing is left when the program that started it dies.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use jobmaster::{HostConfig, Node, NodeOptions};
use meta_client::{EtcdKv, EtcdOptions};
use process_kit::{ByteSize, Shutdown};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::points::Who::Leader;
use crate::points::{Point, points};
use crate::trap::When::After;
use crate::trap::{Fate, Trap, TrapKv};

/// The lease of a node: dead ones are noticed soon.
pub const LEASE: Duration = Duration::from_secs(3);

/// NAME ENDPOINTS WORK-DIR JAVA
pub async fn run(arguments: &[String]) -> Result<()> {
    let [name, endpoints, work_dir, java] = arguments else {
        bail!("usage: node NAME ENDPOINTS WORK-DIR JAVA")
    };
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let kv = EtcdKv::connect(endpoints.split(','), EtcdOptions::default())?;
    let kv = Arc::new(TrapKv::new(Arc::new(kv)));
    let options = NodeOptions {
        name: name.clone(),
        slots: 4,
        lease: LEASE,
        host: HostConfig {
            work_dir: work_dir.into(),
            listen_node: "127.0.0.1:0".parse()?,
            java: java.clone(),
            min_free: ByteSize(0),
            keep_alive: LEASE / 4,
            lease_margin: LEASE / 4,
            ..HostConfig::default()
        },
        ..NodeOptions::default()
    };
    options.check()?;
    let node = Node::start(kv.clone(), options, Shutdown::new()).await?;
    node.session().wait_for(Option::is_some).await?;
    println!("registered {}", node.address());
    let mut told = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = told.next_line().await? {
        match line.split_once(' ') {
            Some(("trap", place)) => set_trap(kv.clone(), place)?,
            None if line == "go" => kv.go_on(),
            _ => bail!("{line:?} is no order"),
        }
    }
    Ok(())
}

fn set_trap(kv: Arc<TrapKv>, place: &str) -> Result<()> {
    let point = points().get(place.parse::<usize>()?).copied().context("no such point")?;
    kv.set(trap_of(point));
    println!("armed");
    tokio::spawn(async move {
        kv.sprung().await;
        println!("sprung");
    });
    Ok(())
}

/// A write that was carried out before the leader died is not answered; all other is as it comes.
fn trap_of((_, _, step, when, dies, _): Point) -> Trap {
    let fate = if dies == Leader && when == After { Fate::Unanswered { away: 0 } } else { Fate::Held };
    Trap { step, when, fate }
}
