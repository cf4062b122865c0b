//! What makes a manager look at the whole plan again, as the configuration names it.

use serde::{Deserialize, Serialize};

/// News of a goal under way. An escalation is decided by itself and not among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wake {
    /// Accepted work whose report says that the plan no longer fits.
    Report,
    /// A worker met an obstacle.
    Obstacle,
    /// A worker reached a milestone.
    Milestone,
    /// A person said something.
    Note,
    /// `caps.goal_dry` attempts ended badly, none accepted between.
    Stall,
}

impl Wake {
    pub const ALL: [Self; 5] = [Self::Report, Self::Obstacle, Self::Milestone, Self::Note, Self::Stall];

    /// The word of the configuration, the goal's log and the metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Report => "report",
            Self::Obstacle => "obstacle",
            Self::Milestone => "milestone",
            Self::Note => "note",
            Self::Stall => "stall",
        }
    }
}
