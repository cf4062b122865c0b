//! Attempts in real folders over a real blob folder.

use super::*;
use crate::config;
use crate::workspace::{Merged, merge};
use std::os::unix::fs::symlink;

const GOAL: &str = "g1";

struct Fleet {
    folder: tempfile::TempDir,
    blobs: Blobs,
    limits: Limits,
}

impl Fleet {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let cfg = config::Blobs { folder: folder.path().join("blobs"), ..Default::default() };
        Self { blobs: Blobs::open(&cfg).unwrap(), folder, limits: Limits::default() }
    }

    fn scratch(&self) -> PathBuf {
        self.folder.path().join("scratch")
    }

    async fn open(&self, root: &str, overlay: &str) -> Attempt {
        let scratch = self.scratch();
        Attempt::open(&self.blobs, GOAL, root, overlay, &scratch, &self.limits, "write").await.unwrap()
    }

    async fn publish(&self, root: &str, overlay: &str) -> String {
        match merge(&self.blobs, GOAL, root, overlay).await.unwrap() {
            Merged::Root(root) => root,
            conflict @ Merged::Conflict { .. } => panic!("{conflict:?}"),
        }
    }

    /// A root with these files.
    async fn root(&self, files: &[(&str, &str)]) -> String {
        let mut attempt = self.open("", "").await;
        for (path, text) in files {
            attempt.write(path, (*text).into()).await.unwrap();
        }
        self.publish("", &attempt.seal().await.unwrap()).await
    }

    async fn overlay(&self, reference: &str) -> Overlay {
        Overlay::load(&self.blobs, GOAL, reference).await.unwrap()
    }
}

fn put(attempt: &Attempt, path: &str, text: &str) {
    std::fs::write(attempt.folder().join(path), text).unwrap();
}

fn text(attempt: &Attempt, path: &str) -> String {
    std::fs::read_to_string(attempt.folder().join(path)).unwrap()
}

#[tokio::test]
async fn i5_what_an_attempt_does_is_seen_by_others_only_after_the_merge() {
    let fleet = Fleet::new();
    let root = fleet.root(&[("data/in.csv", "1,2"), ("old.md", "old")]).await;
    let mut attempt = fleet.open(&root, "").await;
    assert_eq!(text(&attempt, "data/in.csv"), "1,2");
    put(&attempt, "outputs/new.md", "new");
    put(&attempt, "data/in.csv", "1,2,3");
    std::fs::remove_file(attempt.folder().join("old.md")).unwrap();
    attempt.describe("outputs/new.md", "the answer");
    assert_eq!(attempt.scan().await.unwrap(), ["data/in.csv", "outputs/new.md"]);
    assert!(attempt.scan().await.unwrap().is_empty());
    let reference = attempt.seal().await.unwrap();
    assert_eq!(attempt.seal().await.unwrap(), reference, "sealing again changes nothing");

    let other = fleet.open(&root, "").await;
    assert_eq!(text(&other, "data/in.csv"), "1,2");
    assert!(!other.folder().join("outputs/new.md").exists());

    let next = fleet.publish(&root, &reference).await;
    let manifest = Manifest::load(&fleet.blobs, GOAL, &next).await.unwrap();
    let new = &manifest.files["outputs/new.md"];
    assert_eq!((new.creator.as_str(), new.description.as_str(), new.version), ("write", "the answer", 1));
    assert_eq!(new.mime, "text/markdown");
    assert_eq!(manifest.files["data/in.csv"].version, 2);
    assert!(!manifest.files.contains_key("old.md"));
}

#[tokio::test]
async fn nothing_changed_is_the_empty_overlay_also_after_a_change_and_back() {
    let fleet = Fleet::new();
    let root = fleet.root(&[("a", "1")]).await;
    let mut attempt = fleet.open(&root, "").await;
    assert_eq!(attempt.seal().await.unwrap(), "");
    put(&attempt, "a", "2");
    assert_ne!(attempt.seal().await.unwrap(), "");
    put(&attempt, "a", "1");
    assert_eq!(attempt.seal().await.unwrap(), "");
}

