//! Agents at work: the real worker program with the real store and a model server that answers at once, after a second, or
//! not at all. One task is what the agent frameworks are measured with: two model calls and a tool between them.

use anyhow::{Context, Result, ensure};
use harness::fleet::{Fleet, Role};
use harness::model::{Answer, Asked, Model};
use harness::{script, wait};
use serde_json::{Value, json};
use shared::store::LogEvent;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(300);
/// Tasks one after the other.
const SINGLE: usize = 30;

/// Tickets for an agent each, without a review and without files to check.
fn tasks(n: usize) -> Value {
    let task = |i: usize| {
        let path = script::output_of(&format!("t{i}"));
        json!({"id": format!("t{i}"), "description": "add", "expected_output": path, "role": "summarizer",
            "outputs": [path], "review": "none"})
    };
    (0..n).map(task).collect()
}

async fn fleet(model: &Model, slots: usize) -> Result<Fleet> {
    Fleet::plan()
        .workers(1)
        .reviewers(0)
        .model(&model.url())
        .env("WORKER__SLOTS", &slots.to_string())
        .env("MODEL__PROBE", "false")
        .lease(|lease| *lease = shared::config::Lease::default())
        .start()
        .await
}

/// First claim to last end, in seconds, of a goal whose events these are.
fn makespan_s(events: &[LogEvent]) -> Result<f64> {
    let at = |word: &str| events.iter().filter(|e| e.event == word).map(|e| e.at_ms).collect::<Vec<_>>();
    let began = at("claimed").into_iter().min().context("nothing was claimed")?;
    let ended = at("completed").into_iter().max().context("nothing was completed")?;
    Ok((ended - began) as f64 / 1e3)
}

fn rss_kib(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).context("no VmRSS")?;
    Ok(line.split_whitespace().nth(1).unwrap_or_default().parse()?)
}

fn row(scenario: &str, value: f64, unit: &str, more: &Value) -> Value {
    let mut row = json!({"peer": "muster", "version": env!("CARGO_PKG_VERSION"), "scenario": scenario, "value": value,
        "unit": unit});
    if let (Some(row), Some(more)) = (row.as_object_mut(), more.as_object()) {
        row.extend(more.clone());
    }
    row
}

/// Runs `n` tasks on as many slots and answers the makespan; every request was checked.
async fn run(n: usize, slots: usize, latency: Duration) -> Result<(f64, u64, u64)> {
    let model = Model::start(move |asked: &Asked| {
        let answer = script::work(asked);
        Some(if latency.is_zero() { answer } else { Answer::After(latency, Box::new(answer)) })
    })
    .await?;
    let mut fleet = fleet(&model, slots).await?;
    let pid = fleet.program(Role::Worker, 0).pid();
    let before = rss_kib(pid)?;
    let goal = fleet.api().submit_plan("add", &tasks(n)).await?;
    fleet.api().reaches_within(&goal, &["done"], PATIENCE).await?;
    let after = rss_kib(pid)?;
    let events = fleet.store().await?.events(&goal, "0", 20_000).await?;
    let seconds = makespan_s(&events)?;
    model.verify()?;
    ensure!(model.asked().len() == 2 * n, "{} model calls for {n} tasks", model.asked().len());
    Ok((seconds, before, after))
}

/// One slot at latency 0, milliseconds a task; and a thousand tasks at once at a latency of a second, by the ideal.
pub(crate) async fn agents(percent: usize) -> Result<Vec<Value>> {
    let (single, _, _) = run(SINGLE, 1, Duration::ZERO).await?;
    let n = (1_000 * percent / 100).max(10);
    let (fan, before, after) = run(n, n, Duration::from_secs(1)).await?;
    Ok(vec![
        row("agents_single", single * 1e3 / SINGLE as f64, "ms/task", &json!({"n": SINGLE})),
        row(
            "agents_fan",
            fan / 2.0,
            "x ideal",
            &json!({"n": n, "makespan_s": fan, "latency_s": 1,
            "kib_per_agent": (after.saturating_sub(before)) as f64 / n as f64}),
        ),
    ])
}

/// What a worker's agent costs in memory while it waits for its model: a thousand calls that were answered with a first
/// byte and nothing more, against one such call, as the agent frameworks are measured.
pub(crate) async fn waiting(percent: usize) -> Result<Vec<Value>> {
    let n = (1_000 * percent / 100).max(10);
    let held = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&held);
    let model = Model::start(move |_: &Asked| {
        counter.fetch_add(1, Ordering::SeqCst);
        Some(Answer::Stall)
    })
    .await?;
    let mut fleet = fleet(&model, n + 1).await?;
    let pid = fleet.program(Role::Worker, 0).pid();
    let waiting = async |n: usize| {
        wait::until("every agent waits for its model", PATIENCE, async || {
            Ok((held.load(Ordering::SeqCst) >= n).then_some(()))
        })
        .await
    };
    fleet.api().submit_plan("wait", &tasks(1)).await?;
    waiting(1).await?;
    let before = rss_kib(pid)?;
    fleet.api().submit_plan("wait", &tasks(n)).await?;
    waiting(n + 1).await?;
    let after = rss_kib(pid)?;
    let more = json!({"n": n, "before_kib": before, "after_kib": after});
    Ok(vec![row("waiting_agents", (after - before) as f64 / n as f64, "KiB/agent", &more)])
}
