//! `/metrics`, `/healthz`, `/readyz`: the listener of each service.
//!
//! Ready means that a claim or a renewal really went through lately, not that a ping was answered (Q27).

use super::metrics;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Age of the last good claim or renewal. Cheap to clone.
#[derive(Clone)]
pub struct Readiness {
    start: Instant,
    /// Milliseconds after `start`; 0: never yet.
    last: Arc<AtomicU64>,
    limit_ms: u64,
    ended: Arc<AtomicBool>,
}

impl Readiness {
    /// Not ready until the first [`Readiness::good`], and not when the last is older than `limit`.
    #[must_use]
    pub fn new(limit: Duration) -> Self {
        Self {
            start: Instant::now(),
            last: Arc::new(AtomicU64::new(0)),
            limit_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
            ended: Arc::new(AtomicBool::new(false)),
        }
    }

    /// Whoever claims here has ended: never ready again, whatever else still goes through.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// A claim, renewal or manager's step went through just now.
    pub fn good(&self) {
        self.last.store(self.elapsed_ms().max(1), Ordering::Relaxed);
    }

    /// Milliseconds since the last good one; `None`: there was none yet.
    #[must_use]
    pub fn age_ms(&self) -> Option<u64> {
        match self.last.load(Ordering::Relaxed) {
            0 => None,
            at => Some(self.elapsed_ms().saturating_sub(at)),
        }
    }

    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.ended.load(Ordering::Relaxed) && self.age_ms().is_some_and(|age| age <= self.limit_ms)
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// The address cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot listen on {listen}: {error}\n  hint: another process has the port, or the address is not this machine's"
)]
pub struct ProbeError {
    listen: String,
    error: std::io::Error,
}

/// The three routes, for a server of one's own (the manager's API).
pub fn routes(readiness: Readiness) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics_text))
        .with_state(readiness)
}

/// Serves them until `stop`; returns the bound address at once.
///
/// # Errors
/// [`ProbeError`] when the address cannot be bound.
pub async fn serve(
    listen: &str,
    readiness: Readiness,
    stop: CancellationToken,
) -> Result<SocketAddr, ProbeError> {
    let wrap = |error| ProbeError { listen: listen.into(), error };
    let listener = tokio::net::TcpListener::bind(listen).await.map_err(wrap)?;
    let address = listener.local_addr().map_err(wrap)?;
    tokio::spawn(async move {
        let server = axum::serve(listener, routes(readiness)).with_graceful_shutdown(stop.cancelled_owned());
        if let Err(error) = server.await {
            tracing::error!(%error, "the probe listener ended");
        }
    });
    tracing::info!(%address, "metrics and health");
    Ok(address)
}

async fn readyz(State(readiness): State<Readiness>) -> Response {
    let code = if readiness.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = match readiness.age_ms() {
        None => "no claim or renewal yet\n".to_string(),
        Some(age) => format!("last good claim or renewal {age} ms ago\n"),
    };
    (code, body).into_response()
}

async fn metrics_text() -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], metrics::text()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q27_readiness_is_the_age_of_the_last_good_claim_or_renewal() {
        let limit = Duration::from_secs(10);
        assert!(!Readiness::new(limit).is_ready(), "nothing went through yet");
        let old = Instant::now().checked_sub(Duration::from_secs(30)).unwrap();
        let readiness = Readiness { start: old, last: Arc::new(AtomicU64::new(1)), ..Readiness::new(limit) };
        assert!(!readiness.is_ready(), "the last one is 30 s old");
        readiness.good();
        assert!(readiness.is_ready());
        readiness.end();
        readiness.good();
        assert!(!readiness.is_ready(), "a renewal alone makes nobody ready whose claim loop is dead");
    }

    #[tokio::test]
    async fn the_listener_answers_health_and_metrics() {
        let stop = CancellationToken::new();
        let readiness = Readiness::new(Duration::from_secs(10));
        let address = serve("127.0.0.1:0", readiness.clone(), stop.clone()).await.unwrap();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let get = async |path: &str| {
            let reply = client.get(format!("http://{address}{path}")).send().await.unwrap();
            (reply.status().as_u16(), reply.text().await.unwrap())
        };
        assert_eq!(get("/healthz").await.0, 200);
        assert_eq!(get("/readyz").await.0, 503);
        readiness.good();
        assert_eq!(get("/readyz").await.0, 200);
        metrics::claimed(metrics::Role::Worker, 1, 2);
        assert!(get("/metrics").await.1.contains("muster_claimed_total{role=\"worker\"}"));
        stop.cancel();
    }
}
