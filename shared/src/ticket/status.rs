//! The table of a ticket's life: what may happen next, as a pure function.
//!
//! The Lua scripts in `store/scripts` do the same atomically on the hashes; a property test runs the
//! same random histories against both. Change the table here first, then the script, then the test.

use super::{Caps, Cause, Counters, FailClass};
use serde::{Deserialize, Serialize};

/// Where a ticket stands. The five of the seed first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Never tried, or waiting for its next try after a fault.
    #[default]
    Pending,
    Running,
    Reviewing,
    /// Sent back, waiting for its retry with the comment.
    Rejected,
    Done,
    Blocked,
    AwaitingApproval,
    Escalated,
    NeedsHuman,
    Skipped,
    Superseded,
    Failed,
    Cancelled,
}

impl Status {
    pub const ALL: [Status; 13] = [
        Status::Pending,
        Status::Running,
        Status::Reviewing,
        Status::Rejected,
        Status::Done,
        Status::Blocked,
        Status::AwaitingApproval,
        Status::Escalated,
        Status::NeedsHuman,
        Status::Skipped,
        Status::Superseded,
        Status::Failed,
        Status::Cancelled,
    ];

    /// The word in the hash, the API and the metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Reviewing => "reviewing",
            Self::Rejected => "rejected",
            Self::Done => "done",
            Self::Blocked => "blocked",
            Self::AwaitingApproval => "awaiting_approval",
            Self::Escalated => "escalated",
            Self::NeedsHuman => "needs_human",
            Self::Skipped => "skipped",
            Self::Superseded => "superseded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The status of that name, if there is one.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.as_str() == word)
    }

    /// Nothing happens to it by itself any more (a person may still reopen it).
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Done | Self::Skipped | Self::Superseded | Self::Failed | Self::Cancelled)
    }
}

/// How finished work is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReviewPolicy {
    /// Complete publishes.
    None,
    /// Code checks only.
    Code,
    /// Code checks, then a reviewer's model.
    #[default]
    Judged,
}

impl ReviewPolicy {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Code => "code",
            Self::Judged => "judged",
        }
    }
}

/// What can happen to a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// Its last open need was met.
    NeedsMet,
    /// A worker took it, or a reviewer did.
    Claimed,
    Completed,
    Conflicted,
    /// The same, and doing it again would only write over what was accepted: a direct tool call.
    ConflictStands,
    Failed(FailClass),
    /// No renewal, no progress, or the run limit.
    Lapsed,
    Released,
    ConfirmationAsked,
    /// A person answered the permit, or it expired (= denied).
    PermitAnswered,
    NoReviewer,
    Passed,
    ItemFailed,
    /// Manager: rewritten, other role, tier or checks.
    Rewritten,
    /// Manager: same work, another reviewer.
    ReviewAgain,
    Split,
    Skipped,
    FailedForGood,
    HandedOver,
    /// Person: answered or edited, try again.
    PersonRetry,
    /// Person: the files are here.
    PersonDelivers,
    /// A patch adds a need that is not met.
    NeedAdded,
    /// A patch changes what is asked.
    Modified,
    /// A need of it, direct or not, is open again.
    NeedReopened,
    /// A person reopens or retries a terminal one.
    Reopened,
    CancelAsked,
    Cancelled,
}

/// The event does not fit the state; nothing changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{event:?} is not possible in {status:?}")]
pub struct Illegal {
    pub status: Status,
    pub event: Event,
}

/// The part of a ticket that the table looks at and changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Life {
    pub status: Status,
    /// Reviewing with a reviewer's lease; a running ticket is always owned.
    pub owned: bool,
    /// Its set of unmet needs is not empty.
    pub needs_open: bool,
    pub review: ReviewPolicy,
    pub counters: Counters,
    pub revision: u32,
    pub generation: u32,
    pub cancel_asked: bool,
    pub cause: Option<Cause>,
    /// What is reviewed are a person's files: sent back, they go to a person.
    pub by_person: bool,
    /// Raised by every transition (I3).
    pub epoch: u64,
}

impl Life {
    /// A ticket of a sealed plan, before its needs are looked at.
    #[must_use]
    pub fn new(review: ReviewPolicy, needs_open: bool) -> Self {
        Self {
            status: Status::Blocked,
            owned: false,
            needs_open,
            review,
            counters: Counters::default(),
            revision: 0,
            generation: 0,
            cancel_asked: false,
            cause: None,
            by_person: false,
            epoch: 1,
        }
    }

    fn to(mut self, status: Status) -> Self {
        // The request to cancel wins over every other row.
        let status = if self.cancel_asked && !status.is_terminal() { Status::Cancelled } else { status };
        self.status = status;
        self.owned = status == Status::Running;
        self.epoch += 1;
        if status.is_terminal() {
            self.cancel_asked = false;
        }
        self
    }

    /// To the ready list, or to the need set when needs are open ("any row to pending or rejected").
    fn to_work(self, status: Status) -> Self {
        if self.needs_open { self.to(Status::Blocked) } else { self.to(status) }
    }

