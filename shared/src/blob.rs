//! Content-addressed objects: what is too large for Redis, and every file of every workspace.
//!
//! Whole objects go the short way of [`local`]; long ones, and what is rare, through opendal. Layout below the folder:
//! `goals/<goal>/<first 2 hex digits>/<sha256>`, `goals/<goal>/effects/<key>` ([`record`]) and `fleet/nonce-<nonce>`; a goal's objects go with the goal.
//!
//! A reference is given out only for bytes that survive a power cut, except [`Blobs::put_soon`]. opendal's fs writer syncs
//! the file before it renames it into place, but not the folders that name it: [`Blobs`] syncs those itself.

mod local;
mod record;

use crate::config;
use bytes::Bytes;
use local::{Lasting, Local};
use opendal::{ErrorKind, Operator};
use sha2::{Digest, Sha256};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// Objects up to this size are read into memory once; longer ones are read twice from their file.
const WHOLE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Piece in which long objects are copied.
const PIECE_BYTES: usize = 1024 * 1024;
/// Half-written objects older than this are leftovers of a process that died.
const LEFTOVER_AGE: Duration = Duration::from_secs(86_400);
/// One call to the object store may take this long.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// What can go wrong with objects.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// There is no such object: deleted with its goal, or the hosts do not share their folder.
    #[error("blob {0} is not there")]
    NotFound(String),
    /// Not read or not written, because it is too long.
    #[error("{bytes} bytes are more than the {bytes_max} allowed")]
    TooBig { bytes: u64, bytes_max: u64 },
    /// The bytes are not those that the reference names.
    #[error("blob {0} is damaged: its bytes do not give its hash")]
    Damaged(String),
    /// The name is not one that this module makes: a bug or bytes from outside.
    #[error("`{0}` is not the name of a goal or blob")]
    Name(String),
    /// The file changed while it was read.
    #[error("the file changed while it was stored")]
    Changed,
    /// The store refuses us, whatever we repeat.
    #[error("blob store refuses: {0}")]
    Refused(String),
    /// The store or disk does not answer as it should just now: the same call may be made again.
    #[error("blob store is not answering: {0}")]
    Unavailable(String),
}

impl BlobError {
    /// Whether the same call may simply be made again.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Changed)
    }

    fn of(name: &str, error: &opendal::Error) -> Self {
        if error.kind() == ErrorKind::NotFound {
            return Self::NotFound(name.into());
        }
        if [ErrorKind::PermissionDenied, ErrorKind::ConfigInvalid, ErrorKind::Unsupported]
            .contains(&error.kind())
        {
            return Self::Refused(error.to_string());
        }
        Self::Unavailable(error.to_string())
    }
}

impl From<std::io::Error> for BlobError {
    fn from(error: std::io::Error) -> Self {
        let refusals = [std::io::ErrorKind::PermissionDenied, std::io::ErrorKind::ReadOnlyFilesystem];
        if refusals.contains(&error.kind()) {
            Self::Refused(error.to_string())
        } else {
            Self::Unavailable(error.to_string())
        }
    }
}

pub type Result<T> = std::result::Result<T, BlobError>;

/// A handle to the object store; cheap to clone.
#[derive(Clone)]
pub struct Blobs {
    operator: Operator,
    local: Local,
}

impl std::fmt::Debug for Blobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Blobs").field("folder", &self.local.folder()).finish_non_exhaustive()
    }
}

