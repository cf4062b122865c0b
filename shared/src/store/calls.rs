//! What the scripts take and answer, as types. One enum an answer: every return code is a variant.

use crate::goal::Goal;
use crate::message::{Delivery, InboxEvent, Kind};
use crate::ticket::patch::Edit;
use crate::ticket::{FailClass, Report, Ticket, Verdict};
use serde::{Deserialize, Serialize};

/// Proof of a claim: only the write that carries the same pair is accepted (I3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Ticket id, or goal id for a manager's step.
    pub id: String,
    pub epoch: u64,
    pub lease_id: String,
}

/// What a consumer asks for.
#[derive(Clone, Debug)]
pub struct ClaimRequest<'a> {
    pub kind: Kind,
    /// Lanes in order of preference: `work.<pool>…` or `review`.
    pub lanes: &'a [String],
    pub consumer: &'a str,
    /// Random, one for each claim; a repeat after a lost reply carries the same one and gets the same tickets.
    pub lease_prefix: &'a str,
    pub lease_ms: u64,
    /// At most 64.
    pub n: usize,
    /// Who reviews (model and prompt): never a ticket whose work was done by the same actor.
    pub actor: &'a str,
}

/// A claimed ticket.
#[derive(Clone, Debug)]
pub struct Claim {
    pub kind: Kind,
    pub held: Held,
    pub ticket: Ticket,
    /// What the list held; `None` when it did not decode (it is in the dead letters then).
    pub delivery: Option<Delivery>,
    /// How long it was ready before the claim, by the Redis clock.
    pub queue_wait_ms: u64,
}

#[derive(Clone, Debug)]
pub enum ClaimReply {
    Got(Vec<Claim>),
    Empty,
    /// There may be more: come back after the hint.
    Again {
        hint_ms: u64,
    },
    Paused {
        hint_ms: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    Ok {
        expires_in_ms: u64,
    },
    /// The owner should stop; any outcome makes the ticket cancelled.
    Cancel,
    Lost,
}

/// A finished attempt.
#[derive(Clone, Debug)]
pub struct Completion {
    pub held: Held,
    pub report: Report,
    /// Blob of the attempt's overlay, or empty.
    pub overlay_ref: String,
    /// Who did it (model and prompt).
    pub actor: String,
    /// Under review policy none: the goal's root that the new one was made from, and the new one.
    pub roots: Option<(String, String)>,
}

/// A reviewer's decision.
#[derive(Clone, Debug)]
pub struct Decision {
    pub held: Held,
    pub verdict: Verdict,
    pub actor: String,
    /// For a pass: the goal's root that the new one was made from, and the new one.
    pub roots: Option<(String, String)>,
}

/// Answer to complete, decide, fail, release, park, conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Written {
    Ok,
    /// This very write was accepted before.
    Dup,
    /// Stale epoch, another lease, or the ticket moved on.
    Fenced,
    /// The goal's root moved: merge again and repeat.
    Moved,
    /// The goal is over; the ticket is cancelled or will be.
    Gone,
    /// Accepted, and a cap was reached.
    Escalated,
    /// Accepted, and a cancel was asked: the ticket is cancelled.
    Cancelled,
}

/// A failure of an attempt.
#[derive(Clone, Debug)]
pub struct Failure {
    pub held: Held,
    pub class: FailClass,
    /// What went wrong, for the next attempt's prompt and for people. At most 4 KiB are kept.
    pub detail: String,
    /// Wait before the next try.
    pub delay_ms: u64,
}

/// A parked confirmation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Permit {
    /// Digest of tool name and arguments; of the edited ones once a person edited them.
    pub digest: String,
    /// Digest of the call as it was asked for; empty while nobody edited it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub asked_digest: String,
    pub tool: String,
    pub args: serde_json::Value,
    pub revision: u32,
    /// `asked`, `approved` or `denied`.
    pub state: String,
    #[serde(default)]
    pub note: String,
    /// Key of the effect that may have happened already: then the question is whether it may run again. Else empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub doubt: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    New,
    /// The same idempotency key: the goal is there already.
    Duplicate,
    /// As much work waits as `limits.ready_max` allows.
    Busy,
}

