//! What openraft is told, and why.

use std::sync::Arc;
use std::time::Duration;

use openraft::{Config, SnapshotPolicy};

use crate::errors::StartError;
use crate::options::{RaftOptions, Timing};

/// openraft's configuration.
pub(crate) fn openraft_config(options: &RaftOptions) -> Result<Arc<Config>, StartError> {
    let Timing { heartbeat, election_min, election_max, install, .. } = options.timing;
    let ms = |d: Duration| d.as_millis() as u64;
    let config = Config {
        cluster_name: options.cluster_name.clone(),
        heartbeat_interval: ms(heartbeat),
        election_timeout_min: ms(election_min),
        election_timeout_max: ms(election_max),
        install_snapshot_timeout: ms(install),
        // Bytes bound an append (see the log store), not the count.
        max_payload_entries: 4096,
        // Checkpoints and purging are ours: see the checkpoint driver. Only `trigger().purge_log` purges, and a
        // follower is sent a checkpoint only if the entry it needs is gone.
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: u64::MAX,
        replication_lag_threshold: u64::MAX,
        // A follower that was cut off must not depose a healthy leader when it comes back.
        enable_pre_vote: Some(true),
        // A restarted leader's state may be behind what it once showed: it has to be elected again.
        enable_leader_restore: Some(false),
        // A leader that lost its quorum stops its heartbeats now and then, so that those who still hear it, and
        // each other, may elect another.
        quorum_loss_probe_interval: Some(2 * ms(election_max)),
        allow_log_reversion: None,
        ..Config::default()
    };
    let config = config.validate().map_err(|e| StartError::Config(format!("timing: {e}")))?;
    Ok(Arc::new(config))
}
