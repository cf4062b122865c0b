//! Section `[memory]`: what finished goals teach later ones.

use serde::{Deserialize, Serialize};

/// Whether lessons are kept, how many, and how many an agent is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Memory {
    /// Goals that are done leave lessons.
    pub learn: bool,
    /// Lessons of one tenant; the oldest go first.
    pub lessons_max: usize,
    /// Characters of one lesson.
    pub lesson_chars_max: usize,
    /// Lessons that the planner, or an actor, is told; 0: none.
    pub shown_max: usize,
}

impl Default for Memory {
    fn default() -> Self {
        Self { learn: true, lessons_max: 500, lesson_chars_max: 800, shown_max: 3 }
    }
}
