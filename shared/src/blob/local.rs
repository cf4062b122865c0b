//! The short way to objects in a folder of this host: one trip to a blocking thread for each, instead of one for each call
//! to the disk. Names below the folder are those of [`super::Blobs`], which checks them.

use super::{BlobError, Result, hex, reference};
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs::{File, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Piece in which objects are copied.
const PIECE_BYTES: usize = 256 * 1024;
/// Folders whose own names are known to be on disk; more are forgotten together and synced again.
const NAMED_MAX: usize = 10_000;

/// Whether an object has to be there after a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lasting {
    /// On disk, and its name too, before the reference is given out.
    Synced,
    /// In place as a whole, but the disk may get it later: for what nothing depends on.
    Soon,
}

/// A folder of this host that holds objects; cheap to clone. All its calls block.
#[derive(Clone, Debug)]
pub(super) struct Local {
    folder: PathBuf,
    /// Folder -> its inode, when the names from it up to the store's own were synced.
    named: Arc<Mutex<HashMap<PathBuf, u64>>>,
}

impl Local {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, named: Arc::default() }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes the object unless it stands there; it is only ever renamed into place.
    pub(super) fn write(&self, path: &str, bytes: &[u8], lasting: Lasting) -> Result<()> {
        let to = self.folder.join(path);
        match File::open(&to) {
            Ok(there) if there.metadata()?.len() == bytes.len() as u64 => {
                if lasting == Lasting::Synced {
                    // It may be one of those that the disk gets later.
                    there.sync_all()?;
                    self.sync_names(path)?;
                }
                return Ok(());
            }
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e.into()),
            Ok(_) | Err(_) => {}
        }
        let unfinished = self.folder.join("tmp");
        let mut made = match self.unfinished(&unfinished) {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                std::fs::create_dir_all(&unfinished)?;
                self.unfinished(&unfinished)?
            }
            other => other?,
        };
        made.write_all(bytes)?;
        if lasting == Lasting::Synced {
            made.as_file().sync_all()?;
        }
        if let Some(parent) = to.parent() {
            std::fs::create_dir_all(parent)?;
        }
        made.persist(&to).map_err(|e| e.error)?;
        if lasting == Lasting::Synced { self.sync_names(path) } else { Ok(()) }
    }

    fn unfinished(&self, folder: &Path) -> std::io::Result<tempfile::NamedTempFile> {
        // The user's umask decides, as for any other file.
        tempfile::Builder::new().permissions(Permissions::from_mode(0o666)).tempfile_in(folder)
    }

    /// Syncs the folders from the object's own up to the store's: without this a power cut may take the name of an object
    /// whose bytes are on disk. Those above its own are synced once, since they only name folders.
    pub(super) fn sync_names(&self, path: &str) -> Result<()> {
        let mut folders: Vec<PathBuf> =
            Path::new(path).ancestors().skip(1).map(|below| self.folder.join(below)).collect();
        folders.dedup();
        let Some((own, above)) = folders.split_first() else { return Ok(()) };
        let opened = File::open(own)?;
        opened.sync_all()?;
        let inode = opened.metadata()?.ino();
        if self.names().get(own) == Some(&inode) {
            return Ok(());
        }
        for folder in above {
            File::open(folder)?.sync_all()?;
        }
        let mut named = self.names();
        if named.len() >= NAMED_MAX {
            named.clear();
        }
        named.insert(own.clone(), inode);
        Ok(())
    }

    /// To be called when folders were deleted: one that is made again may get the inode of one that is gone.
    pub(super) fn forget_names(&self) {
        self.names().clear();
    }

    fn names(&self) -> std::sync::MutexGuard<'_, HashMap<PathBuf, u64>> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, path: &str, r: &str) -> Result<(File, u64)> {
        let file = match File::open(self.folder.join(path)) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Err(BlobError::NotFound(r.into())),
            other => other?,
        };
        let length = file.metadata()?.len();
        Ok((file, length))
    }

    /// Reads an object of at most `bytes_max` and checks it against its reference.
    pub(super) fn read(&self, path: &str, r: &str, bytes_max: u64) -> Result<Bytes> {
        let (file, length) = self.open(path, r)?;
        if length > bytes_max {
            return Err(BlobError::TooBig { bytes: length, bytes_max });
        }
        let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
        file.take(bytes_max).read_to_end(&mut bytes)?;
        if reference(&bytes) == r { Ok(bytes.into()) } else { Err(BlobError::Damaged(r.into())) }
    }

    /// Copies an object into an open file and checks it against its reference; returns its length.
    pub(super) fn copy(&self, path: &str, r: &str, to: &mut File) -> Result<u64> {
        let (mut file, length) = self.open(path, r)?;
        let piece = usize::try_from(length).unwrap_or(PIECE_BYTES).clamp(1, PIECE_BYTES);
        let (mut hash, mut total, mut piece) = (Sha256::new(), 0_u64, vec![0; piece]);
        loop {
            let read = file.read(&mut piece)?;
            if read == 0 {
                break;
            }
            hash.update(&piece[..read]);
            to.write_all(&piece[..read])?;
            total += read as u64;
        }
        if hex(&hash.finalize()) == r { Ok(total) } else { Err(BlobError::Damaged(r.into())) }
    }
}
