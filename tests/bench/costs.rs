//! What each step of a ticket's life costs Redis: processor time of the server a step, network included. The numbers that
//! deploy/SCALING.md and `simulate` reckon with.

use crate::feed;
use crate::field::Field;
use crate::peer::Peer;
use crate::scenario::Size;
use crate::serve::store_at;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use shared::message::Kind;
use shared::store::{Claim, ClaimReply, ClaimRequest, Completion, Decision, Held, Reservation, Store};
use shared::ticket::{Report, Verdict, VerdictItem, new_id};

/// Tickets of one call.
const BATCH: usize = 32;
/// Renewals of one call, as the engine sends them.
const RENEWALS: usize = 50;

async fn cpu_us(field: &Field) -> Result<f64> {
    let text: String = field.redis.query(&["INFO", "cpu"]).await?;
    let of = |name: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(name));
        line.and_then(|v| v.trim().parse::<f64>().ok()).context("no processor time in INFO")
    };
    Ok((of("used_cpu_user:")? + of("used_cpu_sys:")?) * 1e6)
}

async fn claim(store: &Store, kind: Kind, lane: &str) -> Result<Vec<Claim>> {
    let lanes = [lane.to_owned()];
    let prefix = new_id();
    let request = ClaimRequest {
        kind,
        lanes: &lanes,
        consumer: "bench-costs",
        lease_prefix: &prefix,
        lease_ms: 600_000,
        n: BATCH,
        actor: if kind == Kind::Review { "reviewer" } else { "" },
    };
    loop {
        match store.claim(&request).await? {
            ClaimReply::Got(claims) => return Ok(claims),
            ClaimReply::Empty | ClaimReply::Paused { .. } => return Ok(vec![]),
            ClaimReply::Again { .. } => tokio::task::yield_now().await,
        }
    }
}

async fn all(store: &Store, kind: Kind, lane: &str, n: usize) -> Result<Vec<Held>> {
    let mut held = vec![];
    while held.len() < n {
        let claims = claim(store, kind, lane).await?;
        ensure!(!claims.is_empty(), "only {} of {n} to claim", held.len());
        held.extend(claims.into_iter().map(|c| c.held));
    }
    Ok(held)
}

/// Microseconds of Redis for submit, claim, complete, review claim, decide, a booked model call, a renewal.
pub(crate) async fn run(peer: &Peer, size: Size) -> Result<Vec<Value>> {
    let n = (20_000 * size.percent / 100).max(1_000);
    let field = Field::start(peer).await?;
    let (store, _) = store_at(&field.url()).await?;
    let (mut rows, mut before) = (vec![], cpu_us(&field).await?);
    let mut step = async |what: &str, times: usize| -> Result<()> {
        let now = cpu_us(&field).await?;
        let each = (now - before) / times as f64;
        rows.push(field.row(&format!("cost_{what}"), each, "us", None, &json!({"n": times})));
        before = now;
        Ok(())
    };
    let goal = feed::reviewed(&store, n).await?;
    step("submit", n).await?;
    let held = all(&store, Kind::Work, "work.default", n).await?;
    step("claim", n).await?;
    for some in held.chunks(RENEWALS) {
        let some: Vec<(Held, u64)> = some.iter().map(|h| (h.clone(), 0)).collect();
        store.renew("bench-costs", &[], 600_000, 600_000, 3_600_000, &some).await?;
    }
    step("renew", n).await?;
    for held in &held {
        let call = new_id();
        let reservation = Reservation {
            call: &call,
            goal: &goal.id,
            ticket: &held.id,
            tokens: 1_000,
            microusd: 1_000,
            expiry_ms: 60_000,
            person_expiry_ms: 60_000,
        };
        store.reserve(&reservation).await?;
        store
            .settle(&call, &goal.id, &held.id, 900, 900, &json!({"v": 1, "model": "m", "input_tokens": 800}))
            .await?;
    }
    step("call", n).await?;
    for some in held.chunks(BATCH) {
        let done: Vec<Completion> = some
            .iter()
            .map(|held| Completion {
                held: held.clone(),
                report: Report { status: "done".into(), ..Report::default() },
                overlay_ref: String::new(),
                actor: "bench-worker".into(),
                roots: None,
            })
            .collect();
        store.complete(&done).await?;
    }
    step("complete", n).await?;
    let held = all(&store, Kind::Review, "review", n).await?;
    step("review_claim", n).await?;
    let item = VerdictItem {
        item: "done".into(),
        pass: true,
        reason: "checked by code".into(),
        evidence: String::new(),
        by_code: true,
    };
    for some in held.chunks(BATCH) {
        let verdict = Verdict { items: vec![item.clone()] };
        let decisions: Vec<Decision> = some
            .iter()
            .map(|held| Decision {
                held: held.clone(),
                verdict: verdict.clone(),
                actor: "reviewer".into(),
                roots: None,
            })
            .collect();
        store.decide(&decisions).await?;
    }
    step("decide", n).await?;
    Ok(rows)
}
