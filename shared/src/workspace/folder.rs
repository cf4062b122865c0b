//! A folder in which a sandbox has worked: everything in it is untrusted. Opens files beneath it step by step
//! without following links, regular files only, and lists what is there with a reason for what is not taken.
//!
//! Each step of a path is opened relative to the step before with `O_NOFOLLOW`, so that no link and no
//! rename between two looks leads outside; `..` never gets here, see [`safe_path`](super::safe_path).

use super::{PathError, owner};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, Flock, FlockArg, OFlag, openat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Deepest folder that is looked into.
const DEPTH_MAX: usize = 32;
/// Beginning of the names of folders that this module makes and removes.
const NAME: &str = "attempt-";
const FOLDER: OFlag =
    OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// Why a file of an attempt is not read or written. The model hears it.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("`{0}` does not exist")]
    NotThere(String),
    #[error("`{path}` is {kind}, only regular files are taken")]
    NotRegular { path: String, kind: &'static str },
    #[error("`{path}` has {bytes} bytes, {bytes_max} are allowed")]
    TooBig { path: String, bytes: u64, bytes_max: u64 },
    /// A place that is not the actor's to write: drawn or ignored.
    #[error("`{path}` cannot be written: {why}")]
    NotYours { path: String, why: &'static str },
    #[error("`{path}`: {source}")]
    Disk { path: String, source: std::io::Error },
}

/// Something in the folder that is not taken, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    pub path: String,
    pub why: String,
}

/// What tells that a file is still the one that was looked at. The change time cannot be set by a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub device: u64,
    pub inode: u64,
    pub bytes: u64,
    pub changed_ns: i128,
    pub modified_ns: i128,
}

/// What a look at the whole folder found.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Regular files, sorted by path.
    pub files: Vec<(String, Stamp)>,
    pub skipped: Vec<Skipped>,
    /// There was more than `entries_max`; the listing is not complete.
    pub cut: bool,
}

/// An open folder. One that was made here is removed when dropped.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    root: OwnedFd,
    /// Tells other processes that a folder of ours is in use; `None` for a user's folder, which stays.
    lock: Option<Flock<OwnedFd>>,
}

