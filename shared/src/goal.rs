//! Goals as plain data: what a user asked for, what its hash holds, its states. No I/O here.

use crate::ticket::{Caps, ReviewPolicy};
use serde::{Deserialize, Serialize};

/// Where a goal stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GoalState {
    #[default]
    Planning,
    Running,
    NeedsHuman,
    Done,
    Failed,
    Cancelled,
}

impl GoalState {
    pub const ALL: [GoalState; 6] =
        [Self::Planning, Self::Running, Self::NeedsHuman, Self::Done, Self::Failed, Self::Cancelled];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Planning => "planning",
            Self::Running => "running",
            Self::NeedsHuman => "needs_human",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.as_str() == word)
    }

    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

/// The cause of a goal that waits for a person to approve its plan (answer.lua knows it by this word).
pub const PLAN_APPROVAL: &str = "plan_approval";

/// What happens when the deadline passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadlinePolicy {
    /// Put it to a person.
    #[default]
    Person,
    /// Deliver what is accepted.
    Deliver,
}

/// How tickets are made of a goal that brings no plan of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Intake {
    /// A model splits it.
    #[default]
    Plan,
    /// A quick request: one classification, each intent a ticket.
    Route,
}

impl Intake {
    /// The word in the hash and the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Route => "route",
        }
    }
}

/// A goal as it is submitted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NewGoal {
    /// 32 hex digits; from the tenant and idempotency key when one is given.
    pub id: String,
    pub tenant: String,
    pub text: String,
    pub constraints: Vec<String>,
    /// Manifest root that holds the input files, or empty.
    pub root: String,
    /// Blob of a given plan (`given` intake), or empty: then a model plans.
    pub given_plan_ref: String,
    pub intake: Intake,
    /// A person approves the plan before anything of it runs.
    pub approve_plan: bool,
    /// Review policy of tickets whose plan says none.
    pub review: ReviewPolicy,
    /// 0: none.
    pub budget_tokens: u64,
    /// Millionths of a dollar; 0: none.
    pub budget_microusd: u64,
    /// Redis clock, milliseconds; 0: none.
    pub deadline_at_ms: u64,
    pub deadline_policy: DeadlinePolicy,
    /// Tickets of this goal that may run at once; 0: no cap.
    pub in_flight_max: u32,
    pub caps: Caps,
    pub traceparent: String,
    /// `en` or `zh`: language of the projections.
    pub language: String,
}

/// A goal as its hash holds it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    pub id: String,
    pub tenant: String,
    pub text: String,
    pub constraints: Vec<String>,
    pub state: GoalState,
    pub paused: bool,
    pub created_at_ms: u64,
    pub updated_at_ms: u64,
    /// Raised whenever a manager takes or loses the goal.
    pub epoch: u64,
    pub lease_id: String,
    pub sealed: bool,
    pub plan_version: u64,
    /// Blob of the raw plan, stored before it is applied.
    pub plan_ref: String,
    pub given_plan_ref: String,
    pub intake: Intake,
    /// A person has still to approve the plan; nothing of it runs before.
    pub approve_plan: bool,
    /// Root of the accepted workspace.
    pub root: String,
    pub review: ReviewPolicy,
    pub language: String,
    pub budget_tokens: u64,
    /// Millionths of a dollar; 0: none.
    pub budget_microusd: u64,
    pub spent_tokens: u64,
    /// Held by calls under way, at their worst case.
    pub reserved_tokens: u64,
    pub spent_microusd: u64,
    pub reserved_microusd: u64,
    pub deadline_at_ms: u64,
    pub deadline_policy: DeadlinePolicy,
    pub in_flight: u64,
    pub in_flight_max: u32,
    pub losses: u32,
    pub stalls: u32,
    /// How often its manager has looked at the whole plan anew.
    pub replans: u32,
    /// Tickets by status.
    pub counts: std::collections::BTreeMap<String, u64>,
    pub tickets: u64,
    /// Mandatory tickets that are not closed.
    pub open_mandatory: u64,
    /// Confirmed facts, oldest first.
    pub conclusions: Vec<String>,
    /// Why it waits for a person or ended badly.
    pub cause: String,
    pub cause_detail: String,
    /// Until when a person's answer is awaited; 0 if none is.
    pub due_at_ms: u64,
    pub traceparent: String,
    /// A person's notes and answers, newest last.
    pub notes: Vec<String>,
    pub caps: Caps,
}
