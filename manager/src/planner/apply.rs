//! A sound plan becomes tickets: ids that a repeat finds again, pages, the seal.

use sha2::{Digest, Sha256};
use shared::goal::Goal;
use shared::store::{Held, Store, StoreError, Written};
use shared::ticket::TicketSpec;
use shared::ticket::graph::Graph;
use shared::ticket::patch::NewTicket;
use std::collections::HashMap;

/// Tickets of one page (L7).
const PAGE: usize = 100;

/// How putting a plan into the store ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    Sealed,
    /// Another manager has the goal, or it is over: this step is dropped.
    Dropped,
}

/// Id of the goal's ticket of that key. The same after a crash, so that a page sent twice is a DUP.
#[must_use]
pub(crate) fn ticket_id(goal: &str, key: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(b"ticket\0");
    hash.update(goal.as_bytes());
    hash.update([0]);
    hash.update(key.as_bytes());
    crate::api::auth::hex(&hash.finalize()[..16])
}

/// The tickets with their ids, every one after those that it needs. Needs that are not of this list are keys of
/// tickets that the goal has already.
#[must_use]
pub(crate) fn with_ids(goal: &str, parent: &str, specs: &[TicketSpec]) -> Vec<NewTicket> {
    let order = Graph::of(specs).order().unwrap_or_else(|_| (0..specs.len()).collect());
    let at: HashMap<&str, usize> =
        order.iter().enumerate().map(|(n, &i)| (specs[i].key.as_str(), n)).collect();
    let in_order = specs.iter().enumerate().all(|(i, s)| {
        s.needs
            .iter()
            .all(|need| !at.contains_key(need.as_str()) || specs[..i].iter().any(|e| e.key == *need))
    });
    // The order of whoever wrote the plan is kept where it holds.
    let order: Vec<usize> = if in_order { (0..specs.len()).collect() } else { order };
    order
        .into_iter()
        .map(|i| NewTicket {
            id: ticket_id(goal, &specs[i].key),
            parent_id: parent.to_owned(),
            need_ids: specs[i].needs.iter().map(|need| ticket_id(goal, need)).collect(),
            spec: specs[i].clone(),
        })
        .collect()
}

/// Submits the tickets in pages and seals the plan. Every page and the seal carry epoch and lease id, so that two
/// managers never mix their pages; repeating it is harmless.
///
/// # Errors
/// [`StoreError`] when a call's outcome is not known after its repeats.
pub(crate) async fn apply(
    store: &Store,
    held: &Held,
    goal: &Goal,
    specs: &[TicketSpec],
) -> Result<Applied, StoreError> {
    let tickets = with_ids(&goal.id, &goal.id, specs);
    for page in tickets.chunks(PAGE) {
        if !accepted(store.submit_tickets(held, page).await?)? {
            return Ok(Applied::Dropped);
        }
    }
    Ok(if accepted(store.seal(held, tickets.len()).await?)? { Applied::Sealed } else { Applied::Dropped })
}

fn accepted(written: Written) -> Result<bool, StoreError> {
    match written {
        Written::Ok | Written::Dup => Ok(true),
        Written::Fenced | Written::Gone | Written::Cancelled => Ok(false),
        Written::Moved | Written::Escalated => {
            Err(StoreError::Broken(format!("a plan's page was answered with {written:?}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(key: &str, needs: &[&str]) -> TicketSpec {
        let mut spec = TicketSpec::new(key, "x", "y");
        spec.needs = needs.iter().map(|n| (*n).to_owned()).collect();
        spec
    }

    #[test]
    fn ids_are_the_same_after_a_crash_and_differ_between_goals() {
        let specs = [spec("a", &[]), spec("b", &["a"])];
        assert_eq!(with_ids("g1", "g1", &specs), with_ids("g1", "g1", &specs));
        assert_ne!(ticket_id("g1", "a"), ticket_id("g2", "a"));
        assert_eq!(ticket_id("g1", "a").len(), 32);
        let made = with_ids("g1", "g1", &specs);
        assert_eq!(made[1].need_ids, [made[0].id.clone()]);
    }

    #[test]
    fn a_ticket_comes_after_what_it_needs_and_the_writers_order_is_kept() {
        let keys = |specs: &[TicketSpec]| -> Vec<String> {
            with_ids("g", "g", specs).into_iter().map(|t| t.spec.key).collect()
        };
        assert_eq!(keys(&[spec("last", &["b", "a"]), spec("b", &[]), spec("a", &[])]), ["b", "a", "last"]);
        assert_eq!(keys(&[spec("a", &[]), spec("c", &["a"]), spec("b", &[])]), ["a", "c", "b"]);
        // A need that the goal has already is no reason to reorder.
        assert_eq!(keys(&[spec("x", &["old"]), spec("y", &[])]), ["x", "y"]);
    }
}
