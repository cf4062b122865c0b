//! From outcome to accepted write: the held pair on every call (I3), repeated until answered, publish included.

use super::held::{Entry, StopReason};
use super::{Engine, FAREWELL, Outcome, jitter};
use crate::message::Kind as ClaimKind;
use crate::store::{Claim, Completion, Decision, Failure, Held, Permit, Result, StoreError, Written};
use crate::telemetry::metrics::{self, Answer, Outcome as Kind};
use crate::ticket::{FailClass, ReviewPolicy};
use crate::workspace::{self, Merged};
use std::time::{Duration, Instant};

/// How often a moved root is merged again before the ticket is put back.
const MERGES_MAX: u32 = 20;
const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(2);
/// A delay after a fault is doubled each time, up to this.
const DELAY_MAX_MS: u64 = 60_000;
/// When the blob store or another part of ours fails, the ticket waits this long.
const OURS_DELAY_MS: u64 = 5_000;

/// One write of an outcome, complete, so that it can be repeated as it is.
enum Write {
    Complete(Completion),
    Decide(Decision),
    Fail(Failure),
    Release(Held),
    Park { held: Held, permit: Permit, expiry_ms: u64 },
    Conflict { held: Held, detail: String, again: bool, overlay_ref: String },
}

impl Write {
    async fn send<H>(&self, engine: &Engine<H>) -> Result<Written> {
        let store = &engine.store;
        match self {
            Self::Complete(done) => engine.completions.write(done.clone()).await,
            Self::Decide(decision) => engine.decisions.write(decision.clone()).await,
            Self::Fail(failure) => store.fail(failure).await,
            Self::Release(held) => store.release(held).await,
            Self::Park { held, permit, expiry_ms } => store.park(held, permit, *expiry_ms).await,
            Self::Conflict { held, detail, again, overlay_ref } => {
                store.conflict(held, detail, *again, overlay_ref).await
            }
        }
    }

    /// The goal's root that the new one was made from, and the new one.
    fn with_roots(&mut self, base: String, new: String) {
        match self {
            Self::Complete(done) => done.roots = Some((base, new)),
            Self::Decide(decision) => decision.roots = Some((base, new)),
            Self::Fail(_) | Self::Release(_) | Self::Park { .. } | Self::Conflict { .. } => {}
        }
    }
}

/// Writes the outcome. `None` means that the handler was dropped.
pub(super) async fn settle<H>(
    engine: &Engine<H>,
    claim: &Claim,
    entry: &Entry,
    outcome: Option<Outcome>,
) -> Kind {
    if entry.is_lost() {
        // I3: another may own it; a write would be refused, so none is tried.
        tracing::warn!("outcome dropped, the lease is lost");
        return Kind::Dropped;
    }
    let stopped = entry.reason();
    let held = entry.held.clone();
    match outcome {
        None | Some(Outcome::Released) => release(engine, entry).await,
        // A stopped handler fails in many ways; none of them is the work's fault.
        Some(Outcome::Failed { .. }) if stopped == Some(StopReason::Drain) => release(engine, entry).await,
        Some(Outcome::Failed { class, detail, delay_ms }) => {
            fail(engine, claim, entry, class, detail, delay_ms).await
        }
        Some(Outcome::Parked { permit, expiry_ms }) => {
            persist(engine, entry, &Write::Park { held, permit, expiry_ms }).await;
            Kind::Parked
        }
        Some(Outcome::Completed { report, overlay_ref, actor }) => {
            let publishes = claim.ticket.review == ReviewPolicy::None;
            let overlay = if publishes { overlay_ref.clone() } else { String::new() };
            let write = Write::Complete(Completion { held, report, overlay_ref, actor, roots: None });
            publish(engine, claim, entry, &overlay, write).await.unwrap_or(Kind::Completed)
        }
        Some(Outcome::Decided { verdict, actor }) => {
            let passes = verdict.passes();
            let overlay = if passes { claim.ticket.overlay_ref.clone() } else { String::new() };
            let write = Write::Decide(Decision { held, verdict, actor, roots: None });
            let meant = if passes { Kind::Passed } else { Kind::ItemFailed };
            publish(engine, claim, entry, &overlay, write).await.unwrap_or(meant)
        }
    }
}

