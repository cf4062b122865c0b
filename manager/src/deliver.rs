//! When a goal is satisfied, and when it can go no further by itself: rules over its tickets, no model (I6).

use shared::goal::{DeadlinePolicy, Goal};
use shared::message::{InboxEvent, InboxKind};
use shared::ticket::patch::PatchOp;
use shared::ticket::{NeedsPolicy, Status, Ticket};
use std::collections::HashMap;

/// Where the goal stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outlook {
    /// Something runs, is ready, or waits for its need or for a person.
    Working,
    /// Every mandatory ticket is closed and the integrating one is done.
    Satisfied,
    /// Its time is up: what is accepted shall be delivered, everything open skipped.
    DeliverNow,
    /// Nothing that the fleet does will finish it: a person decides.
    Stuck { cause: &'static str, detail: String },
}

/// Tickets that a message names before it says "and more".
const NAMED_MAX: usize = 5;

/// The rules, in the order in which they count.
pub(crate) fn outlook(goal: &Goal, tickets: &[Ticket], events: &[InboxEvent]) -> Outlook {
    let came = |kind| events.iter().any(|e| e.kind == kind);
    if came(InboxKind::Deadline) && tickets.iter().any(|t| t.mandatory && !t.status.is_terminal()) {
        return match goal.deadline_policy {
            DeadlinePolicy::Deliver => Outlook::DeliverNow,
            DeadlinePolicy::Person => Outlook::Stuck { cause: "deadline", detail: late(tickets) },
        };
    }
    // Ended for good without being done, and nothing took its place.
    let lost: Vec<&Ticket> = tickets
        .iter()
        .filter(|t| t.mandatory && matches!(t.status, Status::Failed | Status::Cancelled))
        .collect();
    if !lost.is_empty() {
        let detail = format!(
            "{} ended without being done; retry it (`muster retry TICKET`), or cancel the goal",
            named(&lost, |t| format!("{} ({}{})", t.key, t.status.as_str(), reason(t)))
        );
        return Outlook::Stuck { cause: "ticket_failed", detail };
    }
    let dead = dead_needs(tickets);
    if !dead.is_empty() {
        let list: Vec<String> =
            dead.iter().take(NAMED_MAX).map(|(t, need)| format!("{} needs {need}", t.key)).collect();
        let detail = format!(
            "{}, which ended without being done; retry the need, or cancel what waits for it",
            list.join(", ")
        );
        return Outlook::Stuck { cause: "dead_need", detail };
    }
    if tickets.iter().any(|t| t.mandatory && !t.status.is_terminal()) {
        return Outlook::Working;
    }
    if tickets.is_empty() {
        return Outlook::Working;
    }
    // A person who was asked about exactly this and answered has accepted it.
    let accepted = came(InboxKind::Answered);
    match tickets.iter().find(|t| t.integrates && t.status != Status::Superseded) {
        Some(last) if last.status != Status::Done && !accepted => Outlook::Stuck {
            cause: "not_integrated",
            detail: format!(
                "the ticket {} that puts the deliverable together is {}; retry it, or answer to take the goal as it is",
                last.key,
                last.status.as_str()
            ),
        },
        Some(_) | None => Outlook::Satisfied,
    }
}

/// Live tickets whose policy is to wait for a need that will not come, with that need's key.
fn dead_needs(tickets: &[Ticket]) -> Vec<(&Ticket, &str)> {
    let by_id: HashMap<&str, &Ticket> = tickets.iter().map(|t| (t.task_id.as_str(), t)).collect();
    tickets
        .iter()
        .filter(|t| t.status == Status::Blocked && t.needs_policy == NeedsPolicy::Block)
        .filter_map(|t| {
            // Superseded needs were replaced by others at the split.
            let is_dead =
                |n: &&&Ticket| matches!(n.status, Status::Failed | Status::Cancelled | Status::Skipped);
            let need = t.needs.iter().filter_map(|id| by_id.get(id.as_str())).find(is_dead)?;
            Some((t, need.key.as_str()))
        })
        .collect()
}

fn late(tickets: &[Ticket]) -> String {
    let open: Vec<&Ticket> = tickets.iter().filter(|t| t.mandatory && !t.status.is_terminal()).collect();
    format!(
        "the deadline has passed and {} of {} tickets are not done: {}; answer to go on without a deadline, or cancel the goal",
        open.len(),
        tickets.len(),
        named(&open, |t| format!("{} ({})", t.key, t.status.as_str()))
    )
}

