//! The accepted files of a goal: a JSON blob whose reference is the goal's root.

use super::{WorkspaceError, path};
use crate::blob::{self, Blobs};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What writers write; readers take this and the one before.
pub(super) const VERSION: u32 = 1;
const VERSION_MIN: u32 = 1;
/// Longest manifest or overlay: about a hundred thousand files.
const BYTES_MAX: u64 = 32 * 1024 * 1024;

/// One accepted file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Reference of its bytes.
    pub hash: String,
    pub size_bytes: u64,
    #[serde(default)]
    pub mime: String,
    /// Who made it: a ticket's key, or `input`.
    #[serde(default)]
    pub creator: String,
    #[serde(default)]
    pub description: String,
    /// 1 for a new file, one more for each accepted change.
    #[serde(default)]
    pub version: u32,
}

/// All accepted files. Keys are paths as [`safe_path`](super::safe_path) gives them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of this format.
    pub v: u32,
    pub files: BTreeMap<String, Entry>,
}

impl Default for Manifest {
    fn default() -> Self {
        Self { v: VERSION, files: BTreeMap::new() }
    }
}

impl Manifest {
    /// The manifest of a root; an empty root is an empty workspace.
    ///
    /// # Errors
    /// [`WorkspaceError`] when it is not there, damaged, of another version, or names what is no path.
    pub async fn load(blobs: &Blobs, goal: &str, root: &str) -> Result<Self, WorkspaceError> {
        if root.is_empty() {
            return Ok(Self::default());
        }
        let manifest: Self = load(blobs, goal, root, "manifest").await?;
        let wrong = manifest.files.iter().find(|(key, e)| !path::is_key(key) || !blob::is_reference(&e.hash));
        if let Some((key, _)) = wrong {
            return Err(unreadable("manifest", root, format!("`{key}` is not an entry of a workspace")));
        }
        Ok(manifest)
    }

    /// Stores it and returns its root.
    ///
    /// # Errors
    /// [`WorkspaceError`].
    pub async fn save(&self, blobs: &Blobs, goal: &str) -> Result<String, WorkspaceError> {
        if self.files.is_empty() {
            return Ok(String::new());
        }
        save(blobs, goal, self, "manifest").await
    }

    /// Adds a file, or a new version of it; what cannot be part of a workspace is answered `false`.
    pub fn insert(&mut self, path: &str, mut entry: Entry) -> bool {
        if !path::is_key(path) || !blob::is_reference(&entry.hash) || self.is_blocked(path) {
            return false;
        }
        entry.version = self.files.get(path).map_or(0, |before| before.version) + 1;
        if entry.mime.is_empty() {
            entry.mime = mime_of(path).into();
        }
        self.files.insert(path.into(), entry);
        true
    }

    /// The reference of the file at the path.
    #[must_use]
    pub fn hash(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(|e| e.hash.as_str())
    }

    /// Whether a file stands where the path has a folder, or a folder where it has its file.
    #[must_use]
    pub fn is_blocked(&self, path: &str) -> bool {
        let above = path.match_indices('/').any(|(at, _)| self.files.contains_key(&path[..at]));
        let inside = format!("{path}/");
        above || self.files.range(inside.clone()..).next().is_some_and(|(key, _)| key.starts_with(&inside))
    }
}

/// Reads a versioned JSON blob.
pub(super) async fn load<T: DeserializeOwned>(
    blobs: &Blobs,
    goal: &str,
    r: &str,
    what: &'static str,
) -> Result<T, WorkspaceError> {
    #[derive(Deserialize)]
    struct Versioned {
        v: u32,
    }
    let bytes = blobs.get(goal, r, BYTES_MAX).await?;
    let Versioned { v } =
        serde_json::from_slice(&bytes).map_err(|e| unreadable(what, r, format!("no version: {e}")))?;
    if !(VERSION_MIN..=VERSION).contains(&v) {
        return Err(unreadable(what, r, format!("version {v} is not known, {VERSION_MIN} to {VERSION} are")));
    }
    serde_json::from_slice(&bytes).map_err(|e| unreadable(what, r, e.to_string()))
}

/// Stores a versioned JSON blob.
pub(super) async fn save<T: Serialize>(
    blobs: &Blobs,
    goal: &str,
    value: &T,
    what: &'static str,
) -> Result<String, WorkspaceError> {
    let bytes = serde_json::to_vec(value).map_err(|e| unreadable(what, "to be stored", e.to_string()))?;
    Ok(blobs.put(goal, bytes).await?)
}

pub(super) fn unreadable(what: &'static str, reference: &str, problem: String) -> WorkspaceError {
    WorkspaceError::Unreadable { what, reference: reference.into(), problem }
}

