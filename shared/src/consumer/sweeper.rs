//! The sweeper's loop, run by every process. Safe together: selection, check and transition are one script.

use super::jitter;
use crate::blob::Blobs;
use crate::config;
use crate::store::Store;
use crate::telemetry::hops::{self, Try};
use crate::telemetry::metrics;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Goals deleted in one round.
const EXPIRED_BATCH: usize = 20;
/// How often retention is looked at, at most.
const RETENTION_MAX: Duration = Duration::from_secs(60);

/// Sweeps at most `lease.sweep_ms` apart, audits and repairs every `lease.audit_ms`, deletes goals whose
/// retention is over (files first, then keys). Ends with `stop`.
pub async fn run(
    store: Store,
    blobs: Blobs,
    lease: config::Lease,
    retention_s: u64,
    stop: CancellationToken,
) {
    let period = Duration::from_millis(lease.sweep_ms);
    let audit = Duration::from_millis(lease.audit_ms);
    let retention = Duration::from_secs(retention_s).div_f64(10.0).clamp(period, RETENTION_MAX.max(period));
    // Not at the same moment in every process that was started together.
    let (mut audited, mut retained) = (Instant::now(), Instant::now());
    let (mut next_audit, mut next_retention) = (jitter(audit), jitter(retention));
    let mut failing = false;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(jitter(period)) => {}
        }
        let swept = round(&store, &lease, &stop).await;
        metrics::sweep(swept.is_ok());
        match swept {
            Ok(()) => {
                if failing {
                    tracing::info!("sweeping again");
                }
                failing = false;
            }
            Err(error) => {
                if !failing {
                    tracing::warn!(%error, "cannot sweep");
                }
                failing = true;
                continue;
            }
        }
        if audited.elapsed() >= next_audit {
            (audited, next_audit) = (Instant::now(), jitter(audit));
            repair(&store, &lease).await;
        }
        if retained.elapsed() >= next_retention {
            (retained, next_retention) = (Instant::now(), jitter(retention));
            forget(&store, &blobs, retention_s).await;
        }
    }
}

/// The sweeper ended although nobody said stop: the process should exit non-zero, another one sweeps.
#[derive(Debug, thiserror::Error)]
#[error("the sweeper ended by itself: {0}")]
pub struct SweeperEnded(String);

/// Serves with this sweeper beside it, and ends it with the service.
///
/// # Errors
/// [`SweeperEnded`]: it panicked or returned before `stop`; the service is dropped then, and what it held lapses.
pub async fn beside<T>(
    sweeping: impl Future<Output = ()> + Send + 'static,
    serving: impl Future<Output = T>,
    stop: &CancellationToken,
) -> Result<T, SweeperEnded> {
    let mut sweeping = tokio::spawn(sweeping);
    tokio::pin!(serving);
    let ended = tokio::select! {
        ended = &mut serving => ended,
        swept = &mut sweeping => {
            if !stop.is_cancelled() {
                let why = swept.err().map_or_else(|| "it returned".into(), |error| error.to_string());
                return Err(SweeperEnded(why));
            }
            // The stop ends it; the drain goes on.
            serving.await
        }
    };
    sweeping.abort();
    Ok(ended)
}

async fn round(store: &Store, lease: &config::Lease, stop: &CancellationToken) -> crate::store::Result<()> {
    loop {
        let swept = store.sweep(lease).await?;
        metrics::swept(swept.requeued, swept.escalated, swept.promoted, 0);
        if swept.requeued + swept.escalated > 0 {
            tracing::info!(requeued = swept.requeued, escalated = swept.escalated, "leases lapsed");
        }
        for lost in &swept.lost {
            let of = Try { ticket: &lost.ticket, what: &lost.what, number: lost.number };
            hops::lost(&lost.traceparent, &lost.goal, lost.epoch, &lost.consumer, of);
        }
        if !swept.more || stop.is_cancelled() {
            return Ok(());
        }
    }
}

async fn repair(store: &Store, lease: &config::Lease) {
    match store.repair(lease).await {
        Ok(repaired) => {
            metrics::swept(0, 0, 0, repaired.len() as u64);
            for violation in repaired {
                // A repair means a hole somewhere: worth a person's look each time.
                tracing::error!(
                    rule = violation.rule,
                    id = violation.id,
                    detail = violation.detail,
                    "repaired"
                );
            }
        }
        Err(error) => tracing::warn!(%error, "cannot audit"),
    }
}

/// Files first: keys without files are found again, files without keys never.
async fn forget(store: &Store, blobs: &Blobs, retention_s: u64) {
    let goals = match store.expired_goals(retention_s, EXPIRED_BATCH).await {
        Ok(goals) => goals,
        Err(error) => {
            tracing::warn!(%error, "cannot read expired goals");
            return;
        }
    };
    for goal in goals {
        if let Err(error) = blobs.delete_goal(&goal).await {
            tracing::warn!(goal, %error, "files of an expired goal are not deleted, trying again later");
            continue;
        }
        match store.forget_goal(&goal).await {
            Ok(()) => tracing::info!(goal, "retention over, deleted"),
            Err(error) => tracing::warn!(goal, %error, "an expired goal is not deleted, trying again later"),
        }
    }
}
