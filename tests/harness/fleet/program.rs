//! One program of the fleet: started, killed, frozen, drained, restarted; its log.

use super::binary;
use crate::{process, wait};
use anyhow::{Result, bail};
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// Which of the three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Manager,
    Worker,
    Reviewer,
}

impl Role {
    pub(super) fn binary(self) -> &'static str {
        match self {
            Self::Manager => "muster-manager",
            Self::Worker => "muster-worker",
            Self::Reviewer => "muster-reviewer",
        }
    }

    /// Its section of the configuration, as the environment writes it.
    pub(super) fn section(self) -> &'static str {
        match self {
            Self::Manager => "MANAGER",
            Self::Worker => "WORKER",
            Self::Reviewer => "REVIEWER",
        }
    }
}

/// A process of the fleet.
pub struct Program {
    role: Role,
    port: u16,
    log: PathBuf,
    env: BTreeMap<String, String>,
    child: Option<Child>,
}

impl Program {
    pub(super) fn new(role: Role, port: u16, log: PathBuf, env: BTreeMap<String, String>) -> Self {
        Self { role, port, log, env, child: None }
    }

    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// Port of its HTTP listener.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Process id; 0 when it does not run.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Starts it (again), with the same settings; its log goes on in the same file.
    ///
    /// # Errors
    /// When the binary is missing.
    pub fn start(&mut self) -> Result<()> {
        self.kill();
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(binary::find(self.role.binary())?);
        // Nothing of the developer's own settings reaches the program.
        for (name, _) in std::env::vars().filter(|(n, _)| n.starts_with("MUSTER_") || n.ends_with("_API_KEY"))
        {
            command.env_remove(name);
        }
        command
            .envs(&self.env)
            .current_dir(self.log.parent().unwrap_or(&self.log))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        self.child = Some(process::spawn(&mut command)?);
        Ok(())
    }

    /// Waits for its `/readyz`.
    ///
    /// # Errors
    /// When it ends or does not become ready in time; with the end of its log.
    pub async fn ready(&mut self, deadline: Duration) -> Result<()> {
        let url = format!("http://127.0.0.1:{}/readyz", self.port);
        let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(2)).build()?;
        let Some(child) = self.child.as_mut() else { return Ok(()) };
        let ready = wait::until("it is ready", deadline, async || {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(Err(status)));
            }
            let ok = client.get(&url).send().await.is_ok_and(|r| r.status().is_success());
            Ok(ok.then_some(Ok(())))
        });
        match ready.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(status)) => bail!("{} ended with {status}\n{}", self.role.binary(), self.tail(20)),
            Err(error) => bail!("{}: {error:#}\n{}", self.role.binary(), self.tail(20)),
        }
    }

    /// kill −9.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // A frozen process takes the signal as well.
            process::kill_now(&mut child);
        }
    }

    /// SIGTERM, then waits for its end.
    ///
    /// # Errors
    /// When it does not end in time.
    pub async fn drain(&mut self, deadline: Duration) -> Result<ExitStatus> {
        self.terminate();
        self.ended(deadline).await
    }

    /// SIGTERM, not waited for.
    pub fn terminate(&self) {
        if let Some(child) = &self.child {
            process::signal(child, Signal::SIGTERM);
        }
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it still runs after the deadline.
    pub async fn ended(&mut self, deadline: Duration) -> Result<ExitStatus> {
        let Some(mut child) = self.child.take() else { bail!("{} does not run", self.role.binary()) };
        match process::ended(&mut child, deadline).await {
            Ok(status) => Ok(status),
            Err(error) => {
                self.child = Some(child);
                Err(error.context(self.tail(20)))
            }
        }
    }

    /// Its exit status if it has ended by itself.
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.as_mut().and_then(|c| c.try_wait().ok().flatten())
    }

    /// SIGSTOP: it holds what it holds and does nothing.
    pub fn freeze(&self) {
        if let Some(child) = &self.child {
            process::signal(child, Signal::SIGSTOP);
        }
    }

    /// SIGCONT.
    pub fn thaw(&self) {
        if let Some(child) = &self.child {
            process::signal(child, Signal::SIGCONT);
        }
    }

    /// All of its log.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The last lines of its log, with its name.
    #[must_use]
    pub fn tail(&self, lines: usize) -> String {
        let log = self.log();
        let mut last: Vec<&str> = log.lines().rev().take(lines).collect();
        last.reverse();
        format!("--- {} on port {}:\n{}", self.role.binary(), self.port, last.join("\n"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}
