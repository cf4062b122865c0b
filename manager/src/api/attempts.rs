//! Attempts at tickets: who tried, how each ended, what was found, which steps were taken, which files were made.

use super::Api;
use super::auth::{Caller, Reader};
use super::error::{Answer, ApiError};
use super::types::{Attempt, AttemptList, ChangedFile, ChangedFiles, GoalAttempts, StepList, TicketAttempts};
use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;
use shared::blob::BlobError;
use shared::ticket::Ticket;
use shared::workspace::Overlay;

/// Largest step log that is read.
const LOG_BYTES_MAX: u64 = 4 * 1024 * 1024;

impl Api {
    /// Every attempt that the log still has, oldest first.
    async fn attempts_of(&self, ticket: &Ticket) -> Result<Vec<Attempt>, ApiError> {
        let told = self.history(&ticket.goal).await?.of(&ticket.task_id);
        Ok(counted(ticket, told.attempts))
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

/// With what the ticket itself knows of them.
fn counted(ticket: &Ticket, mut attempts: Vec<Attempt>) -> Vec<Attempt> {
    // A log is cut at its beginning: the numbers are counted from its end.
    let first = (ticket.attempts as usize).saturating_sub(attempts.iter().filter(|a| !a.by_person).count());
    let mut number = first;
    for attempt in &mut attempts {
        number += usize::from(!attempt.by_person);
        attempt.number = number;
    }
    if let Some(last) = attempts.iter_mut().rev().find(|a| a.end == "completed") {
        if last.overlay.is_empty() {
            last.overlay.clone_from(&ticket.overlay_ref);
        }
        if last.steps.is_empty() {
            last.steps = ticket.result["steps_ref"].as_str().unwrap_or_default().to_owned();
        }
    }
    attempts
}

/// `GET /v1/goals/{goal}/attempts`: of all its tickets, in plan order.
pub(super) async fn of_goal(
    State(api): State<Api>,
    Reader(caller): Reader,
    Path(goal): Path<String>,
) -> Answer<GoalAttempts> {
    api.goal_for(&caller, &goal).await?;
    let tickets = api.store.all_tickets(&goal).await?;
    let history = api.history(&goal).await?;
    let of = |ticket: &Ticket| {
        let told = history.of(&ticket.task_id);
        TicketAttempts {
            ticket: ticket.task_id.clone(),
            key: ticket.key.clone(),
            attempts: counted(ticket, told.attempts),
            waits: told.waits,
        }
    };
    Ok(Json(GoalAttempts { tickets: tickets.iter().map(of).collect() }))
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
