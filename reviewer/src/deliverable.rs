//! What is under review: the workspace as the attempt left it, read from blobs.
//!
//! The reviewer reads exactly the bytes that a pass would publish. No file of a sandbox is opened here, so
//! there are no links to follow; a folder is made only for the `command` check.

use bytes::Bytes;
use shared::blob::{self, Blobs};
use shared::ticket::{FailClass, Ticket};
use shared::workspace::{Entry, Manifest, Overlay, WorkspaceError};
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::Mutex;

/// Largest file whose content is checked.
pub(crate) const FILE_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// The deliverable cannot be read; never the work's fault.
#[derive(Debug, thiserror::Error)]
#[error("the deliverable cannot be read: {0}")]
pub(crate) struct DeliverableError(#[from] WorkspaceError);

impl DeliverableError {
    /// Damaged or lost files stay so: a person must look. Everything else may pass.
    pub(crate) fn class(&self) -> FailClass {
        if self.0.is_retryable() { FailClass::Fault } else { FailClass::NotRetryable }
    }
}

/// A file's content, or why there is none to look at.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Is(Bytes),
    Missing,
    TooLarge { bytes: u64 },
}

/// A file's text, or why there is none.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Text {
    Is(String),
    /// Not UTF-8.
    Binary,
    Missing,
    TooLarge {
        bytes: u64,
    },
}

/// The files of the attempt over the files it started from.
pub(crate) struct Deliverable {
    blobs: Blobs,
    goal: String,
    root: String,
    files: BTreeMap<String, Entry>,
    changed: BTreeSet<String>,
    /// Contents that need no reading, by reference.
    at_hand: BTreeMap<String, Bytes>,
    deleted: BTreeSet<String>,
    /// The file read last, by reference: several checks look at the same one.
    last: Mutex<Option<(String, Bytes)>>,
}

impl Deliverable {
    /// Lays the attempt's changes over the root that it was made from.
    ///
    /// # Errors
    /// [`DeliverableError`].
    pub(crate) async fn open(blobs: &Blobs, ticket: &Ticket) -> Result<Self, DeliverableError> {
        let overlay = Overlay::load(blobs, &ticket.goal, &ticket.overlay_ref).await?;
        let root =
            if overlay.base_root.is_empty() { ticket.base_root.clone() } else { overlay.base_root.clone() };
        let mut files = Manifest::load(blobs, &ticket.goal, &root).await?.files;
        let (mut changed, mut deleted) = (BTreeSet::new(), BTreeSet::new());
        for (path, change) in overlay.files {
            match change.entry {
                None => {
                    files.remove(&path);
                    deleted.insert(path);
                }
                Some(entry) => {
                    files.insert(path.clone(), entry);
                    changed.insert(path);
                }
            }
        }
        Ok(Self {
            blobs: blobs.clone(),
            goal: ticket.goal.clone(),
            root,
            files,
            changed,
            at_hand: BTreeMap::new(),
            deleted,
            last: Mutex::new(None),
        })
    }

    /// Files that are at hand and in no blob store: those of a known deliverable.
    pub(crate) fn at_hand(blobs: &Blobs, files: &BTreeMap<String, String>) -> Self {
        let mut it = Self::empty(blobs);
        for (path, text) in files {
            let bytes = Bytes::from(text.clone());
            let (hash, size_bytes) = (blob::reference(&bytes), bytes.len() as u64);
            it.files.insert(path.clone(), Entry { hash: hash.clone(), size_bytes, ..Entry::default() });
            it.changed.insert(path.clone());
            it.at_hand.insert(hash, bytes);
        }
        it
    }

    /// No files: for tickets of which none is looked at.
    pub(crate) fn empty(blobs: &Blobs) -> Self {
        let (files, changed, deleted) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        Self {
            blobs: blobs.clone(),
            goal: String::new(),
            root: String::new(),
            files,
            changed,
            at_hand: BTreeMap::new(),
            deleted,
            last: Mutex::new(None),
        }
    }

    /// Every path that the attempt wrote or deleted.
    pub(crate) fn touched(&self) -> impl Iterator<Item = &String> {
        self.changed.iter().chain(&self.deleted)
    }

    /// Root that the attempt was made from.
    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// The file's entry, if it is there.
    pub(crate) fn entry(&self, path: &str) -> Option<&Entry> {
        self.files.get(path)
    }

    /// Paths that the attempt made or changed.
    pub(crate) fn changed(&self) -> impl Iterator<Item = &str> {
        self.changed.iter().map(String::as_str)
    }

    /// The file's bytes, at most [`FILE_BYTES_MAX`] of them.
    ///
    /// # Errors
    /// [`DeliverableError`].
    pub(crate) async fn content(&self, path: &str) -> Result<Content, DeliverableError> {
        let Some(entry) = self.files.get(path) else { return Ok(Content::Missing) };
        if entry.size_bytes > FILE_BYTES_MAX {
            return Ok(Content::TooLarge { bytes: entry.size_bytes });
        }
        if let Some(bytes) = self.at_hand.get(&entry.hash) {
            return Ok(Content::Is(bytes.clone()));
        }
        let mut last = self.last.lock().await;
        if let Some((hash, bytes)) = &*last
            && *hash == entry.hash
        {
            return Ok(Content::Is(bytes.clone()));
        }
        let bytes =
            self.blobs.get(&self.goal, &entry.hash, FILE_BYTES_MAX).await.map_err(WorkspaceError::from)?;
        *last = Some((entry.hash.clone(), bytes.clone()));
        Ok(Content::Is(bytes))
    }

    /// The file's text.
    ///
    /// # Errors
    /// [`DeliverableError`].
    pub(crate) async fn text(&self, path: &str) -> Result<Text, DeliverableError> {
        Ok(match self.content(path).await? {
            Content::Missing => Text::Missing,
            Content::TooLarge { bytes } => Text::TooLarge { bytes },
            Content::Is(bytes) if bytes.contains(&0) => Text::Binary,
            Content::Is(bytes) => String::from_utf8(bytes.to_vec()).map_or(Text::Binary, Text::Is),
        })
    }
}
