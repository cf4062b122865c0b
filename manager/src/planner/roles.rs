//! Which roles a plan may name: those that every worker has, and those of the operator's folder.

use std::path::Path;

/// A role as the planner sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Role {
    pub(crate) name: String,
    /// By it the planner chooses.
    pub(crate) description: String,
}

/// The roles that ship with the worker (`worker/roles`); a test of the fleet compares the names.
const SHIPPED: &[(&str, &str)] = &[
    ("code_developer", "writes and runs code, fixes it until it works, delivers files"),
    ("data_analyst", "computes over data files with Python: tables, statistics, charts"),
    ("deep_researcher", "digs through sources and files, gathers facts with where they stand"),
    ("fact_checker", "checks claims against sources and data, one by one"),
    ("general_assistant", "everything that no other role fits"),
    ("planner", "breaks a question down into steps and writes them up"),
    ("summarizer", "puts what is there into a clear, short document"),
];

/// The role of a ticket that puts the deliverable together.
pub(crate) const INTEGRATOR: &str = "summarizer";
/// Role files that are read from a folder.
const FILES_MAX: usize = 200;
const FILE_BYTES_MAX: u64 = 256 * 1024;

/// All of them, sorted by name. A folder that cannot be read gives none of its own and is said in the log.
pub(crate) fn known(folder: &Path) -> Vec<Role> {
    let role = |(name, description): &(&str, &str)| Role {
        name: (*name).to_owned(),
        description: (*description).to_owned(),
    };
    let mut roles: Vec<Role> = SHIPPED.iter().map(role).collect();
    if !folder.as_os_str().is_empty() {
        for own in read_folder(folder) {
            roles.retain(|r| r.name != own.name);
            roles.push(own);
        }
    }
    roles.sort_by(|a, b| a.name.cmp(&b.name));
    roles
}

/// The names alone, for the validator.
pub(crate) fn names(roles: &[Role]) -> Vec<String> {
    roles.iter().map(|r| r.name.clone()).collect()
}

fn read_folder(folder: &Path) -> Vec<Role> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => {
            tracing::warn!(%error, folder = %folder.display(), "folder of roles cannot be read");
            return vec![];
        }
    };
    let is_markdown = |p: &Path| p.extension().is_some_and(|e| e == "md");
    entries
        .flatten()
        .map(|e| e.path())
        .filter(|p| is_markdown(p) && std::fs::metadata(p).is_ok_and(|m| m.len() <= FILE_BYTES_MAX))
        .take(FILES_MAX)
        .filter_map(|p| {
            let stem = p.file_stem()?.to_str()?.to_owned();
            front_matter(&std::fs::read_to_string(&p).ok()?, &stem)
        })
        .collect()
}

/// Name and description from between the `---` lines; without a name it is the file's.
fn front_matter(text: &str, stem: &str) -> Option<Role> {
    let head = text.strip_prefix("---")?.split("\n---").next()?;
    let field = |name: &str| {
        head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().trim_matches(['"', '\'']).to_owned())
        })
    };
    let name = field("name").filter(|n| !n.is_empty()).unwrap_or_else(|| stem.to_owned());
    Some(Role { name, description: field("description").unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operators_role_is_added_and_replaces_one_of_its_name() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(
            folder.path().join("poet.md"),
            "---\nname: poet\ndescription: \"writes verse\"\n---\nYou…",
        )
        .unwrap();
        std::fs::write(folder.path().join("s.md"), "---\nname: summarizer\ndescription: ours\n---\n")
            .unwrap();
        std::fs::write(folder.path().join("notes.txt"), "x").unwrap();
        let roles = known(folder.path());
        assert_eq!(roles.len(), SHIPPED.len() + 1);
        assert!(roles.contains(&Role { name: "poet".into(), description: "writes verse".into() }));
        assert!(roles.contains(&Role { name: "summarizer".into(), description: "ours".into() }));
        assert!(names(&roles).is_sorted());
    }

    #[test]
    fn a_folder_that_is_not_there_leaves_the_shipped_ones() {
        assert_eq!(known(Path::new("/nonexistent")).len(), SHIPPED.len());
    }
}
