//! One ticket: show it, and what a person decides about it; and the inbox of everything that waits for one.

use super::Api;
use super::auth::{Decider, Reader};
use super::error::{Answer, ApiError, Body};
use super::files::check_inputs;
use super::goals::{changed, fits};
use super::types::{Ack, AnswerTicket, DeliverFiles, Inbox, Words};
use axum::Json;
use axum::extract::{Path, State};
use shared::store::PersonDecision;
use shared::ticket::{Status, Ticket};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Open decisions of one answer.
const INBOX_MAX: usize = 1_000;

pub(super) async fn show(
    State(api): State<Api>,
    Reader(caller): Reader,
    Path(id): Path<String>,
) -> Answer<Ticket> {
    api.ticket_for(&caller, &id).await.map(Json)
}

pub(super) async fn cancel(
    State(api): State<Api>,
    Decider(caller): Decider,
    Path(id): Path<String>,
    Body(_): Body<Words>,
) -> Answer<Ack> {
    api.ticket_for(&caller, &id).await?;
    let grace_ms = api.config.lease.cancel_grace_ms;
    changed(api.store.cancel_ticket(&id, &caller.who, grace_ms).await?, "ticket", &id)
}

/// Again, with the person's words: a ticket that waits for a person or has ended.
pub(super) async fn retry(
    State(api): State<Api>,
    Decider(caller): Decider,
    Path(id): Path<String>,
    Body(words): Body<Words>,
) -> Answer<Ack> {
    fits(&words.text)?;
    let ticket = api.ticket_for(&caller, &id).await?;
    let note = words.text;
    let decision = match ticket.status {
        Status::NeedsHuman => PersonDecision::Retry { note, edit: Box::default() },
        Status::Done | Status::Failed | Status::Skipped | Status::Cancelled => {
            PersonDecision::Reopen { note }
        }
        Status::Pending
        | Status::Running
        | Status::Reviewing
        | Status::Rejected
        | Status::Blocked
        | Status::AwaitingApproval
        | Status::Escalated
        | Status::Superseded => {
            return Err(ApiError::conflict(format!(
                "a ticket that is {} cannot be retried by a person",
                ticket.status.as_str()
            ))
            .hint("only one that waits for a person or has ended can"));
        }
    };
    api.decide(&caller, &id, words.expected_epoch, &words.request_id, &decision, "ticket").await
}

pub(super) async fn reopen(
    State(api): State<Api>,
    Decider(caller): Decider,
    Path(id): Path<String>,
    Body(words): Body<Words>,
) -> Answer<Ack> {
    fits(&words.text)?;
    api.ticket_for(&caller, &id).await?;
    let decision = PersonDecision::Reopen { note: words.text };
    api.decide(&caller, &id, words.expected_epoch, &words.request_id, &decision, "ticket").await
}

pub(super) async fn answer(
    State(api): State<Api>,
    Decider(caller): Decider,
    Path(id): Path<String>,
    Body(answer): Body<AnswerTicket>,
) -> Answer<Ack> {
    let ticket = api.ticket_for(&caller, &id).await?;
    check(&answer.decision)?;
    if let PersonDecision::Deliver { overlay_ref } = &answer.decision {
        let paths = api.own_overlay(&ticket.goal, overlay_ref).await?;
        let files: Vec<_> = paths.into_iter().map(|path| (path, "overlay_ref".to_owned())).collect();
        api.within_write_set(&ticket, &files).await?;
    }
    api.decide(&caller, &id, answer.expected_epoch, &answer.request_id, &answer.decision, "ticket").await
}

/// A person's own files in the ticket's place; they are reviewed like everybody's.
pub(super) async fn deliver(
    State(api): State<Api>,
    Decider(caller): Decider,
    Path(id): Path<String>,
    Body(wanted): Body<DeliverFiles>,
) -> Answer<Ack> {
    fits(&wanted.text)?;
    if wanted.files.is_empty() {
        return Err(ApiError::bad("files", "there is no file").hint("upload them with PUT /v1/uploads first"));
    }
    check_inputs(&wanted.files, api.config.limits.attempt_files_max)?;
    let ticket = api.ticket_for(&caller, &id).await?;
    let named = wanted.files.iter().enumerate();
    let files: Vec<_> = named.map(|(i, file)| (file.path.clone(), format!("files[{i}].path"))).collect();
    api.within_write_set(&ticket, &files).await?;
    let goal = api.goal_for(&caller, &ticket.goal).await?;
    let overlay_ref = api.overlay_of(&goal, &ticket.key, &wanted.text, &wanted.files).await?;
    let decision = PersonDecision::Deliver { overlay_ref };
    api.decide(&caller, &id, wanted.expected_epoch, &wanted.request_id, &decision, "ticket").await
}

/// Sizes and shapes; whether the decision fits the ticket's state is the store's to say. An approval whose
/// arguments are no object is refused (I7).
fn check(decision: &PersonDecision) -> Result<(), ApiError> {
    match decision {
        PersonDecision::Retry { note, .. } | PersonDecision::Reopen { note } => fits(note),
        PersonDecision::Skip { reason }
        | PersonDecision::Fail { reason }
        | PersonDecision::Deny { reason }
        | PersonDecision::DenyPlan { reason } => fits(reason),
        PersonDecision::Answer { text, .. } | PersonDecision::ApprovePlan { note: text } => fits(text),
        PersonDecision::Deliver { overlay_ref } => {
            let is_ref = overlay_ref.len() == 64 && overlay_ref.bytes().all(|b| b.is_ascii_hexdigit());
            if is_ref { Ok(()) } else { Err(ApiError::bad("overlay_ref", "this is not a blob's hash")) }
        }
        PersonDecision::Approve { args: None } => Ok(()),
        PersonDecision::Approve { args: Some(args) } if args.is_object() => Ok(()),
        PersonDecision::Approve { args: Some(_) } => {
            Err(ApiError::bad("args", "the arguments of a call are a JSON object"))
        }
    }
}

pub(super) async fn inbox(State(api): State<Api>, Reader(caller): Reader) -> Answer<Inbox> {
    let mut decisions = api.store.open_decisions(INBOX_MAX).await?;
    if !caller.sees_all() {
        let mut seen: HashMap<String, bool> = HashMap::new();
        for decision in &decisions {
            if let Entry::Vacant(unknown) = seen.entry(decision.goal.clone()) {
                let own = api.store.goal(&decision.goal).await?.is_some_and(|g| caller.sees(&g));
                unknown.insert(own);
            }
        }
        decisions.retain(|d| seen.get(&d.goal).copied().unwrap_or(false));
    } else {
        decisions.extend(api.store.reviewer_decisions().await?);
    }
    Ok(Json(Inbox { decisions }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn d7_an_approval_with_arguments_that_are_no_object_is_refused() {
        for args in [json!(null), json!([]), json!("NaN"), json!(1)] {
            assert!(check(&PersonDecision::Approve { args: Some(args) }).is_err());
        }
        assert!(check(&PersonDecision::Approve { args: Some(json!({"amount": 1})) }).is_ok());
        assert!(check(&PersonDecision::Approve { args: None }).is_ok());
        assert!(check(&PersonDecision::Deliver { overlay_ref: "../x".into() }).is_err());
    }
}