/// Merges the overlay onto the goal's root of now and writes with both roots, again while the root moves (I5).
/// Without an overlay it is one plain write. `Some`: it ended otherwise than the handler meant.
async fn publish<H>(
    engine: &Engine<H>,
    claim: &Claim,
    entry: &Entry,
    overlay: &str,
    mut write: Write,
) -> Option<Kind> {
    if overlay.is_empty() {
        return ended(persist(engine, entry, &write).await);
    }
    let _turn = engine.publishing.take(&claim.ticket.goal).await;
    for _ in 0..MERGES_MAX {
        let Some(root) = root(engine, claim, entry).await else { return Some(Kind::Dropped) };
        match workspace::merge(&engine.blobs, &claim.ticket.goal, &root, overlay).await {
            Ok(Merged::Root(new)) => {
                write.with_roots(root, new);
                match persist(engine, entry, &write).await {
                    Some(Written::Moved) => {}
                    written => return ended(written),
                }
            }
            Ok(Merged::Conflict { path, base, theirs, ours }) => {
                // A direct call knows nothing of the accepted file: made again it would only write over it.
                // What a person made goes back to the person.
                let of_person =
                    claim.kind == ClaimKind::Review && claim.ticket.work_actor.starts_with("person:");
                let again = claim.ticket.call.is_none() && !of_person;
                let way = if again {
                    "Read the accepted file and redo the change on it."
                } else {
                    "The call was not made again: it would write over the accepted file."
                };
                let detail = format!(
                    "{path} was changed by another ticket meanwhile: this attempt started from {}, accepted now is {}, \
                     this attempt made {}. {way}",
                    or_none(&base),
                    or_none(&theirs),
                    or_none(&ours)
                );
                // Kept, so that whoever redoes it has both versions before it.
                let (held, overlay_ref) = (entry.held.clone(), overlay.to_owned());
                persist(engine, entry, &Write::Conflict { held, detail, again, overlay_ref }).await;
                return Some(Kind::Conflict);
            }
            Err(error) => {
                tracing::error!(%error, "cannot merge");
                let class = if error.is_of_the_work() { FailClass::Fault } else { FailClass::Wait };
                let detail = format!("the files cannot be published: {error}");
                return Some(fail(engine, claim, entry, class, detail, Some(OURS_DELAY_MS)).await);
            }
        }
    }
    let detail = format!("the goal's files changed {MERGES_MAX} times while this was published");
    Some(fail(engine, claim, entry, FailClass::Wait, detail, None).await)
}

/// The goal's root of now. `None`: the goal or the lease is gone.
async fn root<H>(engine: &Engine<H>, claim: &Claim, entry: &Entry) -> Option<String> {
    let mut patience = Patience::new();
    loop {
        match engine.store.goal(&claim.ticket.goal).await {
            Ok(Some(goal)) => return Some(goal.root),
            Ok(None) => {
                tracing::warn!("the goal is gone");
                return None;
            }
            Err(error) => patience.again(engine, entry, &error).await?,
        }
    }
}

fn or_none(hash: &str) -> &str {
    if hash.is_empty() { "no file" } else { hash }
}

/// `None`: it was accepted as meant (DUP: before).
fn ended(written: Option<Written>) -> Option<Kind> {
    match written {
        Some(Written::Ok | Written::Dup | Written::Escalated) => None,
        Some(Written::Cancelled | Written::Gone | Written::Fenced | Written::Moved) | None => {
            Some(Kind::Dropped)
        }
    }
}