    fn escalate(mut self, cause: Cause) -> Self {
        self.cause = Some(cause);
        self.to(Status::Escalated)
    }

    /// Counts one more; the cap reached escalates, otherwise `status` follows.
    fn count(mut self, cause: Cause, caps: &Caps, status: Status) -> Self {
        let c = &mut self.counters;
        let (counter, cap) = match cause {
            Cause::Faults => (&mut c.faults, caps.faults),
            Cause::Losses => (&mut c.losses, caps.losses),
            Cause::Waits => (&mut c.waits, caps.waits),
            Cause::Releases => (&mut c.releases, caps.releases),
            Cause::Conflicts => (&mut c.conflicts, caps.conflicts),
            Cause::Asks => (&mut c.asks, caps.asks),
            Cause::ReviewFaults => (&mut c.review_faults, caps.review_faults),
            Cause::ReviewLosses => (&mut c.review_losses, caps.review_losses),
            Cause::ReviewReleases => (&mut c.review_releases, caps.review_releases),
            Cause::NotRetryable | Cause::NoReviewer | Cause::HandedOver => return self.escalate(cause),
        };
        *counter += 1;
        // I11: every loop has a cap.
        if *counter >= cap {
            return self.escalate(cause);
        }
        let waits_for_work = matches!(status, Status::Pending | Status::Rejected);
        if waits_for_work { self.to_work(status) } else { self.to(status) }
    }

    /// Edited: counted from zero again, only the interventions stay.
    fn edited(mut self) -> Self {
        self.counters = self.counters.after_edit();
        self.cause = None;
        self
    }

    fn blocked_again(mut self) -> Self {
        self.generation += 1;
        self.needs_open = true;
        self.to(Status::Blocked)
    }
}

