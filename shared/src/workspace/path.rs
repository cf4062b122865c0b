//! Which texts are paths of a workspace, and where a path belongs. Pure.

use std::path::{Component, Path, PathBuf};

/// Longest path, in bytes.
const PATH_BYTES_MAX: usize = 512;
/// Longest name of one folder or file, in bytes: what file systems take.
const NAME_BYTES_MAX: usize = 255;
/// Folders that tools leave behind and nobody wants delivered, at any depth.
const IGNORED: &[&str] = &[".git", "__pycache__", "node_modules", ".cache"];

/// Why a text is not a path of a workspace. The model hears it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("the path is empty")]
    Empty,
    #[error("the path has {0} bytes, at most 512 are allowed and 255 for one name")]
    TooLong(usize),
    #[error("the path must be relative to the workspace, such as outputs/report.md")]
    Absolute,
    #[error("the path must not contain `..`")]
    Parent,
    #[error("the path must not contain control characters")]
    Control,
}

/// The text as a relative path without `.` and empty parts: never absolute, never with `..`, NUL or other
/// control characters, at most 512 bytes.
///
/// # Errors
/// [`PathError`] says what is wrong.
pub fn safe_path(text: &str) -> Result<PathBuf, PathError> {
    if text.len() > PATH_BYTES_MAX {
        return Err(PathError::TooLong(text.len()));
    }
    if text.chars().any(char::is_control) {
        return Err(PathError::Control);
    }
    let mut path = PathBuf::new();
    for part in Path::new(text).components() {
        match part {
            Component::Normal(name) if name.len() > NAME_BYTES_MAX => {
                return Err(PathError::TooLong(name.len()));
            }
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::ParentDir => return Err(PathError::Parent),
            Component::RootDir | Component::Prefix(_) => return Err(PathError::Absolute),
        }
    }
    if path.as_os_str().is_empty() { Err(PathError::Empty) } else { Ok(path) }
}

/// What becomes of a file at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Part of the attempt, and of the workspace once accepted.
    Published,
    /// Below `temp/`: the attempt's own, never published.
    Temp,
    /// `TODO.md` or `FILE_INDEX.json`: drawn from the store, so never part of a manifest (I1).
    Drawn,
    /// In a folder that nobody wants delivered.
    Ignored,
}

/// Where a path (as [`safe_path`] gives it) belongs.
#[must_use]
pub fn place_of(path: &Path) -> Place {
    let mut parts = path.iter();
    if path.iter().any(|part| IGNORED.iter().any(|name| part == *name)) {
        return Place::Ignored;
    }
    match (parts.next(), parts.next()) {
        (Some(first), _) if first == "temp" => Place::Temp,
        (Some(name), None) if name == super::TODO || name == super::FILE_INDEX => Place::Drawn,
        (Some(_), _) | (None, _) => Place::Published,
    }
}

/// The path as a manifest's key, if it is one: normal, and of a place that is published.
pub(super) fn is_key(text: &str) -> bool {
    safe_path(text).is_ok_and(|path| path.as_os_str() == text && place_of(&path) == Place::Published)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn paths_that_leave_the_workspace_are_refused() {
        let long = "a/".repeat(300);
        let name = "n".repeat(256);
        for (text, why) in [
            ("", PathError::Empty),
            (".", PathError::Empty),
            ("././", PathError::Empty),
            ("/", PathError::Absolute),
            ("/etc/passwd", PathError::Absolute),
            ("//etc/passwd", PathError::Absolute),
            ("..", PathError::Parent),
            ("outputs/../../etc/passwd", PathError::Parent),
            ("a/..", PathError::Parent),
            ("a\0b", PathError::Control),
            ("a\nb", PathError::Control),
            (&long, PathError::TooLong(600)),
            (&name, PathError::TooLong(256)),
        ] {
            assert_eq!(safe_path(text), Err(why), "{text:?}");
        }
        for (text, path) in [
            ("outputs/a b.md", "outputs/a b.md"),
            ("./outputs//x/./y", "outputs/x/y"),
            ("outputs/", "outputs"),
            ("...", "..."),
            ("a..b/报告.md", "a..b/报告.md"),
            ("C:\\x", "C:\\x"),
        ] {
            assert_eq!(safe_path(text), Ok(path.into()), "{text:?}");
        }
    }

    #[test]
    fn places() {
        for (text, place) in [
            ("outputs/a.md", Place::Published),
            ("a", Place::Published),
            ("outputs/TODO.md", Place::Published),
            ("outputs/temp/x", Place::Published),
            ("TODO.md", Place::Drawn),
            ("FILE_INDEX.json", Place::Drawn),
            ("temp", Place::Temp),
            ("temp/x/y", Place::Temp),
            (".git/config", Place::Ignored),
            ("outputs/__pycache__/x.pyc", Place::Ignored),
            ("temp/node_modules/x", Place::Ignored),
            (".cache", Place::Ignored),
        ] {
            assert_eq!(place_of(Path::new(text)), place, "{text}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_accepted_stays_beneath_and_is_normal(text in "[a/. \\\\\u{0}\u{7f}é-]{0,40}|(\\.\\./|/|\\./|a){0,8}") {
            if let Ok(path) = safe_path(&text) {
                prop_assert!(path.is_relative());
                prop_assert!(!path.as_os_str().is_empty());
                prop_assert!(path.components().all(|c| matches!(c, Component::Normal(_))));
                prop_assert!(path.as_os_str().len() <= PATH_BYTES_MAX);
                let again = safe_path(path.to_str().unwrap());
                prop_assert_eq!(again.as_deref(), Ok(path.as_path()));
                prop_assert!(Path::new("/w").join(&path).starts_with("/w/"));
            }
        }

        #[test]
        fn any_text_is_answered(text in any::<String>()) {
            let _ = safe_path(&text);
        }
    }
}
