//! Tools of others that come as Python packages: `tests/run.sh` installs them, pinned, below the target folder.

use crate::process;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program of those packages: `python`, `hadolint`, …
///
/// # Errors
/// When it is not installed.
pub fn tool(name: &str) -> Result<PathBuf> {
    let me = std::env::current_exe().context("the test's own path")?;
    let found = me.ancestors().map(|folder| folder.join("tools/python/bin").join(name)).find(|p| p.is_file());
    found.with_context(|| format!("{name} is not installed below the target folder: run tests/run.sh once"))
}

/// `tests/python/deploy.py ARGS…`; what it prints.
///
/// # Errors
/// What it finds wrong.
pub fn deploy(args: &[&str]) -> Result<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/deploy.py");
    run(Command::new(tool("python")?).arg(script).args(args))
}

/// The chart's manifests with these values.
///
/// # Errors
/// When Helm's library refuses to render it.
pub fn chart(values: &Value) -> Result<Vec<Value>> {
    Ok(serde_json::from_str(&deploy(&["render", &values.to_string()])?)?)
}

/// Runs it to its end; its standard output.
///
/// # Errors
/// When it ends with another code than 0; with all that it said.
pub fn run(command: &mut Command) -> Result<String> {
    let child = process::spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))?;
    let out = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    if !out.status.success() {
        bail!("{}\n{said}{}", out.status, String::from_utf8_lossy(&out.stderr));
    }
    Ok(said)
}
