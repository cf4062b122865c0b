//! One attempt: a local folder with the accepted files, in which the work is done, and what it changed.
//! A reviewer opens the same with the overlay that it checks.

use super::folder::Stamp;
use super::{
    Change, Entry, FileError, Folder, Manifest, Overlay, Place, Skipped, WorkspaceError, mime_of, place_of,
    safe_path,
};
use crate::blob::{self, Blobs};
use crate::ticket::limits::Limits;
use futures::{StreamExt, TryStreamExt};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, FileTimes};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// Files and folders of an attempt that are looked at, `temp/` and ignored ones included.
const ENTRIES_MAX: usize = 20_000;
/// Files copied or stored at once.
const COPIES: usize = 8;
/// A file that changed this shortly before it was looked at may change again within the clock's tick.
const TICK: Duration = Duration::from_millis(50);
/// How long ago a copied file says it was modified.
const BACKDATED: Duration = Duration::from_secs(1);
/// The folders that users know.
const LAYOUT: &[&str] = &["outputs", "research", "data", "temp"];
/// Where an earlier attempt's version stands when the accepted one moved meanwhile.
const CLASHES: &str = "temp/conflicts";

/// A file of the earlier attempt whose accepted version moved meanwhile: the accepted one stands at its path,
/// the attempt's own below `temp/conflicts/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clash {
    pub path: String,
    /// References, or empty where there is no file: of the accepted version, and of the attempt's.
    pub theirs: String,
    pub ours: String,
}

impl Clash {
    /// Where the two versions stand, for the prompt.
    #[must_use]
    pub fn describe(&self) -> String {
        let Self { path, theirs, ours } = self;
        let accepted = if theirs.is_empty() { "deleted".to_owned() } else { format!("stands at {path}") };
        let own =
            if ours.is_empty() { "deleted it".to_owned() } else { format!("stands at {CLASHES}/{path}") };
        format!("{path}: the accepted version {accepted}, the earlier attempt's {own}")
    }
}

#[derive(Clone, Debug)]
struct Seen {
    stamp: Stamp,
    hash: String,
    /// The stamp is old enough to be trusted.
    settled: bool,
}

/// One attempt's folder. Dropped: the folder is removed.
#[derive(Debug)]
pub struct Attempt {
    blobs: Blobs,
    goal: String,
    root: String,
    base: Manifest,
    folder: Arc<Folder>,
    files_max: usize,
    bytes_max: u64,
    creator: String,
    seen: BTreeMap<String, Seen>,
    skipped: Vec<Skipped>,
    clashes: Vec<Clash>,
    descriptions: BTreeMap<String, String>,
    /// References whose bytes are known to be stored.
    stored: BTreeSet<String>,
}

impl Attempt {
    /// Makes the folder below `scratch`: the files of the root, then those of an earlier attempt's overlay
    /// (a retry goes on from there; a reviewer sees what it checks). `creator` is noted with new files.
    ///
    /// # Errors
    /// [`WorkspaceError`]; nothing stays then.
    pub async fn open(
        blobs: &Blobs,
        goal: &str,
        root: &str,
        previous_overlay: &str,
        scratch: &Path,
        limits: &Limits,
        creator: &str,
    ) -> Result<Self, WorkspaceError> {
        let base = Manifest::load(blobs, goal, root).await?;
        let overlay = Overlay::load(blobs, goal, previous_overlay).await?;
        let (files, clashes) = view(&base, &overlay);
        let folder = Arc::new(make_folder(scratch).await?);
        let stored = files.values().map(|e| e.hash.clone()).collect();
        let copies = files.into_iter().map(|(path, entry)| {
            let (folder, copy) = (Arc::clone(&folder), blobs.copy(goal, &entry.hash));
            disk(move || {
                let mut file = folder.create(Path::new(&path))?;
                copy?.into_file(&mut file)?;
                let stamp =
                    backdated(&file).map_err(|source| WorkspaceError::Disk { what: path.clone(), source })?;
                Ok((path, Seen { stamp, hash: entry.hash, settled: true }))
            })
        });
        let seen: Vec<_> = futures::stream::iter(copies).buffer_unordered(COPIES).try_collect().await?;
        let seen =
            seen.into_iter().filter(|(path, _)| place_of(Path::new(path)) == Place::Published).collect();
        Ok(Self {
            blobs: blobs.clone(),
            goal: goal.into(),
            root: root.into(),
            base,
            folder,
            files_max: limits.attempt_files_max,
            bytes_max: limits.attempt_bytes_max,
            creator: creator.into(),
            seen,
            skipped: Vec::new(),
            clashes,
            descriptions: BTreeMap::new(),
            stored,
        })
    }

