//! Clients that live on leases: grant, hang keys on them, renew them in good time or at the last moment, revoke
//! them, or let them run out and look until the keys are gone.

use std::time::Duration;

use bytes::Bytes;
use meta_client::{Kv, KvError};
use meta_types::{LeaseId, PutRequest, RangeRequest};
use tokio::time::Instant;

use super::env::Client;

/// Where keys on leases are.
pub const PREFIX: &str = "l/";
/// Keys that all lease clients share, so that they move from lease to lease.
const SHARED_KEYS: usize = 3;
/// Shortest and longest time to live asked for. The store's minimum may be above.
const TTL_S: (usize, usize) = (1, 3);
/// How long after its end a lease is waited for.
const WAIT_FOR_END: Duration = Duration::from_secs(8);
/// How late a late renewal is at most: a leader looks four times a second.
const LATE: Duration = Duration::from_millis(300);
/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(250);

/// A client of leases.
pub struct LeaseClient {
    client: Client,
    pause: Duration,
    written: u64,
}

/// A lease of this client.
#[derive(Clone, Copy)]
struct Held {
    id: LeaseId,
    ttl: Duration,
}

impl LeaseClient {
    /// A client that has not begun.
    pub fn new(client: Client, pause: Duration) -> Self {
        Self { client, pause, written: 0 }
    }

    /// Lives one lease after the other until everything is over.
    pub async fn run(mut self) {
        let env = self.client.env.clone();
        env.until_over(async {
            loop {
                self.client.pause(self.pause).await;
                if let Some(lease) = self.grant().await {
                    self.live(lease).await;
                }
            }
        })
        .await;
    }

    async fn grant(&mut self) -> Option<Held> {
        let ttl = TTL_S.0 + self.client.chance.below(TTL_S.1 - TTL_S.0 + 1);
        // An id of our own shows after a lost answer whether there is a lease; 0 lets the store choose.
        let chosen = (self.client.chance.bits() as i64).unsigned_abs() as LeaseId;
        let id = if self.client.chance.one_in(2) { chosen.max(1) } else { 0 };
        self.client.count("lease grant");
        match self.client.kv.lease_grant(id, Duration::from_secs(ttl as u64)).await {
            Ok(granted) => Some(Held { id: granted.id, ttl: granted.ttl }),
            Err(KvError::Unknown(_)) if id != 0 => {
                let left = self.client.kv.lease_time_to_live(id).await.ok().flatten()?;
                Some(Held { id, ttl: left })
            }
            Err(_) => None,
        }
    }

    async fn live(&mut self, lease: Held) {
        for _ in 0..1 + self.client.chance.below(3) {
            self.attach(lease).await;
        }
        match self.client.chance.below(4) {
            0 => self.renew_in_time(lease).await,
            _ => self.renew_late(lease).await,
        }
        match self.client.chance.below(3) {
            0 => self.revoke(lease).await,
            _ => self.run_out(lease).await,
        }
    }

    fn key(&mut self) -> Bytes {
        let shared = self.client.chance.one_in(3);
        let name = if shared {
            format!("{PREFIX}{}", self.client.chance.below(SHARED_KEYS))
        } else {
            format!("{PREFIX}{}/{}", self.client.id, self.client.chance.below(3))
        };
        name.into()
    }

    async fn attach(&mut self, lease: Held) {
        self.written += 1;
        let value = format!("{}.{}", self.client.id, self.written).into();
        let request = PutRequest { key: self.key(), value, lease: lease.id, ..PutRequest::default() };
        self.client.count("put on a lease");
        if let Ok(reply) = self.client.kv.put(request).await {
            self.client.env.heard_of(reply.revision);
        }
    }

    /// True if it stands, or if nobody knows.
    async fn renew(&mut self, lease: Held) -> bool {
        self.client.count("lease keep-alive");
        match self.client.kv.lease_keep_alive(lease.id).await {
            Ok(None) => {
                self.client.count("lease found gone");
                false
            }
            Ok(Some(_)) | Err(_) => true,
        }
    }

    async fn renew_in_time(&mut self, lease: Held) {
        for _ in 0..2 + self.client.chance.below(6) {
            self.client.sleep(lease.ttl / 5, lease.ttl / 2).await;
            if !self.renew(lease).await {
                return;
            }
            if self.client.chance.one_in(3) {
                self.attach(lease).await;
            }
        }
    }

    /// Renews just after the lease ran out, when its revocation is on its way: the log decides which came first.
    async fn renew_late(&mut self, lease: Held) {
        for _ in 0..2 + self.client.chance.below(6) {
            self.client.sleep(lease.ttl, lease.ttl + LATE).await;
            if !self.renew(lease).await {
                return;
            }
            if self.client.chance.one_in(3) {
                self.attach(lease).await;
            }
            self.look(lease).await;
        }
    }

    async fn revoke(&mut self, lease: Held) {
        self.client.count("lease revoke");
        // A refusal is an answer too: it ran out before.
        let _ = self.client.kv.lease_revoke(lease.id).await;
        self.look(lease).await;
    }

    /// Looks at the lease and at the keys.
    async fn look(&mut self, lease: Held) -> Option<Option<Duration>> {
        self.client.count("lease time-to-live");
        let left = self.client.kv.lease_time_to_live(lease.id).await.ok();
        if let Ok(reply) = self.client.kv.range(RangeRequest::prefix(PREFIX)).await {
            self.client.env.heard_of(reply.revision);
        }
        left
    }

    /// Looks until the lease is gone, for a bounded time, and tries to hang a key on what is gone.
    async fn run_out(&mut self, lease: Held) {
        self.client.sleep(lease.ttl / 2, lease.ttl).await;
        let end = Instant::now() + lease.ttl + WAIT_FOR_END;
        while Instant::now() < end {
            if self.look(lease).await == Some(None) {
                self.client.count("lease ran out");
                return self.attach(lease).await;
            }
            self.client.pause(LOOK).await;
        }
    }
}