impl Folder {
    /// Makes a new folder below `scratch`, which is made if it is not there. Blocks.
    ///
    /// # Errors
    /// What the disk says.
    pub fn make(scratch: &Path) -> std::io::Result<Self> {
        std::fs::create_dir_all(scratch)?;
        let mut last = std::io::Error::other("no folder could be made");
        // Another process that removes leftovers may take a folder between making and locking it.
        for _ in 0..10 {
            let path = tempfile::Builder::new().prefix(NAME).tempdir_in(scratch)?.keep();
            match File::open(&path) {
                Ok(folder) => {
                    let root = OwnedFd::from(folder);
                    match Flock::lock(root.try_clone()?, FlockArg::LockExclusiveNonblock) {
                        Ok(lock) => return Ok(Self { path, root, lock: Some(lock) }),
                        Err((_, errno)) => last = errno.into(),
                    }
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Opens a user's own folder, which is made if it is not there and stays. Blocks.
    ///
    /// # Errors
    /// What the disk says.
    pub fn of_user(path: &Path) -> std::io::Result<Self> {
        std::fs::create_dir_all(path)?;
        Ok(Self { path: path.to_owned(), root: File::open(path)?.into(), lock: None })
    }

    /// Removes the folders of processes that died. Blocks.
    pub fn remove_leftovers(scratch: &Path) {
        let Ok(entries) = std::fs::read_dir(scratch) else { return };
        for entry in entries.flatten().filter(|e| e.file_name().to_string_lossy().starts_with(NAME)) {
            let path = entry.path();
            let Ok(folder) = nix::fcntl::open(&path, FOLDER, Mode::empty()) else { continue };
            if let Ok(_lock) = Flock::lock(folder, FlockArg::LockExclusiveNonblock) {
                remove(&path);
            }
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn create_in(&self, folder: &OwnedFd, name: &Path, path: &Path) -> Result<File, FileError> {
        let file = create(folder, name, path)?;
        owner::inherit(&self.root, folder, name).map_err(|errno| failed(path, errno))?;
        Ok(file)
    }

    /// The folder that holds the path's last name, and that name.
    fn parent(&self, path: &Path, make: bool) -> Result<(OwnedFd, PathBuf), FileError> {
        let shown = || path.display().to_string();
        let (Some(name), Some(above)) = (path.file_name(), path.parent()) else {
            return Err(PathError::Empty.into());
        };
        let mut folder = self.root.try_clone().map_err(|source| FileError::Disk { path: shown(), source })?;
        for part in above.iter() {
            if make {
                match mkdirat(&folder, part, Mode::from_bits_truncate(0o755)) {
                    Ok(()) => owner::inherit(&self.root, &folder, part.as_ref())
                        .map_err(|errno| failed(path, errno))?,
                    Err(Errno::EEXIST) => {}
                    Err(errno) => return Err(failed(path, errno)),
                }
            }
            folder = openat(&folder, part, FOLDER, Mode::empty()).map_err(|errno| {
                if errno == Errno::ELOOP || errno == Errno::ENOTDIR {
                    FileError::NotRegular { path: shown(), kind: "beneath a link or a file" }
                } else {
                    failed(path, errno)
                }
            })?;
        }
        Ok((folder, name.into()))
    }

    /// Opens a regular file with one name for reading. Never blocks on a FIFO, never touches a device.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn open(&self, path: &Path) -> Result<File, FileError> {
        let (folder, name) = self.parent(path, false)?;
        regular(path, &folder, &name)?;
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file =
            File::from(openat(&folder, &name, flags, Mode::empty()).map_err(|errno| failed(path, errno))?);
        still_regular(path, &file)?;
        Ok(file)
    }

    /// Reads a part of a regular file: at most `limit` bytes from `offset`. Returns them and the file's length.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn read(&self, path: &Path, offset: u64, limit: usize) -> Result<(Vec<u8>, u64), FileError> {
        let disk = |source| FileError::Disk { path: path.display().to_string(), source };
        let file = self.open(path)?;
        let length = file.metadata().map_err(disk)?.len();
        let wanted = usize::try_from(length.saturating_sub(offset)).unwrap_or(usize::MAX).min(limit);
        let (mut bytes, mut filled) = (vec![0; wanted], 0);
        while filled < wanted {
            match file.read_at(&mut bytes[filled..], offset + filled as u64).map_err(disk)? {
                0 => break,
                read => filled += read,
            }
        }
        bytes.truncate(filled);
        Ok((bytes, length))
    }

    /// Writes a file, replacing what has the name (a link is replaced, not followed). The bytes appear at once.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), FileError> {
        let (folder, name) = self.parent(path, true)?;
        if fstatat(&folder, &name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok_and(|s| kind(&s) == SFlag::S_IFDIR) {
            return Err(FileError::NotRegular { path: path.display().to_string(), kind: "a folder" });
        }
        let beside = PathBuf::from(format!(".muster-{}", uuid::Uuid::now_v7().simple()));
        let written = self
            .fill(&folder, &beside, path, bytes)
            .and_then(|()| renameat(&folder, &beside, &folder, &name).map_err(|errno| failed(path, errno)));
        if written.is_err() {
            let _ = unlinkat(&folder, &beside, UnlinkatFlags::NoRemoveDir);
        }
        written
    }

    fn fill(&self, folder: &OwnedFd, name: &Path, path: &Path, bytes: &[u8]) -> Result<(), FileError> {
        self.create_in(folder, name, path)?
            .write_all(bytes)
            .map_err(|source| FileError::Disk { path: path.display().to_string(), source })
    }

    /// Makes a new file for writing; its name must be free.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn create(&self, path: &Path) -> Result<File, FileError> {
        let (folder, name) = self.parent(path, true)?;
        self.create_in(&folder, &name, path)
    }

    /// Appends to a regular file, which is made if it is not there; `bytes_max` for the whole of it.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn append(&self, path: &Path, bytes: &[u8], bytes_max: u64) -> Result<u64, FileError> {
        let (folder, name) = self.parent(path, true)?;
        match regular(path, &folder, &name) {
            Err(FileError::NotThere(_)) => {
                self.write(path, bytes)?;
                return Ok(bytes.len() as u64);
            }
            other => other?,
        }
        let flags =
            OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let mut file =
            File::from(openat(&folder, &name, flags, Mode::empty()).map_err(|errno| failed(path, errno))?);
        let length = still_regular(path, &file)? + bytes.len() as u64;
        if length > bytes_max {
            return Err(FileError::TooBig { path: path.display().to_string(), bytes: length, bytes_max });
        }
        file.write_all(bytes)
            .map_err(|source| FileError::Disk { path: path.display().to_string(), source })?;
        Ok(length)
    }

    /// Gives a file another name, replacing what has that name.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn rename(&self, from: &Path, to: &Path) -> Result<(), FileError> {
        let (old, old_name) = self.parent(from, false)?;
        let (new, new_name) = self.parent(to, true)?;
        renameat(&old, &old_name, &new, &new_name).map_err(|errno| failed(to, errno))
    }

    /// Makes a folder and those above it.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn make_folder(&self, path: &Path) -> Result<(), FileError> {
        self.parent(&path.join("x"), true).map(|_| ())
    }

