//! What an actor is told beside its ticket: the goal, what its needs delivered, the files, where the goal stands.

use shared::config;
use shared::goal::Goal;
use shared::lesson;
use shared::store::{Store, StoreError};
use shared::ticket::Ticket;
use shared::workspace::{Attempt, Manifest, todo_md};

/// Goals with more tickets than this have no TODO head in the prompt: reading them all would cost more than it says.
const TODO_TICKETS_MAX: u64 = 200;

/// Read once, at the attempt's start.
pub(super) struct Read {
    pub(super) goal: Goal,
    pub(super) needs: Vec<Ticket>,
}

impl Read {
    pub(super) async fn of(store: &Store, ticket: &Ticket) -> Result<Self, StoreError> {
        let goal = store
            .goal(&ticket.goal)
            .await?
            .ok_or_else(|| StoreError::Unavailable(format!("goal {} is not there", ticket.goal)))?;
        let mut needs = vec![];
        for id in &ticket.needs {
            needs.extend(store.ticket(id).await?);
        }
        Ok(Self { goal, needs })
    }

    /// TODO.md, drawn (I1).
    pub(super) async fn todo(&self, store: &Store, accepted: &Manifest) -> Result<String, StoreError> {
        if self.goal.tickets > TODO_TICKETS_MAX {
            return Ok(String::new());
        }
        let tickets = store.all_tickets(&self.goal.id).await?;
        Ok(todo_md(&self.goal, &tickets, accepted, &self.goal.language))
    }
}

/// What earlier work of the ticket's kind taught the tenant, as far as it has to do with the ticket.
pub(super) async fn lessons(
    store: &Store,
    memory: &config::Memory,
    goal: &Goal,
    ticket: &Ticket,
) -> Result<Vec<String>, StoreError> {
    if memory.shown_max == 0 {
        return Ok(vec![]);
    }
    let lessons = store.lessons(&goal.tenant, lesson::kind_of(&ticket.role)).await?;
    let task = format!("{} {}", ticket.description, ticket.expected_output);
    Ok(lesson::fitting(&lessons, &task, memory.shown_max).into_iter().map(lesson::shown).collect())
}

/// What stands in the folder, sorted by path.
pub(super) fn files(attempt: &Attempt) -> Vec<(String, u64)> {
    let base = &attempt.base().files;
    attempt
        .paths()
        .map(|path| (path.to_owned(), size(attempt, path).or_else(|| base.get(path).map(|e| e.size_bytes))))
        .map(|(path, size)| (path, size.unwrap_or(0)))
        .collect()
}

fn size(attempt: &Attempt, path: &str) -> Option<u64> {
    std::fs::symlink_metadata(attempt.folder().join(path)).ok().map(|meta| meta.len())
}

/// Today, UTC.
pub(super) fn date() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%d").to_string()
}
