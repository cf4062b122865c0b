//! A goal as one HTML file that needs nothing else and runs nothing: plan, timeline, verdicts, costs, files.

use super::desk::{Fault, path_of};
use super::preview::{self, Base, Kind};
use super::session::Session;
use super::state::{self, badge, word};
use super::wording::{bytes, counted, dollars, grouped, line, span, stamp};
use super::{Dashboard, assets, goals, graph, ticket, timeline, verdict};
use crate::api::types::{Attempt, FileInfo, FileList, GoalAttempts, TicketAttempts, TicketList};
use axum::extract::{Path, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use shared::goal::Goal;
use shared::ticket::Ticket;
use shared::workspace::mime_of;

/// A file's text up to here, a picture whole up to there; all files together.
const TEXT_BYTES_MAX: u64 = 256 * 1024;
const PICTURE_BYTES_MAX: u64 = 4 * 1024 * 1024;
const FILES_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// As in the pages: no script, nothing from elsewhere; the one style is inside.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'";

/// `GET /goals/{goal}/report`, as a download.
pub(super) async fn download(
    State(dashboard): State<Dashboard>,
    session: Session,
    Path(id): Path<String>,
) -> Result<Response, Fault> {
    let id = path_of(&id);
    let goal: Goal = dashboard.desk.get(&session, &format!("/v1/goals/{id}")).await?;
    let tickets: TicketList = dashboard.desk.get(&session, &format!("/v1/goals/{id}/tickets")).await?;
    let tried: GoalAttempts = dashboard.desk.get(&session, &format!("/v1/goals/{id}/attempts")).await?;
    let files: FileList = dashboard.desk.get(&session, &format!("/v1/goals/{id}/files")).await?;
    let mut contents = vec![];
    let mut left = FILES_BYTES_MAX;
    for file in &files.files {
        contents.push(content(&dashboard, &session, &goal.id, file, &mut left).await?);
    }
    let drawing = graph::drawn(&dashboard.layouts, &tickets.tickets, &anchor).await;
    let body = html! {
        h1 { (line(&goal.text, 200)) }
        (head(&goal))
        h2 { "Plan" }
        (drawing)
        h2 { "Timeline" }
        (timeline::drawn(&goal, &tickets.tickets, &tried.tickets, &anchor))
        h2 { "Costs" }
        (costs(&goal, &tried.tickets))
        h2 { "Tickets" }
        @for (ticket, tried) in tickets.tickets.iter().zip(&tried.tickets) { (of_ticket(ticket, tried)) }
        h2 { "Files" }
        @if files.files.is_empty() { p { "No file was accepted." } }
        @for (file, content) in files.files.iter().zip(&contents) { (of_file(file, content)) }
    };
    let mut response = document(&line(&goal.text, 60), &body).into_response();
    let name = format!("attachment; filename=\"muster-{}.html\"", goal.id.get(..8).unwrap_or_default());
    let value = HeaderValue::try_from(name).unwrap_or(HeaderValue::from_static("attachment"));
    response.headers_mut().insert(header::CONTENT_DISPOSITION, value);
    Ok(response)
}

fn document(title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · Muster" }
                style { (PreEscaped(assets::STYLE)) }
            }
            body { (state::shapes()) main { (body) } }
        }
    }
}

/// Where a ticket stands in this file.
fn anchor(ticket: &Ticket) -> String {
    format!("#ticket-{}", ticket.key)
}

fn head(goal: &Goal) -> Markup {
    html! {
        p.facts {
            (badge(goal.state.as_str()))
            span { (goals::closed(goal)) " of " (counted(goal.tickets, "ticket")) }
            span { "submitted " (stamp(goal.created_at_ms)) }
            span { "took " (span(goal.updated_at_ms.saturating_sub(goal.created_at_ms))) }
            span { "goal " code { (goal.id) } }
        }
        @if !goal.cause.is_empty() { p.cause { strong { (word(&goal.cause)) } ": " span.text { (goal.cause_detail) } } }
        @if goal.text.trim().lines().nth(1).is_some() || goal.text.trim().chars().count() > 200 { p.text { (goal.text) } }
        @for (name, lines) in [("Constraints", &goal.constraints), ("Confirmed facts", &goal.conclusions), ("Notes", &goal.notes)] {
            @if !lines.is_empty() { h3 { (name) } ul { @for line in lines { li.text { (line) } } } }
        }
    }
}

