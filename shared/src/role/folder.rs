//! Roles as files: the seven that are shipped, and an operator's folder over them, read again when it changes.

use super::Role;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

const SHIPPED: [(&str, &str); 7] = [
    ("code_developer", include_str!("shipped/code_developer.md")),
    ("data_analyst", include_str!("shipped/data_analyst.md")),
    ("deep_researcher", include_str!("shipped/deep_researcher.md")),
    ("fact_checker", include_str!("shipped/fact_checker.md")),
    ("general_assistant", include_str!("shipped/general_assistant.md")),
    ("planner", include_str!("shipped/planner.md")),
    ("summarizer", include_str!("shipped/summarizer.md")),
];
/// Largest role file.
const BYTES_MAX: u64 = 256 * 1024;
/// Role files that are read from a folder.
const FILES_MAX: usize = 200;
/// Who does a ticket whose plan names no role.
const FALLBACK: &str = "general_assistant";

/// A role file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {problem}")]
pub struct RoleError {
    file: String,
    problem: String,
}

/// All roles by name.
#[derive(Clone, Debug, Default)]
pub struct Roles(BTreeMap<String, Role>);

impl Roles {
    /// The shipped ones, and those of the folder (empty: none) over them; beside them what could not be read.
    #[must_use]
    pub fn read(folder: &Path) -> (Self, Vec<RoleError>) {
        let (mut roles, mut wrong) = (Self::default(), vec![]);
        for (name, text) in SHIPPED {
            match Role::of(name, text) {
                Ok(role) => roles.add(role),
                Err(problem) => wrong.push(RoleError { file: format!("the shipped role {name}"), problem }),
            }
        }
        for (file, _) in files(folder).unwrap_or_else(|error| {
            wrong.push(error);
            vec![]
        }) {
            match read_file(&file) {
                Ok(role) => roles.add(role),
                Err(problem) => wrong.push(RoleError { file: file.display().to_string(), problem }),
            }
        }
        (roles, wrong)
    }

    fn add(&mut self, role: Option<Role>) {
        self.0.extend(role.map(|role| (role.name.clone(), role)));
    }

    /// The role of that name; an unknown or empty name has the general assistant's, since the manager
    /// validated what it could and a worker may be older than a role.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Role> {
        self.0.get(name).or_else(|| self.0.get(FALLBACK))
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Role> {
        self.0.values()
    }
}

fn read_file(file: &Path) -> Result<Option<Role>, String> {
    let text = std::fs::read_to_string(file).map_err(|e| e.to_string())?;
    Role::of(&file.file_stem().unwrap_or_default().to_string_lossy(), &text)
}

/// What a look at a file sees without opening it.
type Stamp = (Option<SystemTime>, u64);
type Listing = Vec<(PathBuf, Stamp)>;

/// The Markdown files of a folder, sorted; those that are too large are an error.
fn files(folder: &Path) -> Result<Listing, RoleError> {
    let wrong = |file: &Path, problem: String| RoleError { file: file.display().to_string(), problem };
    if folder.as_os_str().is_empty() {
        return Ok(vec![]);
    }
    let mut found = vec![];
    for entry in std::fs::read_dir(folder).map_err(|e| wrong(folder, e.to_string()))?.flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|ending| ending != "md") {
            continue;
        }
        let meta = std::fs::metadata(&path).map_err(|e| wrong(&path, e.to_string()))?;
        if meta.len() > BYTES_MAX {
            return Err(wrong(&path, format!("{} bytes, {BYTES_MAX} are allowed", meta.len())));
        }
        found.push((path, (meta.modified().ok(), meta.len())));
    }
    if found.len() > FILES_MAX {
        return Err(wrong(folder, format!("{} role files, {FILES_MAX} are allowed", found.len())));
    }
    found.sort();
    Ok(found)
}

/// The roles of a program that runs: read again when a file of the folder changed.
#[derive(Debug)]
pub struct Library {
    folder: PathBuf,
    read: Mutex<(Listing, Arc<Roles>)>,
}

impl Library {
    /// # Errors
    /// The first [`RoleError`]: at its start a program says what it cannot use.
    pub fn open(folder: &Path) -> Result<Self, RoleError> {
        let seen = files(folder)?;
        let (roles, wrong) = Roles::read(folder);
        match wrong.into_iter().next() {
            Some(error) => Err(error),
            None => Ok(Self { folder: folder.into(), read: Mutex::new((seen, Arc::new(roles))) }),
        }
    }

    /// The roles as the files are now. With a file that cannot be used all stay what they were, and the log says so once.
    pub fn now(&self) -> Arc<Roles> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(seen) = files(&self.folder) else { return Arc::clone(&read.1) };
        if seen != read.0 {
            let (roles, wrong) = Roles::read(&self.folder);
            for error in &wrong {
                tracing::warn!(%error, "a role file that changed cannot be used, the roles stay as they were");
            }
            read.0 = seen;
            if wrong.is_empty() {
                tracing::info!(roles = roles.0.len(), "role files were read again");
                read.1 = Arc::new(roles);
            }
        }
        Arc::clone(&read.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, name: &str, text: &str) {
        std::fs::write(folder.join(name), text).unwrap();
    }

    #[test]
    fn the_seven_roles_of_the_seed_are_shipped() {
        let (roles, wrong) = Roles::read(Path::new(""));
        assert!(wrong.is_empty(), "{wrong:?}");
        let names: Vec<_> = roles.iter().map(|r| r.name.as_str()).collect();
        assert_eq!(names, SHIPPED.map(|(name, _)| name));
        assert!(roles.iter().all(|r| !r.description.is_empty() && !r.tools.is_empty()));
        assert_eq!(roles.find("").unwrap().name, FALLBACK);
        assert_eq!(roles.find("nobody").unwrap().name, FALLBACK);
    }

    #[test]
    fn a_file_that_changes_is_read_again_and_a_broken_one_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "README.md", "# Our roles\n");
        write(folder.path(), "summarizer.md", "---\nname: summarizer\ntools: [files, web]\n---\nBe brief.\n");
        let library = Library::open(folder.path()).unwrap();
        let persona = |library: &Library| library.now().find("summarizer").unwrap().persona.clone();
        assert_eq!(persona(&library), "Be brief.");
        write(folder.path(), "summarizer.md", "---\nname: summarizer\n---\nBe very brief.\n");
        assert_eq!(persona(&library), "Be very brief.");
        write(folder.path(), "poet.md", "---\nname: poet\n---\n");
        assert_eq!(persona(&library), "Be very brief.");
        assert_eq!(library.now().find("poet").unwrap().name, FALLBACK);
        let said = Library::open(folder.path()).unwrap_err().to_string();
        assert!(said.contains("poet.md") && said.contains("persona"), "{said}");
        assert!(Library::open(Path::new("/nonexistent")).is_err());
    }
}
