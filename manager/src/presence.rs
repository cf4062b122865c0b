//! The process in the fleet's list, the orders that a person gave it, and the store's gauges for the metrics.

use crate::slots::{LANE, Slots};
use shared::store::Consumer;
use shared::telemetry::metrics;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How soon an order is obeyed.
const LOOK: Duration = Duration::from_secs(2);
/// The entry lives 90 s.
const PUBLISH: Duration = Duration::from_secs(15);
/// How old a gauge may be.
const GAUGES: Duration = Duration::from_secs(5);

/// Role, host, process and a random part: never configured, never used again.
pub(crate) fn consumer_id() -> String {
    let host: String = host()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' })
        .take(40)
        .collect();
    format!("manager-{host}-{}-{:016x}", std::process::id(), rand::random::<u64>())
}

fn host() -> String {
    nix::unistd::gethostname()
        .ok()
        .and_then(|n| n.into_string().ok())
        .filter(|h| !h.is_empty())
        .unwrap_or_else(|| "host".into())
}

/// Publishes, obeys and measures until the process stops.
pub(crate) async fn run(slots: Slots) {
    let started_at_ms = slots.manager.store.now_ms().await.unwrap_or_default();
    let mut state = "";
    let (mut published, mut measured) = (None::<Instant>, None::<Instant>);
    let is_due = |last: Option<Instant>, period| last.is_none_or(|at| at.elapsed() >= period);
    while !slots.stop.is_cancelled() {
        let now = obey(&slots).await.unwrap_or(state);
        if now != state || is_due(published, PUBLISH) {
            match slots.manager.store.publish_consumer(&entry(&slots, now, started_at_ms), "").await {
                Ok(()) => published = Some(Instant::now()),
                Err(error) => tracing::debug!(%error, "the fleet's list was not told that we live"),
            }
            state = now;
        }
        if is_due(measured, GAUGES) {
            match slots.manager.store.measure().await {
                Ok(seen) => {
                    metrics::seen(Some(seen));
                    measured = Some(Instant::now());
                }
                Err(error) => {
                    // Nothing is better than numbers of some time ago: an alert watches for their absence.
                    metrics::seen(None);
                    tracing::debug!(%error, "the fleet could not be measured");
                }
            }
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK.mul_f64(rand::random_range(0.5..=1.0))) => {}
            () = slots.stop.cancelled() => {}
        }
    }
}

async fn obey(slots: &Slots) -> Option<&'static str> {
    let order = slots.manager.store.order_for(&slots.manager.id).await.ok()?;
    let state = match order.as_str() {
        "draining" => {
            tracing::info!("ordered to leave");
            slots.stop.cancel();
            "draining"
        }
        "cordoned" => {
            // It claims nothing, but its API is as good as any.
            slots.readiness.good();
            "cordoned"
        }
        _ => "active",
    };
    slots.cordoned.store(state == "cordoned", Ordering::Relaxed);
    Some(state)
}

fn entry(slots: &Slots, state: &str, started_at_ms: u64) -> Consumer {
    Consumer {
        id: slots.manager.id.to_string(),
        role: "manager".into(),
        host: host(),
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").into(),
        started_at_ms,
        slots: slots.manager.config.manager.slots,
        busy: slots.busy(),
        lanes: vec![LANE.into()],
        tools: vec![],
        sandbox: false,
        // One that does not read the fleet's nonce refuses to start.
        blobs: true,
        state: state.into(),
        beat_age_ms: 0,
    }
}
