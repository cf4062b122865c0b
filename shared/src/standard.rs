//! Standards: checklist items that reviews themselves suggest, kept per tenant and kind of ticket. Plain data, and which
//! reasons say the same. No I/O.
//!
//! A reason for sending work back is noticed. When it has come back often enough it is asked of reviewers beside the
//! real items, in shadow: counted, never deciding. A person promotes it, then new tickets of its kind are held to it,
//! or drops it. Code finds what recurs, so that the same reviews always suggest the same (I6).

use crate::lesson::{kind_of, words};
use crate::ticket::{Check, ReviewPolicy, TicketSpec, VerdictItem};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Version of what the store keeps.
pub const VERSION: u32 = 1;
/// Words that two reasons must have in common, and what share of the shorter one's these must be.
const COMMON_MIN: usize = 2;
const COMMON_PERCENT: usize = 60;
/// How a reason becomes an item; a person may word it better.
const ITEM: &str = "Does not repeat what earlier work was sent back for: ";

/// What became of a standard so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Not often enough yet.
    #[default]
    Noticed,
    /// Proposed: asked of reviewers and counted.
    Shadow,
    /// New tickets of its kind are held to it.
    Promoted,
    /// It is not proposed again.
    Dropped,
}

impl State {
    pub const ALL: [Self; 4] = [Self::Noticed, Self::Shadow, Self::Promoted, Self::Dropped];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Noticed => "noticed",
            Self::Shadow => "shadow",
            Self::Promoted => "promoted",
            Self::Dropped => "dropped",
        }
    }
}

/// One standard; the store keeps it as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Standard {
    /// Readers take N and N−1.
    pub v: u32,
    /// 32 hex digits, the same for the same reason of the same kind.
    pub id: String,
    /// A role, as [`kind_of`] says it.
    pub kind: String,
    /// The item as reviewers are asked it.
    pub text: String,
    /// For what work was sent back when it was noticed.
    pub reason: String,
    /// Where that was.
    pub goal: String,
    pub key: String,
    /// Redis clock.
    pub noticed_at_ms: u64,
}

impl Standard {
    /// What a reason suggests, at most `chars_max` characters of it; its id is the caller's.
    #[must_use]
    pub fn of_reason(reason: &str, chars_max: usize) -> Self {
        let reason: String = reason.split_whitespace().collect::<Vec<_>>().join(" ");
        let reason: String = reason.chars().take(chars_max.saturating_sub(ITEM.len())).collect();
        Self { v: VERSION, text: format!("{ITEM}{reason}"), reason, ..Self::default() }
    }
}

/// A standard with its tally.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tallied {
    #[serde(flatten)]
    pub standard: Standard,
    pub state: State,
    /// Tickets that were sent back for it.
    pub seen: u64,
    /// Reviews that asked it in shadow.
    pub asked: u64,
    /// Those in which it failed.
    pub failed: u64,
    /// Those in which it alone would have sent the work back.
    pub flips: u64,
    /// Who promoted or dropped it last; empty: nobody yet.
    pub decided_by: String,
    /// When it got its state. Redis clock.
    pub changed_at_ms: u64,
}

/// Whether a failed item says something about the work: not what code checks anyway, and not what the reviewer itself
/// left out or could not show.
#[must_use]
pub fn teaches(item: &VerdictItem) -> bool {
    !item.pass && !item.by_code && item.reason != LEFT_OUT && !item.reason.starts_with(UNSHOWN)
}

/// Reason of an item that the reviewer's answer left out.
pub const LEFT_OUT: &str = "the reviewer left this item out";
/// How the reason of a pass begins whose evidence does not exist.
pub const UNSHOWN: &str = "the evidence `";

