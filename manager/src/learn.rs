//! What a goal that is done teaches: made from its records by code, no model is asked. Pure.
//!
//! One lesson for each ticket that an agent did, of the kind of its role: what it was sent back for and what was accepted
//! then; and one of kind `plan` for whoever splits the next goal.

use crate::planner::apply::ticket_id;
use shared::goal::Goal;
use shared::lesson::{self, Lesson};
use shared::prompt::clip;
use shared::store::LogEvent;
use shared::ticket::{Report, Status, Ticket, Verdict, VerdictItem};
use std::collections::BTreeMap;

/// Reasons of one ticket that a lesson repeats.
const REASONS_MAX: usize = 5;
/// Characters kept of one reason, and of what was asked.
const REASON_CHARS: usize = 200;
const ABOUT_CHARS: usize = 400;

/// Why each ticket was sent back, by its id, oldest first and each reason once: what `said` makes of its verdicts' items.
pub(crate) fn reasons(
    events: &[LogEvent],
    said: impl Fn(&VerdictItem) -> Option<String>,
) -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for event in events {
        // A verdict stands in the event that it caused, whatever that is called.
        let Ok(verdict) = serde_json::from_str::<Verdict>(&event.detail) else { continue };
        let of = all.entry(event.ticket.clone()).or_default();
        for reason in verdict.items.iter().filter_map(&said) {
            if !of.contains(&reason) {
                of.push(reason);
            }
        }
    }
    all
}

/// A failed item as a lesson repeats it.
pub(crate) fn failed(item: &VerdictItem) -> Option<String> {
    (!item.pass).then(|| clip(&format!("{}: {}", item.item, item.reason).replace('\n', " "), REASON_CHARS))
}

/// The lessons of a goal; each at most `chars_max` characters.
pub(crate) fn lessons(
    goal: &Goal,
    tickets: &[Ticket],
    reasons: &BTreeMap<String, Vec<String>>,
    chars_max: usize,
    now_ms: u64,
) -> Vec<Lesson> {
    let none = vec![];
    let why = |ticket: &Ticket| reasons.get(&ticket.task_id).unwrap_or(&none).as_slice();
    let lesson = |kind: &str, key: &str, about: &str, text: String| Lesson {
        v: lesson::VERSION,
        id: ticket_id(&goal.id, &format!("lesson:{key}")),
        kind: kind.into(),
        about: clip(&about.replace('\n', " "), ABOUT_CHARS),
        text: clip(&text, chars_max),
        goal: goal.id.clone(),
        key: key.into(),
        learnt_at_ms: now_ms,
        edited_by: String::new(),
    };
    // A call that the plan made itself teaches no agent.
    let by_agents: Vec<&Ticket> = tickets.iter().filter(|t| t.call.is_none()).collect();
    let mut all: Vec<Lesson> = by_agents
        .iter()
        .filter_map(|t| {
            let about = format!("{} ({})", t.description, t.expected_output);
            Some(lesson(lesson::kind_of(&t.role), &t.key, &about, of_ticket(t, why(t))?))
        })
        .collect();
    // A given plan teaches no planner.
    if goal.given_plan_ref.is_empty() {
        let mut text = format!("Was split into {} tickets:\n", tickets.len());
        for ticket in tickets {
            let sent_back = if why(ticket).is_empty() { "" } else { ", sent back at first" };
            text.push_str(&format!(
                "- {} ({}): {}{sent_back}\n",
                ticket.key,
                ticket.role,
                ticket.status.as_str()
            ));
        }
        for reason in tickets.iter().flat_map(why).take(REASONS_MAX) {
            text.push_str(&format!("Sent back for {reason}\n"));
        }
        all.push(lesson(lesson::PLAN, "", &goal.text, text));
    }
    all
}

