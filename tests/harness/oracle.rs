//! What must hold after every fault, whatever it was: the audit finds nothing, nothing waits for nobody, nothing was
//! accepted twice, and every ticket's history is a walk through the table of DESIGN.md 3 (written here once more, apart
//! from the product's own).

use anyhow::{Result, bail};
use shared::goal::{Goal, GoalState};
use shared::store::{LogEvent, Store, Violation};
use shared::ticket::{Status, Ticket};
use std::collections::BTreeMap;

use Status as S;

/// Where a ticket may go from where; the empty start is its making. From any state that is not an end it may also be
/// skipped, failed, superseded, cancelled, or blocked by a new or reopened need.
const WALKS: &[(Status, &[Status])] = &[
    (S::Blocked, &[S::Pending]),
    (S::Pending, &[S::Running, S::Pending]),
    (S::Rejected, &[S::Running, S::Pending]),
    (S::Running, &[S::Reviewing, S::Done, S::Rejected, S::Pending, S::AwaitingApproval, S::Escalated]),
    (S::AwaitingApproval, &[S::Pending]),
    (S::Reviewing, &[S::Reviewing, S::NeedsHuman, S::Done, S::Rejected, S::Escalated, S::Pending]),
    (S::Escalated, &[S::Pending, S::Reviewing, S::NeedsHuman]),
    (S::NeedsHuman, &[S::Pending, S::Reviewing]),
    (S::Done, &[S::Blocked, S::Pending]),
    (S::Failed, &[S::Blocked, S::Pending]),
    (S::Skipped, &[S::Blocked, S::Pending]),
    (S::Cancelled, &[S::Blocked, S::Pending]),
    (S::Superseded, &[]),
];
const FROM_ANYWHERE: &[Status] = &[S::Skipped, S::Failed, S::Superseded, S::Cancelled, S::Blocked];

/// Looks at every goal.
///
/// # Errors
/// All that does not hold, one a line.
pub async fn check(store: &Store) -> Result<()> {
    let mut found: Vec<String> = store.audit().await?.iter().map(violation).collect();
    let goals = store.goals(None, 0, 10_000).await?;
    for goal in &goals {
        found.extend(goal_problems(store, goal).await?);
    }
    if found.is_empty() {
        return Ok(());
    }
    bail!("after {} goals the oracle finds:\n  {}", goals.len(), found.join("\n  "))
}

fn violation(v: &Violation) -> String {
    format!("audit {}: {} {}", v.rule, v.id, v.detail)
}

/// Looks at one goal.
///
/// # Errors
/// All that does not hold, one a line.
pub async fn check_goal(store: &Store, id: &str) -> Result<()> {
    let Some(goal) = store.goal(id).await? else { bail!("goal {id} is not there") };
    let found = goal_problems(store, &goal).await?;
    if found.is_empty() {
        return Ok(());
    }
    bail!("the oracle finds in goal {id}:\n  {}", found.join("\n  "))
}

async fn goal_problems(store: &Store, goal: &Goal) -> Result<Vec<String>> {
    let mut found: Vec<String> = store.audit_goal(&goal.id).await?.iter().map(violation).collect();
    let tickets = store.all_tickets(&goal.id).await?;
    let events = events(store, &goal.id).await?;
    if goal.state.is_terminal() {
        if goal.lease_id.is_empty() && goal.state == GoalState::Done {
            let open: Vec<_> =
                tickets.iter().filter(|t| t.mandatory && !t.status.is_terminal()).map(|t| &t.key).collect();
            if !open.is_empty() {
                found.push(format!("goal {} is done with open mandatory tickets {open:?}", goal.id));
            }
        }
    } else if goal.state == GoalState::NeedsHuman && goal.due_at_ms == 0 {
        found.push(format!("goal {} waits for a person without an expiry", goal.id));
    }
    for ticket in &tickets {
        found.extend(waits_for_nobody(ticket));
    }
    found.extend(history_problems(&tickets, &events));
    found.extend(crate::history::problems(&tickets, &events, &goal.caps));
    Ok(found)
}

/// I4, as far as the ticket itself can say who acts next; its place is the audit's.
fn waits_for_nobody(ticket: &Ticket) -> Option<String> {
    let persons = matches!(ticket.status, S::NeedsHuman | S::AwaitingApproval);
    if persons && ticket.due_at_ms == 0 {
        return Some(format!("{} waits for a person without an expiry", ticket.key));
    }
    let owned = ticket.status == S::Running;
    if owned && (ticket.lease_id.is_empty() || ticket.assignee.is_empty()) {
        return Some(format!("{} is running without an owner", ticket.key));
    }
    if ticket.status.is_terminal() && !ticket.lease_id.is_empty() {
        return Some(format!("{} is {} and has a lease", ticket.key, ticket.status.as_str()));
    }
    None
}

