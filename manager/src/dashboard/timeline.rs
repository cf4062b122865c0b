//! A goal over time: a row for each ticket, with a bar for each attempt, each review, and each wait for a person.

use super::desk::{Fault, path_of};
use super::page::{Place, page};
use super::session::Session;
use super::state::badge;
use super::wording::{counted, line, now_ms, span};
use super::{Dashboard, graph};
use crate::api::types::{GoalAttempts, TicketAttempts, TicketList};
use axum::extract::{Path, State};
use maud::{Markup, html};
use shared::goal::Goal;
use shared::ticket::Ticket;
use std::collections::HashMap;

/// Width of a row of bars, in units of its own.
const WIDTH: u64 = 1000;
/// The thinnest bar, so that a moment is seen as well.
const THINNEST: u64 = 3;

pub(super) async fn show(
    State(dashboard): State<Dashboard>,
    session: Session,
    Path(id): Path<String>,
) -> Result<Markup, Fault> {
    let id = path_of(&id);
    let goal: Goal = dashboard.desk.get(&session, &format!("/v1/goals/{id}")).await?;
    let tickets: TicketList = dashboard.desk.get(&session, &format!("/v1/goals/{id}/tickets")).await?;
    let tried: GoalAttempts = dashboard.desk.get(&session, &format!("/v1/goals/{id}/attempts")).await?;
    let main = html! {
        p { a href=(format!("/goals/{}", goal.id)) { "The goal" } }
        h1 { "Timeline" }
        p { (line(&goal.text, 200)) }
        (drawn(&goal, &tickets.tickets, &tried.tickets, &graph::page))
    };
    Ok(page(&session, Place::Goals, "Timeline", &main))
}

/// What is measured: from the goal's submission to its end, or to now.
struct Scale {
    from_ms: u64,
    to_ms: u64,
}

impl Scale {
    fn of(goal: &Goal) -> Self {
        let end = if goal.state.is_terminal() { goal.updated_at_ms } else { now_ms() };
        Self { from_ms: goal.created_at_ms, to_ms: end.max(goal.created_at_ms + 1) }
    }

    fn length_ms(&self) -> u64 {
        self.to_ms - self.from_ms
    }

    fn at(&self, at_ms: u64) -> u64 {
        at_ms.clamp(self.from_ms, self.to_ms).saturating_sub(self.from_ms) * WIDTH / self.length_ms()
    }

    /// Left side and width; what has not ended goes on to the end.
    fn bar(&self, begun_at_ms: u64, ended_at_ms: u64) -> (u64, u64) {
        let to = if ended_at_ms == 0 { WIDTH } else { self.at(ended_at_ms) };
        let from = self.at(begun_at_ms).min(WIDTH - THINNEST);
        (from, to.saturating_sub(from).max(THINNEST))
    }
}

/// The table of rows; `link` says where a ticket's name leads.
pub(super) fn drawn(
    goal: &Goal,
    tickets: &[Ticket],
    tried: &[TicketAttempts],
    link: &dyn Fn(&Ticket) -> String,
) -> Markup {
    if tickets.is_empty() {
        return html! { p { "There is no plan yet." } };
    }
    let scale = Scale::of(goal);
    let of: HashMap<&str, &TicketAttempts> = tried.iter().map(|t| (t.ticket.as_str(), t)).collect();
    html! {
        p.facts {
            span { "From the submission " @if goal.state.is_terminal() { "to the end: " } @else { "until now: " } (span(scale.length_ms())) }
            span { (key("work")) " an attempt" }
            span { (key("review")) " a review" }
            span { (key("wait")) " waits for a person" }
        }
        div.scroll role="region" aria-label="Timeline" tabindex="0" {
            table.timeline {
                thead { tr {
                    th scope="col" { "ticket" }
                    th scope="col" { div.scale { @for quarter in 0..=4 { span { (span(scale.length_ms() * quarter / 4)) } } } }
                    th scope="col" { "begun after" } th scope="col" { "took" } th scope="col" { "attempts" }
                } }
                tbody { @for ticket in tickets { (row(&scale, ticket, of.get(ticket.task_id.as_str()).copied(), link)) } }
            }
        }
    }
}

