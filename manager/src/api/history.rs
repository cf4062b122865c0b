//! What a goal's log tells of its tickets: who tried, how each try ended, what was found, when a person was waited for.
//!
//! A log has thousands of lines and pages ask often: what was read is kept a while and read on from where it ended, so
//! that a second look costs only what happened since.

use super::types::{Attempt, Wait};
use super::{Api, error::ApiError};
use serde_json::Value;
use shared::store::{LogEvent, Store};
use shared::ticket::Status;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// Events looked at in one go.
const PAGE: usize = 500;
/// Goals whose history is kept: those that were looked at last.
const GOALS_MAX: usize = 8;
/// After so long a history is read from its beginning again: a failover may have taken back what was read.
const AGE_MAX: Duration = Duration::from_secs(300);

/// Of one ticket.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    pub(super) attempts: Vec<Attempt>,
    pub(super) waits: Vec<Wait>,
}

/// Of one goal, up to an event.
#[derive(Debug)]
pub(super) struct History {
    after: String,
    since: Instant,
    tickets: HashMap<String, Told>,
}

impl History {
    fn new() -> Self {
        Self { after: "0".into(), since: Instant::now(), tickets: HashMap::new() }
    }

    /// What was told of a ticket; nothing when the log has nothing.
    pub(super) fn of(&self, ticket: &str) -> Told {
        self.tickets.get(ticket).cloned().unwrap_or_default()
    }

    async fn read_on(&mut self, store: &Store, goal: &str) -> Result<(), ApiError> {
        loop {
            let events = store.events(goal, &self.after, PAGE).await?;
            for event in events.iter().filter(|e| !e.ticket.is_empty()) {
                let told = self.tickets.entry(event.ticket.clone()).or_default();
                waited(&mut told.waits, event);
                happened(&mut told.attempts, event);
            }
            match events.last() {
                Some(last) => self.after.clone_from(&last.id),
                None => return Ok(()),
            }
            if events.len() < PAGE {
                return Ok(());
            }
        }
    }
}

type Kept = Vec<(String, Arc<AsyncMutex<History>>)>;

/// Histories of the goals that were looked at last. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Histories {
    kept: Arc<Mutex<Kept>>,
}

impl Histories {
    /// The goal's own, which now is the one looked at last.
    fn of(&self, goal: &str) -> Arc<AsyncMutex<History>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let found = match kept.iter().position(|(id, _)| id == goal) {
            Some(at) => kept.remove(at),
            None => (goal.to_owned(), Arc::new(AsyncMutex::new(History::new()))),
        };
        let history = Arc::clone(&found.1);
        kept.insert(0, found);
        kept.truncate(GOALS_MAX);
        history
    }
}

impl Api {
    /// The goal's history up to now. Whoever asks for the same goal meanwhile waits for this reading. Cancellation
    /// safe: what was read is kept event by event with its place.
    pub(super) async fn history(&self, goal: &str) -> Result<OwnedMutexGuard<History>, ApiError> {
        let mut history = self.histories.of(goal).lock_owned().await;
        if history.since.elapsed() > AGE_MAX {
            *history = History::new();
        }
        history.read_on(&self.store, goal).await?;
        Ok(history)
    }
}

fn waited(waits: &mut Vec<Wait>, event: &LogEvent) {
    let for_person =
        |state: &str| state == Status::NeedsHuman.as_str() || state == Status::AwaitingApproval.as_str();
    if event.from == event.to {
        return;
    }
    if for_person(&event.from)
        && let Some(open) = waits.last_mut().filter(|w| w.ended_at_ms == 0)
    {
        open.ended_at_ms = event.at_ms;
    }
    if for_person(&event.to) {
        waits.push(Wait { state: event.to.clone(), begun_at_ms: event.at_ms, ended_at_ms: 0 });
    }
}

