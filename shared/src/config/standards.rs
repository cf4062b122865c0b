//! Section `[standards]`: checklist items that reviews suggest and a person promotes.

use serde::{Deserialize, Serialize};

/// Whether reasons of rejections are noticed, and how many become items.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Standards {
    /// Goals that are done leave their reasons for rejections. Off: what was promoted still holds.
    pub propose: bool,
    /// Tickets that were sent back for the same reason before it is proposed.
    pub seen_min: u64,
    /// Standards kept of one kind of ticket and tenant, in all states.
    pub kind_max: usize,
    /// Those of a kind that are in shadow at the same time: items that a review is asked beside its own.
    pub shadow_max: usize,
    /// Those of a kind that are promoted: items that a new ticket gets beside its own.
    pub promoted_max: usize,
    /// Characters of one item.
    pub chars_max: usize,
}

impl Default for Standards {
    fn default() -> Self {
        Self { propose: true, seen_min: 3, kind_max: 50, shadow_max: 3, promoted_max: 10, chars_max: 300 }
    }
}