fn named(tickets: &[&Ticket], word: impl Fn(&Ticket) -> String) -> String {
    let mut list: Vec<String> = tickets.iter().take(NAMED_MAX).map(|t| word(t)).collect();
    if tickets.len() > NAMED_MAX {
        list.push(format!("and {} more", tickets.len() - NAMED_MAX));
    }
    list.join(", ")
}

fn reason(ticket: &Ticket) -> String {
    if ticket.cause.is_empty() { String::new() } else { format!(", {}", ticket.cause) }
}

/// Skips everything that is open, a page at a time: the deadline's policy is to deliver what is accepted.
pub(crate) fn skip_open(tickets: &[Ticket]) -> Vec<PatchOp> {
    tickets
        .iter()
        .filter(|t| !t.status.is_terminal())
        .take(shared::ticket::patch::OPS_MAX)
        .map(|t| PatchOp::Skip {
            id: t.task_id.clone(),
            epoch: t.epoch,
            reason: "the goal's deadline has passed; what is accepted is delivered".into(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(key: &str, status: Status) -> Ticket {
        Ticket { task_id: format!("id-{key}"), key: key.into(), status, mandatory: true, ..Ticket::default() }
    }

    fn event(kind: InboxKind) -> InboxEvent {
        InboxEvent { v: 1, kind, ticket: String::new(), epoch: 0, detail: String::new(), at_ms: 0 }
    }

    fn look(tickets: &[Ticket], events: &[InboxKind]) -> Outlook {
        let events: Vec<InboxEvent> = events.iter().map(|k| event(*k)).collect();
        outlook(&Goal::default(), tickets, &events)
    }

    #[test]
    fn satisfied_is_refused_while_a_mandatory_ticket_is_open() {
        for open in Status::ALL.into_iter().filter(|s| !s.is_terminal()) {
            let tickets = [ticket("a", Status::Done), ticket("b", open)];
            assert_eq!(look(&tickets, &[InboxKind::AllClosed]), Outlook::Working, "{open:?}");
        }
        let mut spare = ticket("spare", Status::Running);
        spare.mandatory = false;
        assert_eq!(look(&[ticket("a", Status::Done), spare], &[]), Outlook::Satisfied);
    }

    #[test]
    fn the_integrating_ticket_must_be_done() {
        let mut last = ticket("last", Status::Skipped);
        last.integrates = true;
        let tickets = [ticket("a", Status::Done), last];
        assert!(matches!(look(&tickets, &[]), Outlook::Stuck { cause: "not_integrated", .. }));
        assert_eq!(look(&tickets, &[InboxKind::Answered]), Outlook::Satisfied);
    }

    #[test]
    fn a_mandatory_ticket_that_failed_for_good_is_named_to_a_person() {
        let tickets = [ticket("a", Status::Failed), ticket("b", Status::Running)];
        let Outlook::Stuck { cause, detail } = look(&tickets, &[]) else { panic!("not stuck") };
        assert_eq!(cause, "ticket_failed");
        assert!(detail.contains("a (failed)") && detail.contains("muster retry"), "{detail}");
        // One that others replaced is not lost.
        assert_eq!(
            look(&[ticket("a", Status::Superseded), ticket("b", Status::Done)], &[]),
            Outlook::Satisfied
        );
    }

    #[test]
    fn a_need_that_will_never_come_is_no_silent_wait() {
        let mut optional = ticket("opt", Status::Failed);
        optional.mandatory = false;
        let mut waits = ticket("w", Status::Blocked);
        waits.needs = vec![optional.task_id.clone()];
        let Outlook::Stuck { cause, detail } = look(&[optional.clone(), waits.clone()], &[]) else {
            panic!("not stuck")
        };
        assert_eq!(cause, "dead_need");
        assert!(detail.contains("w needs opt"), "{detail}");
        waits.needs_policy = NeedsPolicy::Run;
        assert_eq!(look(&[optional, waits], &[]), Outlook::Working);
    }

    #[test]
    fn the_deadline_follows_its_policy_once() {
        let tickets = [ticket("a", Status::Done), ticket("b", Status::Running)];
        assert!(matches!(look(&tickets, &[InboxKind::Deadline]), Outlook::Stuck { cause: "deadline", .. }));
        assert_eq!(look(&tickets, &[]), Outlook::Working);
        let goal = Goal { deadline_policy: DeadlinePolicy::Deliver, ..Goal::default() };
        assert_eq!(outlook(&goal, &tickets, &[event(InboxKind::Deadline)]), Outlook::DeliverNow);
        assert_eq!(skip_open(&tickets).len(), 1);
        // Too late to matter.
        assert_eq!(look(&[ticket("a", Status::Done)], &[InboxKind::Deadline]), Outlook::Satisfied);
    }
}
