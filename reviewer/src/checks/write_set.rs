//! Nothing of another ticket is written over: what changed is declared by the ticket, or by none.

use crate::deliverable::Deliverable;
use shared::store::{Store, StoreError};
use shared::ticket::{Ticket, VerdictItem};

/// `None`: it holds.
///
/// # Errors
/// [`StoreError`].
pub(crate) async fn check(
    store: &Store,
    ticket: &Ticket,
    deliverable: &Deliverable,
) -> Result<Option<VerdictItem>, StoreError> {
    let beside: Vec<String> =
        deliverable.touched().filter(|path| !ticket.outputs.contains(path)).cloned().collect();
    let foreign = store.owned_by_others(&ticket.goal, &ticket.task_id, &beside).await?;
    if foreign.is_empty() {
        return Ok(None);
    }
    let named: Vec<String> =
        foreign.iter().map(|(path, owner)| format!("{path} is an output of ticket {owner}")).collect();
    Ok(Some(VerdictItem {
        item: "nothing that other tickets deliver is written over".into(),
        pass: false,
        reason: format!("{}; this ticket does not declare it: write another file", named.join(", ")),
        evidence: String::new(),
        by_code: true,
    }))
}