async fn release<H>(engine: &Engine<H>, entry: &Entry) -> Kind {
    persist(engine, entry, &Write::Release(entry.held.clone())).await;
    Kind::Released
}

async fn fail<H>(
    engine: &Engine<H>,
    claim: &Claim,
    entry: &Entry,
    class: FailClass,
    detail: String,
    delay_ms: Option<u64>,
) -> Kind {
    let c = &claim.ticket.counters;
    let tries = match class {
        FailClass::Fault => c.faults.max(c.review_faults),
        FailClass::Wait => c.waits,
        FailClass::NotRetryable => 0,
    };
    let delay_ms = delay_ms.unwrap_or_else(|| delay_after(engine.options.lease.retry_delay_ms, tries));
    tracing::warn!(class = class.as_str(), detail, delay_ms, "failed");
    let failure = Failure { held: entry.held.clone(), class, detail, delay_ms };
    persist(engine, entry, &Write::Fail(failure)).await;
    match class {
        FailClass::Fault => Kind::Fault,
        FailClass::Wait => Kind::Wait,
        FailClass::NotRetryable => Kind::NotRetryable,
    }
}

/// Doubled with each try.
fn delay_after(first_ms: u64, tries: u32) -> u64 {
    first_ms.saturating_mul(1 << tries.min(16)).min(DELAY_MAX_MS.max(first_ms))
}

/// The write, repeated with the same pair while its outcome is unknown (Q28); the scripts answer DUP.
/// `None`: given up, the ticket is swept.
async fn persist<H>(engine: &Engine<H>, entry: &Entry, write: &Write) -> Option<Written> {
    let mut patience = Patience::new();
    let written = loop {
        match write.send(engine).await {
            Ok(written) => break written,
            Err(error) => {
                if patience.again(engine, entry, &error).await.is_none() {
                    metrics::written(engine.role(), Answer::Unavailable);
                    return None;
                }
            }
        }
    };
    let answer = match written {
        Written::Ok => Answer::Ok,
        Written::Dup => Answer::Dup,
        Written::Fenced => Answer::Fenced,
        Written::Moved => Answer::Moved,
        Written::Gone => Answer::Gone,
        Written::Escalated => Answer::Escalated,
        Written::Cancelled => Answer::Cancelled,
    };
    metrics::written(engine.role(), answer);
    if written == Written::Fenced {
        tracing::warn!("fenced: the ticket moved on without this attempt");
    }
    Some(written)
}

/// How long a call is repeated: as long as the lease may be ours; at the end of a drain not much longer.
struct Patience {
    began: Instant,
    wait: Duration,
}

impl Patience {
    fn new() -> Self {
        Self { began: Instant::now(), wait: RETRY_MIN }
    }

    /// Sleeps before the next try. `None`: no next try.
    async fn again<H>(&mut self, engine: &Engine<H>, entry: &Entry, error: &StoreError) -> Option<()> {
        if !error.is_retryable() {
            tracing::error!(%error, "outcome cannot be written; the lease lapses");
            return None;
        }
        if entry.is_lost() {
            tracing::warn!("outcome dropped, the lease is lost");
            return None;
        }
        if engine.hurry.is_cancelled() && self.began.elapsed() >= FAREWELL {
            tracing::warn!(%error, "outcome not written within the drain; the ticket is swept");
            return None;
        }
        tracing::warn!(%error, "outcome not written yet, trying again");
        tokio::time::sleep(jitter(self.wait)).await;
        self.wait = (self.wait * 2).min(RETRY_MAX);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_a_minute() {
        assert_eq!([0, 1, 2].map(|n| delay_after(1_000, n)), [1_000, 2_000, 4_000]);
        assert_eq!(delay_after(1_000, 40), DELAY_MAX_MS);
        assert_eq!(delay_after(0, 3), 0);
        assert_eq!(delay_after(90_000, 3), 90_000);
    }
}
