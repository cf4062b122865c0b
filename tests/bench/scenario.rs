//! The scenarios, the same for every peer: one JSON row a number.
//!
//! Keys and names are those of the queue benchmark of the peers: `peer, version, scenario, value, unit, baseline_ops, ratio,
//! …`. `ratio` is the value by the raw job cycles (LPUSH, BLMOVE, LREM over 16 connections) of redis-benchmark, taken just
//! before and after. Handlers write a mark and do nothing else.

use crate::field::{Field, Mark, span_s};
use crate::own;
use crate::peer::Peer;
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

const CHILDREN: usize = 1_000;
const PACE: (usize, usize) = (100, 10);
/// Naps that are held when the worker is killed.
const NAPS: usize = 64;

/// All scenarios, in the order in which they run.
pub(crate) const SCENARIOS: &[&str] = &["noop", "two_hop", "latency", "fanout", "crash"];

/// Scenarios of this program alone: the peers have no such thing.
pub(crate) const OWN: &[&str] = &[
    "critical_path",
    "independent",
    "recovery",
    "tenants",
    "memory",
    "retained",
    "costs",
    "agents",
    "waiting_agents",
    "quota",
];

/// Sizes and patience of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Part of the usual number of jobs, in percent.
    pub(crate) percent: usize,
    /// How long the orphans of a killed worker are waited for.
    pub(crate) crash_cap_s: u64,
}

impl Default for Size {
    fn default() -> Self {
        Self { percent: 100, crash_cap_s: 60 }
    }
}

async fn rate(peer: &Peer, size: Size, name: &str, kind: &str, tag: &str) -> Result<Vec<Value>> {
    let mut field = Field::start(peer).await?;
    let before = field.baseline()?;
    let (n, unit) = match kind {
        "hop" => (peer.jobs * size.percent / 200, "pairs/s"),
        _ => (peer.jobs * size.percent / 100, "jobs/s"),
    };
    let secs = field.call(&["enqueue", kind, &n.to_string()])?["secs"].as_f64().unwrap_or(0.0);
    if kind == "hop" {
        for queue in peer.hops {
            field.worker(queue)?;
        }
    } else {
        field.worker("a")?;
    }
    let marks = field.wait(tag, n).await?;
    let base = f64::midpoint(before, field.baseline()?);
    let value = (n - 1) as f64 / span_s(&marks);
    let more = json!({"n": n, "secs": span_s(&marks), "concurrency": peer.slots});
    Ok(vec![
        field.row(&format!("{name}_enqueue"), n as f64 / secs, "jobs/s", Some(base), &json!({"n": n})),
        field.row(name, value, unit, Some(base), &more),
    ])
}

async fn latency(peer: &Peer) -> Result<Vec<Value>> {
    let mut field = Field::start(peer).await?;
    field.worker("a")?;
    field.settle().await;
    field.call(&["pace", &PACE.0.to_string(), &PACE.1.to_string()])?;
    let marks = field.wait("l", PACE.0 * PACE.1 + 1).await?;
    let mut ms: Vec<f64> =
        marks.iter().filter(|m| m.value > 0).map(|m| m.at_ns.saturating_sub(m.value) as f64 / 1e6).collect();
    ms.sort_by(f64::total_cmp);
    let at = |q: f64| ms[((ms.len() as f64 * q) as usize).min(ms.len() - 1)];
    let more = json!({"n": ms.len()});
    let row = |(q, v)| field.row(&format!("latency_{q}"), v, "ms", None, &more);
    Ok([("p50", at(0.5)), ("p99", at(0.99)), ("max", at(1.0))].map(row).to_vec())
}

async fn fanout(peer: &Peer) -> Result<Vec<Value>> {
    let mut field = Field::start(peer).await?;
    let before = field.baseline()?;
    field.worker("a")?;
    field.settle().await;
    field.call(&["fanout", &CHILDREN.to_string()])?;
    let join = field.wait("j", 1).await?;
    let base = f64::midpoint(before, field.baseline()?);
    let secs = join.iter().map(|m| (m.at_ns - m.value) as f64 / 1e9).fold(0.0, f64::max);
    let children: BTreeSet<u128> = field.marks().iter().filter(|m| m.tag == "c").map(|m| m.value).collect();
    ensure!(children.len() == CHILDREN, "the join ran after {} of {CHILDREN} children", children.len());
    let ratio = (CHILDREN + 2) as f64 / secs / base;
    Ok(vec![field.row("fanout", secs, "s", Some(base), &json!({"children": children.len(), "ratio": ratio}))])
}

