//! The consumer's entry in the fleet's list, and the orders that a person gave it.

use super::{Engine, Handler, host, jitter};
use crate::store::Consumer;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, UNIX_EPOCH};
use tokio_util::sync::CancellationToken;

/// The entry lives 90 s; the renewer's beat keeps it too.
const PUBLISH: Duration = Duration::from_secs(15);
/// How soon an order is obeyed.
const LOOK: Duration = Duration::from_secs(2);

/// Publishes and looks for orders until aborted. `draining` cancels `stop`.
pub(super) async fn run<H: Handler>(engine: Arc<Engine<H>>, stop: CancellationToken) {
    let mut published: Option<Instant> = None;
    let mut state = "active";
    loop {
        let order = match engine.store.order_for(&engine.consumer).await {
            Ok(order) => order,
            Err(error) => {
                tracing::debug!(%error, "orders not read");
                tokio::time::sleep(jitter(LOOK)).await;
                continue;
            }
        };
        let now = if stop.is_cancelled() || order == "draining" {
            "draining"
        } else if order == "cordoned" {
            "cordoned"
        } else {
            "active"
        };
        engine.cordoned.store(now == "cordoned", Ordering::Relaxed);
        if now != state {
            tracing::info!(consumer = engine.consumer, from = state, to = now, "state of this consumer");
        }
        if now != state || published.is_none_or(|at| at.elapsed() >= PUBLISH) {
            match engine.store.publish_consumer(&entry(&engine, now), &engine.options.actor).await {
                Ok(()) => published = Some(Instant::now()),
                Err(error) => tracing::debug!(%error, "consumer not published"),
            }
        }
        state = now;
        if now == "draining" {
            stop.cancel();
        }
        tokio::time::sleep(jitter(LOOK)).await;
    }
}

fn entry<H>(engine: &Engine<H>, state: &str) -> Consumer {
    let started = engine.started_at.duration_since(UNIX_EPOCH).unwrap_or_default();
    Consumer {
        id: engine.consumer.clone(),
        role: engine.options.role.into(),
        host: host(),
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").into(),
        started_at_ms: u64::try_from(started.as_millis()).unwrap_or(0),
        slots: engine.options.slots,
        // Not the permits: an idle consumer holds all of them while it asks for work.
        busy: engine.held.len() + engine.leaked.load(Ordering::Relaxed),
        lanes: engine.options.lanes.clone(),
        tools: engine.options.tools.clone(),
        sandbox: engine.options.sandbox,
        // A service that does not read the fleet's nonce refuses to start.
        blobs: true,
        state: state.into(),
        beat_age_ms: 0,
    }
}
