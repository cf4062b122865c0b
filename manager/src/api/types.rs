//! Bodies of the HTTP API: what a client sends and what it gets. Plain serde structs, no server code,
//! because the command line is built from the same file.
//!
//! Requests refuse unknown fields by name; answers may grow. Goals, tickets, events, decisions and
//! consumers are those of `shared`, except that a lease id never leaves the manager.
#![allow(dead_code, reason = "compiled into both binaries; each uses its half")]

use serde::{Deserialize, Serialize};
use serde_json::Value;
use shared::goal::{DeadlinePolicy, Goal, Intake};
use shared::lesson::Lesson;
use shared::standard::Tallied;
use shared::store::{
    Consumer, DeadLetter, Endpoint, Gauges, LogEvent, OpenDecision, PersonDecision, ProbeRecord,
    ReviewerBook, TenantBook, Used, Violation,
};
use shared::ticket::{ReviewPolicy, Ticket};
use std::collections::BTreeMap;

// By its path, since both binaries take this file in.
#[path = "types/attempts.rs"]
mod attempts;
#[allow(unused_imports, reason = "the command line reads these as JSON")]
pub(crate) use attempts::*;

/// `POST /v1/goals` and `POST /v1/plans`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SubmitGoal {
    /// May be empty when the plan file has a goal text of its own.
    #[serde(default)]
    pub(crate) text: String,
    #[serde(default)]
    pub(crate) constraints: Vec<String>,
    /// Files that were uploaded before and where they shall stand in the workspace.
    #[serde(default)]
    pub(crate) inputs: Vec<InputFile>,
    /// A plan file as JSON (`{"goal": …, "tickets": […]}`); without one a model plans.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) plan: Option<Value>,
    /// `plan` (a model splits it, the default) or `route` (a quick request, by the intents of the configuration).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) intake: Option<Intake>,
    /// A person approves the plan before anything of it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) approve_plan: Option<bool>,
    /// Review policy of tickets whose plan names none; the manager's own default otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) review: Option<ReviewPolicy>,
    /// 0 or absent: no budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) budget_tokens: Option<u64>,
    /// Millionths of a dollar; 0 or absent: no budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) budget_microusd: Option<u64>,
    /// Seconds from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deadline_s: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deadline_policy: Option<DeadlinePolicy>,
    /// Tickets of the goal that may run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) in_flight_max: Option<u32>,
    /// Only for a token that is not bound to a tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
    /// The same key of the same tenant finds the same goal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) idempotency_key: Option<String>,
    /// `en` or `zh`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) language: Option<String>,
}

/// An uploaded file's place in the workspace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct InputFile {
    /// Such as `data/sales.csv`.
    pub(crate) path: String,
    /// As `PUT /v1/uploads` answered.
    pub(crate) blob: String,
}

/// Answer to `POST /v1/goals`: 201 when new, 200 when the idempotency key was known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct GoalSubmitted {
    pub(crate) goal: String,
    pub(crate) state: String,
    pub(crate) duplicate: bool,
    /// Whether the replicas that are asked for have it; absent when none is asked for. `false`: it runs, and a failover
    /// of Redis may lose it; submit again with the same idempotency key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) confirmed: Option<bool>,
}

/// Answer to `PUT /v1/uploads`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Uploaded {
    pub(crate) blob: String,
    pub(crate) size_bytes: u64,
}

/// Answer to `GET /v1/goals`, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct GoalList {
    pub(crate) goals: Vec<Goal>,
    /// Where the next page starts; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) next_offset: Option<usize>,
}

/// Answer to `GET /v1/goals/{goal}/tickets`, in plan order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TicketList {
    pub(crate) tickets: Vec<Ticket>,
}

/// Answer to `GET /v1/goals/{goal}/events`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct EventList {
    pub(crate) events: Vec<LogEvent>,
    /// The `after` of the next request.
    pub(crate) last: String,
    /// The goal is over and nothing stands after `last`.
    pub(crate) end: bool,
}

/// Data of the SSE event `end`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StreamEnd {
    /// The goal's state, or `shutdown` when the manager leaves: connect again then.
    pub(crate) state: String,
}