    /// Removes a file; one that is not there is fine.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn remove(&self, path: &Path) -> Result<(), FileError> {
        let (folder, name) = match self.parent(path, false) {
            Err(FileError::NotThere(_)) => return Ok(()),
            other => other?,
        };
        match unlinkat(&folder, &name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(failed(path, errno)),
        }
    }

    /// Lists the regular files; at most `entries_max` files and folders are looked at, and files above
    /// `bytes_max` are skipped. `enter` says which folders are looked into.
    pub(super) fn list(
        &self,
        entries_max: usize,
        bytes_max: u64,
        enter: impl Fn(&Path) -> bool,
    ) -> std::io::Result<Listing> {
        let mut listing = Listing::default();
        let mut looked_at = 0;
        let mut open = vec![(PathBuf::new(), self.root.try_clone()?)];
        while let Some((above, folder)) = open.pop() {
            let mut names: Vec<OsString> = Vec::new();
            // A second descriptor: the first stays for the names inside.
            let mut dir = Dir::from_fd(openat(&folder, ".", FOLDER, Mode::empty())?)?;
            for entry in dir.iter() {
                let name = entry?.file_name().to_bytes().to_vec();
                if name != b"." && name != b".." {
                    looked_at += 1;
                    if looked_at > entries_max {
                        listing.cut = true;
                        return Ok(listing);
                    }
                    names.push(OsString::from_vec(name));
                }
            }
            for name in names {
                let path = above.join(&name);
                match look(&path, &folder, &name, bytes_max) {
                    Look::Gone => {}
                    Look::File(path, stamp) => listing.files.push((path, stamp)),
                    Look::Skipped(why) => listing.skipped.push(Skipped { path: shown(&path), why }),
                    Look::Folder if !enter(&path) => {}
                    Look::Folder if path.iter().count() >= DEPTH_MAX => {
                        listing.skipped.push(Skipped { path: shown(&path), why: "too deep".into() });
                    }
                    Look::Folder => match openat(&folder, name.as_os_str(), FOLDER, Mode::empty()) {
                        Ok(inside) => open.push((path, inside)),
                        Err(Errno::ENOENT) => {}
                        Err(errno) => {
                            listing.skipped.push(Skipped { path: shown(&path), why: errno.desc().into() });
                        }
                    },
                }
            }
        }
        listing.files.sort_by(|a, b| a.0.cmp(&b.0));
        listing.skipped.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(listing)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.lock.is_some() {
            remove(&self.path);
        }
    }
}

