//! Whose processes the sandbox's are. The kernel does not limit the processes of root, whatever the limits say: a
//! worker that is root starts its sandboxes as a user who owns nothing but the job's folder.

use std::os::unix::fs::{MetadataExt, lchown};
use std::path::Path;

/// The user and group called nobody and nogroup (or nobody) on every Linux.
pub(super) const NOBODY: u32 = 65_534;

/// Whether the user may walk down to the folder; the folder itself will be the user's.
pub(super) fn reaches(user: u32, folder: &Path) -> bool {
    folder.ancestors().skip(1).all(|above| {
        std::fs::metadata(above)
            .is_ok_and(|m| m.mode() & 0o001 != 0 || (m.uid() == user && m.mode() & 0o100 != 0))
    })
}

/// Makes the folder and everything in it the user's; links themselves, not what they point at. Nothing foreign has
/// run in a folder that is not the user's yet. Blocks.
///
/// # Errors
/// What the disk says.
pub(super) fn hand_over(user: u32, folder: &Path) -> std::io::Result<()> {
    if std::fs::symlink_metadata(folder)?.uid() == user {
        return Ok(());
    }
    let mut open = vec![folder.to_owned()];
    while let Some(at) = open.pop() {
        for entry in std::fs::read_dir(&at)? {
            let entry = entry?;
            lchown(entry.path(), Some(user), Some(user))?;
            if entry.file_type()?.is_dir() {
                open.push(entry.path());
            }
        }
    }
    // Last: a folder that was handed over in part is handed over again.
    lchown(folder, Some(user), Some(user))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_below_a_closed_one_is_not_reached() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let close =
            |mode| std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        close(0o700);
        assert!(!reaches(NOBODY, &inner));
        close(0o711);
        assert_eq!(reaches(NOBODY, &inner), reaches(NOBODY, dir.path()));
    }
}
