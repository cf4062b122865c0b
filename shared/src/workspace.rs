//! A goal's files: what is accepted, what an attempt makes, and how the second becomes the first.
//!
//! - [`Manifest`]: the accepted files (path → hash and so on); itself a blob, whose reference is the *root*
//!   that the goal's hash holds.
//! - [`Overlay`]: what one attempt changed; a blob too. [`merge`] gives the next root, or a conflict (I5).
//! - [`Attempt`]: the local folder in which the work is done, and a reviewer's copy of it.
//! - [`Folder`]: opens what a sandbox may have planted, without following links.
//! - Projections: `TODO.md`, `FILE_INDEX.json`, [`pull`]. Drawn, never read back (I1).
//!
//! The script that makes a ticket done compares and sets the root; nothing here writes it.

mod attempt;
mod folder;
mod manifest;
mod merge;
mod overlay;
mod owner;
mod path;
mod projection;
mod pull;

pub use attempt::{Attempt, Clash};
pub use folder::{FileError, Folder, Skipped};
pub use manifest::{Entry, Manifest, mime_of};
pub use merge::{Merged, merge};
pub use overlay::{Change, Overlay};
pub use path::{PathError, Place, place_of, safe_path};
pub use projection::{FILE_INDEX, TODO, file_index_json, todo_md};
pub use pull::pull;

use crate::blob::BlobError;

/// What can go wrong with a workspace.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// A file of the attempt or of the target folder cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The work is too large: the actor hears of it, or its attempt fails.
    #[error("the attempt holds {found} {what}, {max} are allowed")]
    Limit { what: &'static str, found: u64, max: u64 },
    /// A manifest or overlay is not as it should be: damaged, or of a version that is not known here.
    #[error("{what} {reference} cannot be read: {problem}")]
    Unreadable { what: &'static str, reference: String, problem: String },
    /// The local disk.
    #[error("{what}: {source}")]
    Disk { what: String, source: std::io::Error },
}

impl WorkspaceError {
    /// Whether the same call may simply be made again.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Blob(error) => error.is_retryable(),
            Self::Disk { .. } => true,
            Self::File(_) | Self::Limit { .. } | Self::Unreadable { .. } => false,
        }
    }

    /// Whether the work itself is at fault, so that its actor can do something about it.
    #[must_use]
    pub fn is_of_the_work(&self) -> bool {
        match self {
            Self::Limit { .. } | Self::File(_) => true,
            Self::Blob(_) | Self::Unreadable { .. } | Self::Disk { .. } => false,
        }
    }
}
