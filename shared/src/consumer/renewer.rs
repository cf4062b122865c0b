//! Renewal of leases, on an OS thread with a runtime and a Redis connection of its own, so that handlers which
//! hog the main runtime cannot starve it (Q09).
//!
//! It stops when the engine does. Its connection is its own because a shared one is driven by the main runtime.

use super::held::{Entry, Registry};
use super::{ConsumerError, Engine};
use crate::config;
use crate::store::{Renewal, Store, StoreError};
use crate::telemetry::{metrics, probe::Readiness};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Tickets of one call.
const BATCH: usize = 50;
/// First pause after a failed renewal; doubled, never longer than the normal period.
const RETRY: Duration = Duration::from_millis(100);

/// The thread; [`Renewer::stop`] ends it after the call under way.
pub(super) struct Renewer {
    stop: CancellationToken,
    ended: CancellationToken,
}

impl Renewer {
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }

    /// Completes when the thread is over, also by a panic.
    pub(super) async fn ended(&self) {
        self.ended.cancelled().await;
    }
}

impl Drop for Renewer {
    fn drop(&mut self) {
        // The engine is gone, in whatever way: nothing may be renewed in its name.
        self.stop.cancel();
    }
}

struct Work {
    consumer: String,
    lanes: Vec<String>,
    lease: config::Lease,
    redis: config::Redis,
    held: Arc<Registry>,
    readiness: Readiness,
}

pub(super) fn start<H>(engine: &Engine<H>) -> Result<Renewer, ConsumerError> {
    let renewer = Renewer { stop: CancellationToken::new(), ended: CancellationToken::new() };
    let work = Work {
        consumer: engine.consumer.clone(),
        lanes: engine.options.lanes.clone(),
        lease: engine.options.lease.clone(),
        redis: engine.options.redis.clone(),
        held: Arc::clone(&engine.held),
        readiness: engine.options.readiness.clone(),
    };
    let stop = renewer.stop.clone();
    // Dropped, and thereby cancelled, when the thread ends in whatever way.
    let ended = renewer.ended.clone().drop_guard();
    let failed = |e: std::io::Error| ConsumerError::Renewer(e.to_string());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    std::thread::Builder::new()
        .name("renewer".into())
        .spawn(move || {
            let _ended = ended;
            runtime.block_on(renew(&work, &stop));
        })
        .map_err(failed)?;
    Ok(renewer)
}

async fn renew(work: &Work, stop: &CancellationToken) {
    let period = Duration::from_millis(work.lease.renew_ms);
    let mut store: Option<Store> = None;
    let mut pause = RETRY;
    while !stop.is_cancelled() {
        let began = Instant::now();
        let round = async {
            let store = match &mut store {
                Some(store) => store,
                none => none.insert(Store::connect_unchecked(&work.redis).await?),
            };
            round(work, store).await
        };
        let next = match round.await {
            Ok(()) => {
                pause = RETRY;
                work.readiness.good();
                period.saturating_sub(began.elapsed())
            }
            Err(error) => {
                tracing::warn!(consumer = work.consumer, %error, held = work.held.len(), "renewal failed, trying again");
                let now = pause;
                pause = (pause * 2).min(period);
                super::jitter(now)
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(next) => {}
        }
    }
}

/// Renews all that is held, in batches; also without tickets, since it is the consumer's beat.
async fn round(work: &Work, store: &Store) -> crate::store::Result<()> {
    let entries = work.held.snapshot();
    let batches: Vec<&[_]> = if entries.is_empty() { vec![&[]] } else { entries.chunks(BATCH).collect() };
    for batch in batches {
        match together(work, store, batch).await {
            // One ticket's hash is not what it should be: the others keep their leases.
            Err(StoreError::Broken(_)) if batch.len() > 1 => {
                for entry in batch {
                    match together(work, store, std::slice::from_ref(entry)).await {
                        Err(StoreError::Broken(problem)) => {
                            tracing::error!(ticket = entry.held.id, problem, "a ticket cannot be renewed");
                        }
                        other => other?,
                    }
                }
            }
            other => other?,
        }
    }
    Ok(())
}

/// One call.
async fn together(work: &Work, store: &Store, batch: &[Arc<Entry>]) -> crate::store::Result<()> {
    let held: Vec<_> = batch.iter().map(|e| (e.held.clone(), e.idle_ms())).collect();
    let sent = Instant::now();
    let lease = &work.lease;
    let answers = store
        .renew(
            &work.consumer,
            &work.lanes,
            lease.lease_ms,
            lease.progress_limit_ms,
            lease.run_limit_ms,
            &held,
        )
        .await?;
    let (mut ok, mut cancel, mut lost) = (0, 0, 0);
    for (entry, answer) in batch.iter().zip(answers) {
        match answer {
            Renewal::Ok { .. } => ok += 1,
            Renewal::Cancel => cancel += 1,
            Renewal::Lost => lost += 1,
        }
        entry.renewed(sent, answer, lease.lease_ms);
        if answer == Renewal::Lost {
            tracing::warn!(ticket = entry.held.id, epoch = entry.held.epoch, "lease lost");
        }
    }
    metrics::renewed(ok, cancel, lost, sent.elapsed());
    Ok(())
}
