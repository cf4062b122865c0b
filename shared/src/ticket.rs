//! Tickets as plain data: ids, what a plan says of one, what its hash holds. No I/O here.
//!
//! What a ticket may do next is in [`status`]; whether a set of tickets is a sound plan, in [`graph`].

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

pub mod cause;
pub mod counters;
pub mod graph;
pub mod limits;
pub mod patch;
pub mod status;

pub use cause::{Cause, FailClass};
pub use counters::{Caps, Counters};
pub use status::{Event, Illegal, Life, ReviewPolicy, Status};

/// Makes a new id: a UUIDv7 as 32 hex digits, so that ids sort by the time they were made.
#[must_use]
pub fn new_id() -> String {
    uuid::Uuid::now_v7().simple().to_string()
}

/// What dependents do when this need of theirs ends without being done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NeedsPolicy {
    /// Stay blocked; the goal's manager hears of it at once.
    #[default]
    Block,
    /// Be skipped as well.
    Skip,
    /// Run without it.
    Run,
}

impl NeedsPolicy {
    /// The word stored in the hash.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Skip => "skip",
            Self::Run => "run",
        }
    }
}

/// A class of models, by price and strength.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    Cheap,
    #[default]
    Standard,
    Strong,
}

impl Tier {
    /// The word stored in the hash and used as a metric label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cheap => "cheap",
            Self::Standard => "standard",
            Self::Strong => "strong",
        }
    }

    /// One step up; `Strong` stays.
    #[must_use]
    pub fn up(self) -> Self {
        match self {
            Self::Cheap => Self::Standard,
            Self::Standard | Self::Strong => Self::Strong,
        }
    }
}

/// One thing that is checked. Code checks run first; `judged` items go to the reviewer's model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Check {
    /// The file is part of the attempt or of the accepted workspace.
    FileExists { path: String },
    /// The file holds at least `min` bytes.
    MinBytes { path: String, min: u64 },
    /// The file's text matches the pattern.
    Regex { path: String, pattern: String },
    /// The file's text does not match the pattern.
    NotRegex { path: String, pattern: String },
    /// The file is JSON and valid against the schema.
    JsonSchema { path: String, schema: Value },
    /// The CSV file has at least `min` rows below its header, and these columns if any are named.
    CsvRows {
        path: String,
        min: u64,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        columns: Vec<String>,
    },
    /// The pattern occurs at least `min` times in the file's text.
    MinCount { path: String, pattern: String, min: u64 },
    /// The command exits 0 in the sandbox, the workspace being its folder.
    Command { command: String },
    /// A model judges it, with evidence that code resolves.
    Judged { text: String },
}

impl Check {
    /// Whether code alone can decide it.
    #[must_use]
    pub fn is_code(&self) -> bool {
        !matches!(self, Self::Judged { .. })
    }

    /// The path that the check reads, if it reads one.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::FileExists { path }
            | Self::MinBytes { path, .. }
            | Self::Regex { path, .. }
            | Self::NotRegex { path, .. }
            | Self::JsonSchema { path, .. }
            | Self::CsvRows { path, .. }
            | Self::MinCount { path, .. } => Some(path),
            Self::Command { .. } | Self::Judged { .. } => None,
        }
    }

    /// The kinds a plan may name, for error messages and schemas.
    pub const KINDS: &'static [&'static str] = &[
        "file_exists",
        "min_bytes",
        "regex",
        "not_regex",
        "json_schema",
        "csv_rows",
        "min_count",
        "command",
        "judged",
    ];

    /// One line for prompts, inbox and reports: what must hold.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::FileExists { path } => format!("the file {path} exists"),
            Self::MinBytes { path, min } => format!("{path} holds at least {min} bytes"),
            Self::Regex { path, pattern } => format!("{path} matches /{pattern}/"),
            Self::NotRegex { path, pattern } => format!("{path} does not match /{pattern}/"),
            Self::JsonSchema { path, schema } => format!("{path} is JSON valid against {schema}"),
            Self::CsvRows { path, min, columns } if columns.is_empty() => {
                format!("{path} is CSV with at least {min} rows")
            }
            Self::CsvRows { path, min, columns } => {
                format!("{path} is CSV with at least {min} rows and the columns {}", columns.join(", "))
            }
            Self::MinCount { path, pattern, min } => {
                format!("/{pattern}/ occurs at least {min} times in {path}")
            }
            Self::Command { command } => format!("`{command}` exits 0 in the workspace"),
            Self::Judged { text } => text.clone(),
        }
    }
}

/// A direct tool call: the whole ticket is this one call, no model is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectCall {
    pub tool: String,
    /// A JSON object.
    pub args: Value,
}

/// A ticket as a plan describes it, before it has an id in the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TicketSpec {
    /// The plan's own name of it (`measure`), unique within the goal.
    pub key: String,
    /// Keys of the tickets whose outputs it needs.
    #[serde(default)]
    pub needs: Vec<String>,
    pub description: String,
    #[serde(default)]
    pub input_context: Value,
    pub expected_output: String,
    #[serde(default)]
    pub role: String,
    /// A persona written for this ticket alone; it replaces the role's.
    #[serde(default)]
    pub persona: String,
    #[serde(default)]
    pub tier: Tier,
    /// Tool bundles; empty means the role's.
    #[serde(default)]
    pub tools: Vec<String>,
    /// The worker lane is `work.<pool>`.
    #[serde(default = "default_pool")]
    pub pool: String,
    #[serde(default)]
    pub call: Option<DirectCall>,
    /// Paths that the ticket must deliver.
    #[serde(default)]
    pub outputs: Vec<String>,
    #[serde(default)]
    pub checklist: Vec<Check>,
    #[serde(default)]
    pub review: ReviewPolicy,
    #[serde(default)]
    pub needs_policy: NeedsPolicy,
    /// 0 urgent, 1 normal, 2 bulk.
    #[serde(default = "default_priority")]
    pub priority: u8,
    #[serde(default = "default_true")]
    pub mandatory: bool,
    /// The last ticket: it puts the deliverable together.
    #[serde(default)]
    pub integrates: bool,
    /// How deep below the goal's first plan (0) it was made.
    #[serde(default)]
    pub depth: u32,
    /// Key of the ticket that this one was split from, or empty.
    #[serde(default)]
    pub parent_key: String,
}

