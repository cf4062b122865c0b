//! States of goals and tickets as people see them: a word, a colour and a shape, so that none is told by colour alone.

use maud::{Markup, html};

/// State and the path of its shape in a square of 16. Goals and tickets share what they share.
const SHAPES: [(&str, &str); 15] = [
    ("planning", "M2 4h12M2 8h12M2 12h7"),
    ("blocked", "M4 3h3v10H4zM9 3h3v10H9z"),
    ("pending", "M8 2a6 6 0 1 0 .01 0M8 5v3.5l2.5 1.5"),
    ("running", "M4 2.5l9 5.5-9 5.5z"),
    ("reviewing", "M8 1.5L14.5 8 8 14.5 1.5 8zM8 6a2 2 0 1 0 .01 0"),
    ("rejected", "M13 13V8a3 3 0 0 0-3-3H3M6.5 1.5L3 5l3.5 3.5"),
    ("awaiting_approval", "M5 1.5h6L14.5 8 11 14.5H5L1.5 8zM8 4.5v4M8 11v.5"),
    ("escalated", "M8 14V3M3.5 7.5L8 3l4.5 4.5"),
    ("needs_human", "M8 1.5a3 3 0 1 0 .01 0M2.5 14.5c0-4 2-6 5.5-6s5.5 2 5.5 6z"),
    ("done", "M2 8.5l4 4 8-9"),
    ("skipped", "M2 3l5 5-5 5M8 3l5 5-5 5"),
    ("superseded", "M8 14V8L3 3M8 8l5-5"),
    ("failed", "M3 3l10 10M13 3L3 13"),
    ("cancelled", "M8 2a6 6 0 1 0 .01 0M4 12l8-8"),
    ("paused", "M4 3h3v10H4zM9 3h3v10H9z"),
];

/// `awaiting_approval` as it is read.
pub(super) fn word(state: &str) -> String {
    state.replace('_', " ")
}

/// The shapes, once a page; everything else refers to them.
pub(super) fn shapes() -> Markup {
    html! {
        svg.shapes aria-hidden="true" width="0" height="0" {
            @for (state, path) in SHAPES {
                symbol id=(format!("s-{state}")) viewBox="0 0 16 16" { path d=(path) {} }
            }
        }
    }
}

/// Shape and word.
pub(super) fn badge(state: &str) -> Markup {
    html! {
        span.badge data-state=(state) {
            svg.shape aria-hidden="true" viewBox="0 0 16 16" { use href=(format!("#s-{state}")) {} }
            span.word { (word(state)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::goal::GoalState;
    use shared::ticket::Status;

    #[test]
    fn every_state_has_a_shape_of_its_own() {
        let shape = |state: &str| SHAPES.iter().find(|(s, _)| *s == state).map(|(_, path)| *path);
        let tickets: Vec<&str> =
            Status::ALL.iter().map(|s| shape(s.as_str()).unwrap_or_else(|| panic!("{s:?}"))).collect();
        let distinct: std::collections::BTreeSet<&&str> = tickets.iter().collect();
        assert_eq!(distinct.len(), tickets.len());
        assert!(GoalState::ALL.iter().all(|s| shape(s.as_str()).is_some()));
    }
}
