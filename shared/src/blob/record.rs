//! Records of effects beside a goal's objects: named by their key and replaced as a whole, so that what was begun is
//! known even when Redis lost its last second. They go with the goal.

use super::{BlobError, Blobs, Result, checked, is_reference};
use bytes::Bytes;
use opendal::ErrorKind;

fn path_of(goal: &str, key: &str) -> Result<String> {
    if !is_reference(key) {
        return Err(BlobError::Name(key.chars().take(80).collect()));
    }
    Ok(format!("goals/{}/effects/{key}", checked(goal)?))
}

impl Blobs {
    /// Writes the record of that key (64 hex digits), replacing the one before; on disk when it returns.
    ///
    /// # Errors
    /// [`BlobError`]; repeatable.
    pub async fn write_record(&self, goal: &str, key: &str, bytes: impl Into<Bytes>) -> Result<()> {
        let path = path_of(goal, key)?;
        self.operator.write(&path, bytes.into()).await.map_err(|e| BlobError::of(key, &e))?;
        self.sync_names(&path).await
    }

    /// The record of that key, or `None`.
    ///
    /// # Errors
    /// [`BlobError`] when the store does not answer.
    pub async fn read_record(&self, goal: &str, key: &str) -> Result<Option<Bytes>> {
        match self.operator.read(&path_of(goal, key)?).await {
            Ok(bytes) => Ok(Some(bytes.to_bytes())),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(BlobError::of(key, &e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[tokio::test]
    async fn a_record_is_replaced_as_a_whole_and_goes_with_its_goal() {
        let folder = tempfile::tempdir().unwrap();
        let blobs =
            Blobs::open(&config::Blobs { folder: folder.path().into(), ..Default::default() }).unwrap();
        let key = crate::blob::reference(b"key");
        assert_eq!(blobs.read_record("g1", &key).await.unwrap(), None);
        blobs.write_record("g1", &key, "intent, long").await.unwrap();
        blobs.write_record("g1", &key, "done").await.unwrap();
        assert_eq!(blobs.read_record("g1", &key).await.unwrap().unwrap(), "done");
        assert!(blobs.write_record("g1", "../x", "x").await.is_err());
        assert!(blobs.write_record("..", &key, "x").await.is_err());
        blobs.delete_goal("g1").await.unwrap();
        assert_eq!(blobs.read_record("g1", &key).await.unwrap(), None);
    }
}
