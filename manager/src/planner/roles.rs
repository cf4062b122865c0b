//! Which roles a plan may name: those that every worker has, and those of the operator's folder.

use shared::role::{Role, Roles};
use std::path::Path;

/// The role of a ticket that puts the deliverable together.
pub(crate) const INTEGRATOR: &str = "summarizer";

/// All of them, sorted by name, as the files are now. One that cannot be read is said in the log; workers refuse to start with it.
pub(crate) fn known(folder: &Path) -> Vec<Role> {
    let (roles, wrong) = Roles::read(folder);
    for error in &wrong {
        tracing::warn!(%error, "a role cannot be planned with");
    }
    roles.iter().cloned().collect()
}

/// The names alone, for the validator.
pub(crate) fn names(roles: &[Role]) -> Vec<String> {
    roles.iter().map(|r| r.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operators_role_is_added_and_replaces_one_of_its_name() {
        let shipped = known(Path::new("")).len();
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("poet.md", "---\nname: poet\ndescription: \"writes verse\"\n---\nYou…");
        write("s.md", "---\nname: summarizer\ndescription: ours\n---\nYou…");
        write("broken.md", "---\nname: broken\n---\n");
        write("notes.txt", "x");
        let roles = known(folder.path());
        let said: Vec<_> = roles.iter().map(|r| (r.name.as_str(), r.description.as_str())).collect();
        assert_eq!(said.len(), shipped + 1);
        assert!(
            said.contains(&("poet", "writes verse")) && said.contains(&("summarizer", "ours")),
            "{said:?}"
        );
        assert!(names(&roles).is_sorted());
    }

    #[test]
    fn a_folder_that_is_not_there_leaves_the_shipped_ones() {
        assert_eq!(known(Path::new("/nonexistent")), known(Path::new("")));
    }
}
