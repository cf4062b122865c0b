//! What only Muster has: plans, leases, tenants, retention. The bars are ideals (a critical path, a lease), not peers.

use crate::feed;
use crate::field::{Field, Mark, span_s};
use crate::peer::Peer;
use crate::scenario::Size;
use crate::serve::store_at;
use anyhow::{Result, anyhow, ensure};
use serde_json::{Value, json};
use shared::blob::Blobs;
use shared::config;
use shared::consumer::sweeper;
use shared::store::{Finish, Finished};
use shared::ticket::new_id;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, UNIX_EPOCH};
use tokio_util::sync::CancellationToken;

/// Latency of a model call, in full size.
const CALL_MS: usize = 10_000;
/// What a finished ticket of the memory scenario carries.
const PAYLOAD_BYTES: usize = 2_048;
const GOAL_TICKETS: usize = 1_000;

fn nap_ms(size: Size) -> usize {
    (CALL_MS * size.percent / 100).max(100)
}

fn first(marks: &[Mark]) -> u128 {
    marks.iter().map(|m| m.at_ns).min().unwrap_or(0)
}

fn last(marks: &[Mark]) -> u128 {
    marks.iter().map(|m| m.at_ns).max().unwrap_or(0)
}

/// First claim to last end of a layered plan of calls with a fixed latency, by its critical path.
pub(crate) async fn critical_path(peer: &Peer, size: Size) -> Result<Vec<Value>> {
    const LAYERS: usize = 6;
    const WIDTH: usize = 20;
    let mut peer = peer.clone().with("PEER_NAP_MS", nap_ms(size));
    peer.slots = WIDTH;
    let mut field = Field::start(&peer).await?;
    field.worker("a")?;
    let (store, _) = store_at(&field.url()).await?;
    feed::layered(&store, LAYERS, WIDTH).await?;
    let ends = field.wait("e", LAYERS * WIDTH).await?;
    let starts = field.wait("s", LAYERS * WIDTH).await?;
    let makespan = (last(&ends) - first(&starts)) as f64 / 1e9;
    let ideal = (LAYERS * nap_ms(size)) as f64 / 1e3;
    let more = json!({"n": LAYERS * WIDTH, "makespan_s": makespan, "critical_path_s": ideal, "call_ms": nap_ms(size)});
    Ok(vec![field.row("critical_path", makespan / ideal, "x ideal", None, &more)])
}

/// A thousand independent calls on 400 slots, by three times the latency.
pub(crate) async fn independent(peer: &Peer, size: Size) -> Result<Vec<Value>> {
    const TICKETS: usize = 1_000;
    const SLOTS: usize = 400;
    let mut peer = peer.clone().with("PEER_NAP_MS", nap_ms(size));
    peer.slots = SLOTS;
    let mut field = Field::start(&peer).await?;
    let (store, _) = store_at(&field.url()).await?;
    feed::of_tenant(&store, "bench", "nap", 0, TICKETS, 0).await?;
    field.worker("a")?;
    let ends = field.wait("e", TICKETS).await?;
    let starts = field.wait("s", TICKETS).await?;
    let makespan = (last(&ends) - first(&starts)) as f64 / 1e9;
    let ideal = (TICKETS.div_ceil(SLOTS) * nap_ms(size)) as f64 / 1e3;
    let more = json!({"n": TICKETS, "slots": SLOTS, "makespan_s": makespan, "ideal_s": ideal, "call_ms": nap_ms(size)});
    Ok(vec![field.row("independent", makespan / ideal, "x ideal", None, &more)])
}

