//! One goal: how it stands, its plan as a drawing that is live, its tickets and files, and what can be done to it.

use super::desk::{Fault, path_of};
use super::goals::{closed, progress};
use super::page::{Place, page};
use super::posted::{Posted, proof};
use super::session::Session;
use super::state::{badge, word};
use super::wording::{ago, bytes, counted, dollars, grouped, line, span, until};
use super::{Dashboard, graph};
use crate::api::types::{Ack, FileList, TicketList, Words};
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, Request, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use maud::{Markup, html};
use serde::Deserialize;
use shared::goal::{Goal, GoalState};
use shared::ticket::Ticket;

pub(super) async fn show(
    State(dashboard): State<Dashboard>,
    session: Session,
    Path(id): Path<String>,
) -> Result<Markup, Fault> {
    let id = path_of(&id);
    let goal: Goal = dashboard.desk.get(&session, &format!("/v1/goals/{id}")).await?;
    let tickets: TicketList = dashboard.desk.get(&session, &format!("/v1/goals/{id}/tickets")).await?;
    let files: FileList = dashboard.desk.get(&session, &format!("/v1/goals/{id}/files")).await?;
    let live = (!goal.state.is_terminal()).then(|| seen_until(&goal, &tickets.tickets));
    let main = html! {
        div data-goal=(goal.id) data-after=[live] {
            h1 { (line(&goal.text, 200)) }
            @if goal.text.trim().lines().nth(1).is_some() || goal.text.trim().chars().count() > 200 {
                details { summary { "The whole text" } p.text { (goal.text) } }
            }
            div data-head { (head_of(&goal)) }
            (acts(&session, &goal))
            p.facts {
                a href=(format!("/goals/{}/timeline", goal.id)) { "Timeline" }
                a href=(format!("/goals/{}/report", goal.id)) download { "Report as one file" }
            }
            h2 { "Plan" }
            div data-graph { (plan(&dashboard, &tickets.tickets).await) }
            h2 id="files" { "Files" }
            (files_of(&goal, &files))
        }
    };
    Ok(page(&session, Place::Goals, &line(&goal.text, 60), &main))
}

/// The position in the event log up to which the page knows everything.
fn seen_until(goal: &Goal, tickets: &[Ticket]) -> String {
    let newest = tickets.iter().map(|t| t.updated_at_ms).chain([goal.updated_at_ms]).max().unwrap_or(0);
    format!("{}-0", newest.saturating_sub(1))
}

pub(super) async fn head(
    State(dashboard): State<Dashboard>,
    session: Session,
    Path(id): Path<String>,
) -> Result<Markup, Fault> {
    let goal: Goal = dashboard.desk.get(&session, &format!("/v1/goals/{}", path_of(&id))).await?;
    Ok(head_of(&goal))
}

pub(super) async fn graph(
    State(dashboard): State<Dashboard>,
    session: Session,
    Path(id): Path<String>,
) -> Result<Markup, Fault> {
    let path = format!("/v1/goals/{}/tickets", path_of(&id));
    let tickets: TicketList = dashboard.desk.get(&session, &path).await?;
    Ok(plan(&dashboard, &tickets.tickets).await)
}

#[derive(Deserialize)]
pub(super) struct Position {
    #[serde(default)]
    after: String,
}

/// The API's own stream of events, opened with the visitor's cookie.
pub(super) async fn events(
    State(dashboard): State<Dashboard>,
    session: Session,
    Path(id): Path<String>,
    Query(position): Query<Position>,
    headers: HeaderMap,
) -> Result<Response, Fault> {
    let uri = format!("/v1/goals/{}/events?after={}", path_of(&id), super::desk::query_of(&position.after));
    let mut request = Request::get(uri).header(header::ACCEPT, "text/event-stream");
    // After a break the browser says where it was.
    if let Some(last) = headers.get("last-event-id") {
        request = request.header("last-event-id", last);
    }
    let request = request.body(Body::empty()).map_err(|_| Fault::not_found())?;
    dashboard.desk.ask(&session, request).await
}

