//! A manager's step: take a goal with news, decide, write it down, give the goal back.
//!
//! One manager at a time has a goal, by epoch and lease id on each call (I3); a step that finds itself fenced is
//! dropped without a word. Events are trimmed by the finish alone, so a manager that dies loses none (C3).
//! What is decided depends on the tickets as they are now rather than on the events that woke us.

use crate::calls::{self, Failure};
use crate::deliver::{self, Outlook};
use crate::escalation::{self, Rule};
use shared::blob::Blobs;
use shared::config::Config;
use shared::goal::{Goal, GoalState, PLAN_APPROVAL};
use shared::message::{InboxEvent, InboxKind};
use shared::model::Model;
use shared::store::{Finish, Finished, GoalClaim, Held, Patched, Store, StoreError};
use shared::ticket::patch::PatchOp;
use shared::ticket::{Status, Ticket};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

#[path = "step/learning.rs"]
mod learning;
#[path = "step/planning.rs"]
mod planning;
#[path = "step/replanning.rs"]
mod replanning;
mod standards;

/// Escalations that one step decides with a model; the finish puts the others back.
const DECIDED_MAX: usize = 20;
/// Characters of a detail that a person reads; the store keeps 4 KiB.
const DETAIL_CHARS_MAX: usize = 3_000;
/// Waits between repeats of a call to a store that does not answer.
const REPEAT_FIRST: Duration = Duration::from_millis(100);
const REPEAT_MAX: Duration = Duration::from_secs(2);

/// What every step needs. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Manager {
    pub(crate) store: Store,
    pub(crate) blobs: Blobs,
    pub(crate) config: Arc<Config>,
    pub(crate) model: Option<Model>,
    /// Consumer id of this process.
    pub(crate) id: Arc<str>,
}

/// When the step last moved: bytes from a model, a call that went through.
#[derive(Clone)]
pub(crate) struct Pulse {
    start: Instant,
    moved_ms: Arc<AtomicU64>,
}

