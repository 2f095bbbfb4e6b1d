//! `metactl lease`.

use std::time::Duration;

use clap::Subcommand;
use meta_api::pb::etcdserverpb as pb;
use serde_json::json;
use tokio_stream::wrappers::ReceiverStream;

use crate::{
    cli::Globals,
    exit::{Done, Failure, NOT_FOUND, OK},
    show,
    store::Store,
    txn_text::lease_id,
};

const EXAMPLES: &str = "Examples:
  metactl lease grant 60
  metactl put /app/alive yes --lease 694d5765fc71500b
  metactl lease keep-alive 694d5765fc71500b --once
  metactl lease timetolive 694d5765fc71500b --keys";

/// Leases: keys that end with whoever keeps them alive. Ids are hexadecimal.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Lease {
    /// Makes a lease.
    Grant {
        /// Seconds it lives without a keep-alive.
        ttl: i64,
    },
    /// Ends a lease and deletes its keys.
    Revoke {
        /// The lease.
        #[arg(value_parser = lease_id)]
        id: i64,
    },
    /// Says how long a lease still lives.
    #[command(name = "timetolive")]
    TimeToLive {
        /// The lease.
        #[arg(value_parser = lease_id)]
        id: i64,
        /// Also its keys.
        #[arg(long)]
        keys: bool,
    },
    /// Keeps a lease alive until it is stopped.
    KeepAlive {
        /// The lease.
        #[arg(value_parser = lease_id)]
        id: i64,
        /// Once, and exits.
        #[arg(long)]
        once: bool,
    },
    /// Lists the leases.
    List,
}

impl Lease {
    /// Runs it.
    pub async fn run(self, globals: &Globals) -> Done {
        let store = Store::connect(globals).await?;
        match self {
            Self::Grant { ttl } => grant(globals, &store, ttl).await,
            Self::Revoke { id } => revoke(globals, &store, id).await,
            Self::TimeToLive { id, keys } => time_to_live(globals, &store, id, keys).await,
            Self::KeepAlive { id, once } => keep_alive(globals, &store, id, once).await,
            Self::List => list(globals, &store).await,
        }
    }
}

async fn grant(globals: &Globals, store: &Store, ttl: i64) -> Done {
    let reply = store.lease().lease_grant(pb::LeaseGrantRequest { ttl, id: 0 }).await;
    let reply = reply.map_err(|status| store.failure(&status, "lease list"))?.into_inner();
    if globals.json() {
        let header = show::header(reply.header.as_ref());
        show::json_line(&json!({ "header": header, "id": reply.id, "ttl": reply.ttl }))?;
    } else {
        println!("lease {:016x} granted with TTL({}s)", reply.id, reply.ttl);
    }
    Ok(OK)
}

async fn revoke(globals: &Globals, store: &Store, id: i64) -> Done {
    let reply = store.lease().lease_revoke(pb::LeaseRevokeRequest { id }).await;
    let reply =
        reply.map_err(|status| store.failure(&status, &format!("lease timetolive {id:x}")))?.into_inner();
    if globals.json() {
        show::json_line(&json!({ "header": show::header(reply.header.as_ref()) }))?;
    } else {
        println!("lease {id:016x} revoked");
    }
    Ok(OK)
}

async fn time_to_live(globals: &Globals, store: &Store, id: i64, keys: bool) -> Done {
    let reply = store.lease().lease_time_to_live(pb::LeaseTimeToLiveRequest { id, keys }).await;
    let reply = reply.map_err(|status| store.failure(&status, ""))?.into_inner();
    if globals.json() {
        let keys: Vec<_> = reply.keys.iter().map(|key| show::base64(key)).collect();
        show::json_line(&json!({
            "header": show::header(reply.header.as_ref()),
            "id": reply.id, "ttl": reply.ttl, "granted-ttl": reply.granted_ttl, "keys": keys,
        }))?;
        return Ok(OK);
    }
    if reply.ttl < 0 {
        println!("lease {id:016x} already expired");
        return Ok(OK);
    }
    print!("lease {id:016x} granted with TTL({}s), remaining({}s)", reply.granted_ttl, reply.ttl);
    if keys {
        let keys: Vec<_> = reply.keys.iter().map(|key| String::from_utf8_lossy(key)).collect();
        print!(", attached keys([{}])", keys.join(" "));
    }
    println!();
    Ok(OK)
}

async fn keep_alive(globals: &Globals, store: &Store, id: i64, once: bool) -> Done {
    let (send, requests) = tokio::sync::mpsc::channel(1);
    let request = pb::LeaseKeepAliveRequest { id };
    let sent = |_| Failure::unavailable("the stream of keep-alives ended");
    send.send(request).await.map_err(sent)?;
    let answers = store.lease().lease_keep_alive(ReceiverStream::new(requests)).await;
    let mut answers = answers.map_err(|status| store.failure(&status, ""))?.into_inner();
    loop {
        let answer = answers.message().await.map_err(|status| store.failure(&status, ""))?;
        let answer = answer.ok_or_else(|| Failure::unavailable("the stream of keep-alives ended"))?;
        if answer.ttl <= 0 {
            return Err(Failure::new(NOT_FOUND, format!("lease {id:016x} expired or revoked")));
        }
        if globals.json() {
            show::json_line(&json!({ "id": answer.id, "ttl": answer.ttl }))?;
        } else {
            println!("lease {id:016x} keepalived with TTL({})", answer.ttl);
        }
        if once {
            return Ok(OK);
        }
        let third = u64::try_from(answer.ttl).unwrap_or(1).saturating_mul(1000) / 3;
        tokio::time::sleep(Duration::from_millis(third)).await;
        send.send(request).await.map_err(sent)?;
    }
}

async fn list(globals: &Globals, store: &Store) -> Done {
    let reply = store.lease().lease_leases(pb::LeaseLeasesRequest {}).await;
    let reply = reply.map_err(|status| store.failure(&status, ""))?.into_inner();
    if globals.json() {
        let ids: Vec<_> = reply.leases.iter().map(|lease| json!({ "id": lease.id })).collect();
        show::json_line(&json!({ "header": show::header(reply.header.as_ref()), "leases": ids }))?;
        return Ok(OK);
    }
    println!("found {} leases", reply.leases.len());
    for lease in &reply.leases {
        println!("{:016x}", lease.id);
    }
    Ok(OK)
}