fn row(
    scale: &Scale,
    ticket: &Ticket,
    tried: Option<&TicketAttempts>,
    link: &dyn Fn(&Ticket) -> String,
) -> Markup {
    let attempts = tried.map_or(&[][..], |t| &t.attempts);
    let begun = attempts.first().map(|a| a.begun_at_ms);
    let ended = attempts.iter().map(|a| a.ended_at_ms.max(a.decided_at_ms)).max().filter(|at| *at > 0);
    html! {
        tr {
            th scope="row" { a href=(link(ticket)) { (ticket.key) } br; (badge(ticket.status.as_str())) }
            td.bars { @if let Some(tried) = tried { (bars(scale, tried)) } }
            td { @if let Some(at) = begun { (span(at.saturating_sub(scale.from_ms))) } @else { "never" } }
            td { @if let (Some(from), Some(to)) = (begun, ended) { (span(to.saturating_sub(from))) } }
            td { (counted(attempts.len() as u64, "attempt")) }
        }
    }
}

fn bars(scale: &Scale, tried: &TicketAttempts) -> Markup {
    let bar = |kind: &str, (y, height): (u64, u64), (x, width): (u64, u64)| {
        html! { rect class=(kind) x=(x) y=(y) width=(width) height=(height) {} }
    };
    html! {
        svg viewBox=(format!("0 0 {WIDTH} 18")) preserveAspectRatio="none" width="100%" height="18" aria-hidden="true" {
            @for wait in &tried.waits { (bar("wait", (7, 4), scale.bar(wait.begun_at_ms, wait.ended_at_ms))) }
            @for attempt in &tried.attempts { (bar("work", (2, 14), scale.bar(attempt.begun_at_ms, attempt.ended_at_ms))) }
            @for attempt in tried.attempts.iter().filter(|a| a.review_begun_at_ms > 0) {
                (bar("review", (5, 8), scale.bar(attempt.review_begun_at_ms, attempt.decided_at_ms)))
            }
        }
    }
}

/// A bar of this kind, beside the words for it.
fn key(kind: &str) -> Markup {
    let (y, height) = match kind {
        "work" => (2, 14),
        "review" => (5, 8),
        _ => (7, 4),
    };
    html! {
        svg.key viewBox="0 0 28 18" width="28" height="18" aria-hidden="true" { rect class=(kind) x="0" y=(y) width="28" height=(height) {} }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::types::{Attempt, Wait};
    use shared::goal::GoalState;

    #[test]
    fn bars_stand_where_their_time_was() {
        let goal =
            Goal { created_at_ms: 1_000, updated_at_ms: 5_000, state: GoalState::Done, ..Goal::default() };
        let scale = Scale::of(&goal);
        assert_eq!((scale.bar(2_000, 3_000), scale.bar(4_000, 0)), ((250, 250), (750, 250)));
        // A moment is seen, also at the very end; clocks that disagree leave the row nowhere.
        assert_eq!(
            (scale.bar(5_000, 5_000), scale.bar(0, 500)),
            ((WIDTH - THINNEST, THINNEST), (0, THINNEST))
        );
        let ticket = Ticket { task_id: "t".into(), key: "<b>".into(), ..Ticket::default() };
        let attempt = Attempt {
            begun_at_ms: 2_000,
            ended_at_ms: 3_000,
            review_begun_at_ms: 3_500,
            ..Attempt::default()
        };
        let wait = Wait { state: "needs_human".into(), begun_at_ms: 4_000, ended_at_ms: 0 };
        let tried = TicketAttempts {
            ticket: "t".into(),
            key: "<b>".into(),
            attempts: vec![attempt],
            waits: vec![wait],
        };
        let text = drawn(&goal, &[ticket], &[tried], &|t| format!("#{}", t.task_id)).into_string();
        assert!(text.contains(r#"<rect class="work" x="250" y="2" width="250""#), "{text}");
        assert!(
            text.contains(r#"class="review" x="625""#) && text.contains(r#"class="wait" x="750""#),
            "{text}"
        );
        assert!(text.contains("href=\"#t\"") && !text.contains("<b>"), "{text}");
    }
}
