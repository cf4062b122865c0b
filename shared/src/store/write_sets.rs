//! Who may write which path of a goal: what its tickets declare as outputs, kept beside them.

use super::args::arg;
use super::{Held, Result, Store, Written, reply, scripts};
use crate::ticket::patch::NewTicket;

/// Paths of one call.
const PATHS_MAX: usize = 100;

impl Store {
    /// Notes the outputs of tickets that are about to be stored; before them, so that none runs undeclared.
    ///
    /// # Errors
    /// [`super::StoreError`]; repeatable.
    pub(super) async fn declare(&self, held: &Held, tickets: &[&NewTicket]) -> Result<Written> {
        let pairs: Vec<(&String, &String)> =
            tickets.iter().flat_map(|t| t.spec.outputs.iter().map(|path| (path, &t.id))).collect();
        for page in pairs.chunks(PATHS_MAX) {
            let mut args = vec![arg("declare"), arg(&held.id), arg(held.epoch), arg(&held.lease_id)];
            args.extend(page.iter().flat_map(|(path, id)| [arg(path), arg(id)]));
            let written = reply::written(&reply::text(self.call(&scripts::WRITE_SETS, &args).await?)?)?;
            if written != Written::Ok {
                return Ok(written);
            }
        }
        Ok(Written::Ok)
    }

    /// Those of the paths that another ticket of the goal declares and `ticket` (its id) does not, each with that ticket's key.
    /// A goal that was planned before there were write sets has none.
    ///
    /// # Errors
    /// [`super::StoreError`].
    pub async fn owned_by_others(
        &self,
        goal: &str,
        ticket: &str,
        paths: &[String],
    ) -> Result<Vec<(String, String)>> {
        let mut found = vec![];
        for page in paths.chunks(PATHS_MAX) {
            let mut args = vec![arg("owners"), arg(goal), arg(ticket)];
            args.extend(page.iter().map(arg));
            let owners = reply::texts(self.call(&scripts::WRITE_SETS, &args).await?)?;
            let pairs = page.iter().cloned().zip(owners);
            found.extend(pairs.filter(|(_, owner)| !owner.is_empty()));
        }
        Ok(found)
    }
}