/// The standard of the kind that this reason says again, if there is one.
#[must_use]
pub fn same<'a>(known: &'a [Tallied], reason: &str) -> Option<&'a Tallied> {
    let asked: BTreeSet<String> = words(reason).into_iter().collect();
    let share = |t: &&Tallied| {
        let of: BTreeSet<String> = words(&t.standard.reason).into_iter().collect();
        let common = asked.intersection(&of).count();
        let shorter = asked.len().min(of.len()).max(1);
        if common < COMMON_MIN { 0 } else { common * 100 / shorter }
    };
    known.iter().filter(|t| share(t) >= COMMON_PERCENT).max_by_key(share)
}

/// Adds the promoted ones of its kind to a new ticket's checklist, as far as that has room. Only what a model judges.
pub fn hold(spec: &mut TicketSpec, of_kind: &[Tallied], checks_max: usize) {
    if spec.review != ReviewPolicy::Judged || spec.call.is_some() {
        return;
    }
    let kind = kind_of(&spec.role).to_owned();
    for t in of_kind.iter().filter(|t| t.state == State::Promoted && t.standard.kind == kind) {
        let check = Check::Judged { text: t.standard.text.clone() };
        if spec.checklist.len() < checks_max && !spec.checklist.contains(&check) {
            spec.checklist.push(check);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(reason: &str, state: State) -> Tallied {
        let standard = Standard { kind: "data_analyst".into(), ..Standard::of_reason(reason, 200) };
        Tallied { standard, state, ..Tallied::default() }
    }

    #[test]
    fn reasons_that_say_the_same_are_found_and_others_are_not() {
        let all = [
            known("the axis has no unit", State::Noticed),
            known("the figures carry no currency", State::Shadow),
        ];
        let found = same(&all, "No currency is given for the figures of May").unwrap();
        assert_eq!(found.standard.reason, "the figures carry no currency");
        assert!(same(&all, "the figures are wrong").is_none(), "one word in common is none");
        assert!(same(&[], "the figures carry no currency").is_none());
    }

    #[test]
    fn i11_new_tickets_of_the_kind_are_held_to_what_was_promoted_within_their_limits() {
        let all = [known("no unit", State::Promoted), known("no currency", State::Dropped)];
        let mut spec = TicketSpec { role: "data_analyst".into(), ..TicketSpec::new("a", "x", "y") };
        spec.review = ReviewPolicy::Judged;
        let mut full = spec.clone();
        hold(&mut spec, &all, 50);
        hold(&mut spec, &all, 50);
        assert_eq!(spec.checklist, [Check::Judged { text: format!("{ITEM}no unit") }]);
        hold(&mut full, &all, 0);
        assert!(full.checklist.is_empty());
        let mut other = TicketSpec { role: "summarizer".into(), ..full.clone() };
        hold(&mut other, &all, 50);
        let mut by_code = TicketSpec { review: ReviewPolicy::Code, ..full };
        hold(&mut by_code, &all, 50);
        assert!(other.checklist.is_empty() && by_code.checklist.is_empty());
    }

    #[test]
    fn what_the_reviewer_did_wrong_teaches_nothing_about_the_work() {
        let item = |reason: &str, by_code| VerdictItem {
            item: "i".into(),
            pass: false,
            reason: reason.into(),
            evidence: String::new(),
            by_code,
        };
        assert!(teaches(&item("no unit", false)));
        assert!(!teaches(&item("no unit", true)) && !teaches(&item(LEFT_OUT, false)));
        assert!(!teaches(&item(&format!("{UNSHOWN}x` does not hold"), false)));
    }

    #[test]
    fn what_the_store_keeps_reads_back_and_is_bounded() {
        let kept =
            r#"{"v":1,"id":"0a","kind":"k","text":"t","reason":"r","goal":"g","key":"a","noticed_at_ms":7}"#;
        let standard: Standard = serde_json::from_str(kept).unwrap();
        assert_eq!(serde_json::to_string(&standard).unwrap(), kept);
        assert_eq!(serde_json::from_str::<Standard>("{\"id\":\"0a\",\"newer\":1}").unwrap().id, "0a");
        assert!(Standard::of_reason(&"x ".repeat(5_000), 300).text.chars().count() <= 300);
    }
}
