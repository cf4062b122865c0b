//! The accepted workspace as a plain folder, TODO.md and FILE_INDEX.json drawn into it.

use super::folder::Folder;
use super::{FILE_INDEX, Manifest, TODO, WorkspaceError, file_index_json, safe_path, todo_md};
use crate::blob::{self, Blobs};
use crate::goal::Goal;
use crate::ticket::Ticket;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Longest file that is read as an earlier pull's index.
const INDEX_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Writes the goal's accepted files into the folder, which is made if it is not there. Returns the paths,
/// sorted, drawn ones last. Files of an earlier pull that are not accepted any more are removed unless somebody
/// changed them; everything else in the folder stays as it is. Repeat it after an error or a cut.
///
/// # Errors
/// [`WorkspaceError`].
pub async fn pull(
    blobs: &Blobs,
    goal: &Goal,
    tickets: &[Ticket],
    dir: &Path,
) -> Result<Vec<String>, WorkspaceError> {
    let manifest = Manifest::load(blobs, &goal.id, &goal.root).await?;
    let at = dir.to_owned();
    let folder = Arc::new(disk(move || open(&at)).await?);
    for (path, entry) in &manifest.files {
        let (to, at, hash, bytes) =
            (Arc::clone(&folder), PathBuf::from(path), entry.hash.clone(), entry.size_bytes);
        if disk(move || Ok(holds(&to, &at, &hash, bytes))).await? {
            continue;
        }
        // Beside its place first: a cut never leaves half a file under the real name.
        let (to, at) = (Arc::clone(&folder), PathBuf::from(path));
        let beside = at.with_file_name(".muster-part");
        let name = beside.clone();
        let file = disk(move || {
            to.remove(&name)?;
            Ok(to.create(&name)?)
        })
        .await?;
        blobs.get_to_open(&goal.id, &entry.hash, file).await?;
        let to = Arc::clone(&folder);
        disk(move || Ok(to.rename(&beside, &at)?)).await?;
    }
    let (index, todo) = (file_index_json(&manifest), todo_md(goal, tickets, &manifest, &goal.language));
    let mut written: Vec<String> = manifest.files.keys().cloned().collect();
    disk(move || {
        remove_stale(&folder, &manifest);
        folder.write(Path::new(TODO), todo.as_bytes())?;
        // Last: it tells the next pull what this one wrote.
        folder.write(Path::new(FILE_INDEX), index.as_bytes())?;
        Ok(())
    })
    .await?;
    written.extend([TODO.into(), FILE_INDEX.into()]);
    Ok(written)
}

fn open(dir: &Path) -> Result<Folder, WorkspaceError> {
    Folder::of_user(dir).map_err(|source| WorkspaceError::Disk { what: dir.display().to_string(), source })
}

fn holds(folder: &Folder, path: &Path, hash: &str, bytes: u64) -> bool {
    folder.open(path).is_ok_and(|file| blob::digest(file, bytes).is_ok_and(|(found, _)| found == hash))
}

/// Only what an earlier pull wrote and nobody touched since.
fn remove_stale(folder: &Folder, manifest: &Manifest) {
    let Ok((bytes, _)) = folder.read(Path::new(FILE_INDEX), 0, INDEX_BYTES_MAX) else { return };
    let index: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let word = |file: &serde_json::Value, key: &str| Some(file.get(key)?.as_str()?.to_owned());
    let before: BTreeMap<String, String> = index
        .get("files")
        .and_then(|files| files.as_array())
        .into_iter()
        .flatten()
        .filter_map(|file| Some((word(file, "path")?, word(file, "sha256")?)))
        .collect();
    for (path, hash) in before.iter().filter(|(path, _)| !manifest.files.contains_key(*path)) {
        let Ok(path) = safe_path(path) else { continue };
        if holds(folder, &path, hash, u64::MAX) {
            let _ = folder.remove(&path);
        }
    }
}

async fn disk<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, WorkspaceError> + Send + 'static,
) -> Result<T, WorkspaceError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|e| WorkspaceError::Disk { what: "pull".into(), source: std::io::Error::other(e) })?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::workspace::Entry;

    #[tokio::test]
    async fn a_pull_follows_the_root_and_leaves_alone_what_is_not_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(&config::Blobs { folder: folder.path().join("blobs"), ..Default::default() })
            .unwrap();
        let dir = folder.path().join("pulled");
        let mut goal = Goal { id: "g1".into(), text: "Do it.".into(), ..Goal::default() };
        let mut manifest = Manifest::default();
        for (path, text) in [("outputs/a.md", "A"), ("outputs/b.md", "B"), ("data/c", "C")] {
            let hash = blobs.put(&goal.id, text).await.unwrap();
            assert!(manifest.insert(path, Entry { hash, size_bytes: 1, ..Entry::default() }));
        }
        goal.root = manifest.save(&blobs, &goal.id).await.unwrap();
        let written = pull(&blobs, &goal, &[], &dir).await.unwrap();
        assert_eq!(written, ["data/c", "outputs/a.md", "outputs/b.md", "TODO.md", "FILE_INDEX.json"]);
        assert_eq!(std::fs::read_to_string(dir.join("outputs/a.md")).unwrap(), "A");
        assert!(std::fs::read_to_string(dir.join("TODO.md")).unwrap().contains("Do it."));

        std::fs::write(dir.join("mine.txt"), "mine").unwrap();
        std::fs::write(dir.join("outputs/b.md"), "edited").unwrap();
        manifest.files.remove("outputs/b.md");
        manifest.files.remove("data/c");
        let hash = blobs.put(&goal.id, "A2").await.unwrap();
        assert!(manifest.insert("outputs/a.md", Entry { hash, size_bytes: 2, ..Entry::default() }));
        goal.root = manifest.save(&blobs, &goal.id).await.unwrap();
        pull(&blobs, &goal, &[], &dir).await.unwrap();
        assert_eq!(std::fs::read_to_string(dir.join("outputs/a.md")).unwrap(), "A2");
        assert_eq!(std::fs::read_to_string(dir.join("outputs/b.md")).unwrap(), "edited");
        assert_eq!(std::fs::read_to_string(dir.join("mine.txt")).unwrap(), "mine");
        assert!(!dir.join("data/c").exists());
    }

    #[tokio::test]
    async fn a_pull_does_not_write_through_links() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(&config::Blobs { folder: folder.path().join("blobs"), ..Default::default() })
            .unwrap();
        let (dir, outside) = (folder.path().join("pulled"), folder.path().join("outside"));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::os::unix::fs::symlink(&outside, dir.join("outputs")).unwrap();
        let hash = blobs.put("g1", "A").await.unwrap();
        let mut manifest = Manifest::default();
        assert!(manifest.insert("outputs/a", Entry { hash, size_bytes: 1, ..Entry::default() }));
        let root = manifest.save(&blobs, "g1").await.unwrap();
        let goal = Goal { id: "g1".into(), root, ..Goal::default() };
        assert!(pull(&blobs, &goal, &[], &dir).await.is_err());
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
    }
}