enum Look {
    Gone,
    Folder,
    File(String, Stamp),
    Skipped(String),
}

fn look(path: &Path, folder: &OwnedFd, name: &OsString, bytes_max: u64) -> Look {
    let stat = match fstatat(folder, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::ENOENT) => return Look::Gone,
        Err(errno) => return Look::Skipped(errno.desc().into()),
    };
    if kind(&stat) == SFlag::S_IFDIR {
        return Look::Folder;
    }
    if let Err(why) = single(&stat) {
        return Look::Skipped(why.into());
    }
    let stamp = Stamp::of(&stat);
    if stamp.bytes > bytes_max {
        return Look::Skipped(format!("{} bytes, {bytes_max} are allowed", stamp.bytes));
    }
    let Some(text) = path.to_str() else { return Look::Skipped("its name is not UTF-8".into()) };
    match super::safe_path(text) {
        Ok(_) => Look::File(text.into(), stamp),
        Err(why) => Look::Skipped(why.to_string()),
    }
}

impl Stamp {
    #[allow(clippy::unnecessary_cast, reason = "these types differ between platforms")]
    fn of(stat: &FileStat) -> Self {
        Self {
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            bytes: stat.st_size as u64,
            changed_ns: i128::from(stat.st_ctime) * 1_000_000_000 + i128::from(stat.st_ctime_nsec),
            modified_ns: i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec),
        }
    }

    /// The stamp of an open file.
    pub(super) fn of_open(file: &File) -> std::io::Result<Self> {
        let meta = file.metadata()?;
        Ok(Self {
            device: meta.dev(),
            inode: meta.ino(),
            bytes: meta.len(),
            changed_ns: i128::from(meta.ctime()) * 1_000_000_000 + i128::from(meta.ctime_nsec()),
            modified_ns: i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec()),
        })
    }
}

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

/// A regular file with one name: a second name could be a file outside that the host must not touch.
fn single(stat: &FileStat) -> Result<(), &'static str> {
    let kind = kind(stat);
    if kind != SFlag::S_IFREG {
        return Err(match kind {
            SFlag::S_IFLNK => "a symbolic link",
            SFlag::S_IFDIR => "a folder",
            SFlag::S_IFIFO => "a FIFO",
            SFlag::S_IFSOCK => "a socket",
            _ => "a device",
        });
    }
    if stat.st_nlink != 1 { Err("a hard link") } else { Ok(()) }
}

fn regular(path: &Path, folder: &OwnedFd, name: &Path) -> Result<(), FileError> {
    let stat = fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW).map_err(|errno| failed(path, errno))?;
    single(&stat).map_err(|kind| FileError::NotRegular { path: shown(path), kind })
}

/// The file may have been exchanged between the look and the opening. Returns its length.
fn still_regular(path: &Path, file: &File) -> Result<u64, FileError> {
    let stat = nix::sys::stat::fstat(file.as_fd()).map_err(|errno| failed(path, errno))?;
    single(&stat).map_err(|kind| FileError::NotRegular { path: shown(path), kind })?;
    Ok(stat.st_size as u64)
}

fn create(folder: &OwnedFd, name: &Path, path: &Path) -> Result<File, FileError> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(folder, name, flags, Mode::from_bits_truncate(0o644))
        .map(File::from)
        .map_err(|errno| failed(path, errno))
}

fn failed(path: &Path, errno: Errno) -> FileError {
    let path = shown(path);
    let kind = [(Errno::ELOOP, "a symbolic link"), (Errno::ENXIO, "a FIFO"), (Errno::EISDIR, "a folder")];
    if errno == Errno::ENOENT {
        return FileError::NotThere(path);
    }
    match kind.into_iter().find(|(of, _)| *of == errno) {
        Some((_, kind)) => FileError::NotRegular { path, kind },
        None => FileError::Disk { path, source: errno.into() },
    }
}

