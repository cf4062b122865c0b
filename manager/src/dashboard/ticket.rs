//! One ticket: what it asks, how it stands, every attempt with what was found; and what a person can do about it.

use super::desk::{Fault, path_of};
use super::page::{Place, page};
use super::posted::{Posted, proof};
use super::session::Session;
use super::state::{badge, word};
use super::wording::{ago, counted, dollars, grouped, line, span, until};
use super::{Dashboard, graph, inbox, verdict};
use crate::api::types::{Ack, Attempt, AttemptList, Inbox, TicketList, Words};
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use maud::{Markup, html};
use shared::ticket::{Check, Status, Ticket};

pub(super) async fn show(
    State(dashboard): State<Dashboard>,
    session: Session,
    Path(id): Path<String>,
) -> Result<Markup, Fault> {
    let id = path_of(&id);
    let ticket: Ticket = dashboard.desk.get(&session, &format!("/v1/tickets/{id}")).await?;
    let all: TicketList = dashboard.desk.get(&session, &format!("/v1/goals/{}/tickets", ticket.goal)).await?;
    let tried: AttemptList = dashboard.desk.get(&session, &format!("/v1/tickets/{id}/attempts")).await?;
    let asked = matches!(ticket.status, Status::NeedsHuman | Status::AwaitingApproval);
    let open: Option<Inbox> =
        if asked { Some(dashboard.desk.get(&session, "/v1/inbox").await?) } else { None };
    let decision = open.as_ref().and_then(|i| i.decisions.iter().find(|d| d.id == ticket.task_id));
    let title = format!("Ticket {}", ticket.key);
    let main = html! {
        p { a href=(format!("/goals/{}", ticket.goal)) { "The goal" } }
        h1 { (title) }
        p.facts {
            (badge(ticket.status.as_str()))
            span { (counted(ticket.attempts.into(), "attempt")) ", " (counted(ticket.reviews.into(), "review")) }
            span { (grouped(ticket.spent_tokens)) " tokens, " (dollars(ticket.spent_microusd)) }
            @if !graph::who(&ticket).is_empty() { span { "with " (ticket.assignee) } }
            span { "changed " (ago(ticket.updated_at_ms)) }
            @if ticket.due_at_ms > 0 && !ticket.status.is_terminal() { span { "due " (until(ticket.due_at_ms, "now")) } }
        }
        @if !ticket.cause.is_empty() { (cause(&ticket)) }
        @if let Some(decision) = decision { (inbox::asked(&session, decision, Some(&ticket))) }
        (acts(&session, &ticket))
        h2 { "What is asked" }
        (wish(&ticket, &all.tickets))
        h2 { "Attempts" }
        @if tried.attempts.is_empty() { p { "Nobody has tried yet." } }
        @for (place, attempt) in tried.attempts.iter().enumerate().rev() { (drawn(&ticket, place + 1, attempt)) }
    };
    Ok(page(&session, Place::Goals, &title, &main))
}

fn cause(ticket: &Ticket) -> Markup {
    html! { p.cause { strong { (word(&ticket.cause)) } @if !ticket.cause_detail.is_empty() { ": " span.text { (verdict::in_words(&ticket.cause_detail)) } } } }
}

fn wish(ticket: &Ticket, all: &[Ticket]) -> Markup {
    let by = match &ticket.call {
        Some(call) => format!("a direct call of {}", call.tool),
        None => format!("{} ({})", ticket.role, ticket.tier.as_str()),
    };
    html! {
        p.text { (ticket.description) }
        dl.pairs {
            dt { "Expected" } dd.text { (ticket.expected_output) }
            @if !ticket.outputs.is_empty() { dt { "Files" } dd { (ticket.outputs.join(", ")) } }
            dt { "By" } dd { (by) }
            dt { "Review" } dd { (ticket.review.as_str()) }
            @if !ticket.needs.is_empty() {
                dt { "Needs" }
                dd { @for need in &ticket.needs {
                    @let key = all.iter().find(|t| t.task_id == *need).map_or(need.as_str(), |t| t.key.as_str());
                    a href=(format!("/tickets/{}", path_of(need))) { (key) } " "
                } }
            }
            @if !ticket.note.is_empty() { dt { "A person's note" } dd.text { (ticket.note) } }
            @if !ticket.failure.is_empty() { dt { "Last failure" } dd.text { (ticket.failure) } }
        }
        @if let Some(call) = &ticket.call { details { summary { "The call" } pre { (format!("{:#}", call.args)) } } }
        @if !ticket.checklist.is_empty() { details { summary { (counted(ticket.checklist.len() as u64, "check")) } ul { @for check in &ticket.checklist { li.text { (Check::describe(check)) } } } } }
    }
}