#[tokio::test]
async fn i1_temp_drawn_and_ignored_files_are_never_part_of_an_overlay() {
    let fleet = Fleet::new();
    let mut attempt = fleet.open("", "").await;
    for path in ["temp/x", "TODO.md", "FILE_INDEX.json"] {
        put(&attempt, path, "x");
    }
    for folder in [".git", "outputs/__pycache__", "node_modules/a", ".cache"] {
        std::fs::create_dir_all(attempt.folder().join(folder)).unwrap();
        put(&attempt, &format!("{folder}/x"), "x");
    }
    put(&attempt, "outputs/kept", "x");
    assert_eq!(attempt.scan().await.unwrap(), ["outputs/kept"]);
    let listed: Vec<_> = attempt.list().await.unwrap().into_iter().map(|(path, _)| path).collect();
    assert_eq!(listed, ["FILE_INDEX.json", "TODO.md", "outputs/kept", "temp/x"]);
    let overlay = fleet.overlay(&attempt.seal().await.unwrap()).await;
    assert_eq!(overlay.files.keys().collect::<Vec<_>>(), ["outputs/kept"]);
    for path in ["TODO.md", "FILE_INDEX.json", ".git/config", "../x", "/etc/passwd", ""] {
        assert!(attempt.write(path, b"x".into()).await.is_err(), "{path}");
        assert!(attempt.append(path, b"x".into()).await.is_err(), "{path}");
    }
    attempt.write("temp/y", b"x".into()).await.unwrap();
}

#[tokio::test]
async fn a_retry_goes_on_from_the_last_overlay() {
    let fleet = Fleet::new();
    let root = fleet.root(&[("in", "1"), ("gone", "2")]).await;
    let mut first = fleet.open(&root, "").await;
    put(&first, "outputs/draft", "d1");
    std::fs::remove_file(first.folder().join("gone")).unwrap();
    let overlay = first.seal().await.unwrap();
    drop(first);
    // Meanwhile somebody else's work was accepted.
    let mut other = fleet.open(&root, "").await;
    put(&other, "outputs/other", "o");
    let root = fleet.publish(&root, &other.seal().await.unwrap()).await;

    let mut retry = fleet.open(&root, &overlay).await;
    assert_eq!((text(&retry, "outputs/draft"), text(&retry, "outputs/other")), ("d1".into(), "o".into()));
    assert!(!retry.folder().join("gone").exists());
    assert!(retry.clashes().is_empty());
    let again = fleet.overlay(&retry.seal().await.unwrap()).await;
    assert_eq!(again.base_root, root);
    assert_eq!(again.files.keys().collect::<Vec<_>>(), ["gone", "outputs/draft"]);
}

#[tokio::test]
async fn c5_after_a_conflict_both_versions_are_before_the_retry_and_it_can_merge_them() {
    let fleet = Fleet::new();
    let root = fleet.root(&[("outputs/x", "v1")]).await;
    let (mut a, mut b) = (fleet.open(&root, "").await, fleet.open(&root, "").await);
    put(&a, "outputs/x", "by a");
    put(&b, "outputs/x", "by b");
    put(&b, "outputs/y", "only b");
    let (a, b) = (a.seal().await.unwrap(), b.seal().await.unwrap());
    let root = fleet.publish(&root, &a).await;
    let lost = merge(&fleet.blobs, GOAL, &root, &b).await.unwrap();
    assert!(matches!(lost, Merged::Conflict { ref path, .. } if path == "outputs/x"), "{lost:?}");

    let mut retry = fleet.open(&root, &b).await;
    assert_eq!(text(&retry, "outputs/x"), "by a");
    assert_eq!(text(&retry, "temp/conflicts/outputs/x"), "by b");
    assert_eq!(text(&retry, "outputs/y"), "only b");
    let reference = |text: &str| blob::reference(text.as_bytes());
    let want = Clash { path: "outputs/x".into(), theirs: reference("by a"), ours: reference("by b") };
    assert_eq!(retry.clashes(), [want]);
    put(&retry, "outputs/x", "by a and b");
    let root = fleet.publish(&root, &retry.seal().await.unwrap()).await;
    let end = fleet.open(&root, "").await;
    assert_eq!((text(&end, "outputs/x"), text(&end, "outputs/y")), ("by a and b".into(), "only b".into()));
}

