//! Libraries that stand between a program and its system: a shifted clock, a full disk. Built from a page of C each.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds `tests/fixtures/<source>` into `folder`; what `LD_PRELOAD` is to be set to.
///
/// # Errors
/// When there is no C compiler, or it does not compile.
pub fn build(source: &str, folder: &Path) -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(source);
    let library = folder.join(source.with_extension("so").file_name().context("a file")?);
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1"])
        .arg(&source)
        .args(["-ldl", "-o"])
        .arg(&library)
        .output()
        .context("the tests need a C compiler: apt-get install gcc libc6-dev")?;
    if !built.status.success() {
        bail!("{}: {}", source.display(), String::from_utf8_lossy(&built.stderr));
    }
    Ok(library)
}