/// A goal that this manager holds, and what its inbox said when it was taken.
#[derive(Clone, Debug)]
pub struct GoalClaim {
    pub held: Held,
    pub goal: Goal,
    pub events: Vec<InboxEvent>,
    /// Length of the inbox as read; a patch or finish trims this much.
    pub read: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Patched {
    Ok {
        version: u64,
    },
    Dup {
        version: u64,
    },
    /// The plan version or a ticket's epoch is not as read.
    Stale,
    Fenced,
    Gone,
    /// Refused whole; names the operation (from 0) and why.
    Refused {
        op: usize,
        reason: String,
    },
}

/// How a manager's step ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// More will come; `decided` says whether the step changed anything.
    Continue {
        decided: bool,
    },
    /// Satisfied.
    Done,
    Failed {
        cause: String,
        detail: String,
    },
    NeedsHuman {
        cause: String,
        detail: String,
        expiry_ms: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finished {
    Ok,
    /// More came meanwhile, the goal is queued again.
    Again,
    Dup,
    Fenced,
    Gone,
    /// `Done` was refused: what is still open.
    Refused(String),
}

/// What a person (or the command line for one) decides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case", deny_unknown_fields)]
pub enum PersonDecision {
    /// Ticket in needs_human: try again, with a note and perhaps an edit.
    Retry {
        #[serde(default)]
        note: String,
        #[serde(default)]
        edit: Box<Edit>,
    },
    /// Ticket in needs_human: here are the files (an overlay blob).
    Deliver { overlay_ref: String },
    Skip {
        #[serde(default)]
        reason: String,
    },
    Fail {
        #[serde(default)]
        reason: String,
    },
    /// Ticket in awaiting_approval.
    Approve {
        #[serde(default)]
        args: Option<serde_json::Value>,
    },
    Deny {
        #[serde(default)]
        reason: String,
    },
    /// Terminal ticket: again, with a note; its dependents become stale and run again.
    Reopen {
        #[serde(default)]
        note: String,
    },
    /// Goal whose plan waits: it runs. The note goes to its manager.
    ApprovePlan {
        #[serde(default)]
        note: String,
    },
    /// Goal whose plan waits: it is planned anew with these words; one whose plan was given ends cancelled.
    DenyPlan {
        #[serde(default)]
        reason: String,
    },
    /// Goal in needs_human: the answer to its question; a new budget if it is about that.
    Answer {
        text: String,
        #[serde(default)]
        budget_tokens: Option<u64>,
        #[serde(default)]
        budget_microusd: Option<u64>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered {
    Ok,
    Dup,
    /// The epoch is not as read.
    Stale,
    /// The decision does not fit the state it is in.
    Refused(String),
    NotFound,
}

/// An open decision of a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenDecision {
    /// Ticket id or goal id.
    pub id: String,
    pub goal: String,
    /// Key of the ticket, empty for a goal's.
    pub key: String,
    pub epoch: u64,
    /// `needs_human`, `awaiting_approval`, `goal`.
    pub kind: String,
    pub cause: String,
    pub detail: String,
    /// Redis clock.
    pub expires_at_ms: u64,
    /// What each answer does, and what expiry does.
    pub choices: Vec<String>,
}

/// One entry of a goal's event log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogEvent {
    /// Stream id, for `after`.
    pub id: String,
    pub at_ms: u64,
    /// `claimed`, `completed`, … : the event word.
    pub event: String,
    #[serde(default)]
    pub ticket: String,
    #[serde(default)]
    pub key: String,
    #[serde(default)]
    pub from: String,
    #[serde(default)]
    pub to: String,
    #[serde(default)]
    pub epoch: u64,
    #[serde(default)]
    pub who: String,
    #[serde(default)]
    pub detail: String,
}

/// What one sweep did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    pub requeued: u64,
    pub escalated: u64,
    pub promoted: u64,
    /// An outage grace is in force.
    pub grace: bool,
    pub more: bool,
    pub lost: Vec<LostLease>,
}

/// A lease of a ticket that its owner did not renew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostLease {
    pub ticket: String,
    pub goal: String,
    /// Under which it was held.
    pub epoch: u64,
    /// `attempt` or `review`, and which one.
    pub what: String,
    pub number: u32,
    pub consumer: String,
    pub traceparent: String,
}

/// A rule of the store that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// `L1`, `I4`, …
    pub rule: String,
    pub id: String,
    pub detail: String,
}

/// A consumer as it published itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Consumer {
    pub id: String,
    pub role: String,
    pub host: String,
    pub pid: u32,
    pub version: String,
    pub started_at_ms: u64,
    pub slots: usize,
    pub busy: usize,
    pub lanes: Vec<String>,
    pub tools: Vec<String>,
    pub sandbox: bool,
    /// Reads the nonce blob of the fleet.
    pub blobs: bool,
    /// `active`, `cordoned`, `draining`.
    pub state: String,
    /// Age of the last beat, Redis clock.
    #[serde(default)]
    pub beat_age_ms: u64,
}

/// Gauges of the store, for metrics, `muster stats` and scaling.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Gauges {
    /// Ready or leased, by lane.
    pub demand: std::collections::BTreeMap<String, u64>,
    /// Live consumers by lane.
    pub consumers: std::collections::BTreeMap<String, u64>,
    pub leased: u64,
    pub delayed: u64,
    pub people: u64,
    pub dead_letters: u64,
    pub goals_live: u64,
    /// How long the oldest lease is overdue; 0: none is.
    pub oldest_lease_overdue_ms: u64,
    pub used_memory_bytes: u64,
}

/// An entry of the dead-letter list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeadLetter {
    pub at_ms: u64,
    pub lane: String,
    pub reason: String,
    /// Base64 of what stood in the list, unchanged.
    pub raw: String,
}