#[tokio::test]
async fn planted_links_fifos_and_huge_files_are_skipped_with_a_reason_and_leave_accepted_files_alone() {
    let fleet = Fleet::new();
    let root = fleet.root(&[("outputs/report", "good"), ("data/sub/in", "1")]).await;
    let secret = fleet.folder.path().join("secret");
    std::fs::write(&secret, "s3cret").unwrap();
    let mut attempt = fleet.open(&root, "").await;
    let at = |path: &str| attempt.folder().join(path);
    std::fs::remove_file(at("outputs/report")).unwrap();
    symlink(&secret, at("outputs/report")).unwrap();
    std::fs::rename(at("data"), at("temp/data")).unwrap();
    symlink(fleet.folder.path(), at("data")).unwrap();
    symlink(&secret, at("outputs/leak")).unwrap();
    std::fs::hard_link(&secret, at("outputs/hard")).unwrap();
    nix::unistd::mkfifo(&at("outputs/fifo"), nix::sys::stat::Mode::from_bits_truncate(0o644)).unwrap();
    std::fs::File::create(at("outputs/huge")).unwrap().set_len(1 << 42).unwrap();
    put(&attempt, "outputs/fine", "x");
    assert_eq!(attempt.scan().await.unwrap(), ["outputs/fine"]);
    let skipped: Vec<_> = attempt.skipped().iter().map(|s| s.path.as_str()).collect();
    assert_eq!(
        skipped,
        ["data", "outputs/fifo", "outputs/hard", "outputs/huge", "outputs/leak", "outputs/report"]
    );
    let overlay = fleet.overlay(&attempt.seal().await.unwrap()).await;
    assert_eq!(overlay.files.keys().collect::<Vec<_>>(), ["outputs/fine"]);
    for path in ["outputs/report", "data/sub/in", "outputs/leak", "outputs/hard", "outputs/fifo"] {
        assert!(attempt.read(path, 100).await.is_err(), "{path}");
    }
    assert!(attempt.write("data/x", b"x".into()).await.is_err());
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "s3cret");
}

#[tokio::test]
async fn i11_more_files_or_bytes_than_allowed_are_refused_as_a_fault_of_the_work() {
    let mut fleet = Fleet::new();
    fleet.limits = Limits { attempt_files_max: 3, attempt_bytes_max: 10, ..Limits::default() };
    let root = fleet.root(&[("a", "1"), ("b", "2")]).await;
    let mut attempt = fleet.open(&root, "").await;
    for name in ["c", "d", "e"] {
        put(&attempt, name, "123");
    }
    attempt.seal().await.unwrap();
    put(&attempt, "f", "");
    let error = attempt.seal().await.unwrap_err();
    assert_eq!(error.to_string(), "the attempt holds 4 changed files, 3 are allowed");
    assert!(error.is_of_the_work() && !error.is_retryable());
    std::fs::remove_file(attempt.folder().join("f")).unwrap();
    put(&attempt, "e", "12345");
    let error = attempt.seal().await.unwrap_err();
    assert_eq!(error.to_string(), "the attempt holds 11 bytes in changed files, 10 are allowed");
    assert!(matches!(attempt.append("e", b"123456".into()).await, Err(FileError::TooBig { .. })));
}

#[tokio::test]
async fn the_folder_goes_with_the_attempt_and_a_missing_blob_leaves_none() {
    let fleet = Fleet::new();
    let root = fleet.root(&[("a", "1")]).await;
    let attempt = fleet.open(&root, "").await;
    let folder = attempt.folder().to_owned();
    drop(attempt);
    assert!(!folder.exists());
    std::fs::remove_file(
        fleet.folder.path().join(format!("blobs/goals/{GOAL}/6b/{}", blob::reference(b"1"))),
    )
    .unwrap();
    let scratch = fleet.scratch();
    let lost = Attempt::open(&fleet.blobs, GOAL, &root, "", &scratch, &fleet.limits, "write").await;
    assert!(matches!(lost, Err(WorkspaceError::Blob(crate::blob::BlobError::NotFound(_)))), "{lost:?}");
    assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 0);
}

#[tokio::test]
async fn a_change_within_the_clocks_tick_and_of_the_same_length_is_seen() {
    let fleet = Fleet::new();
    let mut attempt = fleet.open("", "").await;
    for round in 0..20 {
        put(&attempt, "x", &format!("{round:02}"));
        assert_eq!(attempt.scan().await.unwrap(), ["x"], "{round}");
    }
}
