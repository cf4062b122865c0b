//! The words that label values are made of. Enums only: what is not in here is no label (Q51).

/// Which program, or whose phase of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Manager,
    Worker,
    Reviewer,
}

impl Role {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Manager => "manager",
            Self::Worker => "worker",
            Self::Reviewer => "reviewer",
        }
    }

    /// The role of that name; what is not known counts as the worker's.
    #[must_use]
    pub fn of(name: &str) -> Self {
        match name {
            "manager" | "planner" => Self::Manager,
            "reviewer" => Self::Reviewer,
            _ => Self::Worker,
        }
    }
}

/// Whose a tool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    Code,
    Files,
    Web,
    Http,
    Mcp,
}

impl Tool {
    pub(super) const ALL: [Self; 5] = [Self::Code, Self::Files, Self::Web, Self::Http, Self::Mcp];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Code => "code",
            Self::Files => "files",
            Self::Web => "web",
            Self::Http => "http",
            Self::Mcp => "mcp",
        }
    }
}

/// What a handler made of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Completed,
    Passed,
    ItemFailed,
    Fault,
    Wait,
    NotRetryable,
    Released,
    Parked,
    Conflict,
    Panic,
    /// The lease was lost or the ticket cancelled under it.
    Dropped,
}

impl Outcome {
    pub(super) const ALL: [Self; 11] = [
        Self::Completed,
        Self::Passed,
        Self::ItemFailed,
        Self::Fault,
        Self::Wait,
        Self::NotRetryable,
        Self::Released,
        Self::Parked,
        Self::Conflict,
        Self::Panic,
        Self::Dropped,
    ];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Passed => "passed",
            Self::ItemFailed => "item_failed",
            Self::Fault => "fault",
            Self::Wait => "wait",
            Self::NotRetryable => "not_retryable",
            Self::Released => "released",
            Self::Parked => "parked",
            Self::Conflict => "conflict",
            Self::Panic => "panic",
            Self::Dropped => "dropped",
        }
    }
}

/// What the store said to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Ok,
    Dup,
    Fenced,
    Moved,
    Gone,
    Escalated,
    Cancelled,
    Unavailable,
}

impl Answer {
    pub(super) const ALL: [Self; 8] = [
        Self::Ok,
        Self::Dup,
        Self::Fenced,
        Self::Moved,
        Self::Gone,
        Self::Escalated,
        Self::Cancelled,
        Self::Unavailable,
    ];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Dup => "dup",
            Self::Fenced => "fenced",
            Self::Moved => "moved",
            Self::Gone => "gone",
            Self::Escalated => "escalated",
            Self::Cancelled => "cancelled",
            Self::Unavailable => "unavailable",
        }
    }
}

/// How a model call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Ok,
    Ours,
    Reply,
    Quota,
    Overload,
    Context,
    Auth,
    Network,
    Budget,
    Cancelled,
}

impl Call {
    pub(super) const ALL: [Self; 10] = [
        Self::Ok,
        Self::Ours,
        Self::Reply,
        Self::Quota,
        Self::Overload,
        Self::Context,
        Self::Auth,
        Self::Network,
        Self::Budget,
        Self::Cancelled,
    ];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Ours => "ours",
            Self::Reply => "reply",
            Self::Quota => "quota",
            Self::Overload => "overload",
            Self::Context => "context",
            Self::Auth => "auth",
            Self::Network => "network",
            Self::Budget => "budget",
            Self::Cancelled => "cancelled",
        }
    }
}

/// What came of a look at a goal's whole plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replan {
    /// Tickets were added, changed, linked otherwise or closed.
    Changed,
    /// The plan still fits.
    Unchanged,
    /// A person is asked.
    Asked,
    /// No model gave a usable answer, or the tickets kept moving.
    Failed,
    /// The goal has had `limits.replans_max` of them.
    Capped,
}

impl Replan {
    pub(super) const ALL: [Self; 5] =
        [Self::Changed, Self::Unchanged, Self::Asked, Self::Failed, Self::Capped];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Asked => "asked",
            Self::Failed => "failed",
            Self::Capped => "capped",
        }
    }
}

/// What became of a call of the configured address outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Webhook {
    Heard,
    /// It is sent again.
    Again,
    /// It was sent as often as `webhooks.tries_max` says.
    GivenUp,
}

impl Webhook {
    pub(super) const ALL: [Self; 3] = [Self::Heard, Self::Again, Self::GivenUp];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Heard => "heard",
            Self::Again => "again",
            Self::GivenUp => "given_up",
        }
    }
}

/// What became of a call of Redis, beside an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redis {
    /// The connection was thrown away; the call is made again on another.
    Reconnect,
    /// The server asked for patience (a slot that moves, an election, no replica); the call is made again.
    Wait,
    /// The server did not know the script; it was sent whole.
    ScriptLoaded,
    OutOfMemory,
    Refused,
    /// An error in a script or in what it was given: a bug.
    Broken,
    /// Given up after some tries; the caller makes the same call again.
    Unavailable,
}

impl Redis {
    pub(super) const ALL: [Self; 7] = [
        Self::Reconnect,
        Self::Wait,
        Self::ScriptLoaded,
        Self::OutOfMemory,
        Self::Refused,
        Self::Broken,
        Self::Unavailable,
    ];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reconnect => "reconnect",
            Self::Wait => "wait",
            Self::ScriptLoaded => "script_loaded",
            Self::OutOfMemory => "out_of_memory",
            Self::Refused => "refused",
            Self::Broken => "broken",
            Self::Unavailable => "unavailable",
        }
    }
}

/// Tiers of models, as `crate::ticket::Tier` has them.
pub(super) const TIERS: [&str; 3] = ["cheap", "standard", "strong"];

/// Why a person is asked; many causes share a word. The last one is for what a newer version may bring.
pub(super) const ASKED_FOR: [&str; 13] = [
    "approval",
    "plan_approval",
    "planner_asks",
    "unclear",
    "budget",
    "tenant_budget",
    "unserved_lane",
    "no_reviewer",
    "model",
    "stalled",
    "step_losses",
    "ticket",
    "other",
];

/// The word of [`ASKED_FOR`] for the cause in a hash.
pub(super) fn asked_for(cause: &str) -> &'static str {
    if cause.starts_with("model_") || cause == "no_model" {
        return "model";
    }
    let by_name = ASKED_FOR.into_iter().find(|word| *word == cause);
    by_name.unwrap_or(if TICKET_CAUSES.contains(&cause) { "ticket" } else { "other" })
}

/// Causes of `crate::ticket::Cause` that a ticket comes to a person with.
const TICKET_CAUSES: [&str; 11] = [
    "faults",
    "losses",
    "waits",
    "releases",
    "conflicts",
    "asks",
    "not_retryable",
    "review_faults",
    "review_losses",
    "review_releases",
    "handed_over",
];
