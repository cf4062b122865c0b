//! The command line as a process: arguments in, exit code and both outputs back.

use super::binary;
use crate::process;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A command that does not end by itself is a bug; runs of whole goals stay far below.
const DEADLINE: Duration = Duration::from_secs(90);

/// How a command ended and what it said.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Exit code; −1 when a signal ended it.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// Its standard output as JSON.
    ///
    /// # Errors
    /// When it is none; shows both outputs.
    pub fn json(&self) -> Result<serde_json::Value> {
        serde_json::from_str(&self.stdout).with_context(|| format!("not JSON: {self:?}"))
    }
}

pub(super) async fn run(args: &[&str], env: &BTreeMap<String, String>, folder: &Path) -> Result<Ran> {
    run_binary(&binary::find("muster")?, args, env, folder)
        .await
        .with_context(|| format!("muster {}", args.join(" ")))
}

pub(super) async fn run_binary(
    binary: &Path,
    args: &[&str],
    env: &BTreeMap<String, String>,
    folder: &Path,
) -> Result<Ran> {
    // Files instead of pipes: no output is too long, and nothing blocks the one thread of the test.
    let outputs = tempfile::tempdir()?;
    let (out, err) = (outputs.path().join("out"), outputs.path().join("err"));
    let mut command = Command::new(binary);
    for (name, _) in std::env::vars().filter(|(n, _)| n.starts_with("MUSTER_") || n.ends_with("_API_KEY")) {
        command.env_remove(name);
    }
    command
        .args(args)
        .envs(env)
        .env("NO_COLOR", "1")
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(File::create(&out)?)
        .stderr(File::create(&err)?);
    let mut child = process::spawn(&mut command)?;
    let ended = process::ended(&mut child, DEADLINE).await;
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    match ended {
        Ok(status) => Ok(Ran { code: status.code().unwrap_or(-1), stdout: read(&out), stderr: read(&err) }),
        Err(error) => {
            process::kill_now(&mut child);
            Err(error.context(format!("stdout: {}\nstderr: {}", read(&out), read(&err))))
        }
    }
}
