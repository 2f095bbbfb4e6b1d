//! Two things a member sees to once it serves: the cluster's description is in the state, and its own addresses
//! are in the membership.

use std::sync::Arc;
use std::time::Duration;

use meta_types::Command;
use tokio::sync::watch;

use crate::leader::LeaderDesk;
use crate::net::message::{Reply, Request};
use crate::net::peers::Peers;
use crate::net::server::announce;
use crate::proposer::Proposer;
use crate::state::State;
use crate::status::RaftStatus;
use crate::types::Member;

/// The feature level of a new cluster.
const FEATURE_LEVEL: u32 = 1;
/// How long one attempt may take.
const ATTEMPT: Duration = Duration::from_secs(5);
/// Between two attempts.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// See the module.
pub(crate) struct Upkeep {
    pub(crate) cluster_name: String,
    pub(crate) mine: Member,
    pub(crate) desk: LeaderDesk,
    pub(crate) peers: Arc<Peers>,
    pub(crate) state: Arc<State>,
    pub(crate) proposer: Arc<Proposer>,
    pub(crate) status: watch::Receiver<RaftStatus>,
}

impl Upkeep {
    /// Runs until both are seen to.
    pub(crate) async fn run(mut self) {
        loop {
            let served = self.status.wait_for(|status| status.serving && status.leader.is_some()).await;
            let Ok(status) = served.map(|status| status.clone()) else { return };
            let described = self.state.core.read().cluster().is_some();
            let listed = status.members.iter().find(|m| m.id == status.member_id);
            let moved = listed.is_some_and(|listed| listed.member != self.mine);
            if described && !moved {
                return;
            }
            if !described && status.is_leader() {
                self.describe(&status).await;
            }
            if moved {
                self.announce(&status).await;
            }
            tokio::time::sleep(RETRY_AFTER).await;
        }
    }

    async fn describe(&self, status: &RaftStatus) {
        let command = Command::SetCluster {
            cluster_id: status.cluster_id,
            name: self.cluster_name.clone().into(),
            feature_level: FEATURE_LEVEL,
        };
        if let Err(error) = self.proposer.propose(&command, ATTEMPT).await {
            tracing::debug!(%error, "the cluster's description is not in the state yet");
        }
    }

    async fn announce(&self, status: &RaftStatus) {
        let leader = status.members.iter().find(|member| Some(member.id) == status.leader);
        let Some(leader) = leader else { return };
        let why = if status.is_leader() {
            announce(&self.desk, status.member_id, self.mine.clone()).await
        } else {
            let links = self.peers.links(leader.id, &leader.member.peer_addr);
            let request = Request::Announce { id: status.member_id, member: self.mine.clone() };
            match links.control.call(request, vec![], ATTEMPT).await {
                Ok(Reply::Announce(why)) => why,
                Ok(other) => Some(format!("{other:?}")),
                Err(error) => Some(error.to_string()),
            }
        };
        if let Some(why) = why {
            tracing::warn!(why, "this replica's new addresses are not in the membership yet");
        }
    }
}
