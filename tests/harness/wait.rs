//! Waiting for something to be so, with a deadline. The only file of the tests that sleeps.

use anyhow::{Result, bail};
use std::time::{Duration, Instant};

/// How often a probe is repeated.
const POLL: Duration = Duration::from_millis(15);

/// Repeats `probe` until it answers `Some`, and gives that back.
///
/// # Errors
/// After `deadline`, naming `what` and the last error of the probe if it failed.
pub async fn until<T>(
    what: &str,
    deadline: Duration,
    mut probe: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        let last = match tokio::time::timeout(deadline, probe()).await {
            Ok(Ok(Some(value))) => return Ok(value),
            Ok(Ok(None)) => None,
            Ok(Err(error)) => Some(error),
            Err(_) => None,
        };
        if start.elapsed() > deadline {
            match last {
                Some(error) => bail!("{what}: not so after {deadline:?}: {error:#}"),
                None => bail!("{what}: not so after {deadline:?}"),
            }
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Lets time itself pass, where the time is what is tested: a moment to kill at, an outage that lasts.
pub async fn moment(time: Duration) {
    tokio::time::sleep(time).await;
}
