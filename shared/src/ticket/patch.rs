//! What a manager may change in a running plan: operations on tickets, applied all or none by one script.

use super::{NeedsPolicy, TicketSpec};
use serde::{Deserialize, Serialize};

/// Most operations of one patch.
pub const OPS_MAX: usize = 100;

/// A ticket that gets its id and its needs' ids before it goes to the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewTicket {
    pub id: String,
    /// Id of the ticket that it was split from, or the goal's id.
    pub parent_id: String,
    /// Ids, in the same goal.
    pub need_ids: Vec<String>,
    pub spec: TicketSpec,
}

/// Fields of a ticket that an edit replaces; `None` leaves one as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Edit {
    pub description: Option<String>,
    pub expected_output: Option<String>,
    pub input_context: Option<serde_json::Value>,
    pub role: Option<String>,
    pub persona: Option<String>,
    pub tier: Option<super::Tier>,
    pub tools: Option<Vec<String>>,
    pub checklist: Option<Vec<super::Check>>,
    pub call: Option<super::DirectCall>,
    pub needs_policy: Option<NeedsPolicy>,
}

impl Edit {
    /// Whether it changes nothing: such an edit is refused.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// One operation. `epoch` is the ticket's as the manager read it: another one makes the patch STALE.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum PatchOp {
    Add {
        ticket: Box<NewTicket>,
    },
    /// Changes what a live ticket asks; its owner, if it has one, is fenced off.
    Modify {
        id: String,
        epoch: u64,
        edit: Box<Edit>,
    },
    /// Answer to an escalation: try again, changed.
    Rewrite {
        id: String,
        epoch: u64,
        edit: Box<Edit>,
    },
    /// Answer to an escalation of the review: keep the work, review again.
    ReviewAgain {
        id: String,
        epoch: u64,
    },
    /// Replaced by others; dependents then need those instead.
    Split {
        id: String,
        epoch: u64,
        into: Vec<String>,
    },
    Skip {
        id: String,
        epoch: u64,
        reason: String,
    },
    Fail {
        id: String,
        epoch: u64,
        reason: String,
    },
    /// The goal can do without it: it counts as mandatory no longer, and an owner is fenced off.
    Cancel {
        id: String,
        epoch: u64,
        reason: String,
    },
    /// Answer to an escalation: a person decides, until the expiry.
    HandOver {
        id: String,
        epoch: u64,
        reason: String,
        expiry_ms: u64,
    },
    /// `id` also needs `need` from now on.
    Link {
        id: String,
        epoch: u64,
        need: String,
    },
    /// `id` needs exactly `needs` from now on; `add` and `drop` are the difference to what it needed.
    Relink {
        id: String,
        epoch: u64,
        needs: Vec<String>,
        add: Vec<String>,
        drop: Vec<String>,
    },
}

impl PatchOp {
    /// The ticket that it touches.
    #[must_use]
    pub fn ticket_id(&self) -> &str {
        match self {
            Self::Add { ticket } => &ticket.id,
            Self::Modify { id, .. }
            | Self::Rewrite { id, .. }
            | Self::ReviewAgain { id, .. }
            | Self::Split { id, .. }
            | Self::Skip { id, .. }
            | Self::Fail { id, .. }
            | Self::Cancel { id, .. }
            | Self::HandOver { id, .. }
            | Self::Link { id, .. }
            | Self::Relink { id, .. } => id,
        }
    }
}
