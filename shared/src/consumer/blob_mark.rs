//! The fleet's mark in the blob store: every process proves at its start that it sees the same files as the others.

use crate::blob::Blobs;
use crate::store::Store;
use std::time::Duration;

/// How long a mark may take to show on a network folder.
const MARK_WAIT: Duration = Duration::from_secs(5);

/// This process does not see the fleet's files.
#[derive(Debug, thiserror::Error)]
pub enum NotShared {
    #[error(
        "blobs.folder is not the one that the rest of the fleet uses: the mark {0} is not there\n  hint: mount one \
         folder on every host of the fleet and name it in blobs.folder, or give this fleet its own redis.prefix"
    )]
    Blobs(String),
    #[error(transparent)]
    Store(#[from] crate::store::StoreError),
    #[error("blobs.folder: {0}")]
    Write(#[from] crate::blob::BlobError),
}

/// Proves with the fleet's nonce that this process sees the same blobs as the others; the first one makes it.
/// The mark is written before the nonce is offered, so a process that dies in between blocks nobody.
///
/// # Errors
/// [`NotShared`]: the process must not take tickets whose files it cannot read.
pub async fn check_blobs(store: &Store, blobs: &Blobs) -> Result<(), NotShared> {
    let nonce = match store.fleet_nonce().await? {
        Some(nonce) => nonce,
        None => {
            let fresh = crate::ticket::new_id();
            blobs.write_nonce(&fresh).await?;
            store.offer_fleet_nonce(&fresh).await?
        }
    };
    let began = std::time::Instant::now();
    while !blobs.sees_nonce(&nonce).await {
        if began.elapsed() >= MARK_WAIT {
            return Err(NotShared::Blobs(nonce));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
