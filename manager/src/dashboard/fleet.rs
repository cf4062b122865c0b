//! The fleet: who works, what waits where, how the models stand, what could not be read; and its switches.

use super::desk::{Fault, path_of};
use super::page::{Place, page};
use super::posted::{Posted, proof};
use super::session::Session;
use super::state::{badge, word};
use super::wording::{ago, bytes, counted, dollars, grouped, span};
use super::{Dashboard, live};
use crate::api::types::{Ack, DeadLetters, Fleet, Requeue, Requeued, Stats, TenantList, Words};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect, Response};
use maud::{Markup, html};
use shared::store::{Consumer, TenantBook};

/// Dead letters that are shown.
const LETTERS_MAX: usize = 50;

pub(super) async fn show(State(dashboard): State<Dashboard>, session: Session) -> Result<Markup, Fault> {
    let drawn = drawn(&dashboard, &session).await?;
    let main = html! { h1 { "Fleet" } div data-live="/fleet/live" { (drawn) } };
    Ok(page(&session, Place::Fleet, "Fleet", &main))
}

pub(super) async fn live(State(dashboard): State<Dashboard>, session: Session) -> Response {
    let of = dashboard.clone();
    live::part(&dashboard, move || {
        let (of, session) = (of.clone(), session.clone());
        async move { drawn(&of, &session).await }
    })
}

async fn drawn(dashboard: &Dashboard, session: &Session) -> Result<Markup, Fault> {
    let fleet: Fleet = dashboard.desk.get(session, "/v1/fleet").await?;
    let stats: Stats = dashboard.desk.get(session, "/v1/stats").await?;
    let tenants: TenantList = dashboard.desk.get(session, "/v1/tenants").await?;
    let letters = match dashboard.desk.get::<DeadLetters>(session, "/v1/dead-letters").await {
        Ok(letters) => Some(letters),
        // Only who may everything sees them; the rest of the page is for every reader.
        Err(fault) if fault.status == StatusCode::FORBIDDEN => None,
        Err(fault) => return Err(fault),
    };
    let steers = letters.is_some();
    Ok(html! {
        p.facts {
            @if fleet.paused { (badge("paused")) } @else { (badge("running")) }
            span { (counted(stats.gauges.goals_live, "live goal")) }
            span { (grouped(stats.gauges.leased)) " under way" }
            span { (grouped(stats.gauges.delayed)) " delayed" }
            a href="/inbox" { (counted(stats.gauges.people, "decision")) " open" }
            @if stats.gauges.oldest_lease_overdue_ms > 0 { span { "oldest lease overdue by " (span(stats.gauges.oldest_lease_overdue_ms)) } }
            span { "Redis uses " (bytes(stats.gauges.used_memory_bytes)) }
            span { "version " (stats.version) }
        }
        @if steers {
            form.inline method="post" action=(if fleet.paused { "/fleet/resume" } else { "/fleet/pause" }) {
                (proof(session))
                button.quiet type="submit" { @if fleet.paused { "Claims again" } @else { "No new claims" } }
            }
        }
        h2 { "Lanes" }
        (table("Lanes", &["lane", "ready", "under way", "consumers", "oldest"], &stats.lanes.iter().map(|(name, lane)| vec![
            html! { (name) }, html! { (grouped(lane.ready)) }, html! { (grouped(lane.leased)) }, html! { (grouped(lane.consumers)) },
            html! { @if lane.ready > 0 { (span(lane.oldest_ready_ms)) @if lane.consumers == 0 { strong { " nobody serves it" } } } },
        ]).collect::<Vec<_>>()))
        h2 { "Consumers" }
        @if fleet.consumers.is_empty() { p { "Nobody works here." } } @else {
            (table("Consumers", &["who", "state", "busy", "lanes", "last heard of", "version", ""], &fleet.consumers.iter().map(|c| consumer(session, c, steers)).collect::<Vec<_>>()))
        }
        h2 { "Models" }
        @if stats.endpoints.is_empty() { p { "No model was asked yet." } } @else {
            (table("Endpoints", &["endpoint", "under way", "waiting", "pace", "pause", "failures"], &stats.endpoints.iter().map(|e| vec![
                html! { (e.name) }, html! { (grouped(e.in_flight)) },
                html! { (grouped(e.managers_waiting + e.reviewers_waiting + e.workers_waiting)) },
                html! { @if e.rate > 0.0 { (format!("{:.1} a second", e.rate)) } @else { "free" } },
                html! { @if e.cool_down_ms > 0 { (span(e.cool_down_ms)) } @else if e.closed_for_ms > 0 { "breaker open, " (span(e.closed_for_ms)) } },
                html! { (grouped(e.failures)) },
            ]).collect::<Vec<_>>()))
        }
        @if !stats.usage.is_empty() {
            h2 { "Spent" }
            (table("Spent", &["role", "tier", "model", "calls", "failed", "tokens in", "tokens out", "cost"], &stats.usage.iter().map(|u| vec![
                html! { (u.role) }, html! { (u.tier) }, html! { (u.model) }, html! { (grouped(u.calls)) }, html! { (grouped(u.failed)) },
                html! { (grouped(u.input_tokens)) }, html! { (grouped(u.output_tokens)) }, html! { (dollars(u.microusd)) },
            ]).collect::<Vec<_>>()))
        }
        @if !tenants.tenants.is_empty() {
            h2 { "Budgets" }
            (table("Budgets", &["tenant", "spent", "held", "budget", "until", "calls under way"], &tenants.tenants.iter().map(book).collect::<Vec<_>>()))
        }
        h2 { "Dead letters" }
        @match &letters {
            None => { p { (counted(stats.gauges.dead_letters, "dead letter")) ". A token with the scope admin sees them." } }
            Some(found) if found.letters.is_empty() => { p { "None." } }
            Some(found) => {
                (table("Dead letters", &["lane", "when", "why"], &found.letters.iter().take(LETTERS_MAX).map(|l| vec![
                    html! { (l.lane) }, ago(l.at_ms), html! { (l.reason) },
                ]).collect::<Vec<_>>()))
                form.inline method="post" action="/fleet/requeue" {
                    (proof(session))
                    button type="submit" { "Take off the list, queue their tickets again" }
                }
            }
        }
    })
}

