//! The engine of a worker and of a reviewer: claims, leases, outcomes, drain. What is done with a ticket is the
//! [`Handler`]'s part.
//!
//! A slot is a permit taken *before* the claim, so that nothing is held that cannot run. Leases are renewed on a
//! thread of their own. An outcome is written with the pair of the claim (I3) and repeated until the store has
//! answered or the lease is gone; DUP counts as accepted. If the claim loop dies, renewals stop and [`run`]
//! ends with an error, so that the process exits non-zero and its tickets are swept (Q27).

mod attempt;
mod batch;
mod blob_mark;
mod claims;
mod held;
mod presence;
mod publishing;
mod renewer;
mod settle;
pub mod sweeper;

pub use blob_mark::{NotShared, check_blobs};
pub use held::{Pulse, StopReason, Suspect};

use crate::blob::Blobs;
use crate::config;
use crate::message::Kind;
use crate::store::{Claim, Completion, Decision, Permit, Store};
use crate::telemetry::{metrics, probe::Readiness};
use crate::ticket::{FailClass, Report, Verdict};
use batch::Batcher;
use held::Registry;
use rand::RngExt as _;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long a handler has, after its stop token, to end by itself; never longer than a lease.
const GRACE_MAX: Duration = Duration::from_secs(5);
/// At the end of a drain, outcomes that the store does not take for this long are left to the sweeper.
const FAREWELL: Duration = Duration::from_secs(5);

/// What is done with a claimed ticket.
pub trait Handler: Send + Sync + 'static {
    /// Does the ticket. Once `job.stop` is cancelled it should return soon, whatever it returns; a panic counts
    /// as a fault of the work.
    fn handle(&self, job: Job) -> impl Future<Output = Outcome> + Send;
}

/// A claimed ticket in the hands of a [`Handler`].
pub struct Job {
    /// Shared with the engine: a thousand waiting jobs hold a thousand tickets, and not two thousand.
    pub claim: Arc<Claim>,
    /// Says that the work moves.
    pub pulse: Pulse,
    /// The lease is lost, a cancel was asked, or the drain is over.
    pub stop: CancellationToken,
    /// Whether the lease may be gone already: no effect is started then.
    pub suspect: Suspect,
}

/// How a handler ends a ticket.
#[derive(Debug)]
pub enum Outcome {
    Completed {
        report: Report,
        overlay_ref: String,
        actor: String,
    },
    Decided {
        verdict: Verdict,
        actor: String,
    },
    Failed {
        class: FailClass,
        detail: String,
        delay_ms: Option<u64>,
    },
    /// Given back unharmed.
    Released,
    /// A person must confirm one exact call.
    Parked {
        permit: Permit,
        expiry_ms: u64,
    },
}

/// How the engine runs.
#[derive(Clone)]
pub struct Options {
    pub role: &'static str,
    pub kind: Kind,
    /// In order of preference.
    pub lanes: Vec<String>,
    pub slots: usize,
    /// Who reviews (model and prompt); empty for a worker.
    pub actor: String,
    /// Names of the tools it offers, for the fleet's list.
    pub tools: Vec<String>,
    pub sandbox: bool,
    pub drain_ms: u64,
    pub lease: config::Lease,
    /// The renewer makes a connection of its own, on its own thread.
    pub redis: config::Redis,
    /// Marked at each good claim and renewal.
    pub readiness: Readiness,
}

/// The engine cannot go on; the process should exit non-zero.
#[derive(Debug, thiserror::Error)]
pub enum ConsumerError {
    #[error("the claim loop ended by itself: {0}")]
    ClaimLoop(String),
    #[error("the renewal thread cannot start or ended by itself: {0}")]
    Renewer(String),
    #[error("every slot is held by a handler that ignores its stop token")]
    AllLeaked,
}

/// Readiness is old after a renewal's period and some slack: with full slots nothing is claimed between two
/// renewals. A dead claim loop does not wait for this, it ends the process (Q27).
#[must_use]
pub fn readiness(lease: &config::Lease) -> Readiness {
    Readiness::new(Duration::from_millis(lease.renew_ms.saturating_add(5_000)))
}

/// What all parts of the engine share.
struct Engine<H> {
    store: Store,
    blobs: Blobs,
    handler: H,
    options: Options,
    /// Never configured, never reused.
    consumer: String,
    started_at: std::time::SystemTime,
    held: Arc<Registry>,
    completions: Batcher<Completion>,
    decisions: Batcher<Decision>,
    publishing: publishing::Turns,
    slots: Arc<Semaphore>,
    tasks: TaskTracker,
    /// Slots whose handler ignores its stop token.
    leaked: AtomicUsize,
    all_leaked: CancellationToken,
    /// The drain's deadline has passed: no more patience with the store.
    hurry: CancellationToken,
    /// An order of the fleet: claim nothing for now.
    cordoned: AtomicBool,
}

impl<H> Engine<H> {
    fn grace(&self) -> Duration {
        GRACE_MAX.min(Duration::from_millis(self.options.lease.lease_ms))
    }

    fn role(&self) -> metrics::Role {
        metrics::Role::of(self.options.role)
    }

