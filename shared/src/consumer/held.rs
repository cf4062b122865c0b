//! What this process holds: one entry a claimed ticket, with its two clocks and its stop token. No I/O.

use crate::store::{Held, Renewal};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// A sixth of the lease, at most this much, is kept as a margin by self-fencing.
const MARGIN_MAX_MS: u64 = 5_000;

/// Why a job is told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// Another may own the ticket by now: nothing is written any more (I3).
    Lost,
    /// A person or patch cancelled it: any outcome makes it cancelled.
    Cancel,
    /// The drain's deadline passed: it is given back.
    Drain,
}

/// A claimed ticket.
pub(super) struct Entry {
    pub held: Held,
    pub stop: CancellationToken,
    clock: Arc<Clock>,
    /// 0: none; else [`StopReason`] + 1.
    reason: AtomicU8,
}

struct Clock {
    start: Instant,
    /// Milliseconds after `start` of the last beat.
    beat: AtomicU64,
    /// Calls that wait for the governor: the progress clock stands still.
    waiting: AtomicU32,
    /// Milliseconds after `start` until which the lease is ours beyond doubt.
    deadline: AtomicU64,
    lost: AtomicBool,
}

impl Clock {
    fn now_ms(&self) -> u64 {
        ms(self.start.elapsed())
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Entry {
    /// `sent` is when the claim was sent: the lease is ours from then, not from when the answer came.
    pub(super) fn new(held: Held, sent: Instant, lease_ms: u64) -> Self {
        let clock = Clock {
            start: sent,
            beat: AtomicU64::new(ms(sent.elapsed())),
            waiting: AtomicU32::new(0),
            deadline: AtomicU64::new(lease_ms.saturating_sub(margin_ms(lease_ms))),
            lost: AtomicBool::new(false),
        };
        Self { held, stop: CancellationToken::new(), clock: Arc::new(clock), reason: AtomicU8::new(0) }
    }

    pub(super) fn pulse(&self) -> Pulse {
        Pulse { clock: Arc::clone(&self.clock) }
    }

    pub(super) fn suspect(&self) -> Suspect {
        Suspect { clock: Arc::clone(&self.clock) }
    }

    /// How long ago the work last moved.
    pub(super) fn idle_ms(&self) -> u64 {
        if self.clock.waiting.load(Ordering::Relaxed) > 0 {
            return 0;
        }
        self.clock.now_ms().saturating_sub(self.clock.beat.load(Ordering::Relaxed))
    }

    /// Tells the job to stop. The first reason stays, except that a lost lease overrides all.
    pub(super) fn stop_for(&self, reason: StopReason) {
        let code = match reason {
            StopReason::Lost => 1,
            StopReason::Cancel => 2,
            StopReason::Drain => 3,
        };
        if reason == StopReason::Lost {
            self.reason.store(code, Ordering::SeqCst);
            self.clock.lost.store(true, Ordering::SeqCst);
        } else {
            let _ = self.reason.compare_exchange(0, code, Ordering::SeqCst, Ordering::SeqCst);
        }
        self.stop.cancel();
    }

    pub(super) fn reason(&self) -> Option<StopReason> {
        match self.reason.load(Ordering::SeqCst) {
            1 => Some(StopReason::Lost),
            2 => Some(StopReason::Cancel),
            3 => Some(StopReason::Drain),
            _ => None,
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.clock.lost.load(Ordering::SeqCst)
    }

    /// What a renewal that was sent at `sent` answered.
    pub(super) fn renewed(&self, sent: Instant, answer: Renewal, lease_ms: u64) {
        match answer {
            Renewal::Ok { expires_in_ms } => self.extend(sent, expires_in_ms, lease_ms),
            Renewal::Cancel => {
                self.extend(sent, lease_ms, lease_ms);
                self.stop_for(StopReason::Cancel);
            }
            Renewal::Lost => self.stop_for(StopReason::Lost),
        }
    }

    fn extend(&self, sent: Instant, left_ms: u64, lease_ms: u64) {
        let from = ms(sent.saturating_duration_since(self.clock.start));
        let until = from.saturating_add(left_ms).saturating_sub(margin_ms(lease_ms));
        self.clock.deadline.store(until, Ordering::SeqCst);
    }
}

/// Never so much that a short lease (in tests) has nothing left.
fn margin_ms(lease_ms: u64) -> u64 {
    MARGIN_MAX_MS.min(lease_ms / 6)
}

/// The progress clock of a job. Cheap to clone.
#[derive(Clone)]
pub struct Pulse {
    clock: Arc<Clock>,
}

impl Pulse {
    /// The work moved: a step ended, bytes came, a tool printed.
    pub fn beat(&self) {
        self.clock.beat.store(self.clock.now_ms(), Ordering::Relaxed);
    }

    /// A call waits for the governor: the clock stands still until [`Pulse::wait_end`].
    pub fn wait_begin(&self) {
        self.clock.waiting.fetch_add(1, Ordering::Relaxed);
    }

    pub fn wait_end(&self) {
        self.beat();
        let _ = self
            .clock
            .waiting
            .try_update(Ordering::Relaxed, Ordering::Relaxed, |waiting| waiting.checked_sub(1));
    }
}

/// Self-fencing by the monotonic clock. Cheap to clone.
#[derive(Clone)]
pub struct Suspect {
    clock: Arc<Clock>,
}

impl Suspect {
    /// The last good renewal is so old that another may own the ticket: compute on, start no effect.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        self.left_ms() == 0
    }

    /// How long the lease is ours beyond doubt.
    #[must_use]
    pub fn left_ms(&self) -> u64 {
        if self.clock.lost.load(Ordering::SeqCst) {
            return 0;
        }
        self.clock.deadline.load(Ordering::SeqCst).saturating_sub(self.clock.now_ms())
    }
}

/// All entries of this process, by ticket id and epoch.
#[derive(Default)]
pub(super) struct Registry {
    entries: Mutex<BTreeMap<(String, u64), Arc<Entry>>>,
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, u64), Arc<Entry>>> {
        // Nothing panics while it is held; a poisoned map is still a good map.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, entry: &Arc<Entry>) {
        self.lock().insert((entry.held.id.clone(), entry.held.epoch), Arc::clone(entry));
    }

    pub(super) fn remove(&self, held: &Held) {
        self.lock().remove(&(held.id.clone(), held.epoch));
    }

    pub(super) fn snapshot(&self) -> Vec<Arc<Entry>> {
        self.lock().values().cloned().collect()
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    pub(super) fn stop_all(&self, reason: StopReason) {
        for entry in self.snapshot() {
            entry.stop_for(reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held() -> Held {
        Held { id: "a".into(), epoch: 3, lease_id: "l".into() }
    }

    fn ago(seconds: u64) -> Instant {
        Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap()
    }

    #[test]
    fn the_lease_counts_from_when_the_call_was_sent() {
        let fresh = Entry::new(held(), Instant::now(), 30_000);
        assert!(!fresh.suspect().is_suspect());
        assert!(fresh.suspect().left_ms() <= 25_000, "a margin is kept");
        let late = Entry::new(held(), ago(26), 30_000);
        assert!(late.suspect().is_suspect(), "30 s lease, 5 s margin, claimed 26 s ago");
        late.renewed(Instant::now(), Renewal::Ok { expires_in_ms: 30_000 }, 30_000);
        assert!(!late.suspect().is_suspect());
        late.renewed(Instant::now(), Renewal::Ok { expires_in_ms: 3_000 }, 30_000);
        assert!(late.suspect().is_suspect(), "a progress limit leaves less than the margin");
    }

    #[test]
    fn i3_a_lost_lease_overrides_every_other_reason() {
        let entry = Entry::new(held(), Instant::now(), 30_000);
        entry.renewed(Instant::now(), Renewal::Cancel, 30_000);
        assert_eq!(entry.reason(), Some(StopReason::Cancel));
        assert!(entry.stop.is_cancelled());
        entry.stop_for(StopReason::Drain);
        assert_eq!(entry.reason(), Some(StopReason::Cancel));
        entry.renewed(Instant::now(), Renewal::Lost, 30_000);
        assert_eq!(entry.reason(), Some(StopReason::Lost));
        assert!(entry.is_lost() && entry.suspect().is_suspect());
    }

    #[test]
    fn the_progress_clock_stands_still_while_a_call_waits() {
        let entry = Entry::new(held(), ago(100), 30_000);
        let pulse = entry.pulse();
        pulse.clock.beat.store(0, Ordering::Relaxed);
        assert!(entry.idle_ms() >= 100_000);
        pulse.wait_begin();
        assert_eq!(entry.idle_ms(), 0);
        pulse.wait_end();
        assert!(entry.idle_ms() < 1_000, "the end of a wait is a beat");
        pulse.wait_end();
        pulse.beat();
        assert!(entry.idle_ms() < 1_000);
    }
}