/// What a ticket teaches; `None`: it came to nothing that says anything.
fn of_ticket(ticket: &Ticket, reasons: &[String]) -> Option<String> {
    let mut text = String::new();
    for reason in &reasons[reasons.len().saturating_sub(REASONS_MAX)..] {
        text.push_str(&format!("Sent back for {reason}\n"));
    }
    match ticket.status {
        Status::Done => {
            let report: Report = serde_json::from_value(ticket.result.clone()).unwrap_or_default();
            let when = if reasons.is_empty() { "Accepted at once" } else { "Accepted then" };
            text.push_str(&format!("{when}: {}", report.summary.trim()));
            Some(text)
        }
        Status::Failed | Status::Skipped => {
            text.push_str(&format!("Ended {}: {}", ticket.status.as_str(), ticket.cause_detail));
            Some(text)
        }
        Status::Pending
        | Status::Running
        | Status::Reviewing
        | Status::Rejected
        | Status::Blocked
        | Status::AwaitingApproval
        | Status::Escalated
        | Status::NeedsHuman
        | Status::Superseded
        | Status::Cancelled => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rejected(ticket: &str, item: &str, reason: &str) -> LogEvent {
        let verdict = json!({"items": [
            {"item": item, "pass": false, "reason": reason, "by_code": false},
            {"item": "fine", "pass": true, "reason": "yes", "by_code": true}]});
        LogEvent {
            id: "1-1".into(),
            at_ms: 1,
            event: "rejected".into(),
            ticket: ticket.into(),
            key: String::new(),
            from: String::new(),
            to: String::new(),
            epoch: 1,
            who: String::new(),
            detail: verdict.to_string(),
        }
    }

    fn ticket(id: &str, role: &str, status: Status) -> Ticket {
        Ticket {
            task_id: id.into(),
            key: id.into(),
            role: role.into(),
            description: format!("do {id}"),
            expected_output: "it".into(),
            status,
            result: json!({"status": "done", "summary": format!("{id} is done")}),
            ..Ticket::default()
        }
    }

    #[test]
    fn what_was_sent_back_is_taught_with_what_was_accepted_then() {
        let goal = Goal { id: "g".into(), text: "A goal".into(), ..Goal::default() };
        let call = serde_json::from_value(json!({"tool": "code_interpreter", "args": {}})).unwrap();
        let tickets = [
            ticket("chart", "data_analyst", Status::Done),
            ticket("text", "summarizer", Status::Done),
            ticket("old", "summarizer", Status::Superseded),
            Ticket { call: Some(call), ..ticket("direct", "", Status::Done) },
        ];
        let events = [rejected("chart", "has a unit", "none"), rejected("chart", "has a unit", "none")];
        let all = lessons(&goal, &tickets, &reasons(&events, failed), 500, 9);
        let texts: Vec<(&str, &str)> = all.iter().map(|l| (l.kind.as_str(), l.text.as_str())).collect();
        assert_eq!(
            texts[0],
            ("data_analyst", "Sent back for has a unit: none\nAccepted then: chart is done")
        );
        assert_eq!(texts[1], ("summarizer", "Accepted at once: text is done"));
        assert_eq!((texts.len(), texts[2].0), (3, lesson::PLAN));
        assert!(texts[2].1.contains("- chart (data_analyst): done, sent back at first"), "{}", texts[2].1);
        assert_eq!(
            lessons(&goal, &tickets, &reasons(&events, failed), 500, 9),
            all,
            "the same ids after a crash"
        );
    }

    #[test]
    fn i11_a_lesson_is_bounded_and_a_given_plan_teaches_no_planner() {
        let goal = Goal { id: "g".into(), given_plan_ref: "r".into(), ..Goal::default() };
        let mut long = ticket("a", "", Status::Failed);
        long.cause_detail = "x".repeat(10_000);
        let all = lessons(&goal, &[long], &BTreeMap::new(), 300, 9);
        assert_eq!((all.len(), all[0].kind.as_str()), (1, lesson::OTHER));
        assert!(all[0].text.chars().count() < 400 && all[0].text.starts_with("Ended failed"));
    }
}
