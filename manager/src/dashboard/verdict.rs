//! What a reviewer found, item by item, with evidence that opens the place it names.

use super::desk::path_of;
use maud::{Markup, html};
use shared::ticket::Verdict;

/// The items; those that failed first. `link` says where a pointer of the evidence leads.
pub(super) fn drawn(verdict: &Verdict, link: &dyn Fn(&str) -> Option<String>) -> Markup {
    let mut items: Vec<_> = verdict.items.iter().collect();
    items.sort_by_key(|item| item.pass);
    html! {
        ul.verdict {
            @for item in items {
                li data-state=(if item.pass { "done" } else { "failed" }) {
                    svg.shape aria-hidden="true" viewBox="0 0 16 16" { use href=(if item.pass { "#s-done" } else { "#s-failed" }) {} }
                    div {
                        p { strong { @if item.pass { "Holds: " } @else { "Fails: " } } span.text { (item.item) } }
                        p.text { (item.reason) }
                        p.help { @if item.by_code { "by code" } @else { "by a reviewer's model" }
                            @if !item.evidence.is_empty() { ", evidence: " (evidence(&item.evidence, link)) } }
                    }
                }
            }
        }
    }
}

/// Where a pointer leads to a place in this attempt.
pub(super) fn in_attempt(ticket: &str, place: usize) -> impl Fn(&str) -> Option<String> {
    let base = format!("/tickets/{ticket}/attempts/{place}");
    move |pointer| target(pointer).map(|to| format!("{base}{to}"))
}

/// Each pointer as a link, where there is one.
fn evidence(text: &str, link: &dyn Fn(&str) -> Option<String>) -> Markup {
    html! {
        @for (n, pointer) in text.split([';', ',']).map(|p| p.trim().trim_matches('`')).filter(|p| !p.is_empty()).enumerate() {
            @if n > 0 { ", " }
            @if let Some(to) = link(pointer) { a href=(to) { (pointer) } } @else { (pointer) }
        }
    }
}

/// Where a pointer leads, below the attempt's own address.
fn target(pointer: &str) -> Option<String> {
    let (place, span) = pointer.rsplit_once(':')?;
    let place = place.trim();
    if place == "tool" {
        return span.trim().parse::<u32>().ok().map(|step| format!("#step-{step}"));
    }
    let (first, last) = span.split_once('-').unwrap_or((span, span));
    let number = |n: &str| n.trim().trim_start_matches(['L', 'l']).parse::<u32>().ok();
    let (first, last) = (number(first)?, number(last)?);
    if place == "report" {
        return Some("#report".into());
    }
    Some(format!("/files/{}?lines={first}-{last}#L{first}", path_of(place)))
}

/// A verdict that was kept as JSON where words are expected; other text stays as it is.
pub(super) fn in_words(text: &str) -> String {
    match serde_json::from_str::<Verdict>(text.trim()) {
        Ok(verdict) if !verdict.items.is_empty() => verdict.comment(),
        Ok(_) | Err(_) => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::ticket::VerdictItem;

    #[test]
    fn evidence_leads_to_the_place_that_it_names() {
        assert_eq!(target("data/a b.csv:3-7").as_deref(), Some("/files/data/a%20b.csv?lines=3-7#L3"));
        assert_eq!(target("outputs/x.md:L4").as_deref(), Some("/files/outputs/x.md?lines=4-4#L4"));
        assert_eq!(target("tool:12").as_deref(), Some("#step-12"));
        assert_eq!(target("report:1-1").as_deref(), Some("#report"));
        for none in ["chart.png", "javascript:alert(1)", "tool:x", ""] {
            assert_eq!(target(none), None, "{none}");
        }
    }

    #[test]
    fn what_failed_stands_first_and_nothing_is_markup() {
        let item = |name: &str, pass| VerdictItem {
            item: name.into(),
            pass,
            reason: "<img src=x onerror=alert(1)>".into(),
            evidence: "a.md:1-2; tool:3".into(),
            by_code: pass,
        };
        let text =
            drawn(&Verdict { items: vec![item("one", true), item("two", false)] }, &in_attempt("t", 2))
                .into_string();
        assert!(text.find("two").unwrap() < text.find("one").unwrap(), "{text}");
        assert!(
            text.contains("/tickets/t/attempts/2/files/a.md?lines=1-2#L1") && text.contains("#step-3"),
            "{text}"
        );
        assert!(!text.contains("<img"), "{text}");
        assert_eq!(
            in_words(r#"{"items":[{"item":"i","pass":false,"reason":"r","by_code":true}]}"#),
            "- i: r"
        );
        assert_eq!(in_words("{} as it is"), "{} as it is");
    }
}