/// kill -9 of two workers of four in the middle of long work: from the kill to the second start of each orphan.
pub(crate) async fn recovery(peer: &Peer) -> Result<Vec<Value>> {
    const WORKERS: usize = 4;
    const TICKETS: usize = 32;
    let lease_s = config::Lease::default().lease_ms as f64 / 1e3;
    let mut peer = peer.clone().with("PEER_NAP_MS", (lease_s * 1_500.0) as u64);
    peer.slots = TICKETS;
    let mut field = Field::start(&peer).await?;
    for _ in 0..WORKERS {
        field.worker("a")?;
    }
    let (store, _) = store_at(&field.url()).await?;
    // All of them are there before the work comes, so that it is shared.
    harness::wait::until("four workers beat", Duration::from_secs(20), async || {
        Ok((store.consumers().await?.len() == WORKERS).then_some(()))
    })
    .await?;
    let held = feed::of_tenant(&store, "bench", "nap", 0, TICKETS, 0).await?;
    field.wait("s", TICKETS).await?;
    let tickets = store.all_tickets(&held.id).await?;
    let dead: BTreeSet<String> =
        (0..WORKERS / 2).filter_map(|w| field.pid(w)).map(|pid| format!("-{pid}-")).collect();
    let orphans: BTreeSet<u128> = tickets
        .iter()
        .filter(|t| dead.iter().any(|pid| t.assignee.contains(pid)))
        .filter_map(|t| t.input_context.as_str().and_then(|v| v.parse().ok()))
        .collect();
    ensure!(!orphans.is_empty(), "the killed workers held nothing");
    for worker in 0..WORKERS / 2 {
        field.kill(worker);
    }
    let killed = UNIX_EPOCH.elapsed()?.as_nanos();
    field.wait("s", TICKETS + orphans.len()).await?;
    let ends = field.wait("e", TICKETS).await?;
    let again: Vec<f64> = field
        .marks()
        .iter()
        .filter(|m| m.tag == "s" && m.at_ns > killed)
        .map(|m| (m.at_ns - killed) as f64 / 1e9)
        .collect();
    let finished: BTreeSet<u128> = ends.iter().map(|m| m.value).collect();
    let more = json!({"n": TICKETS, "orphans": orphans.len(), "lease_s": lease_s, "finished": finished.len(),
        "finished_twice": ends.len() - finished.len()});
    Ok(vec![field.row("recovery", again.iter().copied().fold(0.0, f64::max), "s", None, &more)])
}

/// One huge goal and 25 small ones of other tenants, submitted after it: when the last of the small ones is done, by the
/// time that the same small ones take alone.
pub(crate) async fn tenants(peer: &Peer, size: Size) -> Result<Vec<Value>> {
    const SMALL: usize = 25;
    const TICKETS: usize = 20;
    let huge = (peer.jobs * size.percent / 100).max(1_000);
    let mut spans = vec![];
    for with_huge in [false, true] {
        let mut field = Field::start(peer).await?;
        let (store, _) = store_at(&field.url()).await?;
        if with_huge {
            feed::of_tenant(&store, "huge", "child", 0, huge, 0).await?;
        }
        for goal in 0..SMALL {
            feed::of_tenant(&store, &format!("small{goal}"), "noop", goal * TICKETS, TICKETS, 0).await?;
        }
        field.worker("a")?;
        let small = field.wait("n", SMALL * TICKETS).await?;
        let began = first(&field.marks());
        spans.push((last(&small) - began) as f64 / 1e9);
        if with_huge {
            let done = field.marks().iter().filter(|m| m.tag == "c").count();
            let more = json!({"huge_tickets": huge, "small_goals": SMALL, "small_tickets": SMALL * TICKETS,
                "alone_s": spans[0], "beside_s": spans[1], "huge_done_meanwhile": done});
            return Ok(vec![field.row("tenants", spans[1] / spans[0], "x alone", None, &more)]);
        }
    }
    Err(anyhow!("no run"))
}

/// Bytes of Redis for a finished ticket with a payload, and what is left of them after retention: with the setting that
/// deploy/README.md recommends, and with Redis' own.
pub(crate) async fn memory(peer: &Peer, size: Size) -> Result<Vec<Value>> {
    Ok(vec![
        memory_with(peer, size, "memory", 4_096).await?,
        memory_with(peer, size, "memory_untuned", 64).await?,
    ])
}

