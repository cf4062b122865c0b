//! Which roles a plan may name: those that every worker has, and those of the operator's folder.

use std::path::Path;

/// A role as the planner sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Role {
    pub(crate) name: String,
    /// By it the planner chooses.
    pub(crate) description: String,
}

/// The roles that ship with the worker, in the words of its files; a test compares the two.
const SHIPPED: &[(&str, &str)] = &[
    ("code_developer", "writes programs, runs them and shows that they work"),
    (
        "data_analyst",
        "computes over data files with Python, makes tables and charts and says what the numbers mean",
    ),
    (
        "deep_researcher",
        "finds facts about a topic, weighs sources against each other and writes them down with their origin",
    ),
    ("fact_checker", "checks the statements of a text against sources and the workspace's files, one by one"),
    ("general_assistant", "does whatever fits no other role, with every tool there is"),
    ("planner", "splits a task into deliverables when a ticket asks for a plan"),
    ("summarizer", "puts what others found together into one clear text for its reader"),
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
    fn the_shipped_ones_are_those_of_the_worker() {
        let worker = Path::new(env!("CARGO_MANIFEST_DIR")).join("../worker/roles");
        let mut files = read_folder(&worker);
        files.sort_by(|a, b| a.name.cmp(&b.name));
        assert_eq!(files, known(Path::new("")));
    }

    #[test]
    fn a_folder_that_is_not_there_leaves_the_shipped_ones() {
        assert_eq!(known(Path::new("/nonexistent")).len(), SHIPPED.len());
    }
}