/// The reference of these bytes: their sha256 in hex.
#[must_use]
pub fn reference(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Whether the text is a reference as [`reference`] makes them.
#[must_use]
pub fn is_reference(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// Lower-case hex digits of the bytes.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// sha256 (hex) and length of what the reader holds.
///
/// # Errors
/// [`BlobError::TooBig`] after `bytes_max`, and what reading says.
pub fn digest(mut from: impl Read, bytes_max: u64) -> Result<(String, u64)> {
    let (mut hash, mut total, mut piece) = (Sha256::new(), 0_u64, vec![0; 64 * 1024]);
    loop {
        let read = from.read(&mut piece)?;
        if read == 0 {
            return Ok((hex(&hash.finalize()), total));
        }
        total += read as u64;
        if total > bytes_max {
            return Err(BlobError::TooBig { bytes: total, bytes_max });
        }
        hash.update(&piece[..read]);
    }
}

impl Blobs {
    /// Opens the store; the folder is made if it is not there.
    ///
    /// # Errors
    /// [`BlobError::Refused`] when the folder cannot be made or used.
    pub fn open(cfg: &config::Blobs) -> Result<Self> {
        let wrong = |e: &dyn std::fmt::Display| {
            BlobError::Refused(format!(
                "folder {}: {e}\n  hint: set blobs.folder to a folder that this user may write to",
                cfg.folder.display()
            ))
        };
        std::fs::create_dir_all(&cfg.folder).map_err(|e| wrong(&e))?;
        let folder = cfg.folder.canonicalize().map_err(|e| wrong(&e))?;
        let unfinished = folder.join("tmp");
        remove_leftovers(&unfinished);
        let service = opendal::services::Fs::default()
            .root(&folder.to_string_lossy())
            .atomic_write_dir(&unfinished.to_string_lossy());
        let operator = Operator::new(service)
            .map_err(|e| wrong(&e))?
            .layer(opendal::layers::TimeoutLayer::new().with_timeout(CALL_TIMEOUT))
            .layer(opendal::layers::RetryLayer::new().with_jitter().with_max_times(3));
        Ok(Self { operator, local: Local::new(folder) })
    }

    /// Stores the bytes and returns their reference once they are on disk. Cancellation safe.
    ///
    /// # Errors
    /// [`BlobError`].
    pub async fn put(&self, goal: &str, bytes: impl Into<Bytes>) -> Result<String> {
        self.put_lasting(goal, bytes.into(), Lasting::Synced).await
    }

    /// As [`Blobs::put`], but a power cut within the next seconds may take the object: for records that nothing depends on.
    ///
    /// # Errors
    /// [`BlobError`].
    pub async fn put_soon(&self, goal: &str, bytes: impl Into<Bytes>) -> Result<String> {
        self.put_lasting(goal, bytes.into(), Lasting::Soon).await
    }

    async fn put_lasting(&self, goal: &str, bytes: Bytes, lasting: Lasting) -> Result<String> {
        let (local, goal) = (self.local.clone(), checked(goal)?.to_owned());
        shortly(move || {
            let r = reference(&bytes);
            local.write(&path_of(&goal, &r)?, &bytes, lasting)?;
            Ok(r)
        })
        .await
    }

    /// Stores what an open regular file holds, from its start; returns reference and length.
    ///
    /// # Errors
    /// [`BlobError::Changed`] when it changes meanwhile, [`BlobError::TooBig`], and what the store says.
    pub async fn put_open(&self, goal: &str, file: std::fs::File, bytes_max: u64) -> Result<(String, u64)> {
        if file.metadata()?.len() <= WHOLE_BYTES_MAX.min(bytes_max) {
            let bytes = blocking(move || whole(&file, WHOLE_BYTES_MAX.min(bytes_max))).await?;
            let length = bytes.len() as u64;
            return Ok((self.put(goal, bytes).await?, length));
        }
        let (file, r, length) = blocking(move || {
            let (r, length) = digest(At { file: &file, offset: 0 }, bytes_max)?;
            Ok((file, r, length))
        })
        .await?;
        let path = path_of(goal, &r)?;
        if !self.holds(&path, length).await? {
            self.copy_in(&r, &path, file, length).await?;
        }
        self.sync_names(&path).await?;
        Ok((r, length))
    }

    /// Second pass over a long file: copies it, and refuses to finish if it is not what was hashed.
    async fn copy_in(&self, r: &str, path: &str, file: std::fs::File, length: u64) -> Result<()> {
        let lost = |e: opendal::Error| BlobError::of(r, &e);
        let mut writer = self.operator.writer(path).await.map_err(lost)?;
        let (mut file, mut hash, mut offset) = (file, Sha256::new(), 0_u64);
        while offset < length {
            let piece;
            (file, piece) = blocking(move || {
                let mut piece = vec![0; PIECE_BYTES];
                let read = file.read_at(&mut piece, offset)?;
                piece.truncate(read);
                Ok((file, piece))
            })
            .await?;
            if piece.is_empty() {
                break;
            }
            offset += piece.len() as u64;
            hash.update(&piece);
            writer.write(piece).await.map_err(lost)?;
        }
        if offset != length || hex(&hash.finalize()) != r {
            let _ = writer.abort().await;
            return Err(BlobError::Changed);
        }
        writer.close().await.map_err(lost)?;
        Ok(())
    }

    /// Whether the object is there in full: it is only ever renamed into place.
    async fn holds(&self, path: &str, length: u64) -> Result<bool> {
        match self.operator.stat(path).await {
            Ok(meta) => Ok(meta.content_length() == length),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            Err(e) => Err(BlobError::of(path, &e)),
        }
    }

    async fn sync_names(&self, path: &str) -> Result<()> {
        let (local, path) = (self.local.clone(), path.to_owned());
        shortly(move || local.sync_names(&path)).await
    }

    /// Reads an object of at most `bytes_max`; its bytes are checked against the reference.
    ///
    /// # Errors
    /// [`BlobError`].
    pub async fn get(&self, goal: &str, r: &str, bytes_max: u64) -> Result<Bytes> {
        let (local, path, r) = (self.local.clone(), path_of(goal, r)?, r.to_owned());
        shortly(move || local.read(&path, &r, bytes_max)).await
    }

    /// Copies an object into an open file; returns its length.
    ///
    /// # Errors
    /// [`BlobError::Damaged`] after the last byte when they do not give the hash, and what the disk says.
    pub async fn get_to_open(&self, goal: &str, r: &str, mut to: std::fs::File) -> Result<u64> {
        let copy = self.copy(goal, r)?;
        blocking(move || copy.into_file(&mut to)).await
    }

    /// A copy of an object that a blocking thread will make.
    ///
    /// # Errors
    /// [`BlobError::Name`].
    pub(crate) fn copy(&self, goal: &str, r: &str) -> Result<Copy> {
        Ok(Copy { local: self.local.clone(), path: path_of(goal, r)?, r: r.into() })
    }

    /// Deletes everything of a goal. Repeat it until it succeeds.
    ///
    /// # Errors
    /// [`BlobError`].
    pub async fn delete_goal(&self, goal: &str) -> Result<()> {
        let path = format!("goals/{}/", checked(goal)?);
        let deleted = self.operator.delete_with(&path).recursive(true).await;
        self.local.forget_names();
        deleted.map_err(|e| BlobError::of(goal, &e))
    }

    /// Leaves a mark that hosts with the same store see.
    ///
    /// # Errors
    /// [`BlobError`].
    pub async fn write_nonce(&self, nonce: &str) -> Result<()> {
        let path = format!("fleet/nonce-{}", checked(nonce)?);
        self.operator.write(&path, nonce.to_owned()).await.map_err(|e| BlobError::of(nonce, &e))?;
        self.sync_names(&path).await
    }

    /// Whether the mark of [`Blobs::write_nonce`] is seen from here. A store that fails sees nothing (I7).
    pub async fn sees_nonce(&self, nonce: &str) -> bool {
        let Ok(nonce) = checked(nonce) else { return false };
        match self.operator.read(&format!("fleet/nonce-{nonce}")).await {
            Ok(bytes) => bytes.to_bytes() == nonce.as_bytes(),
            Err(_) => false,
        }
    }
}

/// An object that is to be copied into a file; see [`Blobs::copy`].
pub(crate) struct Copy {
    local: Local,
    path: String,
    r: String,
}

impl Copy {
    /// Copies it and returns its length. Blocks.
    ///
    /// # Errors
    /// [`BlobError::Damaged`] after the last byte when they do not give the hash, and what the disk says.
    pub(crate) fn into_file(self, to: &mut std::fs::File) -> Result<u64> {
        self.local.copy(&self.path, &self.r, to)
    }
}

fn checked(name: &str) -> Result<&str> {
    if config::is_word(name) { Ok(name) } else { Err(BlobError::Name(name.chars().take(80).collect())) }
}

fn path_of(goal: &str, r: &str) -> Result<String> {
    if !is_reference(r) {
        return Err(BlobError::Name(r.chars().take(80).collect()));
    }
    Ok(format!("goals/{}/{}/{r}", checked(goal)?, &r[..2]))
}

/// Reads a file from an offset of its own: the file's shared position is not touched.
struct At<'a> {
    file: &'a std::fs::File,
    offset: u64,
}

impl Read for At<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read_at(into, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

fn whole(file: &std::fs::File, bytes_max: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    At { file, offset: 0 }.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max { Err(BlobError::Changed) } else { Ok(bytes) }
}

/// Disk work away from the async threads.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|e| BlobError::Unavailable(e.to_string()))?
}

/// The same for what takes a moment unless the disk hangs.
async fn shortly<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let late = |_| BlobError::Unavailable(format!("no answer within {} s", CALL_TIMEOUT.as_secs()));
    tokio::time::timeout(CALL_TIMEOUT, blocking(work)).await.map_err(late)?
}

