//! Which files an attempt may write: what its ticket declares, and what no other ticket of the goal does.

use super::ToolError;
use shared::store::Store;
use shared::ticket::Ticket;
use std::collections::{BTreeMap, BTreeSet};

/// The write set of one attempt.
pub(crate) struct WriteSet {
    store: Store,
    goal: String,
    ticket: String,
    declared: BTreeSet<String>,
    /// Paths that were looked up, with the key of the ticket that declares each.
    known: BTreeMap<String, Option<String>>,
}

impl WriteSet {
    pub(crate) fn of(store: &Store, ticket: &Ticket) -> Self {
        Self {
            store: store.clone(),
            goal: ticket.goal.clone(),
            ticket: ticket.task_id.clone(),
            declared: ticket.outputs.iter().cloned().collect(),
            known: BTreeMap::new(),
        }
    }

    /// Those of the paths that are another ticket's, with its key.
    ///
    /// # Errors
    /// [`ToolError::Broken`] when the store does not say (I7).
    pub(super) async fn foreign(&mut self, paths: &[String]) -> Result<Vec<(String, String)>, ToolError> {
        let asked: Vec<String> = paths
            .iter()
            .filter(|path| !self.declared.contains(*path) && !self.known.contains_key(*path))
            .cloned()
            .collect();
        if !asked.is_empty() {
            let owned = self.store.owned_by_others(&self.goal, &self.ticket, &asked).await;
            let owned = owned.map_err(|e| ToolError::Broken(format!("who writes what is not known: {e}")))?;
            self.known.extend(asked.into_iter().map(|path| (path, None)));
            self.known.extend(owned.into_iter().map(|(path, owner)| (path, Some(owner))));
        }
        let owner = |path: &String| Some((path.clone(), self.known.get(path)?.clone()?));
        Ok(paths.iter().filter_map(owner).collect())
    }
}

/// What a model or a person reads of it.
pub(crate) fn said((path, owner): &(String, String)) -> String {
    format!("`{path}` is an output of ticket `{owner}`, and this ticket does not declare it")
}