    /// Where the files are.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The open folder, for the safe reading and writing of single files.
    #[must_use]
    pub fn files(&self) -> Arc<Folder> {
        Arc::clone(&self.folder)
    }

    /// The accepted files that it was made from.
    #[must_use]
    pub fn base(&self) -> &Manifest {
        &self.base
    }

    /// What the last look did not take, and why.
    #[must_use]
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// Files of the earlier attempt that could not simply be laid over the accepted ones.
    #[must_use]
    pub fn clashes(&self) -> &[Clash] {
        &self.clashes
    }

    /// Notes what a file is, for FILE_INDEX.json.
    pub fn describe(&mut self, path: &str, text: &str) {
        self.descriptions.insert(path.into(), text.into());
    }

    /// Paths that hold a file now, sorted, `temp/` left out; as of the last [`Attempt::scan`].
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.seen.keys().map(String::as_str)
    }

    /// The changes against the base, as of the last [`Attempt::scan`]: path, and whether a file stands there.
    pub fn changes(&self) -> impl Iterator<Item = (&str, bool)> {
        let made = self
            .seen
            .iter()
            .filter(|(path, seen)| self.base.hash(path) != Some(&seen.hash))
            .map(|(path, _)| (path.as_str(), true));
        let gone =
            self.base.files.keys().filter(|path| self.is_gone(path)).map(|path| (path.as_str(), false));
        made.chain(gone)
    }

    /// An accepted file that cannot be looked at (below something skipped) is unchanged, not deleted.
    fn is_gone(&self, path: &str) -> bool {
        !self.seen.contains_key(path)
            && !self.skipped.iter().any(|s| {
                path.strip_prefix(s.path.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
    }

    /// Looks at the folder. Returns the paths that are new or changed since the last look, sorted.
    ///
    /// # Errors
    /// [`WorkspaceError::Limit`] for a flood of entries, and what the disk says. Cancellation safe: a look
    /// that was cut off counts as not made.
    pub async fn scan(&mut self) -> Result<Vec<String>, WorkspaceError> {
        let (folder, bytes_max, before) = (Arc::clone(&self.folder), self.bytes_max, self.seen.clone());
        let (now, skipped) = disk(move || look(&folder, bytes_max, &before)).await?;
        let changed = now
            .iter()
            .filter(|(path, seen)| self.seen.get(*path).is_none_or(|before| before.hash != seen.hash))
            .map(|(path, _)| path.clone())
            .collect();
        self.seen = now;
        self.skipped = skipped;
        Ok(changed)
    }

    /// Whether what changed is within the limits (I11); as of the last [`Attempt::scan`].
    ///
    /// # Errors
    /// [`WorkspaceError::Limit`] names the one that is not kept.
    pub fn check_limits(&self) -> Result<(), WorkspaceError> {
        let (mut files, mut bytes) = (0_u64, 0_u64);
        for (path, _) in self.changes() {
            files += 1;
            bytes += self.seen.get(path).map_or(0, |seen| seen.stamp.bytes);
        }
        let max = self.files_max as u64;
        if files > max {
            return Err(WorkspaceError::Limit { what: "changed files", found: files, max });
        }
        if bytes > self.bytes_max {
            return Err(WorkspaceError::Limit {
                what: "bytes in changed files",
                found: bytes,
                max: self.bytes_max,
            });
        }
        Ok(())
    }

    /// Stores what changed and returns the overlay's reference; empty when nothing did. May be called after
    /// each step: what is stored already is not stored again. Nothing is published by this (I5).
    ///
    /// # Errors
    /// [`WorkspaceError::Limit`] when the work is too large, and what disk and store say.
    pub async fn seal(&mut self) -> Result<String, WorkspaceError> {
        self.scan().await?;
        self.check_limits()?;
        let mut overlay = Overlay::new(&self.root);
        let changes: Vec<(String, bool)> =
            self.changes().map(|(path, stands)| (path.into(), stands)).collect();
        let attempt = &*self;
        let stored: Vec<(String, Option<Entry>)> = futures::stream::iter(changes)
            .map(|(path, stands)| async move {
                let entry = if stands { Some(attempt.store(&path).await?) } else { None };
                Ok::<_, WorkspaceError>((path, entry))
            })
            .buffer_unordered(COPIES)
            .try_collect()
            .await?;
        for (path, entry) in stored {
            self.stored.extend(entry.as_ref().map(|e| e.hash.clone()));
            let base_hash = self.base.hash(&path).map(Into::into);
            // A file may have got its accepted bytes back between look and storing.
            if entry.as_ref().map(|e| &e.hash) != base_hash.as_ref() {
                overlay.files.insert(path, Change { entry, base_hash });
            }
        }
        overlay.save(&self.blobs, &self.goal).await
    }

    async fn store(&self, path: &str) -> Result<Entry, WorkspaceError> {
        let before = self.base.files.get(path);
        let known = self.seen.get(path).filter(|seen| seen.settled && self.stored.contains(&seen.hash));
        let (hash, size_bytes) = if let Some(seen) = known {
            (seen.hash.clone(), seen.stamp.bytes)
        } else {
            let (folder, at) = (Arc::clone(&self.folder), PathBuf::from(path));
            let file = disk(move || Ok(folder.open(&at)?)).await?;
            self.blobs.put_open(&self.goal, file, self.bytes_max).await?
        };
        Ok(Entry {
            hash,
            size_bytes,
            mime: mime_of(path).into(),
            creator: self.creator.clone(),
            description: self
                .descriptions
                .get(path)
                .or_else(|| before.map(|e| &e.description))
                .cloned()
                .unwrap_or_default(),
            version: before.map_or(0, |e| e.version) + 1,
        })
    }

    /// All files with their sizes in bytes, sorted; `temp/` too, ignored folders not.
    ///
    /// # Errors
    /// What the disk says. A flood of files is cut.
    pub async fn list(&self) -> Result<Vec<(String, u64)>, WorkspaceError> {
        let (folder, bytes_max) = (Arc::clone(&self.folder), self.bytes_max);
        disk(move || {
            let listing = folder
                .list(ENTRIES_MAX, bytes_max, |path| place_of(path) != Place::Ignored)
                .map_err(|source| WorkspaceError::Disk { what: "attempt folder".into(), source })?;
            Ok(listing.files.into_iter().map(|(path, stamp)| (path, stamp.bytes)).collect())
        })
        .await
    }

    /// Who is noted with new files.
    #[must_use]
    pub fn creator(&self) -> &str {
        &self.creator
    }

    /// Reads a file of at most `bytes_max`.
    ///
    /// # Errors
    /// [`FileError`] for what is no path, not there, not a regular file, or too long.
    pub async fn read(&self, path: &str, bytes_max: u64) -> Result<Vec<u8>, FileError> {
        let limit = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let (bytes, length) = self.read_part(path, 0, limit).await?;
        if length > bytes_max {
            return Err(FileError::TooBig { path: path.into(), bytes: length, bytes_max });
        }
        Ok(bytes)
    }

    /// Reads at most `limit` bytes from `offset`; returns them and the file's length.
    ///
    /// # Errors
    /// As [`Attempt::read`].
    pub async fn read_part(
        &self,
        path: &str,
        offset: u64,
        limit: usize,
    ) -> Result<(Vec<u8>, u64), FileError> {
        let (folder, at) = (Arc::clone(&self.folder), safe_path(path)?);
        file_work(path, move || folder.read(&at, offset, limit)).await
    }

    /// Writes a file of the attempt, replacing what was there.
    ///
    /// # Errors
    /// [`FileError`], also for places that are not an actor's to write.
    pub async fn write(&self, path: &str, bytes: Vec<u8>) -> Result<(), FileError> {
        self.within(path, bytes.len() as u64)?;
        let (folder, at) = (Arc::clone(&self.folder), writable(path)?);
        file_work(path, move || folder.write(&at, &bytes)).await
    }

    /// Appends to a file of the attempt; returns its new length.
    ///
    /// # Errors
    /// As [`Attempt::write`].
    pub async fn append(&self, path: &str, bytes: Vec<u8>) -> Result<u64, FileError> {
        let (folder, at, bytes_max) = (Arc::clone(&self.folder), writable(path)?, self.bytes_max);
        self.within(path, bytes.len() as u64)?;
        file_work(path, move || folder.append(&at, &bytes, bytes_max)).await
    }

    fn within(&self, path: &str, bytes: u64) -> Result<(), FileError> {
        if bytes > self.bytes_max {
            return Err(FileError::TooBig { path: path.into(), bytes, bytes_max: self.bytes_max });
        }
        Ok(())
    }
}

/// What stands at each path: the accepted files with the earlier attempt's changes over them, as far as those
/// still fit. Nothing is lost: a version that does not fit stands below `temp/conflicts/` (C5).
fn view(base: &Manifest, overlay: &Overlay) -> (BTreeMap<String, Entry>, Vec<Clash>) {
    let (mut now, mut clashes, mut aside) = (base.clone(), Vec::new(), Vec::new());
    let (gone, made): (Vec<_>, Vec<_>) = overlay.files.iter().partition(|(_, c)| c.entry.is_none());
    for (path, change) in gone.into_iter().chain(made) {
        let theirs = base.hash(path);
        if theirs == change.hash() {
            continue;
        }
        let fits = theirs == change.base_hash.as_deref();
        match &change.entry {
            None if fits => {
                now.files.remove(path);
            }
            Some(entry) if fits && !now.is_blocked(path) => {
                now.files.insert(path.clone(), entry.clone());
            }
            entry => {
                clashes.push(Clash {
                    path: path.clone(),
                    theirs: theirs.unwrap_or_default().into(),
                    ours: change.hash().unwrap_or_default().into(),
                });
                aside.extend(entry.clone().map(|e| (format!("{CLASHES}/{path}"), e)));
            }
        }
    }
    now.files.extend(aside);
    (now.files, clashes)
}

async fn make_folder(scratch: &Path) -> Result<Folder, WorkspaceError> {
    /// Scratch folders whose leftovers this process has looked for.
    static CLEANED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let scratch = scratch.to_owned();
    disk(move || {
        let is_first =
            CLEANED.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(scratch.clone());
        if is_first {
            Folder::remove_leftovers(&scratch);
        }
        let folder = Folder::make(&scratch)
            .map_err(|source| WorkspaceError::Disk { what: scratch.display().to_string(), source })?;
        for name in LAYOUT {
            folder.make_folder(Path::new(name))?;
        }
        Ok(folder)
    })
    .await
}

/// The stamp of a file that was just copied, its modification a while ago: whoever changes it from now on changes the stamp,
/// even within the same tick of the clock.
fn backdated(file: &File) -> std::io::Result<Stamp> {
    file.set_times(FileTimes::new().set_modified(SystemTime::now() - BACKDATED))?;
    Stamp::of_open(file)
}

type Look = (BTreeMap<String, Seen>, Vec<Skipped>);

fn look(folder: &Folder, bytes_max: u64, before: &BTreeMap<String, Seen>) -> Result<Look, WorkspaceError> {
    let listing = folder
        .list(ENTRIES_MAX, bytes_max, |path| place_of(path) == Place::Published)
        .map_err(|source| WorkspaceError::Disk { what: "attempt folder".into(), source })?;
    if listing.cut {
        let max = ENTRIES_MAX as u64;
        return Err(WorkspaceError::Limit { what: "files and folders", found: max + 1, max });
    }
    let (mut now, mut skipped) = (BTreeMap::new(), listing.skipped);
    for (path, stamp) in listing.files {
        if place_of(Path::new(&path)) != Place::Published {
            continue;
        }
        let unchanged = before.get(&path).filter(|seen| seen.settled && seen.stamp == stamp);
        if let Some(seen) = unchanged {
            now.insert(path, seen.clone());
            continue;
        }
        match hash_of(folder, &path, bytes_max) {
            Ok(Some(seen)) => {
                now.insert(path, seen);
            }
            Ok(None) => {}
            Err(why) => skipped.push(Skipped { path, why }),
        }
    }
    Ok((now, skipped))
}

/// `None`: it went away meanwhile. An error is the reason why it is not taken.
fn hash_of(folder: &Folder, path: &str, bytes_max: u64) -> Result<Option<Seen>, String> {
    let file = match folder.open(Path::new(path)) {
        Ok(file) => file,
        Err(FileError::NotThere(_)) => return Ok(None),
        Err(why) => return Err(why.to_string()),
    };
    let stamp = Stamp::of_open(&file).map_err(|e| e.to_string())?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let settled = stamp.changed_ns + (TICK.as_nanos() as i128) < now.as_nanos() as i128;
    let (hash, _) = blob::digest(file, bytes_max).map_err(|e| e.to_string())?;
    Ok(Some(Seen { stamp, hash, settled }))
}

fn writable(path: &str) -> Result<PathBuf, FileError> {
    let safe = safe_path(path)?;
    let why = match place_of(&safe) {
        Place::Published | Place::Temp => return Ok(safe),
        Place::Drawn => "it is drawn from the tickets; report progress instead",
        Place::Ignored => "files there are never delivered",
    };
    Err(FileError::NotYours { path: path.into(), why })
}

/// Disk work away from the async threads.
async fn disk<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, WorkspaceError> + Send + 'static,
) -> Result<T, WorkspaceError> {
    tokio::task::spawn_blocking(work).await.map_err(|e| WorkspaceError::Disk {
        what: "attempt folder".into(),
        source: std::io::Error::other(e),
    })?
}

async fn file_work<T: Send + 'static>(
    path: &str,
    work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<T, FileError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|e| FileError::Disk { path: path.into(), source: std::io::Error::other(e) })?
}

mod put_back;
#[cfg(test)]
mod tests;