/// A file of a goal's workspace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct FileInfo {
    pub(crate) path: String,
    pub(crate) hash: String,
    pub(crate) size_bytes: u64,
    pub(crate) mime: String,
    /// Key of the ticket that made it, or `input`.
    pub(crate) creator: String,
    pub(crate) description: String,
    pub(crate) version: u32,
}

/// Answer to `GET /v1/goals/{goal}/files`. `TODO.md` and `FILE_INDEX.json` can be fetched as well,
/// but are drawn and so not listed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct FileList {
    /// Root of the manifest; empty when nothing was accepted yet.
    pub(crate) root: String,
    pub(crate) files: Vec<FileInfo>,
}

/// Answer to `GET /v1/goals/{goal}/audit` and `GET /v1/audit`: empty when every rule holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Audit {
    pub(crate) violations: Vec<Violation>,
}

/// `POST /v1/goals/{goal}/{cancel|pause|resume|reopen|note|answer}` and
/// `POST /v1/tickets/{ticket}/{cancel|retry|reopen}`. An empty body is one without text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Words {
    pub(crate) text: String,
    /// Repeating the request with the same id changes nothing; made up when empty.
    pub(crate) request_id: String,
    /// Epoch as read; 0: whatever it is now.
    pub(crate) expected_epoch: u64,
    /// Goal's answer only: `approve` or `deny` of the plan that waits; empty: an answer in words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) decision: String,
    /// Goal's answer only: the new budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) budget_tokens: Option<u64>,
    /// Goal's answer only: the new budget of money, in millionths of a dollar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) budget_microusd: Option<u64>,
}

/// `POST /v1/tickets/{ticket}/answer`: `{"decision": "retry", "note": "…", "request_id": "…", "expected_epoch": 7}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct AnswerTicket {
    #[serde(flatten)]
    pub(crate) decision: PersonDecision,
    #[serde(default)]
    pub(crate) request_id: String,
    #[serde(default)]
    pub(crate) expected_epoch: u64,
}

/// `POST /v1/tickets/{ticket}/deliver`: a person's files in the ticket's place, uploaded before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DeliverFiles {
    pub(crate) files: Vec<InputFile>,
    /// What they are, for the file list.
    pub(crate) text: String,
    pub(crate) request_id: String,
    pub(crate) expected_epoch: u64,
}

/// Answer to a write that has nothing else to say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ack {
    /// `ok`, `duplicate` (this very request was taken before) or `unchanged` (it was so already).
    pub(crate) outcome: String,
}

/// Answer to `GET /v1/inbox`, soonest expiry first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Inbox {
    pub(crate) decisions: Vec<OpenDecision>,
}

/// Answer to `GET /v1/memory`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LessonList {
    pub(crate) tenant: String,
    /// Newest first.
    pub(crate) lessons: Vec<Lesson>,
}

/// `POST /v1/memory/{lesson}`: a person's words in its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EditLesson {
    pub(crate) text: String,
}

/// Answer to `DELETE /v1/memory` and `DELETE /v1/memory/{lesson}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Forgotten {
    pub(crate) lessons: u64,
}

/// Answer to `GET /v1/standards`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StandardList {
    pub(crate) tenant: String,
    /// By kind, oldest first.
    pub(crate) standards: Vec<Tallied>,
}

/// `POST /v1/standards/{standard}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DecideStandard {
    pub(crate) decision: StandardWord,
    /// The person's own words for it.
    #[serde(default)]
    pub(crate) text: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StandardWord {
    Promote,
    Drop,
}

/// Answer to `GET /v1/reviewers`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReviewerList {
    pub(crate) reviewers: Vec<ReviewerBook>,
}

/// Answer to `GET /v1/reviewers/{reviewer}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReviewerShown {
    pub(crate) reviewer: ReviewerBook,
    /// Known deliverables that it judged, newest first.
    pub(crate) probes: Vec<ProbeRecord>,
}

/// `POST /v1/reviewers/{reviewer}/probe`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OrderProbes {
    /// Known deliverables, canaries and controls in turn.
    pub(crate) count: u64,
}

/// Answer to `POST /v1/plans`: the plan that would run. Nothing was submitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PlanReply {
    /// `{"tickets": [TicketSpec…]}`; null when there is no sound plan.
    pub(crate) plan: Value,
    /// Why it would be refused, each naming ticket and field; empty: it would run.
    pub(crate) problems: Vec<String>,
    pub(crate) estimate: Estimate,
}

