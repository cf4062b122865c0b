//! A ticket's attempts as its goal's log tells them: who tried, how each ended, what was found, which files it made.

use super::Api;
use super::auth::{Caller, Reader};
use super::error::{Answer, ApiError};
use super::types::{Attempt, AttemptList, ChangedFile, ChangedFiles, StepList};
use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;
use serde_json::Value;
use shared::blob::BlobError;
use shared::store::LogEvent;
use shared::ticket::{Status, Ticket};
use shared::workspace::Overlay;

/// Events looked at in one go.
const PAGE: usize = 500;
/// Largest step log that is read.
const LOG_BYTES_MAX: u64 = 4 * 1024 * 1024;

impl Api {
    /// Every attempt that the log still has, oldest first.
    async fn attempts_of(&self, ticket: &Ticket) -> Result<Vec<Attempt>, ApiError> {
        let mut attempts: Vec<Attempt> = vec![];
        let mut after = "0".to_owned();
        loop {
            let events = self.store.events(&ticket.goal, &after, PAGE).await?;
            events.iter().filter(|e| e.ticket == ticket.task_id).for_each(|e| happened(&mut attempts, e));
            match events.last() {
                Some(last) if events.len() == PAGE => after.clone_from(&last.id),
                Some(_) | None => break,
            }
        }
        // A log is cut at its beginning: the numbers are counted from its end.
        let first =
            (ticket.attempts as usize).saturating_sub(attempts.iter().filter(|a| !a.by_person).count());
        let mut number = first;
        for attempt in &mut attempts {
            number += usize::from(!attempt.by_person);
            attempt.number = number;
        }
        // What the ticket itself knows of the last one that was handed in.
        if let Some(last) = attempts.iter_mut().rev().find(|a| a.end == "completed") {
            if last.overlay.is_empty() {
                last.overlay.clone_from(&ticket.overlay_ref);
            }
            if last.steps.is_empty() {
                last.steps = ticket.result["steps_ref"].as_str().unwrap_or_default().to_owned();
            }
        }
        Ok(attempts)
    }

    async fn attempt(&self, caller: &Caller, id: &str, place: &str) -> Result<(Ticket, Attempt), ApiError> {
        let ticket = self.ticket_for(caller, id).await?;
        let found = match place.parse::<usize>() {
            // Places are counted from 1, as the list has them.
            Ok(n) if n > 0 => self.attempts_of(&ticket).await?.into_iter().nth(n - 1),
            Ok(_) | Err(_) => None,
        };
        let attempt = found.ok_or_else(|| ApiError::not_found("attempt", place))?;
        Ok((ticket, attempt))
    }

    async fn overlay(&self, goal: &str, attempt: &Attempt) -> Result<Overlay, ApiError> {
        Overlay::load(&self.blobs, goal, &attempt.overlay).await.map_err(|error| {
            tracing::warn!(%error, goal, "an attempt's files cannot be read");
            ApiError::unavailable("the attempt's files cannot be read just now")
        })
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
                "review_claimed" => last.reviewer.clone_from(&event.who),
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

/// `GET /v1/tickets/{ticket}/attempts`
pub(super) async fn list(
    State(api): State<Api>,
    Reader(caller): Reader,
    Path(id): Path<String>,
) -> Answer<AttemptList> {
    let ticket = api.ticket_for(&caller, &id).await?;
    Ok(Json(AttemptList { attempts: api.attempts_of(&ticket).await? }))
}

/// `GET /v1/tickets/{ticket}/attempts/{place}/steps`: none when nothing was kept.
pub(super) async fn steps(
    State(api): State<Api>,
    Reader(caller): Reader,
    Path((id, place)): Path<(String, String)>,
) -> Answer<StepList> {
    let (ticket, attempt) = api.attempt(&caller, &id, &place).await?;
    if attempt.steps.is_empty() {
        return Ok(Json(StepList { steps: vec![] }));
    }
    let bytes = match api.blobs.get(&ticket.goal, &attempt.steps, LOG_BYTES_MAX).await {
        Ok(bytes) => bytes,
        Err(BlobError::NotFound(_)) => return Ok(Json(StepList { steps: vec![] })),
        Err(error) => return Err(error.into()),
    };
    let steps =
        String::from_utf8_lossy(&bytes).lines().filter_map(|l| serde_json::from_str(l).ok()).collect();
    Ok(Json(StepList { steps }))
}

/// `GET /v1/tickets/{ticket}/attempts/{place}/files`: what it changed.
pub(super) async fn files(
    State(api): State<Api>,
    Reader(caller): Reader,
    Path((id, place)): Path<(String, String)>,
) -> Answer<ChangedFiles> {
    let (ticket, attempt) = api.attempt(&caller, &id, &place).await?;
    let overlay = api.overlay(&ticket.goal, &attempt).await?;
    let files = overlay.files.into_iter().map(|(path, change)| {
        let entry = change.entry;
        ChangedFile {
            path,
            deleted: entry.is_none(),
            hash: entry.as_ref().map_or_else(String::new, |e| e.hash.clone()),
            size_bytes: entry.as_ref().map_or(0, |e| e.size_bytes),
            mime: entry.map_or_else(String::new, |e| e.mime),
            replaced: change.base_hash.unwrap_or_default(),
        }
    });
    Ok(Json(ChangedFiles { files: files.collect() }))
}

/// `GET /v1/tickets/{ticket}/attempts/{place}/files/{path}`: a file as this attempt left it.
pub(super) async fn file(
    State(api): State<Api>,
    Reader(caller): Reader,
    Path((id, place, path)): Path<(String, String, String)>,
) -> Result<Response, ApiError> {
    let (ticket, attempt) = api.attempt(&caller, &id, &place).await?;
    let overlay = api.overlay(&ticket.goal, &attempt).await?;
    let entry = overlay.files.get(&path).and_then(|c| c.entry.as_ref());
    let entry = entry.ok_or_else(|| ApiError::not_found("file", &path))?;
    api.blob_as_data(&ticket.goal, &entry.hash, &path, entry.size_bytes).await
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
}