/// A worker that holds naps of two seconds is killed, another one starts at once.
async fn crash(peer: &Peer, size: Size) -> Result<Vec<Value>> {
    let held = NAPS.min(peer.slots.max(1));
    let mut peer = peer.clone();
    peer.slots = held;
    let mut field = Field::start(&peer).await?;
    field.call(&["enqueue", "nap", &NAPS.to_string()])?;
    let first = field.worker("a")?;
    field.wait("s", held).await?;
    field.kill(first);
    let killed = UNIX_EPOCH.elapsed()?.as_nanos();
    let of = |marks: &[Mark], tag: &str| -> BTreeSet<u128> {
        marks.iter().filter(|m| m.tag == tag).map(|m| m.value).collect()
    };
    let before = field.marks();
    let lost: BTreeSet<u128> = of(&before, "s").difference(&of(&before, "e")).copied().collect();
    field.worker("a")?;
    let cap = Duration::from_secs(size.crash_cap_s);
    // A peer that never runs them again is a result, not an error.
    let _ended = harness::wait::until("every nap has ended", cap, async || {
        Ok((of(&field.marks(), "e").len() == NAPS).then_some(()))
    })
    .await;
    let marks = field.marks();
    let after = |tag: &'static str| {
        let lost = &lost;
        marks.iter().filter(move |m| m.tag == tag && m.at_ns > killed && lost.contains(&m.value))
    };
    let reruns: Vec<u128> = after("s").map(|m| m.at_ns - killed).collect();
    let ends = marks.iter().filter(|m| m.tag == "e").count();
    let finished = of(&marks, "e").len();
    let more = json!({"held": lost.len(), "jobs": NAPS, "finished": finished, "finished_twice": ends - finished,
        "lost_rerun": after("s").map(|m| m.value).collect::<BTreeSet<_>>().len(), "cap_s": size.crash_cap_s,
        "last_rerun_s": reruns.iter().max().map(|ns| *ns as f64 / 1e9)});
    let value = reruns.iter().min().map(|ns| *ns as f64 / 1e9);
    let mut row = field.row("crash_first_rerun", value.unwrap_or(0.0), "s", None, &more);
    if value.is_none() {
        row["value"] = Value::Null;
    }
    Ok(vec![row])
}

/// Runs one scenario for one peer; its rows.
pub(crate) async fn run(name: &str, peer: &Peer, size: Size) -> Result<Vec<Value>> {
    match name {
        "noop" => rate(peer, size, "noop", "noop", "n").await,
        "two_hop" => rate(peer, size, "two_hop", "hop", "t").await,
        "latency" => latency(peer).await,
        "fanout" if !peer.fans_out => Ok(vec![]),
        "fanout" => fanout(peer).await,
        "crash" => crash(peer, size).await,
        "critical_path" => own::critical_path(peer, size).await,
        "independent" => own::independent(peer, size).await,
        "recovery" => own::recovery(peer).await,
        "tenants" => own::tenants(peer, size).await,
        "memory" => own::memory(peer, size).await,
        "retained" => own::retained(peer, size).await,
        "costs" => crate::costs::run(peer, size).await,
        "agents" => crate::agents::agents(size.percent).await,
        "waiting_agents" => crate::agents::waiting(size.percent).await,
        "quota" => crate::quota::run().await,
        other => bail!("no scenario {other}: {}", [SCENARIOS, OWN].concat().join(", ")),
    }
    .with_context(|| format!("{} {name}", peer.name))
}

/// Whether the redis tools are there at all: said before anything is started.
pub(crate) fn need_tools() -> Result<()> {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|p| Path::new(&p).join("redis-benchmark").exists())
    });
    ensure!(found, "redis-benchmark is not installed\n  hint: apt-get install redis-tools");
    Ok(())
}
