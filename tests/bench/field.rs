//! The field of one measurement: a private redis-server, a mark file, the processes of one peer. All go with it.

use crate::peer::Peer;
use anyhow::{Context, Result, ensure};
use harness::redis::Redis;
use harness::{process, wait};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(180);
/// What an idle worker of a peer that says nothing is given to start.
const SETTLE: Duration = Duration::from_secs(4);

/// One measurement's server, mark file and processes.
pub(crate) struct Field {
    pub(crate) peer: Peer,
    pub(crate) redis: Redis,
    folder: tempfile::TempDir,
    workers: Vec<Child>,
}

impl Drop for Field {
    fn drop(&mut self) {
        for worker in 0..self.workers.len() {
            self.kill(worker);
        }
    }
}

/// One line of the mark file.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) tag: String,
    pub(crate) value: u128,
    pub(crate) at_ns: u128,
}

impl Field {
    pub(crate) async fn start(peer: &Peer) -> Result<Self> {
        Ok(Self {
            peer: peer.clone(),
            redis: Redis::start().await?,
            folder: tempfile::tempdir()?,
            workers: vec![],
        })
    }

    fn marks_file(&self) -> PathBuf {
        self.folder.path().join("marks")
    }

    fn command(&self, words: &[&str]) -> Result<Command> {
        let mut command = self.peer.command(words)?;
        command
            .env("PEER_REDIS", self.url())
            .env("PEER_MARKS", self.marks_file())
            .env("PEER_CONC", self.peer.slots.to_string());
        Ok(command)
    }

    /// Starts a worker; answers its number.
    pub(crate) fn worker(&mut self, queue: &str) -> Result<usize> {
        let mut command = self.command(&["worker", queue])?;
        self.workers.push(process::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()))?);
        Ok(self.workers.len() - 1)
    }

    /// Until an idle worker may be taken to wait for work.
    pub(crate) async fn settle(&self) {
        if self.peer.settles {
            tokio::time::sleep(SETTLE).await;
        }
    }

    /// kill -9 of the worker and of all that it started, as when its machine dies.
    pub(crate) fn kill(&mut self, worker: usize) {
        let Some(child) = self.workers.get_mut(worker) else { return };
        for pid in descendants(child.id()).into_iter().rev() {
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Address of its server, with the database.
    pub(crate) fn url(&self) -> String {
        format!("{}/0", self.redis.url().trim_end_matches('/'))
    }

    /// Until no rewrite of the append-only file runs: it costs whom it meets, whatever is measured.
    pub(crate) async fn rewritten(&self) -> Result<()> {
        let mut con = self.redis.connection().await?;
        wait::until("the append-only file is rewritten", Duration::from_secs(120), async || {
            let info: String = redis::cmd("INFO").arg("persistence").query_async(&mut con).await?;
            let busy =
                ["aof_rewrite_in_progress:1", "aof_rewrite_scheduled:1"].iter().any(|w| info.contains(w));
            Ok((!busy).then_some(()))
        })
        .await
    }

    /// Bytes that the server uses, without what its allocator keeps.
    pub(crate) async fn used_bytes(&self) -> Result<u64> {
        let text: String =
            redis::cmd("INFO").arg("memory").query_async(&mut self.redis.connection().await?).await?;
        let line = text.lines().find_map(|l| l.strip_prefix("used_memory:")).context("no used_memory")?;
        Ok(line.trim().parse()?)
    }

    /// Process id of a worker.
    pub(crate) fn pid(&self, worker: usize) -> Option<u32> {
        self.workers.get(worker).map(Child::id)
    }

    /// Runs the words to their end; what they printed, if it is JSON.
    pub(crate) fn call(&self, words: &[&str]) -> Result<Value> {
        let output = self.command(words)?.stderr(Stdio::inherit()).output()?;
        ensure!(output.status.success(), "{} {words:?} ended with {}", self.peer.name, output.status);
        Ok(serde_json::from_slice(&output.stdout).unwrap_or_default())
    }

    pub(crate) fn marks(&self) -> Vec<Mark> {
        let text = std::fs::read_to_string(self.marks_file()).unwrap_or_default();
        let line = |l: &str| {
            let mut words = l.split(' ');
            Some(Mark {
                tag: words.next()?.to_owned(),
                value: words.next()?.parse().ok()?,
                at_ns: words.next()?.parse().ok()?,
            })
        };
        text.lines().filter_map(line).collect()
    }

    /// The marks with the tag, once there are `n` of them.
    pub(crate) async fn wait(&self, tag: &str, n: usize) -> Result<Vec<Mark>> {
        wait::until("all marks are there", PATIENCE, async || {
            let marks: Vec<Mark> = self.marks().into_iter().filter(|m| m.tag == tag).collect();
            Ok((marks.len() >= n).then_some(marks))
        })
        .await
    }

    /// Raw job cycles a second over 16 connections: the machine's measure of the moment.
    pub(crate) fn baseline(&self) -> Result<f64> {
        let steps: [&[&str]; 3] = [
            &["LPUSH", "raw:q", "x"],
            &["BLMOVE", "raw:q", "raw:a", "RIGHT", "LEFT", "0.1"],
            &["LREM", "raw:a", "1", "x"],
        ];
        let mut seconds = 0.0;
        for step in steps {
            let port = self.redis.port().to_string();
            let output = Command::new("redis-benchmark")
                .args(["-p", &port, "-n", "15000", "-c", "16", "-P", "1", "--csv"])
                .args(step)
                .output()
                .context("redis-benchmark comes with redis-tools")?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let last = text.lines().last().unwrap_or_default().to_owned();
            let rate: f64 =
                last.split("\",\"").nth(1).unwrap_or_default().trim_matches('"').parse().unwrap_or(0.0);
            ensure!(rate > 0.0, "redis-benchmark said {last:?}");
            seconds += 1.0 / rate;
        }
        Ok(1.0 / seconds)
    }

    /// One row; `more` is laid over it.
    pub(crate) fn row(
        &self,
        scenario: &str,
        value: f64,
        unit: &str,
        base: Option<f64>,
        more: &Value,
    ) -> Value {
        let mut row = json!({"peer": self.peer.name, "version": self.peer.version, "scenario": scenario, "value": value,
            "unit": unit, "baseline_ops": base, "ratio": base.map(|b| value / b)});
        if let (Some(row), Some(more)) = (row.as_object_mut(), more.as_object()) {
            row.extend(more.clone());
        }
        row
    }
}

fn descendants(pid: u32) -> Vec<nix::unistd::Pid> {
    let parents: Vec<(u32, u32)> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let child = entry.file_name().to_string_lossy().parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
            Some((child, parent))
        })
        .collect();
    let mut found = vec![pid];
    let mut next = 0;
    while next < found.len() {
        let of = found[next];
        found.extend(parents.iter().filter(|(_, parent)| *parent == of).map(|(child, _)| *child));
        next += 1;
    }
    found.into_iter().filter_map(|p| i32::try_from(p).ok()).map(nix::unistd::Pid::from_raw).collect()
}

/// From the first mark to the last one.
pub(crate) fn span_s(marks: &[Mark]) -> f64 {
    let times = marks.iter().map(|m| m.at_ns);
    let (first, last) = (times.clone().min().unwrap_or(0), times.max().unwrap_or(0));
    (last - first) as f64 / 1e9
}
