//! Which files a person may deliver in a ticket's place: what it declares; where it declares nothing, what no other
//! ticket does.

use super::Api;
use super::error::ApiError;
use shared::ticket::Ticket;

impl Api {
    /// `files`: path, and the field of the request that names it.
    ///
    /// # Errors
    /// 400 names the first file that is not the ticket's to write.
    pub(super) async fn within_write_set(
        &self,
        ticket: &Ticket,
        files: &[(String, String)],
    ) -> Result<(), ApiError> {
        let declared = &ticket.outputs;
        if !declared.is_empty() {
            let beside = files.iter().find(|(path, _)| !declared.contains(path));
            return beside.map_or(Ok(()), |(path, field)| Err(undeclared(path, field, declared)));
        }
        let paths: Vec<String> = files.iter().map(|(path, _)| path.clone()).collect();
        let owned = self.store.owned_by_others(&ticket.goal, &ticket.task_id, &paths).await?;
        let Some((path, owner)) = owned.first() else { return Ok(()) };
        let field = files.iter().find(|(p, _)| p == path).map_or("files", |(_, field)| field.as_str());
        let said = format!("{path} is an output of ticket {owner}, and this ticket does not declare it");
        Err(ApiError::bad(field, said).hint("give it another path"))
    }
}

fn undeclared(path: &str, field: &str, declared: &[String]) -> ApiError {
    let said = format!("{path} is no output of the ticket, which declares {}", declared.join(", "));
    let hint = format!(
        "say which of these it is, such as {}; a file beside them needs a ticket that declares it",
        declared[0]
    );
    ApiError::bad(field, said).hint(&hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_declared_is_named_with_the_way_out() {
        let error = undeclared("notes.md", "files[1].path", &["data/m.csv".into(), "b".into()]);
        let detail = error.detail();
        assert_eq!(detail.field, "files[1].path");
        assert!(
            detail.message.contains("notes.md") && detail.message.contains("data/m.csv, b"),
            "{detail:?}"
        );
        assert!(detail.hint.contains("such as data/m.csv"), "{detail:?}");
    }
}