/// Every event of the goal, oldest first.
///
/// # Errors
/// When the store does not answer.
pub async fn events(store: &Store, goal: &str) -> Result<Vec<LogEvent>> {
    let mut all: Vec<LogEvent> = vec![];
    loop {
        let after = all.last().map_or("0", |e| e.id.as_str()).to_owned();
        let page = store.events(goal, &after, 500).await?;
        if page.is_empty() {
            return Ok(all);
        }
        all.extend(page);
    }
}

/// Each ticket's events as a walk: from where the last one led, along the table, with a growing epoch; `done` once for
/// each time it was not.
#[must_use]
pub fn history_problems(tickets: &[Ticket], events: &[LogEvent]) -> Vec<String> {
    let mut found = vec![];
    let mut at: BTreeMap<&str, (&str, u64)> = BTreeMap::new();
    for event in events.iter().filter(|e| !e.ticket.is_empty() && !e.to.is_empty()) {
        let (place, epoch) = at.get(event.ticket.as_str()).copied().unwrap_or(("", 0));
        let name = format!(
            "{} ({} at {}: {} -> {}, epoch {})",
            event.key, event.event, event.id, event.from, event.to, event.epoch
        );
        if event.epoch < epoch {
            found.push(format!("{name}: the epoch went back from {epoch}"));
        }
        if event.from != place && !(place.is_empty() && event.from == "blocked") {
            found.push(format!("{name}: it was {place:?} before"));
        }
        let moved = event.epoch > epoch && !place.is_empty();
        if moved && !may_go(&event.from, &event.to) {
            found.push(format!("{name}: the table has no such step"));
        }
        if !moved && !place.is_empty() && event.from != event.to {
            // Two changes under one epoch: the fence would not tell their owners apart (I3).
            found.push(format!("{name}: it changed within one epoch"));
        }
        at.insert(event.ticket.as_str(), (event.to.as_str(), event.epoch));
    }
    for ticket in tickets {
        let Some((place, epoch)) = at.get(ticket.task_id.as_str()) else { continue };
        if *place != ticket.status.as_str() || *epoch != ticket.epoch {
            found.push(format!(
                "{}: the hash says {} at epoch {}, its last event {place} at {epoch}",
                ticket.key,
                ticket.status.as_str(),
                ticket.epoch
            ));
        }
    }
    found
}

fn may_go(from: &str, to: &str) -> bool {
    let (Some(from), Some(to)) = (Status::parse(from), Status::parse(to)) else { return false };
    let walks = WALKS.iter().find(|(s, _)| *s == from).is_some_and(|(_, to_list)| to_list.contains(&to));
    walks || (!from.is_terminal() && FROM_ANYWHERE.contains(&to))
}

/// How often each ticket became done: key → times. Exactly-once tests hold it against 1.
#[must_use]
pub fn acceptances(events: &[LogEvent]) -> BTreeMap<String, usize> {
    let mut times = BTreeMap::new();
    for event in events.iter().filter(|e| e.to == "done" && e.from != "done" && !e.ticket.is_empty()) {
        *times.entry(event.key.clone()).or_default() += 1;
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(from: &str, to: &str, epoch: u64) -> LogEvent {
        LogEvent {
            id: format!("{epoch}-0"),
            at_ms: 0,
            event: to.into(),
            ticket: "t".into(),
            key: "k".into(),
            from: from.into(),
            to: to.into(),
            epoch,
            who: String::new(),
            detail: String::new(),
        }
    }

    #[test]
    fn a_walk_along_the_table_is_fine() {
        let walk =
            [event("blocked", "pending", 2), event("pending", "running", 3), event("running", "done", 4)];
        assert_eq!(history_problems(&[], &walk), Vec::<String>::new());
    }

    #[test]
    fn a_second_acceptance_is_seen() {
        let walk = [event("pending", "running", 3), event("running", "done", 4), event("running", "done", 5)];
        let found = history_problems(&[], &walk);
        assert!(found.iter().any(|f| f.contains("it was \"done\" before")), "{found:?}");
    }

    #[test]
    fn a_step_that_the_table_does_not_have_is_seen() {
        let walk = [event("blocked", "pending", 2), event("pending", "done", 3)];
        assert!(history_problems(&[], &walk).iter().any(|f| f.contains("no such step")));
    }
}
