//! A worker (or reviewer) process whose handler does nothing: the engine and the store are what is measured.

use crate::marks::Marks;
use anyhow::{Result, anyhow};
use shared::blob::Blobs;
use shared::config;
use shared::consumer::{self, Handler, Job, Options, Outcome};
use shared::message::Kind;
use shared::store::Store;
use shared::ticket::{Report, Verdict, VerdictItem};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The store as the environment names it.
pub(crate) async fn store() -> Result<(Store, config::Redis)> {
    store_at(&std::env::var("PEER_REDIS").unwrap_or_else(|_| "redis://127.0.0.1:7790/0".into())).await
}

/// The store at the address.
pub(crate) async fn store_at(url: &str) -> Result<(Store, config::Redis)> {
    let config = config::Redis { url: url.into(), allow_no_persistence: true, ..config::Redis::default() };
    Ok((Store::connect(&config).await?, config))
}

fn milliseconds(name: &str, default: u64) -> Duration {
    Duration::from_millis(std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default))
}

struct Noop {
    marks: Marks,
    kind: Kind,
    delay: Duration,
    nap: Duration,
}

impl Handler for Noop {
    async fn handle(&self, job: Job) -> Outcome {
        let t = &job.claim.ticket;
        let value = t.input_context.as_str().unwrap_or("0");
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        if self.kind == Kind::Review {
            self.marks.put("t", value);
            let item = VerdictItem {
                item: "done".into(),
                pass: true,
                reason: "checked by code".into(),
                evidence: String::new(),
                by_code: true,
            };
            return Outcome::Decided {
                verdict: Verdict { items: vec![item] },
                actor: "bench-reviewer".into(),
            };
        }
        match t.description.as_str() {
            "noop" => self.marks.put("n", value),
            "hop" => self.marks.put("h", value),
            "lat" => self.marks.put("l", value),
            "child" => self.marks.put("c", value),
            "join" => self.marks.put("j", value),
            "nap" => {
                self.marks.put("s", value);
                tokio::time::sleep(self.nap).await;
                self.marks.put("e", value);
            }
            _ => {}
        }
        let report = Report { status: "done".into(), ..Report::default() };
        Outcome::Completed { report, overlay_ref: String::new(), actor: "bench-worker".into() }
    }
}

/// How long each handler waits: `PEER_DELAY_US`.
fn delay() -> Duration {
    Duration::from_micros(std::env::var("PEER_DELAY_US").ok().and_then(|d| d.parse().ok()).unwrap_or(0))
}

/// Serves the lane until it is killed. Lease and sweeper are the defaults.
pub(crate) async fn worker(lane: &str) -> Result<()> {
    let (store, redis) = store().await?;
    let folder = tempfile::tempdir()?;
    let blobs = Blobs::open(&config::Blobs { folder: folder.path().into(), ..config::Blobs::default() })
        .map_err(|e| anyhow!("{e}"))?;
    let kind = if lane == "review" { Kind::Review } else { Kind::Work };
    let lanes = if lane == "review" { vec![lane.to_owned()] } else { vec!["work.default".to_owned()] };
    let lease = config::Lease::default();
    let stop = CancellationToken::new();
    let options = Options {
        role: if kind == Kind::Review { "reviewer" } else { "worker" },
        kind,
        lanes,
        slots: std::env::var("PEER_CONC").ok().and_then(|c| c.parse().ok()).unwrap_or(64),
        actor: if kind == Kind::Review { "bench-reviewer".into() } else { String::new() },
        tools: vec![],
        sandbox: false,
        drain_ms: 1_000,
        readiness: consumer::readiness(&lease),
        lease: lease.clone(),
        redis,
    };
    tokio::spawn(consumer::sweeper::run(store.clone(), blobs.clone(), lease, 86_400, stop.clone()));
    consumer::run(
        store,
        blobs,
        Noop { marks: Marks::open()?, kind, delay: delay(), nap: milliseconds("PEER_NAP_MS", 2_000) },
        options,
        stop,
    )
    .await?;
    Ok(())
}
