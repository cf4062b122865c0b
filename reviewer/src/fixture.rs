//! What the tests of this crate have in common: a blob folder with an attempt in it.

use crate::deliverable::Deliverable;
use shared::blob::{self, Blobs};
use shared::config;
use shared::ticket::{Report, Ticket};
use shared::workspace::{Change, Entry, Manifest, Overlay};

pub(crate) const GOAL: &str = "0123456789abcdef0123456789abcdef";

/// A workspace with accepted files and an attempt's files over them.
pub(crate) struct Fixture {
    pub(crate) scratch: tempfile::TempDir,
    pub(crate) blobs: Blobs,
    pub(crate) ticket: Ticket,
    pub(crate) report: Report,
}

impl Fixture {
    pub(crate) async fn new(accepted: &[(&str, &[u8])], attempt: &[(&str, &[u8])]) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("blobs");
        let blobs = Blobs::open(&config::Blobs { folder, ..Default::default() }).unwrap();
        let mut manifest = Manifest::default();
        for (path, bytes) in accepted {
            let hash = blobs.put(GOAL, bytes.to_vec()).await.unwrap();
            let entry = Entry { hash, size_bytes: bytes.len() as u64, ..Entry::default() };
            assert!(manifest.insert(path, entry));
        }
        let root = manifest.save(&blobs, GOAL).await.unwrap();
        let mut overlay = Overlay::new(&root);
        for (path, bytes) in attempt {
            let hash = blobs.put(GOAL, bytes.to_vec()).await.unwrap();
            let entry = Entry { hash, size_bytes: bytes.len() as u64, ..Entry::default() };
            let base_hash = manifest.hash(path).map(str::to_owned);
            overlay.files.insert((*path).into(), Change { entry: Some(entry), base_hash });
        }
        let overlay_ref = overlay.save(&blobs, GOAL).await.unwrap();
        let ticket = Ticket {
            task_id: blob::hex(b"ticket"),
            key: "t1".into(),
            goal: GOAL.into(),
            base_root: root,
            overlay_ref,
            description: "Write the report".into(),
            expected_output: "a report".into(),
            ..Ticket::default()
        };
        let report = Report {
            status: "done".into(),
            summary: "wrote it".into(),
            tool_calls: [("write_file".to_owned(), 1)].into(),
            ..Report::default()
        };
        Self { scratch, blobs, ticket, report }
    }

    pub(crate) async fn deliverable(&self) -> Deliverable {
        Deliverable::open(&self.blobs, &self.ticket).await.unwrap()
    }
}
