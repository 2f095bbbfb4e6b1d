//! Leases that records of what is over hang on. One lease serves all that ends within a few minutes, so that a
//! completed run costs no lease of its own; its time to live is the retention plus those minutes.

use std::time::Duration;

use meta_client::{Kv, KvError};
use meta_types::LeaseId;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// A lease is used for new records for at most so long.
const MAX_SHARED: Duration = Duration::from_secs(300);

/// One kind of retention.
#[derive(Debug)]
pub struct Retention {
    keep: Duration,
    current: Mutex<Option<(LeaseId, Instant)>>,
}

impl Retention {
    /// Records are kept at least so long; zero = for ever.
    pub fn new(keep: Duration) -> Self {
        Self { keep, current: Mutex::new(None) }
    }

    /// The lease for a record that is over now; 0 = none.
    pub async fn lease(&self, kv: &dyn Kv) -> Result<LeaseId, KvError> {
        if self.keep.is_zero() {
            return Ok(0);
        }
        // An async lock: the first of many waits for the grant, the others take its lease.
        let mut current = self.current.lock().await;
        if let Some((id, until)) = *current
            && Instant::now() < until
        {
            return Ok(id);
        }
        let shared = MAX_SHARED.min(self.keep);
        let granted = kv.lease_grant(0, self.keep + shared).await?;
        *current = Some((granted.id, Instant::now() + shared));
        Ok(granted.id)
    }
}

/// The three kinds.
#[derive(Debug)]
pub struct Retentions {
    /// Of completed runs.
    pub run: Retention,
    /// Of tokens.
    pub token: Retention,
    /// Of jobs that are over.
    pub job: Retention,
}