/// A path for messages: names from a sandbox must not break lines or fill a log.
fn shown(path: &Path) -> String {
    path.to_string_lossy().chars().take(200).flat_map(char::escape_debug).collect()
}

/// Removes the folder, although somebody took the rights on folders inside. A sandbox that was just killed may
/// still write into it: then a thread of its own tries again.
fn remove(path: &Path) {
    if std::fs::remove_dir_all(path).is_ok() {
        return;
    }
    give_rights(path);
    if std::fs::remove_dir_all(path).is_ok() || !path.exists() {
        return;
    }
    let path = path.to_owned();
    std::thread::spawn(move || remove_later(&path));
}

#[expect(clippy::disallowed_methods, reason = "a thread of its own")]
fn remove_later(path: &Path) {
    for wait in [10, 100, 1_000] {
        std::thread::sleep(Duration::from_millis(wait));
        give_rights(path);
        if std::fs::remove_dir_all(path).is_ok() || !path.exists() {
            return;
        }
    }
    tracing::warn!(folder = %path.display(), "attempt folder stays");
}

fn give_rights(path: &Path) {
    let mut open = vec![path.to_owned()];
    while let Some(folder) = open.pop() {
        let _ = std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700));
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        open.extend(entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn made() -> (tempfile::TempDir, Folder) {
        let scratch = tempfile::tempdir().unwrap();
        let folder = Folder::make(&scratch.path().join("deep/er")).unwrap();
        (scratch, folder)
    }

    fn p(text: &str) -> &Path {
        Path::new(text)
    }

    fn list(folder: &Folder) -> (Vec<String>, Vec<(String, String)>) {
        let listing = folder.list(1000, 1000, |_| true).unwrap();
        let skipped = listing.skipped.into_iter().map(|s| (s.path, s.why)).collect();
        (listing.files.into_iter().map(|(path, _)| path).collect(), skipped)
    }

    #[test]
    fn files_are_written_read_appended_and_removed() {
        let (_scratch, folder) = made();
        folder.write(p("a/b/c.txt"), b"one").unwrap();
        folder.write(p("a/b/c.txt"), b"two").unwrap();
        assert_eq!(folder.append(p("a/b/c.txt"), b"+3", 100).unwrap(), 5);
        assert_eq!(folder.append(p("new"), b"x", 100).unwrap(), 1);
        assert_eq!(folder.read(p("a/b/c.txt"), 0, 99).unwrap(), (b"two+3".to_vec(), 5));
        assert_eq!(folder.read(p("a/b/c.txt"), 3, 1).unwrap(), (b"+".to_vec(), 5));
        assert_eq!(folder.read(p("a/b/c.txt"), 9, 1).unwrap(), (vec![], 5));
        assert!(matches!(folder.append(p("new"), b"xyz", 3), Err(FileError::TooBig { bytes: 4, .. })));
        assert!(matches!(folder.write(p("a/b"), b""), Err(FileError::NotRegular { .. })));
        assert!(matches!(folder.open(p("a/b")), Err(FileError::NotRegular { .. })));
        assert!(matches!(folder.open(p("a/none")), Err(FileError::NotThere(_))));
        assert_eq!(list(&folder).0, ["a/b/c.txt", "new"]);
        folder.remove(p("new")).unwrap();
        folder.remove(p("new")).unwrap();
        assert_eq!(list(&folder).0, ["a/b/c.txt"]);
    }

    #[test]
    fn links_lead_nowhere() {
        let (scratch, folder) = made();
        let outside = scratch.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("secret"), "s").unwrap();
        symlink(outside.join("secret"), folder.path().join("link")).unwrap();
        symlink(&outside, folder.path().join("dir")).unwrap();
        symlink("nowhere", folder.path().join("dangling")).unwrap();
        std::fs::hard_link(outside.join("secret"), folder.path().join("hard")).unwrap();
        for path in ["link", "dir/secret", "dangling", "hard", "dir"] {
            assert!(matches!(folder.open(p(path)), Err(FileError::NotRegular { .. })), "{path}");
            assert!(matches!(folder.append(p(path), b"!", 99), Err(FileError::NotRegular { .. })), "{path}");
        }
        assert!(folder.write(p("dir/new"), b"!").is_err());
        assert!(folder.create(p("link")).is_err());
        folder.write(p("link"), b"replaced").unwrap();
        folder.write(p("hard"), b"replaced").unwrap();
        assert_eq!(std::fs::read(outside.join("secret")).unwrap(), b"s");
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
        let (files, skipped) = list(&folder);
        assert_eq!(files, ["hard", "link"]);
        assert_eq!(
            skipped,
            [("dangling".into(), "a symbolic link".into()), ("dir".into(), "a symbolic link".into())]
        );
    }

    #[test]
    fn fifos_devices_huge_files_and_bad_names_are_skipped_with_a_reason_and_never_block() {
        let (_scratch, folder) = made();
        nix::unistd::mkfifo(&folder.path().join("fifo"), Mode::from_bits_truncate(0o600)).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("socket")).unwrap();
        File::create(folder.path().join("huge")).unwrap().set_len(1 << 40).unwrap();
        std::fs::write(folder.path().join("line\nbreak"), "").unwrap();
        std::fs::write(folder.path().join(OsString::from_vec(vec![b'x', 0xff])), "").unwrap();
        assert!(matches!(folder.open(p("fifo")), Err(FileError::NotRegular { kind: "a FIFO", .. })));
        assert!(matches!(folder.append(p("fifo"), b"!", 99), Err(FileError::NotRegular { .. })));
        let (files, skipped) = list(&folder);
        assert!(files.is_empty(), "{files:?}");
        let why: Vec<_> = skipped.iter().map(|(path, why)| format!("{path}: {why}")).collect();
        assert_eq!(
            why,
            [
                "fifo: a FIFO",
                "huge: 1099511627776 bytes, 1000 are allowed",
                "line\\nbreak: the path must not contain control characters",
                "socket: a socket",
                "x\u{fffd}: its name is not UTF-8",
            ]
        );
    }

    #[test]
    fn a_bomb_of_files_or_depth_is_cut() {
        let (_scratch, folder) = made();
        let mut deep = folder.path().to_owned();
        for _ in 0..60 {
            deep.push("d");
        }
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("x"), "").unwrap();
        let (files, skipped) = list(&folder);
        assert_eq!((files.len(), skipped[0].1.as_str()), (0, "too deep"));
        for n in 0..50 {
            std::fs::write(folder.path().join(n.to_string()), "").unwrap();
        }
        assert!(folder.list(40, 1000, |_| true).unwrap().cut);
    }

    #[test]
    fn it_goes_when_dropped_whatever_rights_were_taken_and_leftovers_of_the_dead_go_too() {
        let scratch = tempfile::tempdir().unwrap();
        let (gone, alive) = (Folder::make(scratch.path()).unwrap(), Folder::make(scratch.path()).unwrap());
        gone.write(p("a/b"), b"").unwrap();
        std::fs::set_permissions(gone.path().join("a"), std::fs::Permissions::from_mode(0o000)).unwrap();
        drop(gone);
        std::fs::create_dir(scratch.path().join("attempt-dead")).unwrap();
        std::fs::create_dir(scratch.path().join("other")).unwrap();
        Folder::remove_leftovers(scratch.path());
        let mut left: Vec<_> =
            std::fs::read_dir(scratch.path()).unwrap().map(|e| e.unwrap().path()).collect();
        left.sort();
        assert_eq!(left, [alive.path().to_owned(), scratch.path().join("other")]);
    }
}