fn costs(goal: &Goal, tried: &[TicketAttempts]) -> Markup {
    let sum = |of: fn(&Attempt) -> u64, all: &TicketAttempts| all.attempts.iter().map(of).sum::<u64>();
    html! {
        div.scroll role="region" aria-label="Costs" tabindex="0" {
            table {
                thead { tr { th scope="col" { "ticket" } @for name in ["model calls", "tokens in", "tokens out", "cost"] { th.number scope="col" { (name) } } } }
                tbody {
                    @for all in tried {
                        tr {
                            th scope="row" { (all.key) }
                            td.number { (grouped(sum(|a| a.model_calls, all))) }
                            td.number { (grouped(sum(|a| a.input_tokens, all))) }
                            td.number { (grouped(sum(|a| a.output_tokens, all))) }
                            td.number { (dollars(sum(|a| a.microusd, all))) }
                        }
                    }
                    tr {
                        th scope="row" { "The whole goal, planning included" }
                        td {} td.number colspan="2" { (grouped(goal.spent_tokens)) } td.number { (dollars(goal.spent_microusd)) }
                    }
                }
            }
        }
    }
}

fn of_ticket(of: &Ticket, tried: &TicketAttempts) -> Markup {
    html! {
        section.attempt id=(format!("ticket-{}", of.key)) {
            h3 { (of.key) " " (badge(of.status.as_str())) }
            p.text { (of.description) }
            dl.pairs {
                dt { "Expected" } dd.text { (of.expected_output) }
                @if !of.outputs.is_empty() { dt { "Files" } dd { (of.outputs.join(", ")) } }
                @if let Some(report) = of.result["summary"].as_str().filter(|s| !s.is_empty()) { dt { "Report" } dd.text { (report) } }
                @if !of.cause.is_empty() { dt { (word(&of.cause)) } dd.text { (verdict::in_words(&of.cause_detail)) } }
            }
            @for attempt in &tried.attempts {
                h4 { (ticket::name(attempt)) " " (badge(ticket::outcome(attempt))) }
                (ticket::facts(attempt, &html! { (stamp(attempt.begun_at_ms)) }))
                @if !attempt.detail.is_empty() { p.text { (line(&attempt.detail, 500)) } }
                @if let Some(found) = &attempt.verdict { (verdict::drawn(found, &|_| None)) }
            }
        }
    }
}

/// What is shown of a file; `None`: it is too large, or nothing that can be shown.
async fn content(
    dashboard: &Dashboard,
    session: &Session,
    goal: &str,
    file: &FileInfo,
    left: &mut u64,
) -> Result<Option<Markup>, Fault> {
    let kind = Kind::of(&file.path);
    let max = if kind == Kind::Picture { PICTURE_BYTES_MAX } else { TEXT_BYTES_MAX };
    if file.size_bytes > max.min(*left) {
        return Ok(None);
    }
    *left -= file.size_bytes;
    let path = format!("/v1/goals/{goal}/files/{}", path_of(&file.path));
    let bytes = dashboard.desk.bytes(session, &path).await?;
    let picture = match kind {
        Kind::Picture => {
            let text = base64::engine::general_purpose::STANDARD.encode(&bytes);
            format!("data:{};base64,{text}", mime_of(&file.path))
        }
        Kind::Markdown | Kind::Table | Kind::Text => String::new(),
    };
    // A link to another file leads to where that file stands here.
    Ok(Some(preview::drawn(kind, &bytes, &picture, &file.path, &Base::within(&file.path))))
}

fn of_file(file: &FileInfo, content: &Option<Markup>) -> Markup {
    html! {
        section.attempt id=(format!("/{}", file.path)) {
            h3 { (file.path) }
            p.facts {
                span { (bytes(file.size_bytes)) } span { (file.mime) }
                span { @if file.creator == "input" { "input" } @else { "by " (file.creator) } }
                span { "sha256 " code { (file.hash) } }
            }
            @match content { Some(content) => { (content) } None => { p { "Too large for this report." } } }
        }
    }
}
