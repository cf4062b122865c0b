//! What one attempt changed, against the root it was made from. A JSON blob; what it names stays apart from
//! the workspace until the ticket is done (I5).

use super::manifest::{self, Entry, VERSION, unreadable};
use super::{WorkspaceError, path};
use crate::blob::{self, Blobs};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One changed path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// What stands there now; `None`: deleted.
    pub entry: Option<Entry>,
    /// Reference of what stood there in the base; `None`: nothing.
    #[serde(default)]
    pub base_hash: Option<String>,
}

impl Change {
    /// Reference of what stands there now.
    #[must_use]
    pub fn hash(&self) -> Option<&str> {
        self.entry.as_ref().map(|e| e.hash.as_str())
    }
}

/// All changed paths of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overlay {
    /// Version of this format.
    pub v: u32,
    /// Root that the attempt was made from.
    pub base_root: String,
    pub files: BTreeMap<String, Change>,
}

impl Overlay {
    /// An overlay without changes.
    #[must_use]
    pub fn new(base_root: &str) -> Self {
        Self { v: VERSION, base_root: base_root.into(), files: BTreeMap::new() }
    }

    /// The overlay of a reference; an empty reference is one without changes.
    ///
    /// # Errors
    /// [`WorkspaceError`] when it is not there, damaged, of another version, or names what is no path.
    pub async fn load(blobs: &Blobs, goal: &str, reference: &str) -> Result<Self, WorkspaceError> {
        if reference.is_empty() {
            return Ok(Self::new(""));
        }
        let overlay: Self = manifest::load(blobs, goal, reference, "overlay").await?;
        let is_wrong = |hash: Option<&str>| hash.is_some_and(|h| !blob::is_reference(h));
        let wrong = overlay
            .files
            .iter()
            .find(|(key, c)| !path::is_key(key) || is_wrong(c.hash()) || is_wrong(c.base_hash.as_deref()));
        if let Some((key, _)) = wrong {
            return Err(unreadable("overlay", reference, format!("`{key}` is not a change of a workspace")));
        }
        Ok(overlay)
    }

    /// Stores it and returns its reference; empty when nothing changed.
    ///
    /// # Errors
    /// [`WorkspaceError`].
    pub async fn save(&self, blobs: &Blobs, goal: &str) -> Result<String, WorkspaceError> {
        if self.files.is_empty() {
            return Ok(String::new());
        }
        manifest::save(blobs, goal, self, "overlay").await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    /// Golden bytes of version 1: a change here is a new version, not an edit.
    #[tokio::test]
    async fn golden_bytes_of_version_1() {
        let folder = tempfile::tempdir().unwrap();
        let blobs =
            Blobs::open(&config::Blobs { folder: folder.path().into(), ..Default::default() }).unwrap();
        let hash = blob::reference(b"hello");
        let mut overlay = Overlay::new("base");
        overlay.files.insert("gone".into(), Change { entry: None, base_hash: Some(hash.clone()) });
        let entry = Entry { hash, size_bytes: 5, version: 1, ..Entry::default() };
        overlay.files.insert("new".into(), Change { entry: Some(entry), base_hash: None });
        let reference = overlay.save(&blobs, "g1").await.unwrap();
        let want = concat!(
            r#"{"v":1,"base_root":"base","files":{"#,
            r#""gone":{"entry":null,"base_hash":"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"},"#,
            r#""new":{"entry":{"hash":"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824","#,
            r#""size_bytes":5,"mime":"","creator":"","description":"","version":1},"base_hash":null}}}"#
        );
        assert_eq!(blobs.get("g1", &reference, 9999).await.unwrap(), want);
        assert_eq!(Overlay::load(&blobs, "g1", &reference).await.unwrap(), overlay);
        let evil = want.replace("\"gone\"", "\"../gone\"");
        let evil = blobs.put("g1", evil).await.unwrap();
        assert!(Overlay::load(&blobs, "g1", &evil).await.is_err());
    }
}