/// What a plan will take at most once, without rejections. Money and time come from the configured prices
/// and from assumptions that the manager names in its documentation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Estimate {
    pub(crate) tickets: usize,
    /// Tickets that are a direct tool call.
    pub(crate) direct: usize,
    /// Longest chain of needs, in tickets.
    pub(crate) critical_path: usize,
    /// Tickets that can run at once, at most.
    pub(crate) width: usize,
    pub(crate) model_calls: u64,
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
    pub(crate) microusd: u64,
    /// Along the critical path.
    pub(crate) seconds: u64,
}

/// Answer to `GET /v1/fleet`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Fleet {
    pub(crate) paused: bool,
    pub(crate) consumers: Vec<Consumer>,
}

/// Answer to `GET /v1/stats`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stats {
    pub(crate) version: String,
    pub(crate) gauges: Gauges,
    /// A model is configured for this manager.
    pub(crate) model: bool,
    /// What was booked, by role, tier and model.
    #[serde(default)]
    pub(crate) usage: Vec<Used>,
    /// What waits and runs, by lane.
    #[serde(default)]
    pub(crate) lanes: BTreeMap<String, Lane>,
    /// How the models' endpoints stand.
    #[serde(default)]
    pub(crate) endpoints: Vec<Endpoint>,
}

/// Answer to `GET /v1/tenants`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TenantList {
    pub(crate) tenants: Vec<TenantBook>,
}

/// Body of `POST /v1/tenants/{tenant}/budget`: what it may spend until its period turns, 0: without limit. What is not
/// named stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TenantBudget {
    pub(crate) tokens: Option<u64>,
    /// Millionths of a dollar.
    pub(crate) microusd: Option<u64>,
}

/// Answer to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Raised {
    /// Goals that waited for it and go on now.
    pub(crate) goals: u64,
    pub(crate) book: TenantBook,
}

/// A lane of work, reviews or goals.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Lane {
    pub(crate) ready: u64,
    pub(crate) leased: u64,
    pub(crate) consumers: u64,
    /// How long the oldest that is ready has waited.
    pub(crate) oldest_ready_ms: u64,
}

/// Answer to `GET /v1/dead-letters`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct DeadLetters {
    pub(crate) letters: Vec<DeadLetter>,
}

/// `POST /v1/dead-letters/requeue`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Requeue {
    pub(crate) limit: usize,
}

impl Default for Requeue {
    fn default() -> Self {
        Self { limit: 100 }
    }
}

/// Answer to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Requeued {
    /// Letters taken off the list.
    #[serde(default)]
    pub(crate) taken: usize,
    /// Live tickets that they named, which got a fresh delivery.
    pub(crate) requeued: usize,
}

/// `POST /v1/tokens`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NewToken {
    /// For people: whose it is.
    pub(crate) name: String,
    /// Of `read`, `submit`, `decide`, `admin`.
    pub(crate) scopes: Vec<String>,
    /// Empty: every tenant.
    pub(crate) tenant: String,
    /// 0: never expires.
    pub(crate) expires_in_s: u64,
}

/// A token as it is listed: the secret itself is not kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct TokenInfo {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) scopes: Vec<String>,
    pub(crate) tenant: String,
    pub(crate) created_at_ms: u64,
    /// 0: never.
    pub(crate) expires_at_ms: u64,
}

/// Answer to `POST /v1/tokens`; the only time that the secret is shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TokenMade {
    pub(crate) token: String,
    #[serde(flatten)]
    pub(crate) info: TokenInfo,
}

/// Answer to `GET /v1/tokens`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TokenList {
    pub(crate) tokens: Vec<TokenInfo>,
}

/// Every error of the API.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ErrorBody {
    pub(crate) error: ErrorDetail,
}

/// What went wrong, where, and the way out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ErrorDetail {
    /// A word for programs: `bad_request, unauthorized, forbidden, not_found, conflict, too_large, busy,
    /// unavailable, internal`.
    pub(crate) code: String,
    pub(crate) message: String,
    /// The field of the request, when it is one field's fault.
    #[serde(default)]
    pub(crate) field: String,
    #[serde(default)]
    pub(crate) hint: String,
}
