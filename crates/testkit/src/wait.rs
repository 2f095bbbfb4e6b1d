//! Waiting on conditions with a bound, never on time alone.

use std::future::Future;
use std::time::{Duration, Instant};

/// Pause between two looks at a condition.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Calls `condition` until it gives a value; panics with `what` and the last complaint after `within`.
pub fn eventually<T>(within: Duration, what: &str, mut condition: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + within;
    loop {
        match condition() {
            Ok(value) => return value,
            Err(last) => assert!(Instant::now() < deadline, "{what}: not within {within:?}; last: {last}"),
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// The same for an asynchronous condition.
pub async fn eventually_async<T, F>(within: Duration, what: &str, mut condition: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, String>>,
{
    let deadline = Instant::now() + within;
    loop {
        match condition().await {
            Ok(value) => return value,
            Err(last) => assert!(Instant::now() < deadline, "{what}: not within {within:?}; last: {last}"),
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
