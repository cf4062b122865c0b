//! A goal's tickets as a drawing: who needs whom, from left to right. Places come from a layout library and are kept,
//! since a plan changes far less often than its tickets' states.

mod critical;
mod layout;

pub(super) use layout::Layouts;

use super::state::word;
use layout::{HEIGHT, Layout, WIDTH};
use maud::{Markup, html};
use shared::ticket::{Status, Ticket};
use std::collections::HashMap;

/// Room around everything, for the focus ring.
const MARGIN: f64 = 8.0;
/// Characters of a label that fit.
const LABEL_CHARS: usize = 20;
/// The same below it, in smaller letters.
const WHO_CHARS: usize = 26;

/// Where a ticket's box leads.
pub(super) type Link = dyn Fn(&Ticket) -> String + Send + Sync;

/// The drawing, or a sentence when the plan is too tangled for one; the list of tickets says the same in words.
pub(super) async fn drawn(layouts: &Layouts, tickets: &[Ticket], link: &Link) -> Markup {
    if tickets.is_empty() {
        return html! { p { "There is no plan yet." } };
    }
    let edges = edges(tickets);
    let Some(layout) = layouts.of(tickets.len(), &edges).await else {
        return html! { p { "The plan is too tangled to be drawn; the list below has every ticket and what it needs." } };
    };
    let critical = critical::path(tickets, &edges);
    html! {
        div.graph role="region" aria-label="Plan as a drawing" tabindex="0" { (svg(tickets, &edges, &layout, &critical, link)) }
    }
}

/// To its page.
pub(super) fn page(ticket: &Ticket) -> String {
    format!("/tickets/{}", ticket.task_id)
}

/// Needs that are in the list, as indices: need first.
fn edges(tickets: &[Ticket]) -> Vec<(u32, u32)> {
    let index: HashMap<&str, u32> = (0u32..).zip(tickets).map(|(i, t)| (t.task_id.as_str(), i)).collect();
    let needs = (0u32..).zip(tickets).flat_map(|(i, t)| t.needs.iter().map(move |n| (n, i)));
    needs.filter_map(|(need, i)| Some((*index.get(need.as_str())?, i))).collect()
}

fn svg(tickets: &[Ticket], edges: &[(u32, u32)], layout: &Layout, critical: &[bool], link: &Link) -> Markup {
    let (width, height) = (layout.width + 2.0 * MARGIN, layout.height + 2.0 * MARGIN);
    let at = |i: u32| layout.places.get(i as usize).copied().unwrap_or_default();
    let on = |i: u32| critical.get(i as usize).copied().unwrap_or_default();
    html! {
        svg width=(px(width)) height=(px(height)) viewBox=(format!("0 0 {} {}", px(width), px(height))) role="group" aria-label="Tickets, each after what it needs" {
            g transform=(format!("translate({MARGIN} {MARGIN})")) {
                @for &(from, to) in edges {
                    path.edge.critical[on(from) && on(to)] d=(curve(at(from), at(to))) {}
                }
                @for (i, ticket) in (0u32..).zip(tickets) { (node(ticket, at(i), on(i), link)) }
            }
        }
    }
}

fn node(ticket: &Ticket, (x, y): (f64, f64), critical: bool, link: &Link) -> Markup {
    let state = ticket.status.as_str();
    html! {
        a.node.critical[critical] href=(link(ticket)) data-ticket=(ticket.task_id) data-state=(state)
            data-key=(ticket.key) transform=(format!("translate({} {})", px(x), px(y))) {
            rect width=(px(WIDTH)) height=(px(HEIGHT)) rx="6" {}
            svg.shape x="10" y="13" width="18" height="18" viewBox="0 0 16 16" aria-hidden="true" { use href=(format!("#s-{state}")) {} }
            text x="38" y="19" { (cut(&ticket.key)) " " }
            text.who x="38" y="35" { (label(ticket)) }
        }
    }
}

/// Its state, and who has it; the script says it the same way.
fn label(ticket: &Ticket) -> String {
    let who = who(ticket);
    let state = word(ticket.status.as_str());
    super::wording::line(&if who.is_empty() { state } else { format!("{state}, {who}") }, WHO_CHARS)
}

/// Who has it in hand just now.
pub(super) fn who(ticket: &Ticket) -> &str {
    match ticket.status {
        Status::Running | Status::Reviewing => &ticket.assignee,
        Status::Pending
        | Status::Rejected
        | Status::Done
        | Status::Blocked
        | Status::AwaitingApproval
        | Status::Escalated
        | Status::NeedsHuman
        | Status::Skipped
        | Status::Superseded
        | Status::Failed
        | Status::Cancelled => "",
    }
}

fn cut(text: &str) -> String {
    super::wording::line(text, LABEL_CHARS)
}

/// From the right side of a need to the left side of what needs it.
fn curve((x1, y1): (f64, f64), (x2, y2): (f64, f64)) -> String {
    let (x1, y1, y2) = (x1 + WIDTH, y1 + HEIGHT / 2.0, y2 + HEIGHT / 2.0);
    let bend = ((x2 - x1) / 2.0).max(12.0);
    format!(
        "M{} {}C{} {} {} {} {} {}",
        px(x1),
        px(y1),
        px(x1 + bend),
        px(y1),
        px(x2 - bend),
        px(y2),
        px(x2),
        px(y2)
    )
}

/// Whole pixels: shorter, and nobody sees the difference.
fn px(value: f64) -> String {
    format!("{value:.0}")
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn ticket(id: &str, needs: &[&str], status: Status) -> Ticket {
        Ticket {
            task_id: id.into(),
            key: id.into(),
            needs: needs.iter().map(|n| (*n).to_owned()).collect(),
            status,
            assignee: "worker-1".into(),
            ..Ticket::default()
        }
    }

    #[tokio::test]
    async fn every_ticket_is_drawn_with_its_state_in_words_and_shape() {
        let tickets = [
            ticket("a", &[], Status::Done),
            ticket("b", &["a", "gone"], Status::Running),
            ticket("alone <script>", &[], Status::Failed),
        ];
        let text = drawn(&Layouts::default(), &tickets, &page).await.into_string();
        assert!(text.contains(">running, worker-1</text>"), "{text}");
        assert!(text.contains(r##"href="#s-done""##) && text.contains(r#"data-state="failed""#), "{text}");
        assert_eq!(text.matches("class=\"edge").count(), 1, "{text}");
        assert!(!text.contains("<script>"), "{text}");
    }

    #[tokio::test]
    async fn a_plan_of_a_thousand_is_drawn() {
        let all: Vec<Ticket> = (0..1000)
            .map(|i: usize| {
                let needs: Vec<String> =
                    (1..=2).filter_map(|d| i.checked_sub(d * 7)).map(|n| n.to_string()).collect();
                let needs: Vec<&str> = needs.iter().map(String::as_str).collect();
                ticket(&i.to_string(), &needs, Status::Blocked)
            })
            .collect();
        let text = drawn(&Layouts::default(), &all, &page).await.into_string();
        assert_eq!(text.matches("data-ticket=").count(), 1000);
    }
}
