//! How a goal stands, beyond the word of its state: whether it waits for nothing but a person, and until when.

use super::out::{number, span, text};
use serde_json::Value;
use shared::goal::GoalState;
use shared::ticket::Status;

/// Tickets of the goal in this status.
pub(crate) fn count(goal: &Value, status: Status) -> u64 {
    goal.get("counts").map_or(0, |counts| number(counts, status.as_str()))
}

/// Whether nothing of the goal moves any more until a person decides something.
pub(crate) fn waits_for_a_person(goal: &Value) -> bool {
    let count = |status: Status| count(goal, status);
    let moving: u64 =
        [Status::Pending, Status::Running, Status::Reviewing, Status::Rejected, Status::Escalated]
            .map(count)
            .iter()
            .sum();
    let asking = count(Status::NeedsHuman) + count(Status::AwaitingApproval);
    moving == 0 && (asking > 0 || text(goal, "state") == GoalState::NeedsHuman.as_str())
}

/// Its state for a person's eyes.
pub(crate) fn state(goal: &Value) -> String {
    let state = text(goal, "state");
    if goal.get("paused").and_then(Value::as_bool) == Some(true) {
        format!("{state}, paused")
    } else if state == GoalState::Running.as_str() && waits_for_a_person(goal) {
        format!("{state}, waits for a person")
    } else {
        state.to_owned()
    }
}

/// How long until then; `past` when it is over.
pub(crate) fn until(at_ms: u64, now_ms: u64, past: &str) -> String {
    if at_ms > now_ms { format!("in {}", span(at_ms - now_ms)) } else { past.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_person_is_waited_for_only_when_nothing_else_moves() {
        let goal =
            |state: &str, counts: Value| waits_for_a_person(&json!({"state": state, "counts": counts}));
        assert!(goal("running", json!({"needs_human": 1, "blocked": 3, "done": 2})));
        assert!(goal("running", json!({"awaiting_approval": 1})));
        assert!(goal("needs_human", json!({})));
        assert!(!goal("running", json!({"needs_human": 1, "running": 1})));
        assert!(!goal("needs_human", json!({"pending": 1})));
        assert!(!goal("running", json!({"blocked": 2})));
    }

    #[test]
    fn a_goal_that_waits_for_a_person_alone_does_not_look_as_if_it_ran() {
        let of = |goal: Value| state(&goal);
        assert_eq!(
            of(json!({"state": "running", "counts": {"needs_human": 1}})),
            "running, waits for a person"
        );
        assert_eq!(of(json!({"state": "running", "counts": {"needs_human": 1, "running": 2}})), "running");
        assert_eq!(of(json!({"state": "running", "paused": true, "counts": {}})), "running, paused");
        assert_eq!(of(json!({"state": "needs_human"})), "needs_human");
    }

    #[test]
    fn a_time_that_is_over_is_said_to_be() {
        assert_eq!(until(61_000, 1_000, "passed"), "in 1m 0s");
        assert_eq!(until(1_000, 61_000, "passed"), "passed");
    }
}