/// The table of DESIGN.md 3 (I2). Pure: guards on epochs and lease ids are the scripts' part.
///
/// # Errors
/// [`Illegal`] when the event does not fit the status; the ticket stays as it is.
#[expect(clippy::wildcard_enum_match_arm, reason = "`_` is only ever: not possible here")]
pub fn next(life: &Life, event: Event, caps: &Caps) -> Result<Life, Illegal> {
    use Event as E;
    use Status as S;
    let l = *life;
    let illegal = Err(Illegal { status: l.status, event });
    // The request to cancel wins over every outcome, lapse or release.
    let any = matches!(event, E::Conflicted | E::ConflictStands | E::Failed(_) | E::Lapsed | E::Released);
    let owned = match l.status {
        S::Running if l.cancel_asked && (any || matches!(event, E::Completed | E::ConfirmationAsked)) => {
            return Ok(l.to(S::Cancelled));
        }
        S::Reviewing if l.owned && l.cancel_asked && (any || matches!(event, E::Passed | E::ItemFailed)) => {
            return Ok(l.to(S::Cancelled));
        }
        status => status == S::Running || (status == S::Reviewing && l.owned),
    };
    match event {
        E::NeedsMet => match l.status {
            S::Blocked if !l.needs_open => Ok(l.to(S::Pending)),
            _ => illegal,
        },
        E::Claimed => match l.status {
            S::Pending | S::Rejected => Ok(l.to(S::Running)),
            S::Reviewing if !l.owned => {
                let mut n = l.to(S::Reviewing);
                n.owned = true;
                Ok(n)
            }
            _ => illegal,
        },
        E::Completed => match l.status {
            S::Running if l.review == ReviewPolicy::None => Ok(l.to(S::Done)),
            S::Running => {
                let mut n = l.to(S::Reviewing);
                n.by_person = false;
                Ok(n)
            }
            _ => illegal,
        },
        E::Conflicted if owned => Ok(l.count(Cause::Conflicts, caps, S::Rejected)),
        E::ConflictStands if owned => Ok(l.escalate(Cause::Conflicts)),
        E::Failed(class) => match (l.status, class) {
            (S::Running, FailClass::Fault) => Ok(l.count(Cause::Faults, caps, S::Pending)),
            (S::Running, FailClass::Wait) => Ok(l.count(Cause::Waits, caps, S::Pending)),
            (S::Running, FailClass::NotRetryable) => Ok(l.escalate(Cause::NotRetryable)),
            (S::Reviewing, FailClass::Fault) if l.owned => {
                Ok(l.count(Cause::ReviewFaults, caps, S::Reviewing))
            }
            (S::Reviewing, FailClass::Wait) if l.owned => Ok(l.count(Cause::Waits, caps, S::Reviewing)),
            (S::Reviewing, FailClass::NotRetryable) if l.owned => Ok(l.escalate(Cause::ReviewFaults)),
            _ => illegal,
        },
        E::Lapsed => match l.status {
            S::Running => Ok(l.count(Cause::Losses, caps, S::Pending)),
            S::Reviewing if l.owned => Ok(l.count(Cause::ReviewLosses, caps, S::Reviewing)),
            _ => illegal,
        },
        E::Released => match l.status {
            S::Running => Ok(l.count(Cause::Releases, caps, S::Pending)),
            S::Reviewing if l.owned => Ok(l.count(Cause::ReviewReleases, caps, S::Reviewing)),
            _ => illegal,
        },
        E::ConfirmationAsked => match l.status {
            S::Running => Ok(l.count(Cause::Asks, caps, S::AwaitingApproval)),
            _ => illegal,
        },
        E::PermitAnswered => match l.status {
            S::AwaitingApproval => Ok(l.to_work(S::Pending)),
            _ => illegal,
        },
        E::NoReviewer => match l.status {
            S::Reviewing if !l.owned => {
                let mut n = l.to(S::NeedsHuman);
                n.cause = Some(Cause::NoReviewer);
                Ok(n)
            }
            _ => illegal,
        },
        E::Passed => match l.status {
            S::Reviewing if l.owned => Ok(l.to(S::Done)),
            _ => illegal,
        },
        E::ItemFailed => match l.status {
            S::Reviewing if l.owned && l.by_person => Ok(l.escalate(Cause::Faults)),
            S::Reviewing if l.owned => Ok(l.count(Cause::Faults, caps, S::Rejected)),
            _ => illegal,
        },
        E::Rewritten => match l.status {
            S::Escalated if l.counters.interventions < caps.interventions => {
                let mut n = l.edited();
                n.counters.interventions += 1;
                n.revision += 1;
                Ok(n.to_work(S::Pending))
            }
            _ => illegal,
        },
        E::ReviewAgain => match l.status {
            S::Escalated
                if l.cause.is_some_and(Cause::is_review) && l.counters.interventions < caps.interventions =>
            {
                let mut n = l.edited();
                n.counters.interventions += 1;
                Ok(n.to(S::Reviewing))
            }
            _ => illegal,
        },
        E::Split if !l.status.is_terminal() => Ok(l.to(S::Superseded)),
        E::Skipped if !l.status.is_terminal() => Ok(l.to(S::Skipped)),
        E::FailedForGood if !l.status.is_terminal() => Ok(l.to(S::Failed)),
        E::HandedOver => match l.status {
            S::Escalated => Ok(l.to(S::NeedsHuman)),
            _ => illegal,
        },
        E::PersonRetry => match l.status {
            S::NeedsHuman => {
                let mut n = l.edited();
                n.revision += 1;
                Ok(n.to_work(S::Pending))
            }
            _ => illegal,
        },
        E::PersonDelivers => match l.status {
            // The files are published by a reviewer like all others: policy none becomes code.
            S::NeedsHuman => {
                let mut n = l.edited();
                if n.review == ReviewPolicy::None {
                    n.review = ReviewPolicy::Code;
                }
                n.by_person = true;
                Ok(n.to(S::Reviewing))
            }
            _ => illegal,
        },
        E::NeedAdded => match l.status {
            S::Pending | S::Running | S::Reviewing | S::Rejected | S::AwaitingApproval => {
                let mut n = l;
                n.needs_open = true;
                Ok(n.to(S::Blocked))
            }
            S::Done => Ok(l.blocked_again()),
            S::Blocked | S::Escalated | S::NeedsHuman => {
                let mut n = l;
                n.needs_open = true;
                Ok(n)
            }
            S::Skipped | S::Superseded | S::Failed | S::Cancelled => illegal,
        },
        E::Modified => match l.status {
            S::Blocked => {
                let mut n = l;
                n.revision += 1;
                Ok(n)
            }
            S::Pending
            | S::Rejected
            | S::Running
            | S::Reviewing
            | S::AwaitingApproval
            | S::Escalated
            | S::NeedsHuman => {
                let mut n = l;
                n.revision += 1;
                Ok(n.to_work(S::Pending))
            }
            S::Done | S::Skipped | S::Superseded | S::Failed | S::Cancelled => illegal,
        },
        E::NeedReopened => match l.status {
            S::Blocked
            | S::Pending
            | S::Rejected
            | S::Running
            | S::Reviewing
            | S::AwaitingApproval
            | S::Escalated
            | S::NeedsHuman
            | S::Done => Ok(l.blocked_again()),
            S::Skipped | S::Superseded | S::Failed | S::Cancelled => illegal,
        },
        E::Reopened => match l.status {
            S::Done | S::Failed | S::Skipped | S::Cancelled => {
                let mut n = l.edited();
                n.counters = Counters::default();
                n.generation += 1;
                Ok(n.to_work(S::Pending))
            }
            _ => illegal,
        },
        E::CancelAsked if owned => {
            let mut n = l;
            n.cancel_asked = true;
            Ok(n)
        }
        E::Cancelled if !l.status.is_terminal() => Ok(l.to(S::Cancelled)),
        E::Conflicted
        | E::ConflictStands
        | E::Split
        | E::Skipped
        | E::FailedForGood
        | E::CancelAsked
        | E::Cancelled => illegal,
    }
}
