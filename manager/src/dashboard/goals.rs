//! The goals: a list that keeps itself fresh, with a filter and a search.

use super::desk::{Fault, query_of};
use super::page::{Place, page};
use super::session::Session;
use super::state::{badge, word};
use super::wording::{ago, counted, dollars, grouped, line, span};
use super::{Dashboard, live};
use crate::api::types::GoalList;
use axum::extract::{Query, State};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use shared::goal::{Goal, GoalState};

/// Goals of a page.
const PAGE: usize = 50;

#[derive(Clone, Deserialize)]
pub(super) struct Wanted {
    #[serde(default)]
    state: String,
    #[serde(default)]
    q: String,
    #[serde(default)]
    offset: usize,
}

impl Wanted {
    fn query(&self, offset: usize) -> String {
        format!("state={}&q={}&offset={offset}", query_of(&self.state), query_of(self.q.trim()))
    }
}

pub(super) async fn show(
    State(dashboard): State<Dashboard>,
    session: Session,
    Query(wanted): Query<Wanted>,
) -> Result<Markup, Fault> {
    let list = list(&dashboard, &session, &wanted).await?;
    let main = html! {
        h1 { "Goals" }
        form.filter method="get" action="/goals" role="search" {
            div {
                label for="q" { "Search" }
                input id="q" name="q" type="search" value=(wanted.q) placeholder="words of a goal, or its id";
            }
            div {
                label for="state" { "State" }
                select id="state" name="state" {
                    option value="" { "any" }
                    @for state in GoalState::ALL {
                        option value=(state.as_str()) selected[state.as_str() == wanted.state] { (word(state.as_str())) }
                    }
                }
            }
            button type="submit" { "Show" }
        }
        div data-live=(format!("/goals/live?{}", wanted.query(wanted.offset))) { (list) }
    };
    Ok(page(&session, Place::Goals, "Goals", &main))
}

pub(super) async fn live(
    State(dashboard): State<Dashboard>,
    session: Session,
    Query(wanted): Query<Wanted>,
) -> Response {
    let of = dashboard.clone();
    live::part(&dashboard, move || {
        let (of, session, wanted) = (of.clone(), session.clone(), wanted.clone());
        async move { list(&of, &session, &wanted).await }
    })
}

async fn list(dashboard: &Dashboard, session: &Session, wanted: &Wanted) -> Result<Markup, Fault> {
    let path = format!("/v1/goals?limit={PAGE}&{}", wanted.query(wanted.offset));
    let found: GoalList = dashboard.desk.get(session, &path).await?;
    Ok(html! {
        @if found.goals.is_empty() {
            p { "No goals here. " a href="/submit" { "Hand one in" } "." }
        } @else {
            ul.goals { @for goal in &found.goals { li { (row(goal)) } } }
        }
        @if wanted.offset > 0 || found.next_offset.is_some() {
            nav.pages aria-label="Pages" {
                @if wanted.offset > 0 {
                    a href=(format!("/goals?{}", wanted.query(wanted.offset.saturating_sub(PAGE)))) { "Newer" }
                }
                @if let Some(next) = found.next_offset {
                    a href=(format!("/goals?{}", wanted.query(next))) { "Older" }
                }
            }
        }
    })
}

fn row(goal: &Goal) -> Markup {
    let done = closed(goal);
    html! {
        article.goal {
            h2 { a href=(format!("/goals/{}", goal.id)) { (line(&goal.text, 140)) } }
            p.facts {
                (badge(goal.state.as_str()))
                @if goal.paused && !goal.state.is_terminal() { (badge("paused")) }
                span { (progress(goal)) " " (done) " of " (counted(goal.tickets, "ticket")) }
                span { (grouped(goal.spent_tokens)) " tokens, " (dollars(goal.spent_microusd)) }
                span { @if goal.state.is_terminal() { "took " (span(goal.updated_at_ms.saturating_sub(goal.created_at_ms))) ", begun " (ago(goal.created_at_ms)) } @else { "begun " (ago(goal.created_at_ms)) } }
                @if !goal.cause.is_empty() { span.cause { (word(&goal.cause)) } }
            }
        }
    }
}

/// Tickets at which nothing is left to do.
pub(super) fn closed(goal: &Goal) -> u64 {
    let of = |status: &str| goal.counts.get(status).copied().unwrap_or(0);
    ["done", "skipped", "superseded", "failed", "cancelled"].into_iter().map(of).sum()
}

/// How far a goal is, for eyes; the words stand beside it.
pub(super) fn progress(goal: &Goal) -> Markup {
    let max = goal.tickets.max(1);
    html! { progress value=(closed(goal)) max=(max) aria-label="Progress" {} }
}