    fn busy(&self) -> usize {
        self.options.slots.saturating_sub(self.slots.available_permits())
    }

    fn show_slots(&self) {
        metrics::slots(self.options.slots, self.busy(), self.leaked.load(Ordering::Relaxed));
    }
}

/// Serves the lanes until `stop`, then drains: no new claims, running handlers may end within `drain_ms`, the
/// rest is stopped and given back. An order `draining` of the fleet does the same.
///
/// # Errors
/// [`ConsumerError`] when a part of the engine died; tickets in its hands are left to the sweeper.
pub async fn run<H: Handler>(
    store: Store,
    blobs: Blobs,
    handler: H,
    options: Options,
    stop: CancellationToken,
) -> Result<(), ConsumerError> {
    let engine = Engine::new(store, blobs, handler, options);
    serve(engine, stop.child_token()).await
}

impl<H: Handler> Engine<H> {
    fn new(store: Store, blobs: Blobs, handler: H, options: Options) -> Arc<Self> {
        Arc::new(Self {
            consumer: consumer_id(options.role),
            held: Arc::new(Registry::default()),
            completions: Batcher::start(store.clone()),
            decisions: Batcher::start(store.clone()),
            publishing: publishing::Turns::default(),
            slots: Arc::new(Semaphore::new(options.slots)),
            store,
            blobs,
            handler,
            options,
            started_at: std::time::SystemTime::now(),
            tasks: TaskTracker::new(),
            leaked: AtomicUsize::new(0),
            all_leaked: CancellationToken::new(),
            hurry: CancellationToken::new(),
            cordoned: AtomicBool::new(false),
        })
    }
}

async fn serve<H: Handler>(engine: Arc<Engine<H>>, stop: CancellationToken) -> Result<(), ConsumerError> {
    engine.show_slots();
    let renewer = renewer::start(&engine)?;
    let presence = tokio::spawn(presence::run(Arc::clone(&engine), stop.clone()));
    let claiming = tokio::spawn(claims::run(Arc::clone(&engine), stop.clone()));
    tracing::info!(consumer = engine.consumer, lanes = ?engine.options.lanes, slots = engine.options.slots, "serving");

    let ended = tokio::select! {
        ended = claiming => match ended {
            Ok(()) if stop.is_cancelled() => Ok(()),
            Ok(()) => Err(ConsumerError::ClaimLoop("it returned".into())),
            Err(error) => Err(ConsumerError::ClaimLoop(error.to_string())),
        },
        () = renewer.ended() => Err(ConsumerError::Renewer("it returned".into())),
        () = engine.all_leaked.cancelled() => Err(ConsumerError::AllLeaked),
    };
    if let Err(error) = ended {
        // Q27: what is held must lapse, not live on under a renewer that nobody feeds, and nobody may count on it.
        engine.options.readiness.end();
        renewer.stop();
        presence.abort();
        say_goodbye(&engine).await;
        return Err(error);
    }
    drain(&engine).await;
    renewer.stop();
    presence.abort();
    say_goodbye(&engine).await;
    tracing::info!(consumer = engine.consumer, "drained");
    Ok(())
}

/// Off the fleet's lists; the sweeper does it too, later.
async fn say_goodbye<H>(engine: &Engine<H>) {
    let farewell = engine.store.retire_consumer(&engine.consumer, &engine.options.lanes);
    if !matches!(tokio::time::timeout(FAREWELL, farewell).await, Ok(Ok(()))) {
        tracing::warn!(consumer = engine.consumer, "left without saying goodbye");
    }
}

/// Waits for running jobs, then stops them, then leaves them to the sweeper. Bounded even when Redis is down.
async fn drain<H: Handler>(engine: &Arc<Engine<H>>) {
    engine.tasks.close();
    tracing::info!(running = engine.held.len(), drain_ms = engine.options.drain_ms, "draining");
    let deadline = Duration::from_millis(engine.options.drain_ms);
    if tokio::time::timeout(deadline, engine.tasks.wait()).await.is_ok() {
        return;
    }
    tracing::info!(running = engine.held.len(), "the drain deadline passed, giving back what runs");
    engine.hurry.cancel();
    engine.held.stop_all(StopReason::Drain);
    if tokio::time::timeout(engine.grace() + FAREWELL, engine.tasks.wait()).await.is_err() {
        tracing::warn!(running = engine.held.len(), "left with tickets in hand; they are swept");
    }
}

/// Role, host, pid and 64 random bits.
fn consumer_id(role: &str) -> String {
    let host = host();
    format!("{role}-{host}-{}-{:016x}", std::process::id(), rand::rng().random::<u64>())
}

/// The host's name, made of letters, digits, `-` and `_`.
fn host() -> String {
    let name = nix::unistd::gethostname().ok().and_then(|n| n.into_string().ok()).unwrap_or_default();
    let word: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).take(40).collect();
    if word.is_empty() { "host".into() } else { word }
}

/// Between half of it and all of it, so that many processes do not beat together.
fn jitter(period: Duration) -> Duration {
    period.mul_f64(rand::random_range(0.5..=1.0))
}

#[cfg(test)]
mod tests;
