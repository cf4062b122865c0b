//! The scenarios: a private redis-server, worker processes of this program, one JSON line a number.
//!
//! Keys and scenario names are those of the queue benchmark that measures the peers, so that the rows stand in one
//! table: `peer, version, scenario, value, unit, baseline_ops, ratio, …`. `ratio` is the value by the raw job cycles
//! (LPUSH, BLMOVE, LREM over 16 connections) of redis-benchmark, taken just before and after.

use anyhow::{Context, Result, bail, ensure};
use harness::redis::Redis;
use harness::{process, wait};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const NOOP: usize = 40_000;
const TWO_HOP: usize = 20_000;
const CHILDREN: usize = 1_000;
const PACE: (u64, u64) = (100, 10);
const PATIENCE: Duration = Duration::from_secs(180);

/// All scenarios, in the order in which they run.
pub(crate) const SCENARIOS: &[&str] = &["noop", "two_hop", "latency", "fanout", "quota"];

/// One scenario's server, mark file and processes.
struct Bench {
    redis: Redis,
    folder: tempfile::TempDir,
    workers: Vec<Child>,
}

impl Drop for Bench {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

struct Mark {
    tag: String,
    value: u128,
    at_ns: u128,
}

impl Bench {
    async fn start() -> Result<Self> {
        Ok(Self { redis: Redis::start().await?, folder: tempfile::tempdir()?, workers: vec![] })
    }

    fn marks_file(&self) -> PathBuf {
        self.folder.path().join("marks")
    }

    fn command(&self, words: &[&str]) -> Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(words).env("PEER_REDIS", self.redis.url()).env("PEER_MARKS", self.marks_file());
        Ok(command)
    }

    fn worker(&mut self, lane: &str) -> Result<()> {
        let mut command = self.command(&["worker", lane])?;
        self.workers.push(process::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()))?);
        Ok(())
    }

    fn call(&self, words: &[&str]) -> Result<Value> {
        let output = self.command(words)?.stderr(Stdio::inherit()).output()?;
        ensure!(output.status.success(), "{words:?} ended with {}", output.status);
        Ok(serde_json::from_slice(&output.stdout).unwrap_or_default())
    }

    fn marks(&self) -> Vec<Mark> {
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

    async fn wait(&self, tag: &str, n: usize) -> Result<Vec<Mark>> {
        wait::until("all marks are there", PATIENCE, async || {
            let marks: Vec<Mark> = self.marks().into_iter().filter(|m| m.tag == tag).collect();
            Ok((marks.len() >= n).then_some(marks))
        })
        .await
    }

    /// Raw job cycles a second over 16 connections.
    fn baseline(&self) -> Result<f64> {
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
}

fn row(
    scenario: &str,
    value: f64,
    unit: &str,
    baseline: Option<f64>,
    ratio: Option<f64>,
    more: &Value,
) -> Value {
    let mut row = json!({"peer": "muster", "version": env!("CARGO_PKG_VERSION"), "scenario": scenario, "value": value,
        "unit": unit, "baseline_ops": baseline, "ratio": ratio.or(baseline.map(|b| value / b))});
    if let (Some(row), Some(more)) = (row.as_object_mut(), more.as_object()) {
        row.extend(more.clone());
    }
    row
}

fn span_s(marks: &[Mark]) -> f64 {
    let times = marks.iter().map(|m| m.at_ns);
    let (first, last) = (times.clone().min().unwrap_or(0), times.max().unwrap_or(0));
    (last - first) as f64 / 1e9
}

async fn rate(
    scenario: &str,
    kind: &str,
    n: usize,
    lanes: &[&str],
    tag: &str,
    unit: &str,
) -> Result<Vec<Value>> {
    let mut bench = Bench::start().await?;
    let before = bench.baseline()?;
    let secs = bench.call(&["enqueue", kind, &n.to_string()])?["secs"].as_f64().unwrap_or(0.0);
    for lane in lanes {
        bench.worker(lane)?;
    }
    let marks = bench.wait(tag, n).await?;
    let base = f64::midpoint(before, bench.baseline()?);
    let value = (n - 1) as f64 / span_s(&marks);
    let more = json!({"n": n, "secs": span_s(&marks), "concurrency": 64});
    Ok(vec![
        row(&format!("{scenario}_enqueue"), n as f64 / secs, "jobs/s", Some(base), None, &json!({"n": n})),
        row(scenario, value, unit, Some(base), None, &more),
    ])
}

async fn latency() -> Result<Vec<Value>> {
    let mut bench = Bench::start().await?;
    bench.worker("a")?;
    bench.call(&["pace", &PACE.0.to_string(), &PACE.1.to_string()])?;
    let n = usize::try_from(PACE.0 * PACE.1)?;
    let marks = bench.wait("l", n + 1).await?;
    let mut ms: Vec<f64> =
        marks.iter().filter(|m| m.value > 0).map(|m| m.at_ns.saturating_sub(m.value) as f64 / 1e6).collect();
    ms.sort_by(f64::total_cmp);
    let at = |q: f64| ms[((ms.len() as f64 * q) as usize).min(ms.len() - 1)];
    let more = json!({"n": ms.len()});
    Ok([("p50", at(0.5)), ("p99", at(0.99)), ("max", at(1.0))]
        .map(|(q, v)| row(&format!("latency_{q}"), v, "ms", None, None, &more))
        .to_vec())
}

async fn fanout() -> Result<Vec<Value>> {
    let mut bench = Bench::start().await?;
    let before = bench.baseline()?;
    bench.worker("a")?;
    bench.call(&["fanout", &CHILDREN.to_string()])?;
    let join = bench.wait("j", 1).await?;
    let base = f64::midpoint(before, bench.baseline()?);
    let secs = join.iter().map(|m| (m.at_ns - m.value) as f64 / 1e9).fold(0.0, f64::max);
    let children = bench.marks().iter().filter(|m| m.tag == "c").count();
    let ratio = (CHILDREN + 2) as f64 / secs / base;
    Ok(vec![row("fanout", secs, "s", Some(base), Some(ratio), &json!({"children": children}))])
}

/// Runs one scenario; its rows.
pub(crate) async fn scenario(name: &str) -> Result<Vec<Value>> {
    match name {
        "noop" => rate("noop", "noop", NOOP, &["a"], "n", "jobs/s").await,
        "two_hop" => rate("two_hop", "hop", TWO_HOP, &["review", "a"], "t", "pairs/s").await,
        "latency" => latency().await,
        "fanout" => fanout().await,
        "quota" => crate::quota::run().await,
        other => bail!("no scenario {other}: {}", SCENARIOS.join(", ")),
    }
}

/// Whether this folder's redis tools are there at all: said before anything is started.
pub(crate) fn need_tools() -> Result<()> {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|p| Path::new(&p).join("redis-benchmark").exists())
    });
    ensure!(found, "redis-benchmark is not installed\n  hint: apt-get install redis-tools");
    Ok(())
}
