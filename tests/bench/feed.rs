//! Submitting tickets: a goal, pages of 100, the seal. What a manager does, without its planning.

use crate::marks::now_ns;
use crate::serve::store;
use anyhow::{Context, Result, ensure};
use shared::goal::NewGoal;
use shared::store::{Held, Store, Submitted};
use shared::ticket::patch::{NewTicket, PatchOp};
use shared::ticket::{ReviewPolicy, TicketSpec, new_id};
use std::time::{Duration, Instant};

const PAGE: usize = 100;
const LEASE_MS: u64 = 600_000;

fn ticket(goal: &str, kind: &str, value: &str, review: ReviewPolicy, needs: Vec<String>) -> NewTicket {
    let spec = TicketSpec { input_context: value.into(), review, ..TicketSpec::new(value, kind, "a mark") };
    NewTicket { id: new_id(), parent_id: goal.into(), need_ids: needs, spec }
}

async fn planned(store: &Store) -> Result<Held> {
    planned_of(store, "bench").await
}

async fn planned_of(store: &Store, tenant: &str) -> Result<Held> {
    let goal = NewGoal { id: new_id(), tenant: tenant.into(), text: "bench".into(), ..NewGoal::default() };
    ensure!(store.submit_goal(&goal, usize::MAX >> 12).await? == Submitted::New);
    let claim =
        store.manage_claim("bench", &new_id(), LEASE_MS).await?.context("the goal waits for its plan")?;
    Ok(claim.held)
}

async fn submit(store: &Store, held: &Held, tickets: &[NewTicket]) -> Result<()> {
    for page in tickets.chunks(PAGE) {
        store.submit_tickets(held, page).await?;
    }
    store.seal(held, tickets.len()).await?;
    Ok(())
}

/// Seconds for submitting `n` tickets of the kind, ready.
pub(crate) async fn enqueue(kind: &str, n: usize) -> Result<f64> {
    let (store, _) = store().await?;
    let held = planned(&store).await?;
    let review = if kind == "hop" { ReviewPolicy::Code } else { ReviewPolicy::None };
    let start = Instant::now();
    let tickets: Vec<_> = (0..n).map(|v| ticket(&held.id, kind, &v.to_string(), review, vec![])).collect();
    submit(&store, &held, &tickets).await?;
    Ok(start.elapsed().as_secs_f64())
}

/// `rate` tickets a second for `secs`, each added to a running plan by a patch of its own.
pub(crate) async fn pace(rate: u64, secs: u64) -> Result<()> {
    let (store, _) = store().await?;
    let held = planned(&store).await?;
    submit(&store, &held, &[ticket(&held.id, "lat", "0", ReviewPolicy::None, vec![])]).await?;
    let start = Instant::now();
    for k in 0..rate * secs {
        let at = start + Duration::from_secs_f64(k as f64 / rate as f64);
        tokio::time::sleep_until(at.into()).await;
        let new = ticket(&held.id, "lat", &now_ns().to_string(), ReviewPolicy::None, vec![]);
        let op = PatchOp::Add { ticket: Box::new(new) };
        store.patch(&held, &format!("s{k}"), k + 1, 0, &[op]).await?;
    }
    Ok(())
}

/// `n` independent tickets and one that needs them all; the join's value is when it began.
pub(crate) async fn fanout(n: usize) -> Result<()> {
    let (store, _) = store().await?;
    let held = planned(&store).await?;
    let began = now_ns().to_string();
    let mut tickets: Vec<_> =
        (0..n).map(|v| ticket(&held.id, "child", &v.to_string(), ReviewPolicy::None, vec![])).collect();
    let needs = tickets.iter().map(|t| t.id.clone()).collect();
    tickets.push(ticket(&held.id, "join", &began, ReviewPolicy::None, needs));
    submit(&store, &held, &tickets).await
}

/// A goal without tickets, for calls that are booked on it.
pub(crate) async fn goal(store: &Store) -> Result<String> {
    let held = planned(store).await?;
    submit(store, &held, &[]).await?;
    Ok(held.id)
}

/// A goal of the tenant with `n` tickets of the kind, whose values count from `first`; `payload_bytes` of each are
/// filling. Its held step, so that it can be ended.
pub(crate) async fn of_tenant(
    store: &Store,
    tenant: &str,
    kind: &str,
    first: usize,
    n: usize,
    payload_bytes: usize,
) -> Result<Held> {
    let held = planned_of(store, tenant).await?;
    let tickets: Vec<_> = (first..first + n)
        .map(|v| {
            let mut new = ticket(&held.id, kind, &v.to_string(), ReviewPolicy::None, vec![]);
            new.spec.persona = "x".repeat(payload_bytes);
            new
        })
        .collect();
    submit(store, &held, &tickets).await?;
    Ok(held)
}

/// A goal of naps in `layers` layers of `width`, each needing up to three of the layer before: its critical path is as many
/// naps long as it has layers.
pub(crate) async fn layered(store: &Store, layers: usize, width: usize) -> Result<()> {
    let held = planned(store).await?;
    let mut tickets: Vec<NewTicket> = vec![];
    for layer in 0..layers {
        for at in 0..width {
            let of_layer_before = |k: usize| {
                let before = &tickets[(layer - 1) * width..layer * width];
                before[(at * 7 + k * 5) % width].id.clone()
            };
            let mut needs: Vec<String> =
                if layer == 0 { vec![] } else { (0..3).map(of_layer_before).collect() };
            needs.sort();
            needs.dedup();
            let value = (layer * width + at).to_string();
            let new = ticket(&held.id, "nap", &value, ReviewPolicy::None, needs);
            tickets.push(new);
        }
    }
    submit(store, &held, &tickets).await
}

/// A goal of `n` tickets that are reviewed by code.
pub(crate) async fn reviewed(store: &Store, n: usize) -> Result<Held> {
    let held = planned(store).await?;
    let tickets: Vec<_> =
        (0..n).map(|v| ticket(&held.id, "hop", &v.to_string(), ReviewPolicy::Code, vec![])).collect();
    submit(store, &held, &tickets).await?;
    Ok(held)
}
