//! An overlay onto the root of now: the next root, or the first path that somebody else changed meanwhile.

use super::{Manifest, Overlay, WorkspaceError};
use crate::blob::Blobs;

/// What came of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Merged {
    /// The root to publish, by compare-and-set against the root that was merged onto.
    Root(String),
    /// A path of the attempt changed under it. References, or empty where there is no file:
    /// what the attempt started from, what is accepted now, what the attempt made.
    Conflict { path: String, base: String, theirs: String, ours: String },
}

/// Lays the overlay onto the root. Both sides are complete blobs, so nothing is lost in a conflict; two
/// attempts that made the same bytes do not conflict.
///
/// # Errors
/// [`WorkspaceError`]; nothing is published by this.
pub async fn merge(
    blobs: &Blobs,
    goal: &str,
    root: &str,
    overlay_ref: &str,
) -> Result<Merged, WorkspaceError> {
    if overlay_ref.is_empty() {
        return Ok(Merged::Root(root.into()));
    }
    let overlay = Overlay::load(blobs, goal, overlay_ref).await?;
    let mut manifest = Manifest::load(blobs, goal, root).await?;
    match lay(&mut manifest, &overlay) {
        Some(conflict) => Ok(conflict),
        None => Ok(Merged::Root(manifest.save(blobs, goal).await?)),
    }
}

