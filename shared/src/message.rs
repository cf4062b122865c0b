//! What travels in Redis lists: deliveries (bincode, see [`crate::codec`]) and inbox events (JSON).

use serde::{Deserialize, Serialize};

/// Which phase of a ticket a delivery starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    Work,
    Review,
}

/// The body of an envelope: enough to start an attempt's span and to know that it is stale.
/// The ticket itself is in its hash. Plain struct, no options: Lua writes it too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    pub kind: Kind,
    /// 32 hex digits.
    pub ticket: String,
    pub epoch: u64,
    /// W3C trace context of the submit, or empty.
    pub traceparent: String,
    /// Redis clock, milliseconds.
    pub enqueued_at_ms: u64,
}

/// Something that a goal's manager must hear. Stored as JSON in the goal's inbox list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InboxEvent {
    /// Version of this format; readers take N and N−1.
    #[serde(default = "first_version")]
    pub v: u32,
    pub kind: InboxKind,
    #[serde(default)]
    pub ticket: String,
    #[serde(default)]
    pub epoch: u64,
    /// Cause word, a person's note, or a progress message.
    #[serde(default)]
    pub detail: String,
    #[serde(default)]
    pub at_ms: u64,
}

fn first_version() -> u32 {
    1
}

/// Why the manager is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InboxKind {
    /// A goal was submitted: plan it.
    Plan,
    /// A ticket escalated.
    Escalated,
    /// A ticket ended without being done.
    EndedNotDone,
    /// A blocked ticket's need will never be met.
    DeadNeed,
    /// Every mandatory ticket is closed.
    AllClosed,
    /// A worker's progress message with an obstacle.
    Obstacle,
    /// A worker's progress message with a milestone.
    Milestone,
    /// Accepted work whose report says that the plan no longer fits.
    Report,
    /// So many attempts of the goal ended badly, and nothing was accepted between.
    Stall,
    /// A person's note.
    Note,
    /// The goal's deadline has passed.
    Deadline,
    /// A person answered the goal's question, reopened or continued it.
    Answered,
    /// The sweeper found the goal waiting for nobody.
    Idle,
    /// Something a newer version wrote; taken as a reason to look.
    #[serde(other)]
    Unknown,
}