/// Media type by the file's ending.
#[must_use]
pub fn mime_of(path: &str) -> &'static str {
    let name = path.rsplit('/').next().unwrap_or(path);
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending).to_ascii_lowercase();
    match ending.as_str() {
        "md" | "markdown" => "text/markdown",
        "txt" | "log" => "text/plain",
        "csv" => "text/csv",
        "tsv" => "text/tab-separated-values",
        "html" | "htm" => "text/html",
        "css" => "text/css",
        "js" | "mjs" => "text/javascript",
        "py" => "text/x-python",
        "rs" => "text/x-rust",
        "toml" => "application/toml",
        "yaml" | "yml" => "application/yaml",
        "json" => "application/json",
        "jsonl" | "ndjson" => "application/x-ndjson",
        "xml" => "application/xml",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "gz" => "application/gzip",
        "parquet" => "application/vnd.apache.parquet",
        "xlsx" => "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "docx" => "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "pptx" => "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "svg" => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    const GOAL: &str = "g1";

    fn store() -> (tempfile::TempDir, Blobs) {
        let folder = tempfile::tempdir().unwrap();
        let blobs =
            Blobs::open(&config::Blobs { folder: folder.path().into(), ..Default::default() }).unwrap();
        (folder, blobs)
    }

    fn entry(text: &str) -> Entry {
        Entry { hash: blob::reference(text.as_bytes()), size_bytes: text.len() as u64, ..Entry::default() }
    }

    /// Golden bytes of version 1: a change here is a new version, not an edit.
    #[tokio::test]
    async fn golden_bytes_of_version_1() {
        let (_folder, blobs) = store();
        let mut manifest = Manifest::default();
        let full = Entry {
            creator: "measure".into(),
            description: "what was measured".into(),
            mime: "text/markdown".into(),
            ..entry("hello")
        };
        assert!(manifest.insert("outputs/a.md", full));
        assert!(manifest.insert("data/b", entry("")));
        let root = manifest.save(&blobs, GOAL).await.unwrap();
        let want = concat!(
            r#"{"v":1,"files":{"#,
            r#""data/b":{"hash":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","size_bytes":0,"#,
            r#""mime":"application/octet-stream","creator":"","description":"","version":1},"#,
            r#""outputs/a.md":{"hash":"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824","size_bytes":5,"#,
            r#""mime":"text/markdown","creator":"measure","description":"what was measured","version":1}}}"#
        );
        assert_eq!(blobs.get(GOAL, &root, 9999).await.unwrap(), want);
        assert_eq!(Manifest::load(&blobs, GOAL, &root).await.unwrap(), manifest);
    }

    #[tokio::test]
    async fn fields_of_a_later_writer_are_passed_over_and_unknown_versions_refused() {
        let (_folder, blobs) = store();
        let hash = blob::reference(b"x");
        let more =
            format!(r#"{{"v":1,"new":1,"files":{{"a":{{"hash":"{hash}","size_bytes":1,"new":[]}}}}}}"#);
        let root = blobs.put(GOAL, more).await.unwrap();
        assert_eq!(Manifest::load(&blobs, GOAL, &root).await.unwrap().hash("a"), Some(hash.as_str()));
        for text in [r#"{"v":2,"files":[]}"#, r#"{"v":0,"files":{}}"#, r#"{"files":{}}"#, "[", r#"{"v":1}"#] {
            let root = blobs.put(GOAL, text).await.unwrap();
            let error = Manifest::load(&blobs, GOAL, &root).await.unwrap_err();
            assert!(matches!(error, WorkspaceError::Unreadable { .. }), "{text}: {error}");
        }
    }

    #[tokio::test]
    async fn i1_paths_that_cannot_be_accepted_files_are_refused_when_read_and_when_added() {
        let (_folder, blobs) = store();
        let hash = blob::reference(b"x");
        for key in ["../x", "/etc/passwd", "a//b", "temp/x", "TODO.md", "FILE_INDEX.json", ".git/config", ""]
        {
            let text = format!(r#"{{"v":1,"files":{{"{key}":{{"hash":"{hash}","size_bytes":1}}}}}}"#);
            let root = blobs.put(GOAL, text).await.unwrap();
            assert!(Manifest::load(&blobs, GOAL, &root).await.is_err(), "{key}");
            assert!(!Manifest::default().insert(key, entry("x")), "{key}");
        }
    }

    #[test]
    fn a_file_cannot_stand_where_a_folder_is() {
        let mut manifest = Manifest::default();
        assert!(manifest.insert("a/b", entry("x")));
        assert!(manifest.insert("a.b", entry("x")));
        assert!(manifest.insert("a!", entry("x")));
        assert!(!manifest.insert("a", entry("x")));
        assert!(!manifest.insert("a/b/c", entry("x")));
        assert!(manifest.insert("a/c", entry("x")));
        assert!(manifest.insert("a/b", entry("y")));
        assert_eq!(manifest.files["a/b"].version, 2);
    }

    #[tokio::test]
    async fn an_empty_workspace_has_the_empty_root() {
        let (_folder, blobs) = store();
        assert_eq!(Manifest::default().save(&blobs, GOAL).await.unwrap(), "");
        assert_eq!(Manifest::load(&blobs, GOAL, "").await.unwrap(), Manifest::default());
    }
}