fn remove_leftovers(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let age = entry.metadata().and_then(|m| m.modified()).map(|at| at.elapsed().unwrap_or_default());
        if age.is_ok_and(|age| age > LEFTOVER_AGE) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const GOAL: &str = "0123456789abcdef0123456789abcdef";

    fn store() -> (tempfile::TempDir, Blobs) {
        let folder = tempfile::tempdir().unwrap();
        let blobs =
            Blobs::open(&config::Blobs { folder: folder.path().join("deep/er"), ..Default::default() })
                .unwrap();
        (folder, blobs)
    }

    #[tokio::test]
    async fn what_is_put_comes_back_under_its_hash() {
        let (folder, blobs) = store();
        let r = blobs.put(GOAL, "hello").await.unwrap();
        assert_eq!(r, "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
        assert_eq!(blobs.put(GOAL, "hello").await.unwrap(), r);
        assert_eq!(blobs.get(GOAL, &r, 5).await.unwrap(), "hello");
        let path = folder.path().join(format!("deep/er/goals/{GOAL}/2c/{r}"));
        assert_eq!(std::fs::read(path).unwrap(), b"hello");
        assert!(matches!(blobs.get(GOAL, &r, 4).await, Err(BlobError::TooBig { bytes: 5, bytes_max: 4 })));
        assert!(matches!(blobs.get("another", &r, 5).await, Err(BlobError::NotFound(_))));
    }

    #[tokio::test]
    async fn c8_a_long_file_is_stored_in_pieces_and_refused_above_its_cap() {
        let (folder, blobs) = store();
        let long: Vec<u8> = (0..WHOLE_BYTES_MAX + 12_345).map(|n| (n % 251) as u8).collect();
        let path = folder.path().join("long");
        std::fs::write(&path, &long).unwrap();
        let open = || std::fs::File::open(&path).unwrap();
        let (r, length) = blobs.put_open(GOAL, open(), u64::MAX).await.unwrap();
        assert_eq!((r.as_str(), length), (reference(&long).as_str(), long.len() as u64));
        let back = folder.path().join("back");
        assert_eq!(blobs.get_to_open(GOAL, &r, std::fs::File::create(&back).unwrap()).await.unwrap(), length);
        assert_eq!(std::fs::read(&back).unwrap(), long);
        assert!(matches!(blobs.put_open(GOAL, open(), 1000).await, Err(BlobError::TooBig { .. })));
        assert_eq!(std::fs::read_dir(folder.path().join("deep/er/tmp")).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn damaged_bytes_are_not_given_out() {
        let (folder, blobs) = store();
        let r = blobs.put(GOAL, "good").await.unwrap();
        let path = folder.path().join(format!("deep/er/goals/{GOAL}/{}/{r}", &r[..2]));
        std::fs::OpenOptions::new().write(true).open(path).unwrap().write_all(b"evil").unwrap();
        assert!(matches!(blobs.get(GOAL, &r, 10).await, Err(BlobError::Damaged(_))));
        let to = folder.path().join("to");
        let to = std::fs::File::create(to).unwrap();
        assert!(matches!(blobs.get_to_open(GOAL, &r, to).await, Err(BlobError::Damaged(_))));
    }

    #[tokio::test]
    async fn names_from_outside_do_not_leave_the_folder() {
        let (_folder, blobs) = store();
        let r = blobs.put(GOAL, "x").await.unwrap();
        for goal in ["..", "", "a/b", "../../etc", "a b"] {
            assert!(matches!(blobs.put(goal, "x").await, Err(BlobError::Name(_))), "{goal}");
            assert!(matches!(blobs.get(goal, &r, 9).await, Err(BlobError::Name(_))), "{goal}");
            assert!(matches!(blobs.delete_goal(goal).await, Err(BlobError::Name(_))), "{goal}");
        }
        for r in ["", "..", "../passwd", &r.to_uppercase(), &r[1..]] {
            assert!(matches!(blobs.get(GOAL, r, 9).await, Err(BlobError::Name(_))), "{r}");
        }
    }

    #[tokio::test]
    async fn a_goals_objects_go_with_the_goal() {
        let (folder, blobs) = store();
        let r = blobs.put(GOAL, "mine").await.unwrap();
        blobs.put("uploads", "mine").await.unwrap();
        blobs.delete_goal(GOAL).await.unwrap();
        blobs.delete_goal(GOAL).await.unwrap();
        assert!(matches!(blobs.get(GOAL, &r, 9).await, Err(BlobError::NotFound(_))));
        assert!(!folder.path().join("deep/er/goals").join(GOAL).exists());
        assert_eq!(blobs.get("uploads", &r, 9).await.unwrap(), "mine");
    }

    #[tokio::test]
    async fn hosts_with_one_folder_see_each_others_nonce() {
        let (folder, blobs) = store();
        blobs.write_nonce("abc123").await.unwrap();
        let same =
            Blobs::open(&config::Blobs { folder: folder.path().join("deep/er"), ..Default::default() });
        assert!(same.unwrap().sees_nonce("abc123").await);
        let (_other_folder, other) = store();
        assert!(!other.sees_nonce("abc123").await);
        assert!(!other.sees_nonce("../abc123").await);
    }
}