/// What a tenant has spent in its period, and may.
fn book(of: &TenantBook) -> Vec<Markup> {
    let amount = |tokens: u64, microusd: u64| format!("{} tokens, {}", grouped(tokens), dollars(microusd));
    let budget = match (of.budget_tokens, of.budget_microusd) {
        (0, 0) => "no limit".to_owned(),
        (tokens, 0) => format!("{} tokens", grouped(tokens)),
        (0, microusd) => dollars(microusd),
        (tokens, microusd) => amount(tokens, microusd),
    };
    vec![
        html! { (of.tenant) },
        html! { (amount(of.spent_tokens, of.spent_microusd)) },
        html! { (amount(of.reserved_tokens, of.reserved_microusd)) },
        html! { (budget) },
        html! { "the " (of.period) " ends in " (span(of.ends_in_ms / 60_000 * 60_000)) },
        html! { (grouped(of.in_flight)) },
    ]
}

fn consumer(session: &Session, of: &Consumer, steers: bool) -> Vec<Markup> {
    let orders: &[(&str, &str)] = match of.state.as_str() {
        "active" => &[("cordon", "No new work"), ("drain", "Leave")],
        "cordoned" => &[("activate", "Work again"), ("drain", "Leave")],
        _ => &[],
    };
    vec![
        html! { strong { (of.role) } " " (of.id) br; span.help { (of.host) ", process " (of.pid) @if !of.sandbox && of.role == "worker" { ", no sandbox" } } },
        html! { (word(&of.state)) },
        html! { (of.busy) " of " (of.slots) },
        html! { (of.lanes.join(", ")) },
        html! { (span(of.beat_age_ms / 1000 * 1000)) " ago" },
        html! { (of.version) },
        html! {
            @if steers {
                @for (order, name) in orders {
                    form.inline method="post" action=(format!("/fleet/{}/{order}", path_of(&of.id))) {
                        (proof(session))
                        button.quiet type="submit" aria-label=(format!("{name}: {}", of.id)) { (name) }
                    }
                }
            }
        },
    ]
}

/// A table that is one of cards on a phone. Roles are said again, because a table that is shown as blocks loses them.
fn table(name: &str, heads: &[&str], rows: &[Vec<Markup>]) -> Markup {
    html! {
        div.scroll role="region" aria-label=(name) tabindex="0" {
            table.cards role="table" {
                thead role="rowgroup" { tr role="row" {
                    @for head in heads { th scope="col" role="columnheader" { @if head.is_empty() { span.hidden { "what can be done" } } @else { (head) } } }
                } }
                tbody role="rowgroup" {
                    @for row in rows { tr role="row" {
                        @for (cell, head) in row.iter().zip(heads) { td role="cell" data-head=[Some(head).filter(|h| !h.is_empty())] { div { (cell) } } }
                    } }
                }
            }
        }
    }
}

pub(super) async fn act(
    State(dashboard): State<Dashboard>,
    Path(act): Path<String>,
    posted: Posted,
) -> Result<Response, Fault> {
    let (desk, session) = (&dashboard.desk, &posted.session);
    match act.as_str() {
        "pause" | "resume" => {
            let _: Ack = desk.post(session, &format!("/v1/fleet/{act}"), &Words::default()).await?;
        }
        "requeue" => {
            let _: Requeued = desk.post(session, "/v1/dead-letters/requeue", &Requeue::default()).await?;
        }
        _ => return Err(Fault::not_found()),
    }
    Ok(Redirect::to("/fleet").into_response())
}

pub(super) async fn order(
    State(dashboard): State<Dashboard>,
    Path((consumer, order)): Path<(String, String)>,
    posted: Posted,
) -> Result<Response, Fault> {
    let path = format!("/v1/fleet/{}/{}", path_of(&consumer).replace('/', "%2F"), path_of(&order));
    let _: Ack = dashboard.desk.post(&posted.session, &path, &Words::default()).await?;
    Ok(Redirect::to("/fleet").into_response())
}