/// How it stands.
fn head_of(goal: &Goal) -> Markup {
    let took = goal.updated_at_ms.saturating_sub(goal.created_at_ms);
    html! {
        div.facts data-state=(goal.state.as_str()) data-tickets=(goal.tickets)
            data-said=(format!("{}, {} of {} tickets closed", word(goal.state.as_str()), closed(goal), goal.tickets)) {
            (badge(goal.state.as_str()))
            @if goal.paused && !goal.state.is_terminal() { (badge("paused")) }
            span { (progress(goal)) " " (closed(goal)) " of " (counted(goal.tickets, "ticket")) }
            span { (spent(goal)) }
            @if goal.state.is_terminal() { span { "took " (span(took)) } } @else { span { "begun " (ago(goal.created_at_ms)) } }
            @if goal.deadline_at_ms > 0 && !goal.state.is_terminal() { span { "deadline " (until(goal.deadline_at_ms, "passed")) } }
        }
        @if !goal.cause.is_empty() {
            p.cause { strong { (word(&goal.cause)) } @if !goal.cause_detail.is_empty() { ": " span.text { (goal.cause_detail) } } }
        }
        @if goal.state == GoalState::NeedsHuman {
            p { "A person is asked " @if goal.due_at_ms > 0 { "(" (until(goal.due_at_ms, "now over")) ") " } ": see the " a href="/inbox" { "inbox" } "." }
        }
        dl.counts { @for (status, n) in goal.counts.iter().filter(|(_, n)| **n > 0) { div { dt { (badge(status)) } dd { (n) } } } }
        @if !goal.constraints.is_empty() {
            details { summary { (counted(goal.constraints.len() as u64, "constraint")) } ul { @for c in &goal.constraints { li.text { (c) } } } }
        }
        @if !goal.conclusions.is_empty() {
            details { summary { (counted(goal.conclusions.len() as u64, "confirmed fact")) } ul { @for c in &goal.conclusions { li.text { (c) } } } }
        }
        @if !goal.notes.is_empty() {
            details { summary { (counted(goal.notes.len() as u64, "note")) } ul { @for n in &goal.notes { li.text { (n) } } } }
        }
    }
}

fn spent(goal: &Goal) -> String {
    let budget =
        if goal.budget_tokens > 0 { format!(" of {}", grouped(goal.budget_tokens)) } else { String::new() };
    let held = if goal.reserved_tokens > 0 {
        format!(", {} held", grouped(goal.reserved_tokens))
    } else {
        String::new()
    };
    format!("{}{budget} tokens{held}, {}", grouped(goal.spent_tokens), dollars(goal.spent_microusd))
}

async fn plan(dashboard: &Dashboard, tickets: &[Ticket]) -> Markup {
    html! {
        a.skip.inside href="#tickets" { "Past the drawing" }
        (graph::drawn(&dashboard.layouts, tickets, &graph::page).await)
        h2 id="tickets" tabindex="-1" { "Tickets" }
        ul.tickets { @for ticket in tickets { (row(ticket)) } }
    }
}

fn row(ticket: &Ticket) -> Markup {
    let state = ticket.status.as_str();
    html! {
        li.ticket data-ticket=(ticket.task_id) data-state=(state) data-key=(ticket.key) {
            (badge(state))
            a href=(format!("/tickets/{}", ticket.task_id)) { (ticket.key) }
            span.what { (line(&ticket.description, 100)) }
            span.who { (graph::who(ticket)) }
            span.tries { @if ticket.attempts > 1 { (counted(ticket.attempts.into(), "attempt")) } }
        }
    }
}

fn files_of(goal: &Goal, list: &FileList) -> Markup {
    html! {
        @if list.files.is_empty() {
            p { "No file was accepted yet." }
        } @else {
            ul.files {
                @for file in &list.files {
                    li {
                        a href=(format!("/goals/{}/files/{}", goal.id, path_of(&file.path))) { (file.path) }
                        span { (bytes(file.size_bytes)) }
                        span { @if file.creator == "input" { "input" } @else { "by " (file.creator) } }
                        a.quiet href=(format!("/goals/{}/raw/{}", goal.id, path_of(&file.path))) download aria-label=(format!("Download {}", file.path)) { "Download" }
                    }
                }
            }
        }
    }
}

/// What can be done to it.
fn acts(session: &Session, goal: &Goal) -> Markup {
    let to = |act: &str| format!("/goals/{}/{act}", goal.id);
    html! {
        div.acts {
            @if matches!(goal.state, GoalState::Done | GoalState::Failed) {
                details {
                    summary { "Do it again" }
                    form method="post" action=(to("reopen")) {
                        (proof(session))
                        label for="reopen" { "What shall be different" }
                        textarea id="reopen" name="text" rows="3" {}
                        button type="submit" { "Reopen" }
                    }
                }
            } @else if !goal.state.is_terminal() {
                form.inline method="post" action=(to(if goal.paused { "resume" } else { "pause" })) {
                    (proof(session))
                    button.quiet type="submit" { @if goal.paused { "Resume" } @else { "Pause" } }
                }
                details {
                    summary { "Say something" }
                    form method="post" action=(to("note")) {
                        (proof(session))
                        label for="note" { "A word to the goal's manager" }
                        textarea id="note" name="text" rows="3" required {}
                        button type="submit" { "Send" }
                    }
                }
                details {
                    summary { "Cancel" }
                    form method="post" action=(to("cancel")) {
                        (proof(session))
                        p { "Everything under way ends; accepted files stay." }
                        button.danger type="submit" { "Cancel this goal" }
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
    if !["cancel", "pause", "resume", "reopen", "note"].contains(&act.as_str()) {
        return Err(Fault::not_found());
    }
    let words = Words { text: posted.fields.text("text").to_owned(), ..Words::default() };
    let path = format!("/v1/goals/{}/{act}", path_of(&id));
    let _: Ack = dashboard.desk.post(&posted.session, &path, &words).await?;
    Ok(Redirect::to(&format!("/goals/{}", path_of(&id))).into_response())
}
