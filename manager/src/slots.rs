//! The manager's slots: each takes a goal with news, holds its lease while the step runs, and goes on.

use crate::step::{Manager, Pulse};
use shared::store::{GoalClaim, Held, Renewal};
use shared::telemetry::metrics::{self, Role};
use shared::telemetry::probe::Readiness;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// The lane on which goals with news wake a manager.
pub(crate) const LANE: &str = "manage";
/// One wait for news; a lost wake-up costs at most this.
const WAIT_MS: u64 = 2_000;
/// Renewals are at most this far apart, so that a manager with long steps stays ready.
const RENEW_MAX: Duration = Duration::from_secs(5);
/// Wait after a claim that the store did not answer, and of a slot that shall take nothing.
const RETRY: Duration = Duration::from_millis(500);

/// The claim loops and what they share.
#[derive(Clone)]
pub(crate) struct Slots {
    pub(crate) manager: Manager,
    pub(crate) readiness: Readiness,
    busy: Arc<AtomicUsize>,
    /// An order of the fleet: take nothing for now.
    pub(crate) cordoned: Arc<AtomicBool>,
    /// Take nothing new.
    pub(crate) stop: CancellationToken,
    /// Leave what is in hand.
    pub(crate) cut: CancellationToken,
}

impl Slots {
    pub(crate) fn new(manager: Manager, readiness: Readiness, stop: CancellationToken) -> Self {
        metrics::slots(manager.config.manager.slots, 0, 0);
        Self {
            manager,
            readiness,
            busy: Arc::new(AtomicUsize::new(0)),
            cordoned: Arc::new(AtomicBool::new(false)),
            stop,
            cut: CancellationToken::new(),
        }
    }

    /// Steps that run just now.
    pub(crate) fn busy(&self) -> usize {
        self.busy.load(Ordering::Relaxed)
    }

    /// One slot, until `stop`; it ends after the step in hand.
    pub(crate) async fn run(self) {
        let lanes = [LANE.to_owned()];
        let mut waiter = self.manager.store.waiter();
        while !self.stop.is_cancelled() {
            if self.cordoned.load(Ordering::Relaxed) {
                self.pause().await;
                continue;
            }
            let lease_id = format!("{:032x}", rand::random::<u128>());
            let lease_ms = self.manager.config.lease.lease_ms;
            match self.manager.store.manage_claim(&self.manager.id, &lease_id, lease_ms).await {
                Ok(Some(claim)) => {
                    self.readiness.good();
                    let busy = self.busy.fetch_add(1, Ordering::Relaxed) + 1;
                    metrics::claimed(Role::Manager, 1, busy);
                    self.hold(claim).await;
                    let busy = self.busy.fetch_sub(1, Ordering::Relaxed) - 1;
                    metrics::slots(self.manager.config.manager.slots, busy, 0);
                }
                Ok(None) => {
                    self.readiness.good();
                    tokio::select! {
                        () = waiter.wait(&lanes, WAIT_MS) => {}
                        () = self.stop.cancelled() => {}
                    }
                }
                Err(error) => {
                    // A claim whose reply was lost lapses and comes back by the sweeper.
                    tracing::warn!(%error, "no claim");
                    self.pause().await;
                }
            }
        }
    }

    async fn pause(&self) {
        tokio::select! {
            () = tokio::time::sleep(RETRY) => {}
            () = self.stop.cancelled() => {}
        }
    }

    /// One step with its lease kept alive beside it. A panic in the step ends the step, not the slot.
    async fn hold(&self, claim: GoalClaim) {
        let cut = self.cut.child_token();
        let pulse = Pulse::new();
        let held = Held { id: format!("g:{}", claim.held.id), ..claim.held.clone() };
        let goal = claim.goal.id.clone();
        let manager = self.manager.clone();
        let mut step = tokio::spawn({
            let (cut, pulse) = (cut.clone(), pulse.clone());
            async move { manager.step(claim, cut, pulse).await }
        });
        let ended = tokio::select! {
            ended = &mut step => ended,
            () = self.renew(held, &pulse) => {
                tracing::warn!(goal, "the goal's lease is lost");
                cut.cancel();
                step.await
            }
        };
        if let Err(error) = ended {
            tracing::error!(%error, goal, "a step ended badly; the goal comes back when its lease lapses");
        }
    }

    /// Renews until the lease is lost, or the step has not moved for the progress limit.
    async fn renew(&self, held: Held, pulse: &Pulse) {
        let lease = &self.manager.config.lease;
        let mut every = tokio::time::interval(Duration::from_millis(lease.renew_ms).min(RENEW_MAX));
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        every.tick().await;
        let one = [(held, 0)];
        loop {
            every.tick().await;
            let idle_ms = pulse.idle_ms();
            if idle_ms > lease.progress_limit_ms {
                return;
            }
            let mut one = one.clone();
            one[0].1 = idle_ms;
            let sent = Instant::now();
            let renewed = self
                .manager
                .store
                .renew(
                    &self.manager.id,
                    &[],
                    lease.lease_ms,
                    lease.progress_limit_ms,
                    lease.run_limit_ms,
                    &one,
                )
                .await;
            match renewed {
                Ok(answers) => match answers.first() {
                    Some(Renewal::Lost) | None => {
                        metrics::renewed(0, 0, 1, sent.elapsed());
                        return;
                    }
                    Some(Renewal::Ok { .. } | Renewal::Cancel) => {
                        metrics::renewed(1, 0, 0, sent.elapsed());
                        self.readiness.good();
                    }
                },
                // Not lost yet: every write says so itself when it is.
                Err(error) => tracing::warn!(%error, "lease not renewed"),
            }
        }
    }
}
