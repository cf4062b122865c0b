//! Where the built programs are. Tests in a package of their own do not get them built.

use anyhow::{Context, Result, bail};
use std::path::PathBuf;

/// The built binary of that name, beside the test's own (or in `MUSTER_TEST_BINARIES`).
///
/// # Errors
/// When it is not there: says what to run.
pub(super) fn find(name: &str) -> Result<PathBuf> {
    let folder = match std::env::var_os("MUSTER_TEST_BINARIES") {
        Some(folder) => PathBuf::from(folder),
        None => {
            // target/<profile>/deps/<test>, or a program of the tests beside the others.
            let me = std::env::current_exe().context("the test's own path")?;
            let mine = me.parent().context("a folder")?;
            let tests = mine.file_name().is_some_and(|name| name == "deps");
            if tests { mine.parent().context("target/<profile>")?.to_path_buf() } else { mine.to_path_buf() }
        }
    };
    let path = folder.join(name);
    if !path.is_file() {
        bail!(
            "{} is not there: run `cargo build --workspace --bins` first (tests/run.sh does)",
            path.display()
        );
    }
    Ok(path)
}