/// An attempt in short; its own page has the steps and files.
fn drawn(ticket: &Ticket, place: usize, attempt: &Attempt) -> Markup {
    let state = outcome(attempt);
    html! {
        section.attempt aria-label=(name(attempt)) {
            h3 { a href=(format!("/tickets/{}/attempts/{place}", ticket.task_id)) { (name(attempt)) } " " (badge(state)) }
            (facts(attempt, &ago(attempt.begun_at_ms)))
            @if !attempt.detail.is_empty() { p.text { (line(&attempt.detail, 500)) } }
            @if let Some(found) = &attempt.verdict { (verdict::drawn(found, &verdict::in_attempt(&ticket.task_id, place))) }
        }
    }
}

/// `Attempt 2`, or whose files were delivered.
pub(super) fn name(attempt: &Attempt) -> String {
    if attempt.by_person {
        format!("Delivered by {}", attempt.who)
    } else {
        format!("Attempt {}", attempt.number)
    }
}

/// The state whose shape and colour an attempt is shown in.
pub(super) fn outcome(attempt: &Attempt) -> &'static str {
    match (attempt.end.as_str(), attempt.decided.as_str()) {
        ("", _) => "running",
        ("completed", "rejected") => "rejected",
        ("completed", "accepted") => "done",
        ("completed", _) => "reviewing",
        ("confirmation_asked", _) => "awaiting_approval",
        ("cancelled", _) => "cancelled",
        _ => "failed",
    }
}

/// `begun` is when, in the words that fit where it is read.
pub(super) fn facts(attempt: &Attempt, begun: &Markup) -> Markup {
    html! {
        p.facts {
            @if !attempt.by_person { span { "by " (attempt.who) } }
            span { (begun) }
            @if attempt.ended_at_ms > attempt.begun_at_ms { span { "took " (span(attempt.ended_at_ms - attempt.begun_at_ms)) } }
            @if !attempt.end.is_empty() && attempt.end != "completed" { span { (word(&attempt.end)) } }
            @if !attempt.reviewer.is_empty() { span { "reviewed by " (attempt.reviewer) } }
            @if attempt.model_calls > 0 {
                span { (counted(attempt.model_calls, "model call")) ", " (grouped(attempt.input_tokens + attempt.output_tokens)) " tokens, " (dollars(attempt.microusd)) }
            }
        }
    }
}

fn acts(session: &Session, ticket: &Ticket) -> Markup {
    let to = |act: &str| format!("/tickets/{}/{act}", ticket.task_id);
    let ended = matches!(ticket.status, Status::Done | Status::Failed | Status::Skipped | Status::Cancelled);
    html! {
        div.acts {
            @if ended {
                details {
                    summary { "Do it again" }
                    form method="post" action=(to("reopen")) {
                        (proof(session))
                        label for="again" { "What shall be different" }
                        textarea id="again" name="text" rows="3" {}
                        p.help { "What was built on it is done again as well." }
                        button type="submit" { "Reopen" }
                    }
                }
            } @else if !ticket.status.is_terminal() {
                details {
                    summary { "Cancel" }
                    form method="post" action=(to("cancel")) {
                        (proof(session))
                        p { "Whoever has it stops; nothing of it is accepted." }
                        button.danger type="submit" { "Cancel this ticket" }
                    }
                }
            }
        }
    }
}

pub(super) async fn act(
    State(dashboard): State<Dashboard>,
    Path((id, act)): Path<(String, String)>,
    posted: Posted,
) -> Result<Response, Fault> {
    if !["cancel", "reopen"].contains(&act.as_str()) {
        return Err(Fault::not_found());
    }
    let words = Words { text: posted.fields.text("text").to_owned(), ..Words::default() };
    let path = format!("/v1/tickets/{}/{act}", path_of(&id));
    let _: Ack = dashboard.desk.post(&posted.session, &path, &words).await?;
    Ok(Redirect::to(&format!("/tickets/{}", path_of(&id))).into_response())
}
