//! A real redis-server for one test: own port, own folder; it can be stopped, killed, frozen and started again on the same data.

use crate::{process, wait};
use ::redis as client;
use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Time for a start, loading the data included.
const START_DEADLINE: Duration = Duration::from_secs(20);

/// What survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Persistence {
    /// The append-only file, synced every second: what production runs.
    #[default]
    Everysec,
    /// Synced before every reply.
    Always,
    /// Nothing survives a restart.
    None,
}

/// How the server is set up.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub persistence: Persistence,
    /// 0: no limit.
    pub maxmemory_bytes: u64,
    /// Further settings, as pairs: `("maxmemory-policy", "allkeys-lru")`.
    pub settings: Vec<(&'static str, String)>,
    /// Variables of the server's environment.
    pub env: Vec<(&'static str, String)>,
}

/// The server. Dropping it kills it and removes its folder.
pub struct Redis {
    port: u16,
    folder: TempDir,
    options: Options,
    child: Option<Child>,
}

impl Redis {
    /// A server as production has it: append-only file synced every second, no eviction.
    ///
    /// # Errors
    /// When redis-server is not installed or does not answer in time.
    pub async fn start() -> Result<Self> {
        Self::start_with(Options::default()).await
    }

    /// A server with these options.
    ///
    /// # Errors
    /// As [`Redis::start`].
    pub async fn start_with(options: Options) -> Result<Self> {
        let mut last = None;
        // A port may be taken between looking and binding.
        for _ in 0..5 {
            let folder = tempfile::Builder::new().prefix("muster-redis-").tempdir()?;
            let mut redis =
                Self { port: process::free_port()?, folder, options: options.clone(), child: None };
            match redis.restart().await {
                Ok(()) => return Ok(redis),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| anyhow::anyhow!("not tried")))
    }

    /// Starts it again on the same port and data; waits until it answers PING (so: until the data is loaded).
    ///
    /// # Errors
    /// When it ends at once (its log is in the message) or does not answer in time.
    pub async fn restart(&mut self) -> Result<()> {
        self.kill();
        let log = self.folder.path().join("redis.log");
        let mut command = Command::new("redis-server");
        command
            .current_dir(self.folder.path())
            .args(["--bind", "127.0.0.1", "--port", &self.port.to_string()])
            .args(["--dir", &self.folder.path().to_string_lossy()])
            .args(["--logfile", &log.to_string_lossy()])
            .args(["--save", "", "--daemonize", "no", "--enable-debug-command", "local"])
            .args(["--repl-diskless-sync-delay", "0"])
            .args(match self.options.persistence {
                Persistence::None => ["--appendonly", "no", "--appendfsync", "no"],
                Persistence::Everysec => ["--appendonly", "yes", "--appendfsync", "everysec"],
                Persistence::Always => ["--appendonly", "yes", "--appendfsync", "always"],
            })
            .args([
                "--maxmemory-policy",
                "noeviction",
                "--maxmemory",
                &self.options.maxmemory_bytes.to_string(),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.envs(self.options.env.iter().map(|(name, value)| (name, value)));
        for (name, value) in &self.options.settings {
            command.arg(format!("--{name}")).arg(value);
        }
        self.child =
            Some(process::spawn(&mut command).context(
                "the tests need redis-server: `apt-get install redis-server`, or run tests/run.sh",
            )?);
        let url = self.url();
        let mut child = self.child.take().context("just started")?;
        let ready = wait::until("redis answers PING", START_DEADLINE, async || {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(Err(status)));
            }
            Ok(ping(&url).await.ok().map(Ok))
        })
        .await?;
        match ready {
            Ok(()) => {
                self.child = Some(child);
                Ok(())
            }
            Err(status) => {
                let log = std::fs::read_to_string(&log).unwrap_or_default();
                bail!("redis-server ended with {status}: {}", log.lines().last().unwrap_or("no log"))
            }
        }
    }

    /// `redis://127.0.0.1:port`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Where its append-only file is.
    #[must_use]
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How a program or the store connects to it.
    #[must_use]
    pub fn config(&self) -> shared::config::Redis {
        self.config_at(&self.url())
    }

    /// The same through another address (a proxy's).
    #[must_use]
    pub fn config_at(&self, url: &str) -> shared::config::Redis {
        shared::config::Redis {
            url: url.into(),
            allow_no_persistence: self.options.persistence == Persistence::None,
            ..shared::config::Redis::default()
        }
    }

    /// kill −9: what was not written yet is lost.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            process::kill_now(&mut child);
        }
    }

    /// A clean end: the append-only file is complete.
    ///
    /// # Errors
    /// When it does not end in time.
    pub async fn stop(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            process::signal(&child, Signal::SIGTERM);
            process::ended(&mut child, START_DEADLINE).await?;
        }
        Ok(())
    }

    /// Connections stay open, nothing answers.
    pub fn freeze(&self) {
        if let Some(child) = &self.child {
            process::signal(child, Signal::SIGSTOP);
        }
    }

    /// Goes on after [`Redis::freeze`].
    pub fn thaw(&self) {
        if let Some(child) = &self.child {
            process::signal(child, Signal::SIGCONT);
        }
    }

    /// A connection of the test's own, for looking and for planting faults.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn connection(&self) -> Result<client::aio::MultiplexedConnection> {
        connection(&self.url()).await
    }

    /// One command; the reply as `T`.
    ///
    /// # Errors
    /// The server's error, or a reply that is no `T`.
    pub async fn query<T: client::FromRedisValue>(&self, words: &[&str]) -> Result<T> {
        let mut connection = self.connection().await?;
        command(words)?.query_async(&mut connection).await.with_context(|| words.join(" "))
    }

    /// All keys, sorted.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn keys(&self) -> Result<Vec<String>> {
        let mut keys: Vec<String> = self.query(&["KEYS", "*"]).await?;
        keys.sort();
        Ok(keys)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking()
            && let Ok(log) = std::fs::read_to_string(self.folder.path().join("redis.log"))
        {
            let tail: Vec<&str> = log.lines().rev().take(5).collect();
            eprintln!(
                "--- redis-server on {}: {}",
                self.port,
                tail.into_iter().rev().collect::<Vec<_>>().join("\n")
            );
        }
    }
}

fn command(words: &[&str]) -> Result<client::Cmd> {
    let (name, args) = words.split_first().context("a command has a name")?;
    let mut command = client::cmd(name);
    command.arg(args);
    Ok(command)
}

async fn connection(url: &str) -> Result<client::aio::MultiplexedConnection> {
    // The client gives up on a reply after 500 ms by default; DEBUG SLEEP and loading take longer.
    let config = client::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(Duration::from_secs(1)))
        .set_response_timeout(Some(Duration::from_secs(30)));
    Ok(client::Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await?)
}

async fn ping(url: &str) -> Result<()> {
    let mut connection = connection(url).await?;
    client::cmd("PING").query_async::<String>(&mut connection).await?;
    Ok(())
}
