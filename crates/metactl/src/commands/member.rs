//! `metactl member`.

use clap::Subcommand;
use meta_api::pb::etcdserverpb as pb;
use serde_json::json;

use crate::{
    cli::Globals,
    exit::{Done, Failure, OK},
    show,
    store::Store,
};

/// The replicas of the store.
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:\n  metactl member list")]
pub enum Member {
    /// Lists the replicas.
    List,
}

impl Member {
    /// Runs it.
    pub async fn run(self, globals: &Globals) -> Done {
        match self {
            Self::List => list(globals).await,
        }
    }
}

async fn list(globals: &Globals) -> Done {
    let store = Store::connect(globals).await?;
    let reply = members(&store).await?;
    if globals.json() {
        let members: Vec<_> = reply
            .members
            .iter()
            .map(|member| {
                json!({
                    "ID": member.id, "name": member.name, "peerURLs": member.peer_ur_ls,
                    "clientURLs": member.client_ur_ls, "isLearner": member.is_learner,
                })
            })
            .collect();
        show::json_line(&json!({ "header": show::header(reply.header.as_ref()), "members": members }))?;
        return Ok(OK);
    }
    let row = |member: &pb::Member| {
        let status = if member.name.is_empty() { "unstarted" } else { "started" };
        vec![
            format!("{:x}", member.id),
            status.to_owned(),
            member.name.clone(),
            member.peer_ur_ls.join(","),
            member.client_ur_ls.join(","),
            member.is_learner.to_string(),
        ]
    };
    let rows: Vec<_> = reply.members.iter().map(row).collect();
    show::table(&["id", "status", "name", "peer-urls", "client-urls", "learner"], &rows)?;
    Ok(OK)
}

/// The members as this replica knows them.
pub async fn members(store: &Store) -> Result<pb::MemberListResponse, Failure> {
    let request = pb::MemberListRequest { linearizable: true };
    let reply = store.cluster().member_list(request).await;
    Ok(reply.map_err(|status| store.failure(&status, ""))?.into_inner())
}
