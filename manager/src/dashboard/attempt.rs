//! One attempt: its steps with tool calls and outputs, its files, and what is different from the attempt before.

use super::desk::{Fault, path_of};
use super::page::{Place, page};
use super::session::Session;
use super::state::badge;
use super::wording::{ago, bytes, counted, grouped, line, span};
use super::{Dashboard, difference, ticket, verdict};
use crate::api::types::{AttemptList, ChangedFile, ChangedFiles, StepList};
use axum::extract::{Path, State};
use maud::{Markup, html};
use serde_json::Value;
use shared::ticket::Ticket;

pub(super) async fn show(
    State(dashboard): State<Dashboard>,
    session: Session,
    Path((id, place)): Path<(String, usize)>,
) -> Result<Markup, Fault> {
    let id = path_of(&id);
    let of: Ticket = dashboard.desk.get(&session, &format!("/v1/tickets/{id}")).await?;
    let tried: AttemptList = dashboard.desk.get(&session, &format!("/v1/tickets/{id}/attempts")).await?;
    let at = |place: usize| place.checked_sub(1).and_then(|n| tried.attempts.get(n));
    let attempt = at(place).ok_or_else(Fault::not_found)?;
    let base = format!("/v1/tickets/{id}/attempts");
    let steps: StepList = dashboard.desk.get(&session, &format!("{base}/{place}/steps")).await?;
    let files: ChangedFiles = dashboard.desk.get(&session, &format!("{base}/{place}/files")).await?;
    let before = (1..place).rev().find(|p| at(*p).is_some_and(|a| !a.overlay.is_empty()));
    let title = format!("{} at {}", ticket::name(attempt), of.key);
    let is_last = tried.attempts.iter().rposition(|a| a.end == "completed") == Some(place - 1);
    let report = of.result["summary"].as_str().filter(|s| is_last && !s.is_empty());
    let differences = match before {
        None => None,
        Some(before) => Some((before, difference::between(&dashboard, &session, &id, before, place).await?)),
    };
    let main = html! {
        p { a href=(format!("/tickets/{id}")) { "Ticket " (of.key) } }
        h1 { (title) " " (badge(ticket::outcome(attempt))) }
        (ticket::facts(attempt, &ago(attempt.begun_at_ms)))
        @if !attempt.detail.is_empty() { p.text { (attempt.detail) } }
        @if let Some(found) = &attempt.verdict { h2 { "Verdict" } (verdict::drawn(found, &verdict::in_attempt(&id, place))) }
        @if let Some(report) = report { h2 id="report" { "Report" } p.text { (report) } }
        h2 { "Files" }
        (files_of(&id, place, &files.files))
        @if let Some((before, drawn)) = &differences {
            h2 { "Different from " (at(*before).map(ticket::name).unwrap_or_default().to_lowercase()) }
            (drawn)
        }
        h2 { "Steps" }
        @if steps.steps.is_empty() { p { "No steps were kept." } }
        ol.steps { @for step in &steps.steps { (step_of(step)) } }
    };
    Ok(page(&session, Place::Goals, &title, &main))
}

fn files_of(id: &str, place: usize, files: &[ChangedFile]) -> Markup {
    html! {
        @if files.is_empty() { p { "It changed no file." } }
        ul.files {
            @for file in files {
                li {
                    @if file.deleted { span { (file.path) } span { "deleted" } } @else {
                        a href=(format!("/tickets/{id}/attempts/{place}/files/{}", path_of(&file.path))) { (file.path) }
                        span { (bytes(file.size_bytes)) }
                        span { @if file.replaced.is_empty() { "new" } @else { "changed" } }
                    }
                }
            }
        }
    }
}

fn step_of(step: &Value) -> Markup {
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let number = |key: &str| step[key].as_u64().unwrap_or(0);
    if let Some(left_out) = step["left_out"].as_u64() {
        return html! { li { (counted(left_out, "more step")) " did not fit into the record." } };
    }
    let calls = step["calls"].as_array().map_or(&[][..], Vec::as_slice);
    html! {
        li id=(format!("step-{}", number("step"))) {
            p.facts {
                strong { "Step " (number("step")) }
                span { "after " (span(number("at_ms"))) }
                span { (grouped(number("input_tokens") + number("output_tokens"))) " tokens" }
            }
            @if !text(step, "text").is_empty() { p.text { (text(step, "text")) } }
            @for call in calls {
                @let ok = call["ok"].as_bool().unwrap_or(false);
                details {
                    summary { (badge(if ok { "done" } else { "failed" })) " " (text(call, "name")) " "
                        span.help { (line(&text(call, "args"), 80)) } " "
                        span.help { (span(call["ms"].as_u64().unwrap_or(0))) } }
                    p.help { "Arguments" } pre tabindex="0" { (text(call, "args")) }
                    p.help { "Output" } pre tabindex="0" { (text(call, "result")) }
                }
            }
        }
    }
}
