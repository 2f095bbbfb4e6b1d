//! Endpoints, the rotation among them, and one loop that every call goes through.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use meta_api::status::{ErrorClass, classify};
use meta_types::seams::Rng;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use crate::kv::KvError;

/// How a client behaves.
#[derive(Debug, Clone)]
pub struct EtcdOptions {
    /// How long a call may take in all, retries included.
    pub call_timeout: Duration,
    /// How long one try of something that may be repeated takes before another endpoint is asked.
    pub try_timeout: Duration,
    /// How long making a connection may take.
    pub connect_timeout: Duration,
    /// How often a silent connection is probed; one that does not answer for as long again is given up.
    pub probe_interval: Duration,
}

impl Default for EtcdOptions {
    fn default() -> Self {
        Self {
            call_timeout: Duration::from_secs(5),
            try_timeout: Duration::from_millis(1500),
            connect_timeout: Duration::from_millis(1000),
            probe_interval: Duration::from_secs(2),
        }
    }
}

/// First pause after a whole round of endpoints failed; doubles up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// Longest pause.
pub(super) const MAX_PAUSE: Duration = Duration::from_millis(500);

/// Whether a call may be sent again when its outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// It changes nothing, or nothing more the second time.
    Always,
    /// Only if it is known not to have been carried out.
    IfNotSent,
}

/// The process' randomness.
struct ProcessRng;

impl Rng for ProcessRng {
    fn next_u64(&self) -> u64 {
        rand::random()
    }
}

/// An endpoint (`HOST:PORT` or `http://HOST:PORT`) with a client's bounds, to be connected to.
pub fn endpoint(name: &str, options: &EtcdOptions) -> Result<Endpoint, KvError> {
    let uri = if name.contains("://") { name.to_owned() } else { format!("http://{name}") };
    let endpoint = Endpoint::from_shared(uri)
        .map_err(|e| KvError::NotSent(format!("{name} is not an endpoint: {e}")))?
        .connect_timeout(options.connect_timeout)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(options.probe_interval)
        .keep_alive_timeout(options.probe_interval)
        .keep_alive_while_idle(true);
    Ok(endpoint)
}

pub(super) struct Connections {
    channels: Vec<(String, Channel)>,
    current: AtomicUsize,
    options: EtcdOptions,
    rng: Arc<dyn Rng>,
    /// The channels were made here, by their names.
    by_name: bool,
}

impl Connections {
    pub fn new(
        endpoints: impl IntoIterator<Item = impl AsRef<str>>,
        options: EtcdOptions,
    ) -> Result<Self, KvError> {
        let mut channels = Vec::new();
        for name in endpoints {
            let name = name.as_ref().trim();
            channels.push((name.to_owned(), endpoint(name, &options)?.connect_lazy()));
        }
        Ok(Self { by_name: true, ..Self::over(channels, options, Arc::new(ProcessRng))? })
    }

    /// Connections of their own to the same endpoints, driven by the current runtime.
    pub fn apart(&self) -> Option<Self> {
        let names = self.by_name.then(|| self.channels.iter().map(|(name, _)| name))?;
        Self::new(names, self.options.clone()).ok()
    }

    pub fn over(
        channels: Vec<(String, Channel)>,
        options: EtcdOptions,
        rng: Arc<dyn Rng>,
    ) -> Result<Self, KvError> {
        if channels.is_empty() {
            return Err(KvError::NotSent("no endpoint is given".into()));
        }
        // Clients spread over the endpoints from the start.
        let current = AtomicUsize::new((rng.next_u64() % channels.len() as u64) as usize);
        Ok(Self { channels, current, options, rng, by_name: false })
    }

    pub fn options(&self) -> &EtcdOptions {
        &self.options
    }

    pub fn rng(&self) -> &dyn Rng {
        &*self.rng
    }

    /// Between half of it and all of it.
    pub fn jitter(&self, pause: Duration) -> Duration {
        let part = (self.rng.next_u64() >> 32) as f64 / f64::from(u32::MAX);
        pause.mul_f64(0.5 + part / 2.0)
    }

    pub fn current_name(&self) -> &str {
        &self.channels[self.current.load(Ordering::Relaxed)].0
    }

    /// The current endpoint, by number.
    pub fn current(&self) -> (usize, Channel) {
        let at = self.current.load(Ordering::Relaxed);
        (at, self.channels[at].1.clone())
    }

    /// Turns to the next endpoint, unless another call did so already.
    pub fn leave(&self, at: usize) {
        let next = (at + 1) % self.channels.len();
        let _ = self.current.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Calls until there is a definite answer, or the deadline; `call` gets a channel and what is left for one try.
    pub async fn call<T, F>(
        &self,
        repeat: Repeat,
        mut call: impl FnMut(Channel, Duration) -> F + Send,
    ) -> Result<T, KvError>
    where
        F: Future<Output = Result<T, Status>> + Send,
    {
        let deadline = Instant::now() + self.options.call_timeout;
        let mut pause = FIRST_PAUSE;
        let mut tries = 0;
        let mut unknown = None;
        loop {
            let (at, channel) = self.current();
            let left = deadline.saturating_duration_since(Instant::now());
            let limit = if repeat == Repeat::Always { left.min(self.options.try_timeout) } else { left };
            let error = match tokio::time::timeout(limit, call(channel, limit)).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(status)) => error_of(&status),
                Err(_) => KvError::Unknown(format!("no answer within {} ms", limit.as_millis())),
            };
            let again = match &error {
                KvError::NotSent(_) => true,
                KvError::Unknown(_) => repeat == Repeat::Always,
                KvError::Rejected { .. } | KvError::Compacted { .. } => return Err(error),
            };
            self.leave(at);
            let error = self.named(at, error);
            if matches!(error, KvError::Unknown(_)) {
                unknown = Some(error.clone());
            }
            tries += 1;
            // A whole round failed: the cluster may be electing a leader.
            let wait = if tries % self.channels.len() == 0 { self.jitter(pause) } else { Duration::ZERO };
            // A try cut short by the deadline would turn "not sent" into "unknown".
            let worth_it = Instant::now() + wait + self.options.call_timeout / 10 < deadline;
            if !again || !worth_it {
                return Err(unknown.unwrap_or(error));
            }
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
                pause = (pause * 2).min(MAX_PAUSE);
            }
        }
    }

    fn named(&self, at: usize, error: KvError) -> KvError {
        let name = &self.channels[at].0;
        match error {
            KvError::NotSent(text) => KvError::NotSent(format!("{name}: {text}")),
            KvError::Unknown(text) => KvError::Unknown(format!("{name}: {text}")),
            other => other,
        }
    }
}

/// What a status means to the caller.
pub(super) fn error_of(status: &Status) -> KvError {
    match classify(status) {
        ErrorClass::Rejected { code, message } => KvError::Rejected { code, message },
        ErrorClass::Compacted { compact_revision } => KvError::Compacted { compact_revision },
        ErrorClass::NotSent(message) => KvError::NotSent(message),
        ErrorClass::Unknown(message) => KvError::Unknown(message),
    }
}

/// A request that tells the server how long the client waits.
pub(super) fn timed<T>(message: T, limit: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(limit);
    request
}
