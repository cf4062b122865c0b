//! What is counted of a ticket (I8), and the caps (I11).

use serde::{Deserialize, Serialize};

/// Counted at the outcome (I8); each has its own cap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Counters {
    /// Failures and rejections of the work together.
    pub faults: u32,
    /// Lapsed leases.
    pub losses: u32,
    /// Quota, overload, open breaker.
    pub waits: u32,
    /// Given back by a drain.
    pub releases: u32,
    /// One of its paths changed under it.
    pub conflicts: u32,
    /// Confirmations asked.
    pub asks: u32,
    pub review_faults: u32,
    pub review_losses: u32,
    pub review_releases: u32,
    /// Edits by the manager; never reset by the manager itself.
    pub interventions: u32,
}

impl Counters {
    /// What a rewrite or a person's answer leaves: only the interventions.
    #[must_use]
    pub fn after_edit(self) -> Self {
        Self { interventions: self.interventions, ..Self::default() }
    }
}

/// A counter that reaches its cap escalates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Caps {
    pub faults: u32,
    pub losses: u32,
    pub waits: u32,
    pub releases: u32,
    pub conflicts: u32,
    pub asks: u32,
    pub review_faults: u32,
    pub review_losses: u32,
    pub review_releases: u32,
    /// Edits that a manager may make of one ticket.
    pub interventions: u32,
    /// Manager's steps lost in a row before a person is asked.
    pub goal_losses: u32,
    /// Manager's steps that decided nothing while something waited.
    pub goal_stalls: u32,
    /// Attempts of a goal that end badly, none accepted between, until its manager looks at the whole plan.
    pub goal_dry: u32,
}

impl Default for Caps {
    fn default() -> Self {
        Self {
            faults: 3,
            losses: 3,
            waits: 50,
            releases: 5,
            conflicts: 3,
            asks: 5,
            review_faults: 3,
            review_losses: 3,
            review_releases: 5,
            interventions: 2,
            goal_losses: 3,
            goal_stalls: 3,
            goal_dry: 6,
        }
    }
}
