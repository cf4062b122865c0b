//! The step log of a running attempt: what another worker needs to go on from the last finished step.

use super::args::arg;
use super::{Held, Result, Store, Written, reply, scripts};

impl Store {
    /// Appends a finished step. `life` names what the ticket was when the attempt began; another life begins a new log.
    /// `false`: the log is full, the attempt goes on without it.
    ///
    /// # Errors
    /// [`super::StoreError`]; after one the step may or may not stand there: a repeat may write it twice, and the reader
    /// takes each step once.
    pub async fn append_step(&self, held: &Held, life: &str, entry: &str) -> Result<(Written, bool)> {
        let args = [arg(&held.id), arg(held.epoch), arg(&held.lease_id), arg(life), arg(entry)];
        let word = reply::text(self.call(&scripts::STEPS, &args).await?)?;
        if word == "FULL" { Ok((Written::Ok, false)) } else { Ok((reply::written(&word)?, true)) }
    }

    /// The entries of this life of the ticket, oldest first; none when they belong to another.
    ///
    /// # Errors
    /// [`super::StoreError`] when Redis does not answer.
    pub async fn steps(&self, ticket: &str, life: &str) -> Result<Vec<String>> {
        let key = format!("{}:s", self.keys.ticket(ticket));
        let mut list = reply::texts(self.command("LRANGE", &[&key, "0", "-1"]).await?)?;
        if list.first().is_none_or(|first| first != life) {
            return Ok(vec![]);
        }
        list.remove(0);
        Ok(list)
    }
}
