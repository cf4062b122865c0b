//! The rehearsal model as a process of its own, for a fleet of the tests.

use super::binary;
use crate::process;
use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A rehearsal model that plays a script. Dropping it kills it.
pub struct Rehearsal {
    child: Child,
    url: String,
}

impl Rehearsal {
    /// Starts it and waits for its address.
    ///
    /// # Errors
    /// When the binary is missing, or the script is refused.
    pub fn start(script: &Path) -> Result<Self> {
        let mut command = Command::new(binary::find("muster")?);
        command.arg("rehearsal").arg("--script").arg(script).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = process::spawn(&mut command)?;
        let mut url = String::new();
        let out = child.stdout.take().context("its standard output")?;
        BufReader::new(out).read_line(&mut url)?;
        let url = url.trim().to_owned();
        ensure!(url.starts_with("http://"), "the rehearsal names no address: {url}");
        Ok(Self { child, url })
    }

    /// For [`super::Plan::model`].
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Rehearsal {
    fn drop(&mut self) {
        process::kill_now(&mut self.child);
    }
}