async fn memory_with(peer: &Peer, size: Size, name: &str, listpack_value_max: u32) -> Result<Value> {
    let goals = (10 * size.percent / 100).max(1);
    let n = goals * GOAL_TICKETS;
    let mut field = Field::start(peer).await?;
    let setting = listpack_value_max.to_string();
    field.redis.query::<String>(&["CONFIG", "SET", "hash-max-listpack-value", &setting]).await?;
    let (store, _) = store_at(&field.url()).await?;
    let worker = field.worker("a")?;
    feed::of_tenant(&store, "bench", "child", 0, 1, 0).await?;
    field.wait("c", 1).await?;
    let before = field.used_bytes().await?;
    let mut held = vec![];
    for goal in 0..goals {
        held.push(
            feed::of_tenant(&store, "bench", "noop", goal * GOAL_TICKETS, GOAL_TICKETS, PAYLOAD_BYTES)
                .await?,
        );
    }
    field.wait("n", n).await?;
    field.kill(worker);
    let full = field.used_bytes().await?;
    for held in &held {
        let mut read = 0;
        let ended = loop {
            let ended = store.manage_finish(held, &new_id(), 1, read, &Finish::Done, 60_000).await?;
            // Each refusal for an unread inbox reads one event more.
            match ended {
                Finished::Refused(_) if read < 100 => read += 1,
                Finished::Ok
                | Finished::Again
                | Finished::Dup
                | Finished::Fenced
                | Finished::Gone
                | Finished::Refused(_) => break ended,
            }
        };
        ensure!(ended == Finished::Ok, "the goal does not end: {ended:?}");
    }
    let folder = tempfile::tempdir()?;
    let blobs = Blobs::open(&config::Blobs { folder: folder.path().into(), ..config::Blobs::default() })
        .map_err(|e| anyhow!("{e}"))?;
    let stop = CancellationToken::new();
    let lease = config::Lease { sweep_ms: 100, ..config::Lease::default() };
    tokio::spawn(sweeper::run(store.clone(), blobs, lease, 1, stop.clone()));
    // What stays is the one goal that never ends, and what the server needs itself.
    let after =
        harness::wait::until("retention has deleted the goals", Duration::from_secs(120), async || {
            let left = store.all_tickets(&held[held.len() - 1].id).await?.len();
            let used = field.used_bytes().await?;
            Ok((left == 0 && used < before + (full - before) / 4).then_some(used))
        })
        .await?;
    stop.cancel();
    let per = |bytes: u64| bytes as f64 / n as f64;
    let more = json!({"n": n, "payload_bytes": PAYLOAD_BYTES, "before_bytes": before, "full_bytes": full,
        "after_bytes": after, "left_per_ticket_bytes": per(after.saturating_sub(before)),
        "hash_max_listpack_value": listpack_value_max});
    Ok(field.row(name, per(full - before), "bytes/ticket", None, &more))
}

/// The no-op rate on an empty store, with a million finished tickets in it, and with a hundred thousand ready ones.
pub(crate) async fn retained(peer: &Peer, size: Size) -> Result<Vec<Value>> {
    let (finished, ready) = (1_000_000 * size.percent / 100, 100_000 * size.percent / 100);
    let probe = (20_000 * size.percent / 100).max(10_000);
    let mut field = Field::start(peer).await?;
    let (store, _) = store_at(&field.url()).await?;
    let mut rates = BTreeMap::new();
    for (what, kind, tag) in [("empty", "noop", "n"), ("finished", "child", "c"), ("ready", "lat", "l")] {
        if what == "finished" {
            let worker = field.worker("a")?;
            for goal in 0..finished / GOAL_TICKETS {
                feed::of_tenant(&store, "bench", "join", goal * GOAL_TICKETS, GOAL_TICKETS, 0).await?;
            }
            field.wait("j", finished / GOAL_TICKETS * GOAL_TICKETS).await?;
            field.kill(worker);
        }
        let n = if what == "ready" { ready.max(probe) } else { probe };
        feed::of_tenant(&store, "bench", kind, 0, n, 0).await?;
        field.rewritten().await?;
        let worker = field.worker("a")?;
        let marks = field.wait(tag, probe).await?;
        field.kill(worker);
        rates.insert(what, (marks.len() - 1) as f64 / span_s(&marks));
    }
    let row = |what: &str, with: usize| {
        let more = json!({"ratio": rates[what] / rates["empty"], "empty": rates["empty"], "with": with});
        field.row(&format!("retained_{what}"), rates[what], "jobs/s", None, &more)
    };
    Ok(vec![row("finished", finished), row("ready", ready)])
}
