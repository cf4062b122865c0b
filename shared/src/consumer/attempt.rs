//! One claimed ticket from handler to written outcome: span, panic, patience after a stop, slot.

use super::held::{Entry, StopReason};
use super::{Engine, Handler, Job, Outcome, settle};
use crate::message::Kind;
use crate::store::Claim;
use crate::telemetry::hops::{self, Try};
use crate::telemetry::metrics;
use crate::ticket::FailClass;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::{JoinError, JoinHandle};
use tracing::Instrument as _;

pub(super) async fn run<H: Handler>(
    engine: Arc<Engine<H>>,
    claim: Arc<Claim>,
    entry: Arc<Entry>,
    permit: Option<OwnedSemaphorePermit>,
) {
    let span = span(&engine.consumer, &claim);
    async {
        // Stopped before it began: given back, the handler never sees it.
        let began = std::time::Instant::now();
        let outcome = if entry.stop.is_cancelled() {
            Some(Outcome::Released)
        } else {
            handle(&engine, &claim, &entry).await
        };
        // Boxed: what is large and not running yet is no part of a job that waits.
        let kind = Box::pin(settle::settle(&engine, &claim, &entry, outcome)).await;
        engine.held.remove(&entry.held);
        metrics::outcome(engine.role(), kind, began.elapsed());
        hops::ended(kind);
        tracing::info!(outcome = kind.as_str(), ms = began.elapsed().as_millis() as u64, "ended");
    }
    .instrument(span)
    .await;
    drop(permit);
    engine.show_slots();
}

fn span(consumer: &str, claim: &Claim) -> tracing::Span {
    let t = &claim.ticket;
    let (ticket, epoch, attempt) = (&claim.held.id, claim.held.epoch, t.attempts);
    // A span's name stands in the code.
    macro_rules! hop {
        ($name:literal) => {
            tracing::info_span!(
                $name,
                otel.kind = "consumer",
                goal = t.goal,
                ticket,
                key = t.key,
                epoch,
                attempt,
                consumer
            )
        };
    }
    let attempted = Try { ticket, what: "attempt", number: attempt };
    let (span, this, after) = match claim.kind {
        Kind::Work => {
            (hop!("attempt"), attempted, (attempt > 1).then(|| Try { number: attempt - 1, ..attempted }))
        }
        Kind::Review => (hop!("review"), Try { ticket, what: "review", number: t.reviews }, Some(attempted)),
    };
    // The stored context, never the claimer's: one goal, one trace.
    let stored = claim.delivery.as_ref().map_or("", |d| d.traceparent.as_str());
    hops::begin(&span, if stored.is_empty() { &t.traceparent } else { stored }, this, after);
    span
}

/// Runs the handler in a task of its own, so that a panic stays there. `None`: it did not end although it was
/// told to, and is dropped.
async fn handle<H: Handler>(
    engine: &Arc<Engine<H>>,
    claim: &Arc<Claim>,
    entry: &Arc<Entry>,
) -> Option<Outcome> {
    let job = Job {
        claim: Arc::clone(claim),
        pulse: entry.pulse(),
        stop: entry.stop.clone(),
        suspect: entry.suspect(),
    };
    let task_engine = Arc::clone(engine);
    let mut task = tokio::spawn(async move { task_engine.handler.handle(job).await }.in_current_span());
    let ended = tokio::select! {
        ended = &mut task => Some(ended),
        () = entry.stop.cancelled() => tokio::time::timeout(engine.grace(), &mut task).await.ok(),
    };
    match ended {
        Some(ended) => Some(outcome_of(ended)),
        None if entry.reason() == Some(StopReason::Drain) => {
            task.abort();
            tracing::warn!("the handler did not stop in time, dropped");
            None
        }
        None => Box::pin(leak(engine, entry, task)).await,
    }
}

/// The handler ignores its stop token (Q18): its slot counts as leaked until it ends after all. The lease is
/// not renewed meanwhile. When every slot has leaked the process must restart.
async fn leak<H: Handler>(
    engine: &Arc<Engine<H>>,
    entry: &Entry,
    task: JoinHandle<Outcome>,
) -> Option<Outcome> {
    engine.held.remove(&entry.held);
    let leaked = engine.leaked.fetch_add(1, Ordering::SeqCst) + 1;
    engine.show_slots();
    tracing::error!(leaked, slots = engine.options.slots, "the handler ignores its stop token, slot leaked");
    if leaked >= engine.options.slots {
        engine.all_leaked.cancel();
    }
    let ended = task.await;
    engine.leaked.fetch_sub(1, Ordering::SeqCst);
    Some(outcome_of(ended))
}

/// A panic is a fault of the work: it has to stop after its cap like any other (Q34).
fn outcome_of(ended: Result<Outcome, JoinError>) -> Outcome {
    match ended {
        Ok(outcome) => outcome,
        Err(error) => {
            let detail = match error.try_into_panic() {
                Ok(panic) => format!("the handler panicked: {}", text_of(panic.as_ref())),
                Err(_) => "the handler was aborted".into(),
            };
            tracing::error!(detail, "handler panicked");
            Outcome::Failed { class: FailClass::Fault, detail, delay_ms: None }
        }
    }
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
