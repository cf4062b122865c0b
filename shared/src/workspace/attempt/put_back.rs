//! Undoing one change of an attempt.

use super::{Attempt, disk};
use crate::workspace::WorkspaceError;
use std::path::PathBuf;
use std::sync::Arc;

impl Attempt {
    /// The accepted file stands at the path again, or none where none was. The next [`Attempt::scan`] sees it.
    ///
    /// # Errors
    /// [`WorkspaceError`]: something else than a file stands there, or what disk and store say.
    pub async fn put_back(&self, path: &str) -> Result<(), WorkspaceError> {
        let copy = self.base.hash(path).map(|hash| self.blobs.copy(&self.goal, hash));
        let (folder, at) = (Arc::clone(&self.folder), PathBuf::from(path));
        disk(move || {
            folder.remove(&at)?;
            if let Some(copy) = copy {
                copy?.into_file(&mut folder.create(&at)?)?;
            }
            Ok(())
        })
        .await
    }
}