impl Pulse {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), moved_ms: Arc::new(AtomicU64::new(0)) }
    }

    pub(crate) fn beat(&self) {
        self.moved_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    pub(crate) fn idle_ms(&self) -> u64 {
        self.now_ms().saturating_sub(self.moved_ms.load(Ordering::Relaxed))
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// What a look at the whole plan came to.
enum Looked {
    /// The tickets as they are now, and whether the plan changed.
    At {
        tickets: Vec<Ticket>,
        changed: bool,
    },
    AskPerson(Finish),
}

/// Why a step ends before its finish.
#[derive(Debug, thiserror::Error)]
enum Stop {
    /// Another manager has the goal, it is over, or this process leaves: nothing more is written.
    #[error("the goal is no longer ours")]
    Dropped,
    /// The step was cut off by the drain: the goal goes back with its events.
    #[error("cut off by the drain")]
    GiveBack,
    /// Something that a person has to look at.
    #[error("{cause}: {detail}")]
    Person { cause: String, detail: String },
}

impl Stop {
    fn person(cause: &str, detail: impl Into<String>) -> Self {
        Self::Person { cause: cause.into(), detail: detail.into() }
    }

    fn of_failure(failure: &Failure) -> Self {
        if failure.is_cancelled() {
            return Self::GiveBack;
        }
        Self::person(failure.cause(), format!("{failure}; {}", failure.hint()))
    }
}

/// One goal in hand.
struct Step<'a> {
    manager: &'a Manager,
    held: Held,
    goal: Goal,
    cut: CancellationToken,
    pulse: Pulse,
    /// Patches written so far; part of the next one's step id.
    patches: u32,
    plan_version: u64,
}

impl Manager {
    /// Does one step of a claimed goal, from its events to its finish. `cut` ends it: the lease was lost, or the
    /// drain's deadline came. Not cancellation safe as to work done twice; safe as to the store.
    pub(crate) async fn step(&self, claim: GoalClaim, cut: CancellationToken, pulse: Pulse) {
        let span = tracing::info_span!("manage", goal = claim.goal.id, epoch = claim.held.epoch);
        shared::telemetry::propagate::set_parent(&span, &claim.goal.traceparent);
        self.step_in_span(claim, cut, pulse).instrument(span).await;
    }

    async fn step_in_span(&self, claim: GoalClaim, cut: CancellationToken, pulse: Pulse) {
        let GoalClaim { held, goal, events, read } = claim;
        tracing::debug!(goal = goal.id, state = goal.state.as_str(), events = events.len(), "step");
        let plan_version = goal.plan_version;
        let mut step = Step { manager: self, held, goal, cut, pulse, patches: 0, plan_version };
        let (finish, read) = match step.decide(&events).await {
            Ok(finish) => (finish, read),
            Err(Stop::Dropped) => {
                return tracing::info!(goal = step.goal.id, "step dropped: the goal is not ours any more");
            }
            Err(Stop::GiveBack) => (Finish::Continue { decided: true }, 0),
            Err(Stop::Person { cause, detail }) => (step.to_person(cause, detail), read),
        };
        if matches!(finish, Finish::Done) {
            step.learn().await;
        }
        step.finish(finish, read).await;
    }
}

impl Step<'_> {
    async fn decide(&mut self, events: &[InboxEvent]) -> Result<Finish, Stop> {
        if self.goal.state.is_terminal() {
            return Ok(Finish::Continue { decided: true });
        }
        if !self.goal.sealed {
            if came(events, &[InboxKind::Deadline]) {
                return Ok(self
                    .to_person("deadline".into(), "the deadline has passed before there was a plan".into()));
            }
            // A person was asked; only words of one are a reason to try again, and about a plan only the decision.
            let asked = self.goal.state == GoalState::NeedsHuman;
            let reasons: &[InboxKind] = if self.waits_for(PLAN_APPROVAL) {
                &[InboxKind::Plan]
            } else {
                &[InboxKind::Plan, InboxKind::Answered, InboxKind::Note]
            };
            if asked && !came(events, reasons) {
                return Ok(Finish::Continue { decided: false });
            }
            self.plan().await?;
            return Ok(Finish::Continue { decided: true });
        }
        let tickets = self.tickets().await?;
        let decided = self.escalations(&tickets).await?;
        let tickets = if decided { self.tickets().await? } else { tickets };
        let (tickets, decided) = match self.replan(tickets, events, decided).await? {
            Looked::At { tickets, changed } => (tickets, decided || changed),
            Looked::AskPerson(finish) => return Ok(finish),
        };
        match deliver::outlook(&self.goal, &tickets, events) {
            Outlook::Working => Ok(Finish::Continue { decided }),
            Outlook::Satisfied => Ok(Finish::Done),
            Outlook::DeliverNow => self.deliver_now(tickets).await,
            // Asked already: asking again would only move the expiry.
            Outlook::Stuck { cause, .. } if self.waits_for(cause) => Ok(Finish::Continue { decided }),
            Outlook::Stuck { cause, detail } => Ok(self.to_person(cause.into(), detail)),
        }
    }

    fn waits_for(&self, cause: &str) -> bool {
        self.goal.state == GoalState::NeedsHuman && self.goal.cause == cause
    }

    fn to_person(&self, cause: String, detail: String) -> Finish {
        let detail = shared::prompt::clip(&detail, DETAIL_CHARS_MAX);
        Finish::NeedsHuman { cause, detail, expiry_ms: self.manager.config.lease.person_expiry_ms }
    }

    /// Decides every escalated ticket. Each decision is a patch of its own: one that is stale spoils no other.
    /// True when at least one was written.
    async fn escalations(&mut self, tickets: &[Ticket]) -> Result<bool, Stop> {
        let mut decided = false;
        let mut asked = 0;
        for ticket in tickets.iter().filter(|t| t.status == Status::Escalated) {
            let expiry_ms = self.manager.config.lease.person_expiry_ms;
            let ops = match escalation::rule(ticket, self.goal.caps.interventions) {
                Rule::ReviewAgain => vec![escalation::review_again(ticket)],
                Rule::HandOver(reason) => vec![escalation::hand_over(ticket, &reason, expiry_ms)],
                Rule::AskModel if asked == DECIDED_MAX => continue,
                Rule::AskModel => {
                    asked += 1;
                    match self.ask_about(ticket, tickets).await? {
                        Ok(ops) => ops,
                        Err(reason) => vec![escalation::hand_over(ticket, &reason, expiry_ms)],
                    }
                }
            };
            decided |= self.patch(&ticket.key, &ops).await?;
        }
        Ok(decided)
    }

    /// The model's decision, or why there is none: then a person decides, and reads it.
    async fn ask_about(
        &self,
        ticket: &Ticket,
        tickets: &[Ticket],
    ) -> Result<Result<Vec<PatchOp>, String>, Stop> {
        let model = &match self.may_ask(&ticket.task_id) {
            Ok(model) => model,
            // A budget is the goal's to ask for: the ticket waits with it.
            Err(Stop::Person { cause, detail }) if cause != "budget" => {
                return Ok(Err(format!(
                    "it ends with {} and no model may decide ({cause}: {detail})",
                    ticket.cause
                )));
            }
            Err(other) => return Err(other),
        };
        let beat = || self.pulse.beat();
        let asked =
            escalation::ask(model, &self.manager.config, &self.goal, ticket, tickets, &self.cut, &beat).await;
        self.book(&ticket.task_id, &asked.records).await;
        match asked.outcome {
            Ok(ops) => Ok(Ok(ops)),
            Err(failure) if failure.is_cancelled() || failure.cause() == "budget" => {
                Err(Stop::of_failure(&failure))
            }
            Err(failure) => Ok(Err(format!(
                "it ends with {} and the model could not decide ({}: {failure})",
                ticket.cause,
                failure.cause()
            ))),
        }
    }

    /// Writes operations down, all or none, against the plan as read. True when they were applied.
    async fn patch(&mut self, about: &str, ops: &[PatchOp]) -> Result<bool, Stop> {
        self.patches += 1;
        let step_id = format!("{}:{}", self.held.lease_id, self.patches);
        let ops = &self.hold_added(ops).await?;
        // Read 0: the events stay until the finish, whatever happens to us before it (C3).
        let patched = self
            .patiently(|| self.manager.store.patch(&self.held, &step_id, self.plan_version, 0, ops))
            .await?;
        self.pulse.beat();
        match patched {
            Patched::Ok { version } | Patched::Dup { version } => {
                self.plan_version = version;
                tracing::info!(goal = self.goal.id, ticket = about, ops = ops.len(), "patched");
                Ok(true)
            }
            Patched::Stale => {
                // The ticket or the plan moved while we thought; the finish brings it back if it still waits.
                tracing::info!(goal = self.goal.id, ticket = about, "patch is stale");
                Ok(false)
            }
            Patched::Fenced | Patched::Gone => Err(Stop::Dropped),
            Patched::Refused { op, reason } => {
                tracing::warn!(goal = self.goal.id, ticket = about, op, reason, "patch refused");
                Ok(false)
            }
        }
    }

    async fn deliver_now(&mut self, mut tickets: Vec<Ticket>) -> Result<Finish, Stop> {
        // One page a round; a goal has at most limits.tickets_max of them.
        loop {
            let ops = deliver::skip_open(&tickets);
            if ops.is_empty() {
                return Ok(Finish::Done);
            }
            if !self.patch("", &ops).await? {
                return Ok(self.to_person(
                    "deadline".into(),
                    "the deadline has passed and what is open could not be skipped".into(),
                ));
            }
            tickets = self.tickets().await?;
        }
    }

    async fn tickets(&self) -> Result<Vec<Ticket>, Stop> {
        self.patiently(|| self.manager.store.all_tickets(&self.goal.id)).await
    }

    /// Booked even if the step is fenced meanwhile (I3, I10).
    async fn book(&self, ticket: &str, records: &[shared::model::CallRecord]) {
        for record in records {
            calls::count(self.manager.config.manager.tier, record);
            let book = || calls::book(&self.manager.store, &self.goal.id, ticket, record);
            if self.patiently(book).await.is_err() {
                tracing::error!(goal = self.goal.id, "a model call could not be booked");
            }
        }
    }

    async fn finish(&mut self, finish: Finish, read: usize) {
        let step_id = format!("{}:finish", self.held.lease_id);
        let mut finish = finish;
        // At most twice: what is refused goes on, and going on is never refused.
        for _ in 0..2 {
            let expiry_ms = self.manager.config.lease.person_expiry_ms;
            let finished = self
                .patiently(|| {
                    self.manager.store.manage_finish(
                        &self.held,
                        &step_id,
                        self.plan_version,
                        read,
                        &finish,
                        expiry_ms,
                    )
                })
                .await;
            match finished {
                Ok(Finished::Ok | Finished::Again | Finished::Dup) => {
                    return tracing::info!(goal = self.goal.id, finish = word(&finish), "step finished");
                }
                Ok(Finished::Fenced | Finished::Gone) => {
                    return tracing::info!(goal = self.goal.id, "finish came too late");
                }
                Ok(Finished::Refused(reason)) => {
                    // Satisfied is the store's to say (I6): something moved since we looked.
                    tracing::info!(goal = self.goal.id, reason, "finish refused, going on");
                    finish = Finish::Continue { decided: false };
                }
                Err(stop) => {
                    // The lease lapses and the goal comes back with its events.
                    return tracing::warn!(goal = self.goal.id, reason = %stop, "step could not be finished");
                }
            }
        }
    }

    /// Repeats a call whose outcome is not known until it is, or until the step is cut. Every call here carries
    /// ids that make a repeat harmless.
    async fn patiently<T, F: Future<Output = Result<T, StoreError>>>(
        &self,
        call: impl Fn() -> F,
    ) -> Result<T, Stop> {
        let mut wait = REPEAT_FIRST;
        loop {
            match call().await {
                Ok(done) => return Ok(done),
                Err(error) if error.is_retryable() => {
                    if self.cut.is_cancelled() {
                        return Err(Stop::Dropped);
                    }
                    tracing::debug!(%error, goal = self.goal.id, "store call is repeated");
                    tokio::select! {
                        () = tokio::time::sleep(wait) => {}
                        () = self.cut.cancelled() => {}
                    }
                    wait = (wait * 2).min(REPEAT_MAX);
                }
                Err(error) => {
                    tracing::error!(%error, goal = self.goal.id, "store call failed");
                    return Err(Stop::person("internal", error.to_string()));
                }
            }
        }
    }
}

fn came(events: &[InboxEvent], kinds: &[InboxKind]) -> bool {
    events.iter().any(|e| kinds.contains(&e.kind))
}

fn word(finish: &Finish) -> &'static str {
    match finish {
        Finish::Continue { .. } => "continue",
        Finish::Done => "done",
        Finish::Failed { .. } => "failed",
        Finish::NeedsHuman { .. } => "needs_human",
    }
}

#[cfg(test)]
#[path = "step/tests.rs"]
mod tests;
