//! Table `[reviewer.canaries]`: deliverables whose verdict is known, put before the judge to measure it.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Most results that the two rates may look back on.
const WINDOW_MAX: u32 = 1_000;

/// How often a judge is measured, and what it must reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Canaries {
    /// For each 100 judged reviews of a reviewer so many known deliverables are put before it; 0: only by command.
    pub percent: u32,
    /// Folder with further ones (`*.toml`); empty: only those that are built in.
    pub folder: PathBuf,
    /// The rates are those of the last so many canaries, and of the last so many controls.
    pub window: u32,
    /// So many of a kind are needed before its rate says anything.
    pub count_min: u32,
    /// Whoever finds fewer of the planted defects than this is suspended.
    pub catch_floor_percent: u32,
    /// Whoever passes fewer of the good deliverables than this is suspended.
    pub pass_floor_percent: u32,
    /// How often a reviewer looks whether one is due.
    pub poll_ms: u64,
}

impl Default for Canaries {
    fn default() -> Self {
        Self {
            percent: 2,
            folder: PathBuf::new(),
            window: 20,
            count_min: 4,
            catch_floor_percent: 60,
            pass_floor_percent: 60,
            poll_ms: 5_000,
        }
    }
}

impl Canaries {
    /// The first key that does not hold, and why.
    #[must_use]
    pub fn problem(&self) -> Option<(&'static str, &'static str)> {
        if self.percent > 100 {
            return Some(("reviewer.canaries.percent", "must be at most 100"));
        }
        if self.catch_floor_percent > 100 {
            return Some(("reviewer.canaries.catch_floor_percent", "must be at most 100"));
        }
        if self.pass_floor_percent > 100 {
            return Some(("reviewer.canaries.pass_floor_percent", "must be at most 100"));
        }
        if self.count_min == 0 {
            return Some(("reviewer.canaries.count_min", "must be above 0"));
        }
        if self.window < self.count_min || self.window > WINDOW_MAX {
            return Some(("reviewer.canaries.window", "must be at least count_min and at most 1000"));
        }
        (self.poll_ms == 0).then_some(("reviewer.canaries.poll_ms", "must be above 0"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floors_are_percentages_and_the_window_holds_what_is_needed() {
        assert_eq!(Canaries::default().problem(), None);
        for wrong in [
            Canaries { percent: 101, ..Canaries::default() },
            Canaries { catch_floor_percent: 101, ..Canaries::default() },
            Canaries { count_min: 0, ..Canaries::default() },
            Canaries { count_min: 9, window: 8, ..Canaries::default() },
            Canaries { poll_ms: 0, ..Canaries::default() },
        ] {
            assert!(wrong.problem().is_some(), "{wrong:?}");
        }
    }
}
