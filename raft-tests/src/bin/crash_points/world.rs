//! A store of three replicas, a dispatcher, two server nodes: all processes.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use meta_client::{EtcdKv, EtcdOptions, Kv};
use records::record::NodeRef;
use records::{Scope, View};
use testkit::{Cluster, ClusterOptions};
use tokio::time::{sleep, timeout};

use crate::judge::{self, BOUND, Disk};
use crate::party::Party;
use crate::wishes;

/// How long a dispatcher waits before it gives up what dead nodes left: long enough that a node which can go on with a
/// create of a dead coordinator has done so.
const GRACE: &str = "2s";
/// The lease of the dispatcher on paper: longer than any run.
const HOURS: Duration = Duration::from_secs(6 * 3600);
/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// Nodes look for blobs of no package once a minute.
const BLOBS_GONE: Duration = Duration::from_secs(180);

/// Dropped, all of it is stopped.
pub struct World {
    pub kv: Arc<dyn Kv>,
    /// Runs are admitted in its name.
    pub dispatcher: NodeRef,
    pub lease: i64,
    pub first: Party,
    pub second: Party,
    pub cluster: Cluster,
}

impl World {
    pub async fn start() -> Result<Self> {
        // It places jobs and reconciles, and is no server node: no target of a package.
        let options = ClusterOptions::new(3, 1, 0)
            .set("jobmanager.jobmaster.single.enable", "true")
            .set("icp.grace", GRACE);
        let cluster = Cluster::start(&options);
        let (endpoints, dir) = (cluster.endpoints.join(","), cluster.path());
        testkit::fake_java::write(dir);
        let kv = Arc::new(EtcdKv::connect(endpoints.split(','), EtcdOptions::default())?);
        let lease = kv.lease_grant(0, HOURS).await?.id;
        let dispatcher = wishes::register_dispatcher(&*kv, lease).await?;
        let first = Party::start("a", &endpoints, dir).await?;
        let second = Party::start("b", &endpoints, dir).await?;
        Ok(Self { kv, dispatcher, lease, first, second, cluster })
    }

    /// The node `name` once more.
    pub async fn restarted(&self, name: &str) -> Result<Party> {
        Party::start(name, &self.cluster.endpoints.join(","), self.cluster.path()).await
    }

    /// Kills the store's leader; the replica's name.
    pub fn kill_leader(&self) -> Result<String> {
        let endpoint = self.cluster.kill_leader();
        match self.cluster.endpoints.iter().position(|at| *at == endpoint) {
            Some(place) => Ok(format!("replica-{}", place + 1)),
            None => bail!("{endpoint} is none of {:?}", self.cluster.endpoints),
        }
    }

    pub fn disks(&self) -> [Disk<'_>; 2] {
        [&self.first, &self.second].map(Party::disk)
    }

    /// All records; an error while the store has no leader.
    pub async fn view(&self) -> Result<View> {
        Ok(View::load(&*self.kv, Scope::everything()).await?)
    }

    /// Looks until `is` says so.
    pub async fn until(&self, what: &str, is: impl Fn(&View) -> bool) -> Result<()> {
        let look = async {
            loop {
                // What cannot be read now is read by the next look.
                if self.view().await.is_ok_and(|view| is(&view)) {
                    return;
                }
                sleep(LOOK).await;
            }
        };
        if timeout(BOUND, look).await.is_err() {
            bail!("not {what} within {BOUND:?}:\n{}", judge::told(&self.view().await?, &self.disks()));
        }
        Ok(())
    }

    /// `metactl doctor` finds nothing.
    pub fn doctor(&self) -> Result<()> {
        let said = self.cluster.ctl().run(&["doctor"]);
        let text = String::from_utf8_lossy(&said.stdout);
        ensure!(said.status.success(), "metactl doctor: {text}{}", String::from_utf8_lossy(&said.stderr));
        Ok(())
    }

    /// The nodes have collected what belongs to no package.
    pub async fn until_no_blob_is_left(&self) -> Result<()> {
        let blobs = || self.disks().map(|disk| judge::tree(&disk.work_dir.join("icp-store/blobs"))).concat();
        let look = async {
            while !blobs().is_empty() {
                sleep(LOOK).await;
            }
        };
        ensure!(timeout(BLOBS_GONE, look).await.is_ok(), "left after {BLOBS_GONE:?}: {:?}", blobs());
        Ok(())
    }
}
