//! What was tried on tickets: attempts, their steps and changed files, model calls.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use shared::ticket::Verdict;

/// Answer to `GET /v1/goals/{goal}/calls/{call}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CallShown {
    pub(crate) record: Value,
    /// Request and answer, redacted and cut to size; null: they were not kept.
    pub(crate) body: Value,
}

/// One attempt at a ticket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Attempt {
    /// As the ticket counts them; a person's delivery has the number of the attempt before it.
    pub(crate) number: usize,
    /// Consumer or person.
    pub(crate) who: String,
    pub(crate) by_person: bool,
    pub(crate) begun_at_ms: u64,
    /// 0: under way.
    pub(crate) ended_at_ms: u64,
    /// `completed`, `attempt_failed`, `lease_lost`, `released`, …; empty: under way.
    pub(crate) end: String,
    /// What was said when it did not complete.
    pub(crate) detail: String,
    pub(crate) reviewer: String,
    /// 0: no review has begun.
    pub(crate) review_begun_at_ms: u64,
    /// `accepted`, `rejected`, or empty.
    pub(crate) decided: String,
    pub(crate) decided_at_ms: u64,
    pub(crate) verdict: Option<Verdict>,
    /// Of work and review together.
    pub(crate) model_calls: u64,
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
    pub(crate) microusd: u64,
    /// Blob of what it changed; empty: nothing is kept.
    pub(crate) overlay: String,
    /// Blob of its steps; empty: nothing is kept.
    pub(crate) steps: String,
}

/// Answer to `GET /v1/tickets/{ticket}/attempts`, oldest first; the place in the list, counted from 1, names an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct AttemptList {
    pub(crate) attempts: Vec<Attempt>,
}

/// Answer to `GET /v1/goals/{goal}/attempts`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct GoalAttempts {
    pub(crate) tickets: Vec<TicketAttempts>,
}

/// All that was tried at a ticket, and when a person was waited for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TicketAttempts {
    pub(crate) ticket: String,
    pub(crate) key: String,
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) waits: Vec<Wait>,
}

/// A ticket waited for a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Wait {
    /// `needs_human` or `awaiting_approval`.
    pub(crate) state: String,
    pub(crate) begun_at_ms: u64,
    /// 0: it still does.
    pub(crate) ended_at_ms: u64,
}

/// Answer to `GET /v1/tickets/{ticket}/attempts/{place}/steps`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StepList {
    /// As the worker wrote them: `step, at_ms, text, calls: [{name, args, result, ok, ms}], input_tokens, output_tokens`.
    pub(crate) steps: Vec<Value>,
}

/// A file that an attempt made, changed or deleted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ChangedFile {
    pub(crate) path: String,
    pub(crate) deleted: bool,
    pub(crate) hash: String,
    pub(crate) size_bytes: u64,
    pub(crate) mime: String,
    /// Hash of what stood there before; empty: nothing did.
    pub(crate) replaced: String,
}

/// Answer to `GET /v1/tickets/{ticket}/attempts/{place}/files`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ChangedFiles {
    pub(crate) files: Vec<ChangedFile>,
}
