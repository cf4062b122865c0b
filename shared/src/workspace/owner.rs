//! Whose files are in a folder: what root makes in one is its owner's, who may be the user of the sandbox.

use nix::fcntl::AtFlags;
use nix::sys::stat::fstat;
use nix::unistd::{Gid, Uid, fchownat, geteuid};
use std::os::fd::OwnedFd;
use std::path::Path;

/// Makes what was just made under that name in `folder` the owner's of `root`. Does nothing for other users than root.
///
/// # Errors
/// What the disk says.
pub(super) fn inherit(root: &OwnedFd, folder: &OwnedFd, name: &Path) -> nix::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let owner = fstat(root)?;
    if owner.st_uid == 0 {
        return Ok(());
    }
    let (user, group) = (Uid::from_raw(owner.st_uid), Gid::from_raw(owner.st_gid));
    fchownat(folder, name, Some(user), Some(group), AtFlags::AT_SYMLINK_NOFOLLOW)
}

#[cfg(test)]
mod tests {
    use crate::workspace::folder::Folder;
    use std::os::unix::fs::{MetadataExt, chown};
    use std::path::Path;

    #[test]
    fn what_is_made_in_a_folder_is_its_owners() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::of_user(dir.path()).unwrap();
        let is_root = nix::unistd::geteuid().is_root();
        let owner = if is_root { 65_534 } else { nix::unistd::geteuid().as_raw() };
        if is_root {
            chown(dir.path(), Some(owner), Some(owner)).unwrap();
        }
        folder.write(Path::new("a/b/c"), b"x").unwrap();
        folder.create(Path::new("a/d")).unwrap();
        for path in ["a", "a/b", "a/b/c", "a/d"] {
            assert_eq!(std::fs::metadata(dir.path().join(path)).unwrap().uid(), owner, "{path}");
        }
    }
}
