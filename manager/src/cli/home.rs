//! The folder of the fleet on this machine (`.muster/`): where its parts are, its lock, its token, its address.

use super::error::CliError;
use rand::RngExt;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What `muster up` leaves for the other commands to find it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ApiFile {
    pub(crate) url: String,
    pub(crate) token_file: PathBuf,
    #[serde(default)]
    pub(crate) pid: u32,
}

/// What `muster doctor` must know of a running private fleet. Mode 0600: it holds the password of its Redis.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct FleetFile {
    pub(crate) redis_url: String,
    pub(crate) redis_password: String,
    pub(crate) blobs_folder: PathBuf,
    pub(crate) model_url: String,
    pub(crate) model_key: String,
    pub(crate) model_name: String,
}

/// The folder, absolute.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    folder: PathBuf,
}

impl Home {
    pub(crate) fn new(folder: &Path) -> Result<Self, CliError> {
        let folder = std::path::absolute(folder)
            .map_err(|e| CliError::usage(format!("{}: {e}", folder.display()), "give another --home"))?;
        Ok(Self { folder })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Makes the folder and its parts, readable by us alone.
    pub(crate) fn make(&self) -> Result<(), CliError> {
        for part in ["", "logs", "run", "redis", "blobs", "scratch", "live"] {
            let path = self.folder.join(part);
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&path)
                .map_err(|e| trouble(&path, &e))?;
        }
        Ok(())
    }

    /// Held as long as the file lives; a second fleet in the same folder is refused.
    pub(crate) fn lock(&self) -> Result<File, CliError> {
        let path = self.path("lock");
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(|e| trouble(&path, &e))?;
        match file.try_lock() {
            Ok(()) => {
                let pid = std::process::id().to_string();
                file.set_len(0)
                    .and_then(|()| file.write_all(pid.as_bytes()))
                    .map_err(|e| trouble(&path, &e))?;
                Ok(file)
            }
            Err(TryLockError::WouldBlock) => {
                let mut owner = String::new();
                let _ = file.read_to_string(&mut owner);
                Err(CliError::usage(
                    format!("a fleet runs already in {} (process {})", self.folder.display(), owner.trim()),
                    "use it (`muster list`), stop it (`muster down`), or give this one another folder with --home",
                ))
            }
            Err(TryLockError::Error(e)) => Err(trouble(&path, &e)),
        }
    }

    /// Whether a fleet runs here. Asking takes the lock for a moment when none does.
    pub(crate) fn is_locked(&self) -> bool {
        File::open(self.path("lock"))
            .is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    /// The token of this fleet, made at the first call and kept.
    pub(crate) fn token(&self) -> Result<String, CliError> {
        let path = self.path("token");
        if let Ok(kept) = std::fs::read_to_string(&path)
            && !kept.trim().is_empty()
        {
            return Ok(kept.trim().to_owned());
        }
        let token = secret("mst_");
        write_private(&path, &token)?;
        Ok(token)
    }

    pub(crate) fn api(&self) -> Option<ApiFile> {
        let text = std::fs::read_to_string(self.path("api.json")).ok()?;
        serde_json::from_str(&text).ok()
    }

    pub(crate) fn write_api(&self, api: &ApiFile) -> Result<(), CliError> {
        write_private(&self.path("api.json"), &serde_json::json!(api).to_string())
    }

    pub(crate) fn fleet(&self) -> Option<FleetFile> {
        let text = std::fs::read_to_string(self.path("fleet.json")).ok()?;
        serde_json::from_str(&text).ok()
    }

    pub(crate) fn write_fleet(&self, fleet: &FleetFile) -> Result<(), CliError> {
        write_private(&self.path("fleet.json"), &serde_json::json!(fleet).to_string())
    }

    /// Takes down the signs of a fleet that has stopped.
    pub(crate) fn clear(&self) {
        for name in ["api.json", "fleet.json"] {
            let _ = std::fs::remove_file(self.path(name));
        }
    }
}

/// 32 random bytes in hex behind a prefix. The prefix starts with a letter so that no reader of
/// the environment can take it for a number.
pub(crate) fn secret(prefix: &str) -> String {
    let bytes: [u8; 32] = rand::rng().random();
    bytes.iter().fold(prefix.to_owned(), |mut text, b| {
        text.push_str(&format!("{b:02x}"));
        text
    })
}

/// Writes a file of mode 0600, whole or not at all.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<(), CliError> {
    let fresh = path.with_extension("new");
    let _ = std::fs::remove_file(&fresh);
    OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(&fresh)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| std::fs::rename(&fresh, path))
        .map_err(|e| trouble(path, &e))
}

pub(crate) fn trouble(path: &Path, e: &std::io::Error) -> CliError {
    CliError::failed(
        format!("{}: {e}", path.display()),
        "check the folder's owner and free space, or give another --home",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_second_fleet_in_one_folder_is_refused_with_a_hint() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path()).unwrap();
        home.make().unwrap();
        assert!(!home.is_locked());
        let held = home.lock().unwrap();
        assert!(home.is_locked());
        let refused = home.lock().unwrap_err();
        assert_eq!(refused.exit().code(), 64);
        assert!(refused.to_string().contains(&std::process::id().to_string()), "{refused}");
        assert!(refused.hint().contains("--home"));
        drop(held);
        home.lock().unwrap();
    }

    #[test]
    fn the_token_is_kept_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(&dir.path().join("m")).unwrap();
        home.make().unwrap();
        let first = home.token().unwrap();
        assert_eq!(home.token().unwrap(), first);
        assert!(first.starts_with("mst_") && first.len() == 68, "{first}");
        let mode = std::fs::metadata(home.path("token")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(std::fs::metadata(home.folder()).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
