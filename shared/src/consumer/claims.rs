//! The claim loop: permits, claim, wait.
//!
//! A claim is never raced against anything: whatever it took is known here before the loop can end (Q01). After
//! a lost reply the same claim is repeated and gets the same tickets (Q02).

use super::attempt;
use super::held::Entry;
use super::{Engine, Handler, jitter};
use crate::store::{Claim, ClaimReply, ClaimRequest};
use crate::telemetry::metrics;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

/// Tickets of one claim; the script's limit.
const CLAIM_MAX: usize = 64;
/// How long a wait for a wake token lasts: a lost token costs this much at most.
const BLOCK_MS: u64 = 2_000;
/// Pause after a claim that got less than there were slots: the others' turn.
const SHARE_PAUSE: Duration = Duration::from_millis(2);
/// Longest sleep on a hint of the store.
const HINT_MAX_MS: u64 = 5_000;
/// Shortest sleep when told to come again, so that it is never a hot loop.
const AGAIN_MIN_MS: u64 = 1;
const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(2);
/// Tries to learn what a claim took when the store fails while the process is to stop.
const LAST_TRIES: u32 = 3;

pub(super) async fn run<H: Handler>(engine: Arc<Engine<H>>, stop: CancellationToken) {
    let mut waiter = engine.store.waiter();
    while !stop.is_cancelled() {
        if engine.cordoned.load(Ordering::Relaxed) {
            pause(&stop, Duration::from_secs(1)).await;
            continue;
        }
        let Some(permits) = permits(&engine, &stop).await else { break };
        let sent = Instant::now();
        let Some(reply) = claim(&engine, permits.len(), &stop).await else { continue };
        engine.options.readiness.good();
        match reply {
            ClaimReply::Got(claims) => {
                let shared = claims.len() < permits.len().min(CLAIM_MAX);
                take(&engine, claims, permits, sent, &stop).await;
                if shared {
                    // What is left is for others who wait: they were woken and are given the moment to claim.
                    pause(&stop, SHARE_PAUSE).await;
                }
            }
            ClaimReply::Empty => {
                drop(permits);
                tokio::select! {
                    () = stop.cancelled() => {}
                    // Cancelled, it loses a token at most, never a ticket.
                    () = waiter.wait(&engine.options.lanes, BLOCK_MS) => {}
                }
            }
            ClaimReply::Again { hint_ms } => {
                drop(permits);
                pause(&stop, Duration::from_millis(hint_ms.clamp(AGAIN_MIN_MS, HINT_MAX_MS))).await;
            }
            ClaimReply::Paused { hint_ms } => {
                drop(permits);
                pause(&stop, jitter(Duration::from_millis(hint_ms.clamp(100, HINT_MAX_MS)))).await;
            }
        }
    }
}

async fn pause(stop: &CancellationToken, time: Duration) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = tokio::time::sleep(time) => {}
    }
}

/// One permit, waited for, and as many more as are free. `None`: time to stop.
async fn permits<H>(engine: &Engine<H>, stop: &CancellationToken) -> Option<Vec<OwnedSemaphorePermit>> {
    let first = tokio::select! {
        () = stop.cancelled() => return None,
        permit = Arc::clone(&engine.slots).acquire_owned() => permit.ok()?,
    };
    let mut permits = vec![first];
    while permits.len() < CLAIM_MAX {
        match Arc::clone(&engine.slots).try_acquire_owned() {
            Ok(permit) => permits.push(permit),
            Err(_) => break,
        }
    }
    Some(permits)
}

/// Claims until there is an answer; the prefix stays the same, so a repeat gets what the first one took.
/// `None`: a broken answer, or the store stays away while the process is to stop.
async fn claim<H>(engine: &Engine<H>, n: usize, stop: &CancellationToken) -> Option<ClaimReply> {
    let prefix = format!("{:032x}", rand::random::<u128>());
    let request = ClaimRequest {
        kind: engine.options.kind,
        lanes: &engine.options.lanes,
        consumer: &engine.consumer,
        lease_prefix: &prefix,
        lease_ms: engine.options.lease.lease_ms,
        n,
        actor: &engine.options.actor,
    };
    let mut wait = RETRY_MIN;
    let mut tries_when_stopped = 0;
    loop {
        match engine.store.claim(&request).await {
            Ok(reply) => return Some(reply),
            Err(error) if error.is_retryable() => {
                tracing::warn!(consumer = engine.consumer, %error, "claim failed, trying again");
                if stop.is_cancelled() {
                    tries_when_stopped += 1;
                    if tries_when_stopped >= LAST_TRIES {
                        return None;
                    }
                }
                tokio::time::sleep(jitter(wait)).await;
                wait = (wait * 2).min(RETRY_MAX);
            }
            Err(error) => {
                // What it took, if anything, lapses and is swept.
                tracing::error!(consumer = engine.consumer, %error, "claim failed");
                pause(stop, jitter(RETRY_MAX)).await;
                return None;
            }
        }
    }
}

/// Starts a job for each claim; permits that are left over go back. Claimed in the moment of a stop: given back.
async fn take<H: Handler>(
    engine: &Arc<Engine<H>>,
    claims: Vec<Claim>,
    mut permits: Vec<OwnedSemaphorePermit>,
    sent: Instant,
    stop: &CancellationToken,
) {
    for claim in &claims {
        metrics::queue_wait(engine.role(), claim.queue_wait_ms);
    }
    metrics::claimed(engine.role(), claims.len(), engine.busy());
    for claim in claims {
        let entry = Arc::new(Entry::new(claim.held.clone(), sent, engine.options.lease.lease_ms));
        engine.held.add(&entry);
        let permit = permits.pop();
        if stop.is_cancelled() {
            entry.stop_for(super::StopReason::Drain);
        }
        engine.tasks.spawn(attempt::run(Arc::clone(engine), Arc::new(claim), entry, permit));
    }
}