/// Takes one event of the ticket into account.
fn happened(attempts: &mut Vec<Attempt>, event: &LogEvent) {
    let detail = || serde_json::from_str::<Value>(&event.detail).unwrap_or_default();
    match event.event.as_str() {
        "claimed" => {
            attempts.push(Attempt { who: event.who.clone(), begun_at_ms: event.at_ms, ..Attempt::default() })
        }
        "person_delivers" => attempts.push(Attempt {
            who: event.who.clone(),
            begun_at_ms: event.at_ms,
            ended_at_ms: event.at_ms,
            end: "completed".into(),
            by_person: true,
            ..Attempt::default()
        }),
        word => {
            let Some(last) = attempts.last_mut() else { return };
            match word {
                "model_call" => {
                    let record = detail();
                    let number = |key: &str| record[key].as_u64().unwrap_or(0);
                    last.model_calls += 1;
                    last.input_tokens += number("input_tokens");
                    last.output_tokens += number("output_tokens");
                    last.microusd += number("microusd");
                }
                "review_claimed" => {
                    last.reviewer.clone_from(&event.who);
                    last.review_begun_at_ms = event.at_ms;
                }
                "accepted" | "rejected" => {
                    last.decided = word.into();
                    last.decided_at_ms = event.at_ms;
                    last.verdict = serde_json::from_str(&event.detail).ok();
                }
                _ if event.from == Status::Running.as_str() && event.to != event.from => {
                    let made = detail();
                    let text = |key: &str| made[key].as_str().unwrap_or_default().to_owned();
                    last.ended_at_ms = event.at_ms;
                    last.end = word.into();
                    if word == "completed" {
                        (last.overlay, last.steps) = (text("overlay"), text("steps"));
                    } else {
                        last.detail.clone_from(&event.detail);
                    }
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(word: &str, from: &str, to: &str, who: &str, detail: &Value) -> LogEvent {
        let detail = if detail.is_null() { String::new() } else { detail.to_string() };
        serde_json::from_value(
            json!({"id": "1-0", "at_ms": 7, "event": word, "ticket": "t", "from": from, "to": to,
            "who": who, "detail": detail}),
        )
        .unwrap()
    }

    #[test]
    fn the_log_tells_every_attempt_with_its_verdict_files_and_cost() {
        let item = json!({"item": "rows", "pass": false, "reason": "2 of 3", "evidence": "data/a.csv:1-2", "by_code": true});
        let log = [
            event("claimed", "pending", "running", "w1", &Value::Null),
            event("lease_lost", "running", "pending", "sweeper", &Value::Null),
            event("claimed", "pending", "running", "w2", &Value::Null),
            event("model_call", "", "", "", &json!({"input_tokens": 5, "output_tokens": 2, "microusd": 9})),
            event("progress", "running", "running", "w2", &Value::Null),
            event("completed", "running", "reviewing", "w2", &json!({"overlay": "aa", "steps": "bb"})),
            event("review_claimed", "reviewing", "reviewing", "r1", &Value::Null),
            event("rejected", "reviewing", "rejected", "r1", &json!({"items": [item]})),
            event("person_delivers", "needs_human", "reviewing", "jo", &Value::Null),
        ];
        let mut attempts = vec![];
        log.iter().for_each(|e| happened(&mut attempts, e));
        assert_eq!(attempts.len(), 3);
        assert_eq!((attempts[0].end.as_str(), attempts[0].who.as_str()), ("lease_lost", "w1"));
        let second = &attempts[1];
        assert_eq!(
            (second.overlay.as_str(), second.steps.as_str(), second.end.as_str()),
            ("aa", "bb", "completed")
        );
        assert_eq!((second.model_calls, second.input_tokens, second.microusd), (1, 5, 9));
        assert_eq!((second.decided.as_str(), second.reviewer.as_str()), ("rejected", "r1"));
        assert_eq!(second.verdict.as_ref().map(|v| v.passes()), Some(false));
        assert!(attempts[2].by_person && attempts[2].end == "completed");
    }

    #[test]
    fn what_was_waited_for_a_person_is_told_with_its_end() {
        let log = [
            event("confirmation_asked", "running", "awaiting_approval", "w1", &Value::Null),
            event("progress", "awaiting_approval", "awaiting_approval", "w1", &Value::Null),
            event("approved", "awaiting_approval", "pending", "jo", &Value::Null),
            event("escalated", "pending", "needs_human", "m", &Value::Null),
        ];
        let mut waits = vec![];
        log.iter().for_each(|e| waited(&mut waits, e));
        let seen: Vec<(&str, u64)> = waits.iter().map(|w| (w.state.as_str(), w.ended_at_ms)).collect();
        assert_eq!(seen, [("awaiting_approval", 7), ("needs_human", 0)]);
    }

    #[test]
    fn only_the_goals_that_were_looked_at_last_are_kept() {
        let all = Histories::default();
        let first = all.of("first");
        for n in 0..GOALS_MAX - 1 {
            all.of(&n.to_string());
        }
        assert!(Arc::ptr_eq(&first, &all.of("first")));
        all.of("one more");
        all.of("and another");
        assert!(Arc::ptr_eq(&first, &all.of("first")), "it was looked at before the others");
        assert_eq!(all.kept.lock().unwrap().len(), GOALS_MAX);
    }
}
