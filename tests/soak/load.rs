//! The goals: submitted evenly over the time, by key until a replica has them, each checked when it ends.

use crate::Options;
use anyhow::{Context, Result};
use harness::fleet::Api;
use harness::oracle;
use harness::script::{quick, slow};
use harness::wait;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use shared::store::Store;
use std::time::{Duration, Instant};

/// A goal that has not ended this long after the last one was submitted is reported as such.
const TAIL: Duration = Duration::from_secs(600);

/// How a goal went.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ended {
    pub(crate) state: String,
    /// Submits until a replica had it.
    pub(crate) submits: usize,
    /// Attempts of all its tickets.
    pub(crate) attempts: u64,
    pub(crate) losses: u64,
    pub(crate) took: Duration,
    /// What the history checker and the audit say.
    pub(crate) problems: Vec<String>,
}

/// Three layers and a join: Python that takes some seconds, notes, all reviewed by code.
fn tickets(random: &mut StdRng) -> Vec<Value> {
    let mut all: Vec<Value> =
        (0..8).map(|n| slow(&format!("a{n}"), &[], random.random_range(2.0..10.0))).collect();
    for n in 0..8 {
        let (one, two) = (format!("a{n}"), format!("a{}", (n + 1) % 8));
        all.push(slow(&format!("b{n}"), &[&one, &two], random.random_range(2.0..10.0)));
    }
    all.extend((0..4).map(|n| quick(&format!("c{n}"), &[&format!("b{n}"), "b5"])));
    all.push(quick("join", &["c0", "c1", "c2", "c3", "b4"]));
    all
}

pub(crate) async fn run(store: &Store, apis: &[Api], options: &Options) -> Result<Vec<Ended>> {
    let mut random = StdRng::seed_from_u64(options.seed);
    let count = u32::try_from(options.goals).unwrap_or(u32::MAX).max(1);
    let period = options.time / count;
    let begun = Instant::now();
    let mut running = vec![];
    for n in 0..count {
        let body_tickets = tickets(&mut random);
        running.push(one(store, apis, options, n, body_tickets, begun, period * n));
    }
    Ok(futures::future::join_all(running).await)
}

async fn one(
    store: &Store,
    apis: &[Api],
    options: &Options,
    n: u32,
    tickets: Vec<Value>,
    begun: Instant,
    at: Duration,
) -> Ended {
    wait::moment(at.saturating_sub(begun.elapsed())).await;
    let started = Instant::now();
    let mut ended = Ended::default();
    match live(store, apis, options, n, &tickets, &mut ended).await {
        Ok(()) => {}
        Err(error) => ended.problems.push(format!("goal {n}: {error:#}")),
    }
    ended.took = started.elapsed();
    ended
}

/// From its submit to its end, and what the end looks like.
async fn live(
    store: &Store,
    apis: &[Api],
    options: &Options,
    n: u32,
    tickets: &[Value],
    ended: &mut Ended,
) -> Result<()> {
    let text = format!("soak {} goal {n}", options.seed);
    let body =
        json!({"text": text, "idempotency_key": text, "plan": {"goal": {"text": text}, "tickets": tickets}});
    // A submitter who is told that nobody confirms it says it again: then no failover may lose it.
    let mut turn = 0_usize;
    let submitted = wait::until("a replica has the goal", TAIL, async || {
        turn += 1;
        let api = apis.get(turn % apis.len()).context("a manager")?;
        let answer = api.post("/v1/goals", &body).await?;
        let id = answer["goal"].as_str().map(str::to_owned);
        Ok(id.filter(|_| answer["confirmed"] == true))
    });
    let goal = submitted.await?;
    ended.submits = turn;
    let finished = wait::until("the goal ends", options.time + TAIL, async || {
        let goal = store.goal(&goal).await?.context("a confirmed goal is gone")?;
        Ok(goal.state.is_terminal().then_some(goal))
    });
    let finished = match finished.await {
        Ok(finished) => finished,
        Err(error) => {
            ended.state = store.goal(&goal).await?.map_or("gone".into(), |g| g.state.as_str().to_owned());
            return Err(error);
        }
    };
    ended.state = finished.state.as_str().to_owned();
    let all = store.all_tickets(&goal).await?;
    ended.attempts = all.iter().map(|t| u64::from(t.attempts)).sum();
    ended.losses = all.iter().map(|t| u64::from(t.counters.losses + t.counters.review_losses)).sum();
    let checked = wait::until("its history is legal", Duration::from_secs(30), async || {
        oracle::check_goal(store, &goal).await.map(Some)
    });
    checked.await?;
    let times = oracle::acceptances(&oracle::events(store, &goal).await?);
    let once = times.len() == tickets.len() && times.values().all(|n| *n == 1);
    anyhow::ensure!(ended.state != "done" || once, "accepted otherwise than once each: {times:?}");
    Ok(())
}