fn default_pool() -> String {
    "default".into()
}
fn default_priority() -> u8 {
    1
}
fn default_true() -> bool {
    true
}

impl TicketSpec {
    /// A spec with the given key and every other field at its default.
    #[must_use]
    pub fn new(key: &str, description: &str, expected_output: &str) -> Self {
        Self {
            key: key.into(),
            needs: vec![],
            description: description.into(),
            input_context: Value::Null,
            expected_output: expected_output.into(),
            role: String::new(),
            persona: String::new(),
            tier: Tier::default(),
            tools: vec![],
            pool: default_pool(),
            call: None,
            outputs: vec![],
            checklist: vec![],
            review: ReviewPolicy::default(),
            needs_policy: NeedsPolicy::default(),
            priority: default_priority(),
            mandatory: true,
            integrates: false,
            depth: 0,
            parent_key: String::new(),
        }
    }
}

/// A worker's typed final answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// `done`, `partial` or `failed`.
    pub status: String,
    pub summary: String,
    /// Confirmed facts for the goal's shared list.
    #[serde(default)]
    pub conclusions: Vec<String>,
    /// Paths that the attempt made or changed.
    #[serde(default)]
    pub outputs: Vec<String>,
    /// How many tool calls the attempt really made, by tool: claims are held against it.
    #[serde(default)]
    pub tool_calls: BTreeMap<String, u32>,
    /// Blob of the attempt's step log.
    #[serde(default)]
    pub steps_ref: String,
    /// What the manager should know because the plan no longer fits; empty: it does. Scripts look for it by this name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub plan_change: String,
    /// Hash of what the agent was told at its start, and the blob of its parts; empty for direct calls.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prompt_hash: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prompt_ref: String,
}

/// One item of a verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerdictItem {
    /// What had to hold, as [`Check::describe`] says it.
    pub item: String,
    pub pass: bool,
    pub reason: String,
    /// `path:first-last` or `tool:<step>`; resolved by code.
    #[serde(default)]
    pub evidence: String,
    /// Decided by code (true) or by a model.
    pub by_code: bool,
}

/// What a reviewer found: the whole passes only if every item does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    pub items: Vec<VerdictItem>,
}

impl Verdict {
    /// True when there is at least one item and all of them pass.
    #[must_use]
    pub fn passes(&self) -> bool {
        !self.items.is_empty() && self.items.iter().all(|i| i.pass)
    }

    /// The comment that goes back to the worker: the failed items with their reasons.
    #[must_use]
    pub fn comment(&self) -> String {
        let failed: Vec<String> =
            self.items.iter().filter(|i| !i.pass).map(|i| format!("- {}: {}", i.item, i.reason)).collect();
        failed.join("\n")
    }
}

/// A ticket as its hash holds it. The first eleven fields are the seed's and keep their names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ticket {
    pub task_id: String,
    pub parent_id: String,
    pub description: String,
    pub input_context: Value,
    pub expected_output: String,
    pub status: Status,
    pub assignee: String,
    pub result: Value,
    pub review_comment: String,
    pub created_at_ms: u64,
    pub updated_at_ms: u64,

    pub goal: String,
    pub key: String,
    pub epoch: u64,
    pub lease_id: String,
    pub role: String,
    pub persona: String,
    pub tier: Tier,
    pub tools: Vec<String>,
    pub pool: String,
    pub call: Option<DirectCall>,
    pub outputs: Vec<String>,
    pub checklist: Vec<Check>,
    pub review: ReviewPolicy,
    pub needs_policy: NeedsPolicy,
    /// Ids of the tickets it was planned to need.
    pub needs: Vec<String>,
    pub priority: u8,
    pub mandatory: bool,
    pub integrates: bool,
    pub depth: u32,
    pub counters: Counters,
    /// How often it was claimed by a worker.
    pub attempts: u32,
    /// How often a reviewer claimed it.
    pub reviews: u32,
    pub revision: u32,
    pub generation: u32,
    pub started_at_ms: u64,
    pub ready_at_ms: u64,
    /// Root of the goal's workspace that the attempt was made from.
    pub base_root: String,
    /// Blob of the overlay that waits for its verdict, or was accepted.
    pub overlay_ref: String,
    /// Actor (model and prompt) that did the work under review.
    pub work_actor: String,
    /// Consumer (or person) that did it.
    pub work_by: String,
    /// What the last failed attempt said, for the next one's prompt.
    pub failure: String,
    /// A person's note to the next attempt.
    pub note: String,
    /// The last verdict.
    pub verdict: Option<Verdict>,
    pub cause: String,
    pub cause_detail: String,
    /// Until when a named person's decision is awaited, or a delayed retry is due; 0 if neither.
    pub due_at_ms: u64,
    pub permit: Value,
    pub cancel_asked: bool,
    pub traceparent: String,
    pub spent_tokens: u64,
    pub spent_microusd: u64,
}