/// Deletions first, so that a file may take a deleted folder's place.
fn lay(manifest: &mut Manifest, overlay: &Overlay) -> Option<Merged> {
    let in_order = || {
        let (gone, made): (Vec<_>, Vec<_>) = overlay.files.iter().partition(|(_, c)| c.entry.is_none());
        gone.into_iter().chain(made)
    };
    for (path, change) in in_order() {
        let theirs = manifest.hash(path);
        if theirs == change.hash() {
            continue;
        }
        if theirs != change.base_hash.as_deref() || (change.entry.is_some() && manifest.is_blocked(path)) {
            let word = |hash: Option<&str>| hash.unwrap_or_default().to_owned();
            return Some(Merged::Conflict {
                path: path.clone(),
                base: word(change.base_hash.as_deref()),
                theirs: word(theirs),
                ours: word(change.hash()),
            });
        }
        match &change.entry {
            None => {
                manifest.files.remove(path);
            }
            Some(entry) => {
                manifest.insert(path, entry.clone());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob;
    use crate::config;
    use crate::workspace::{Change, Entry};
    use proptest::prelude::*;

    const GOAL: &str = "g1";

    fn store() -> (tempfile::TempDir, Blobs) {
        let folder = tempfile::tempdir().unwrap();
        let blobs =
            Blobs::open(&config::Blobs { folder: folder.path().into(), ..Default::default() }).unwrap();
        (folder, blobs)
    }

    fn hash(text: &str) -> String {
        blob::reference(text.as_bytes())
    }

    /// path, what the base had, what is there now; empty: nothing.
    async fn overlay(blobs: &Blobs, changes: &[(&str, &str, &str)]) -> String {
        let mut overlay = Overlay::new("");
        for (path, base, now) in changes {
            let entry = (!now.is_empty()).then(|| Entry { hash: hash(now), ..Entry::default() });
            let base_hash = (!base.is_empty()).then(|| hash(base));
            overlay.files.insert((*path).into(), Change { entry, base_hash });
        }
        overlay.save(blobs, GOAL).await.unwrap()
    }

    async fn root_of(blobs: &Blobs, root: &str, changes: &[(&str, &str, &str)]) -> String {
        match merge(blobs, GOAL, root, &overlay(blobs, changes).await).await.unwrap() {
            Merged::Root(root) => root,
            conflict @ Merged::Conflict { .. } => panic!("{conflict:?}"),
        }
    }

    #[tokio::test]
    async fn i5_disjoint_overlays_made_from_one_root_both_get_in_in_any_order() {
        let (_folder, blobs) = store();
        let base = root_of(&blobs, "", &[("data/in", "", "1"), ("old", "", "2")]).await;
        let a = [("outputs/a", "", "a"), ("old", "2", "")];
        let b = [("outputs/b", "", "b"), ("data/in", "1", "1b")];
        let ab = root_of(&blobs, &root_of(&blobs, &base, &a).await, &b).await;
        let ba = root_of(&blobs, &root_of(&blobs, &base, &b).await, &a).await;
        assert_eq!(ab, ba);
        let manifest = Manifest::load(&blobs, GOAL, &ab).await.unwrap();
        let files: Vec<_> = manifest.files.iter().map(|(p, e)| (p.as_str(), e.version)).collect();
        assert_eq!(files, [("data/in", 2), ("outputs/a", 1), ("outputs/b", 1)]);
    }

    #[tokio::test]
    async fn c5_two_workers_one_file_the_second_gets_a_conflict_with_both_hashes() {
        let (_folder, blobs) = store();
        let v1 = root_of(&blobs, "", &[("outputs/x", "", "v1")]).await;
        let v2 = root_of(&blobs, &v1, &[("outputs/x", "v1", "v2")]).await;
        let late = overlay(&blobs, &[("outputs/x", "v1", "v2b"), ("outputs/y", "", "y")]).await;
        let merged = merge(&blobs, GOAL, &v2, &late).await.unwrap();
        let want = Merged::Conflict {
            path: "outputs/x".into(),
            base: hash("v1"),
            theirs: hash("v2"),
            ours: hash("v2b"),
        };
        assert_eq!(merged, want);
    }

    #[tokio::test]
    async fn c5_new_file_on_both_sides_deleted_here_changed_there_and_the_reverse_conflict() {
        let (_folder, blobs) = store();
        let root = root_of(&blobs, "", &[("x", "", "new")]).await;
        for change in [("x", "", "other"), ("x", "old", ""), ("y", "old", "changed")] {
            let late = overlay(&blobs, &[change]).await;
            assert!(
                matches!(merge(&blobs, GOAL, &root, &late).await, Ok(Merged::Conflict { .. })),
                "{change:?}"
            );
        }
    }

    #[tokio::test]
    async fn c5_a_file_and_a_folder_of_one_name_conflict() {
        let (_folder, blobs) = store();
        let root = root_of(&blobs, "", &[("a/b", "", "1")]).await;
        for change in [("a", "", "2"), ("a/b/c", "", "2")] {
            let late = overlay(&blobs, &[change]).await;
            assert!(
                matches!(merge(&blobs, GOAL, &root, &late).await, Ok(Merged::Conflict { .. })),
                "{change:?}"
            );
        }
        let swapped = root_of(&blobs, &root, &[("a", "", "2"), ("a/b", "1", "")]).await;
        assert_eq!(Manifest::load(&blobs, GOAL, &swapped).await.unwrap().files.len(), 1);
    }

    #[tokio::test]
    async fn the_same_bytes_on_both_sides_are_no_conflict_and_a_repeat_changes_nothing() {
        let (_folder, blobs) = store();
        let changes = [("x", "", "same"), ("y", "old", "")];
        let root = root_of(&blobs, "", &changes).await;
        assert_eq!(root_of(&blobs, &root, &changes).await, root);
        assert_eq!(merge(&blobs, GOAL, &root, "").await.unwrap(), Merged::Root(root));
    }

    /// What stands at each of four paths: one of three contents, or nothing.
    fn tree() -> impl Strategy<Value = Vec<Option<u8>>> {
        proptest::collection::vec(proptest::option::of(0_u8..3), 4)
    }

    fn manifest_of(tree: &[Option<u8>]) -> Manifest {
        let mut manifest = Manifest::default();
        for (n, content) in tree.iter().enumerate().filter_map(|(n, c)| Some((n, (*c)?))) {
            manifest.insert(&format!("f{n}"), Entry { hash: hash(&content.to_string()), ..Entry::default() });
        }
        manifest
    }

    fn overlay_of(base: &[Option<u8>], now: &[Option<u8>]) -> Overlay {
        let (base, now) = (manifest_of(base), manifest_of(now));
        let mut overlay = Overlay::new("");
        for path in (0..4).map(|n| format!("f{n}")).filter(|path| base.hash(path) != now.hash(path)) {
            let base_hash = base.hash(&path).map(Into::into);
            let entry = now.files.get(&path).cloned();
            overlay.files.insert(path, Change { entry, base_hash });
        }
        overlay
    }

    fn hashes(manifest: &Manifest) -> Vec<(String, String)> {
        manifest.files.iter().map(|(path, e)| (path.clone(), e.hash.clone())).collect()
    }

    proptest! {
        /// Two attempts from one root: they conflict exactly when they made different things of one path, and
        /// else every change of both is there, whoever came first.
        #[test]
        fn c5_i5_no_accepted_change_is_ever_lost(base in tree(), a in tree(), b in tree()) {
            let differ = (0..4).any(|n| a[n] != base[n] && b[n] != base[n] && a[n] != b[n]);
            let want: Vec<Option<u8>> = (0..4).map(|n| if a[n] == base[n] { b[n] } else { a[n] }).collect();
            for (first, second) in [(&a, &b), (&b, &a)] {
                let mut manifest = manifest_of(&base);
                prop_assert_eq!(lay(&mut manifest, &overlay_of(&base, first)), None);
                prop_assert_eq!(hashes(&manifest), hashes(&manifest_of(first)));
                let conflict = lay(&mut manifest, &overlay_of(&base, second));
                prop_assert_eq!(conflict.is_some(), differ);
                if !differ {
                    prop_assert_eq!(hashes(&manifest), hashes(&manifest_of(&want)));
                }
            }
        }
    }
}
