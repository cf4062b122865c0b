//! A goal's event log read as a history: every transition must be one that the product's own table allows from where the
//! ticket was, under its counters and caps, and each acceptance must be the only one of its generation.
//!
//! The log does not say everything that the table looks at (the class of a failure, whether needs were open): all lives
//! that fit so far are followed, and a history is legal while one is left.

use shared::store::LogEvent;
use shared::ticket::status::next;
use shared::ticket::{Caps, Event, FailClass, Life, Status, Ticket};
use std::collections::{BTreeMap, HashSet};

/// What the word of an entry may have been.
fn events_of(word: &str, from: Status) -> Vec<Event> {
    match word {
        "ready" | "repaired" => vec![Event::NeedsMet],
        "claimed" | "review_claimed" => vec![Event::Claimed],
        "completed" => vec![Event::Completed],
        "accepted" => vec![Event::Passed],
        "rejected" => vec![Event::ItemFailed],
        "lease_lost" => vec![Event::Lapsed],
        "released" => vec![Event::Released],
        "attempt_failed" | "review_failed" => {
            [FailClass::Fault, FailClass::Wait, FailClass::NotRetryable].map(Event::Failed).to_vec()
        }
        "conflict" => vec![Event::Conflicted, Event::ConflictStands],
        "confirmation_asked" => vec![Event::ConfirmationAsked],
        "approved" | "denied" => vec![Event::PermitAnswered],
        "expired" if from == Status::AwaitingApproval => vec![Event::PermitAnswered],
        "expired" | "failed" => vec![Event::FailedForGood],
        "no_reviewer" => vec![Event::NoReviewer],
        "person_retry" => vec![Event::PersonRetry],
        "person_delivers" => vec![Event::PersonDelivers],
        "reopened" => vec![Event::Reopened],
        "stale" => vec![Event::NeedReopened],
        "linked" => vec![Event::NeedAdded],
        "modified" => vec![Event::Modified],
        "rewritten" => vec![Event::Rewritten],
        "review_again" => vec![Event::ReviewAgain],
        "split" => vec![Event::Split],
        "skipped" => vec![Event::Skipped],
        "handed_over" => vec![Event::HandedOver],
        "cancel_asked" => vec![Event::CancelAsked],
        "cancelled" => vec![Event::Cancelled],
        _ => vec![],
    }
}

/// Everything in the history of the tickets that the table does not allow, one line each.
#[must_use]
pub fn problems(tickets: &[Ticket], events: &[LogEvent], caps: &Caps) -> Vec<String> {
    let mut found = vec![];
    let by_id: BTreeMap<&str, &Ticket> = tickets.iter().map(|t| (t.task_id.as_str(), t)).collect();
    let mut lives: BTreeMap<&str, HashSet<Life>> = BTreeMap::new();
    let mut open_generation: BTreeMap<&str, bool> = BTreeMap::new();
    for event in events.iter().filter(|e| !e.ticket.is_empty()) {
        let Some(ticket) = by_id.get(event.ticket.as_str()) else {
            found.push(format!("{} happened to a ticket that is not there", event.event));
            continue;
        };
        let (Some(from), Some(to)) = (Status::parse(&event.from), Status::parse(&event.to)) else { continue };
        let now = lives
            .entry(event.ticket.as_str())
            .or_insert_with(|| [true, false].map(|needs_open| Life::new(ticket.review, needs_open)).into());
        let possible = events_of(&event.event, from);
        if possible.is_empty() {
            if from != to {
                found.push(format!(
                    "{}: nobody knows the event {:?} ({from:?} -> {to:?})",
                    event.key, event.event
                ));
            }
            continue;
        }
        let mut after = HashSet::new();
        for life in now.iter() {
            // Needs open and close by what happens to others.
            for needs_open in [true, false] {
                let life = Life { needs_open, ..*life };
                let fits = |l: &Life| l.status == to && l.epoch == event.epoch;
                after.extend(possible.iter().filter_map(|e| next(&life, *e, caps).ok()).filter(fits));
            }
        }
        if after.is_empty() {
            let was: Vec<String> = now.iter().map(|l| format!("{:?}@{}", l.status, l.epoch)).collect();
            found.push(format!(
                "{}: {} ({from:?} -> {to:?}, epoch {}) is not legal from {was:?}",
                event.key, event.event, event.epoch
            ));
            // One fault is told once.
            let here = Life {
                status: to,
                epoch: event.epoch,
                owned: to == Status::Running,
                ..Life::new(ticket.review, false)
            };
            after.insert(here);
        }
        *now = after;
        let accepted = open_generation.entry(event.ticket.as_str()).or_insert(false);
        if to == Status::Done && from != Status::Done {
            if *accepted {
                found.push(format!("{}: accepted a second time at epoch {}", event.key, event.epoch));
            }
            *accepted = true;
        } else if from == Status::Done && to != Status::Done {
            *accepted = false;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::ticket::ReviewPolicy;

    fn ticket() -> Ticket {
        Ticket { task_id: "t".into(), review: ReviewPolicy::Code, ..Ticket::default() }
    }

    fn event(word: &str, from: Status, to: Status, epoch: u64) -> LogEvent {
        LogEvent {
            id: String::new(),
            at_ms: 0,
            event: word.into(),
            ticket: "t".into(),
            key: "k".into(),
            from: from.as_str().into(),
            to: to.as_str().into(),
            epoch,
            who: String::new(),
            detail: String::new(),
        }
    }

    use Status as S;

    fn life() -> Vec<LogEvent> {
        vec![
            event("ready", S::Blocked, S::Pending, 2),
            event("claimed", S::Pending, S::Running, 3),
            event("lease_lost", S::Running, S::Pending, 4),
            event("claimed", S::Pending, S::Running, 5),
            event("completed", S::Running, S::Reviewing, 6),
            event("review_claimed", S::Reviewing, S::Reviewing, 7),
            event("accepted", S::Reviewing, S::Done, 8),
        ]
    }

    #[test]
    fn a_legal_history_is_legal() {
        assert_eq!(problems(&[ticket()], &life(), &Caps::default()), Vec::<String>::new());
    }

    #[test]
    fn a_second_acceptance_a_skipped_epoch_and_a_cap_that_was_passed_are_found() {
        let mut twice = life();
        twice.push(event("accepted", S::Reviewing, S::Done, 9));
        let found = problems(&[ticket()], &twice, &Caps::default());
        assert!(found.iter().any(|f| f.contains("second time")) && found.len() == 2, "{found:?}");
        let mut jump = life();
        jump.remove(2);
        assert_eq!(problems(&[ticket()], &jump, &Caps::default()).len(), 1);
        // The third loss escalates: that it went to pending is against the table.
        let mut lost = vec![event("ready", S::Blocked, S::Pending, 2)];
        for n in 0..3 {
            lost.push(event("claimed", S::Pending, S::Running, 3 + 2 * n));
            lost.push(event("lease_lost", S::Running, S::Pending, 4 + 2 * n));
        }
        assert_eq!(problems(&[ticket()], &lost, &Caps::default()).len(), 1);
        // Not reviewed, and done.
        let unreviewed = [&life()[..4], &[event("completed", S::Running, S::Done, 6)]].concat();
        assert_eq!(problems(&[ticket()], &unreviewed, &Caps::default()).len(), 1);
    }
}
