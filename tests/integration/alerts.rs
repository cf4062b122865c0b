//! Shipped alerts, fired by the fault that it is for, on a real fleet that a real Prometheus scrapes. A few fleets
//! share the faults: what can go wrong beside each other, what stands still, what is slow or comes too late.

use crate::prometheus::{alerts_of, patched, scraped};
use harness::fleet::{Fleet, Role};
use harness::model::{Answer, Model};
use harness::prometheus::{Prometheus, deploy};
use harness::proxy::Proxy;
use harness::scale::scale;
use harness::script::{direct, quick, slow, ticket};
use harness::wait;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use tempfile::TempDir;

/// Beside each other, in one fleet.
const FAULTS: &[&str] = &[
    "MusterRedisMayEvict",
    "MusterRedisNoPersistence",
    "MusterRedisMemory",
    "MusterDeadLetters",
    "MusterBudgetSpent",
    "MusterDecisionsWait",
    "MusterUnservedLane",
    "MusterBreakerOpen",
    "MusterModelErrors",
    "MusterQuotaCoolDown",
    "MusterReviewersPassNothing",
];
/// After them, in the same one: a program is gone, and at last nobody measures.
const GONE: &[&str] = &["MusterDown"];
const LAST: &[&str] = &["MusterUnmeasured"];
/// Not fired here: `rules.test.yml` has their recorded series.
const RECORDED: &[&str] =
    &["MusterRepaired", "MusterRedisPersistenceFailing", "MusterApiErrors", "MusterReviewerSuspended"];
/// Before a standstill: it ends with the reviews that it is about.
const PASSED: &[&str] = &["MusterReviewersPassAll"];
/// Where nobody sweeps.
const STANDSTILL: &[&str] =
    &["MusterSweeperDead", "MusterLeasesOverdue", "MusterQueueOld", "MusterDeafFleet"];
/// Where workers are cut off, slow, lost again and again, or stuck in a disk that hangs.
const LATE: &[&str] =
    &["MusterLeasesLapse", "MusterFenced", "MusterPoison", "MusterRedisSlow", "MusterSlotsLeaked"];

struct Watched {
    prometheus: Prometheus,
    _folder: TempDir,
}

impl Watched {
    /// A Prometheus over this fleet, where nothing fires.
    async fn start(fleet: &mut Fleet) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = patched(fleet, folder.path());
        let prometheus = Prometheus::start(&config, folder.path()).await.unwrap();
        scraped(&prometheus).await;
        let watched = Self { prometheus, _folder: folder };
        wait::until("nothing fires", scale().patience(), async || {
            let firing = watched.prometheus.firing().await?;
            anyhow::ensure!(firing.is_empty(), "{firing:?}");
            Ok(Some(()))
        })
        .await
        .unwrap();
        watched
    }

    async fn fires(&self, wanted: &[&str]) {
        wait::until(&format!("{wanted:?} fire"), scale().patience() * 2, async || {
            let firing = self.prometheus.firing().await?;
            let missing: Vec<_> = wanted.iter().filter(|name| !firing.contains(**name)).collect();
            anyhow::ensure!(missing.is_empty(), "{missing:?} do not, {firing:?} do");
            Ok(Some(()))
        })
        .await
        .unwrap();
    }
}

#[test]
fn every_shipped_alert_has_its_fault_here_or_recorded_series() {
    let rules = std::fs::read_to_string(deploy().join("prometheus/rules.yml")).unwrap();
    let shipped: BTreeSet<String> =
        alerts_of(&rules).iter().map(|rule| rule["alert"].as_str().unwrap().to_owned()).collect();
    let here: BTreeSet<String> = [FAULTS, GONE, LAST, PASSED, STANDSTILL, LATE, RECORDED]
        .concat()
        .into_iter()
        .map(str::to_owned)
        .collect();
    assert_eq!(here, shipped);
}

/// A ticket for a pool that nobody serves.
fn unserved() -> Value {
    let mut elsewhere = quick("far", &[]);
    elsewhere["pool"] = "gpu".into();
    elsewhere["integrates"] = true.into();
    json!([elsewhere])
}

#[tokio::test]
async fn alerts_of_faults_beside_each_other_fire() {
    let mut down = Model::start(|_| None).await.unwrap();
    let limit = |_: &harness::model::Asked| {
        let Answer::Raw { status, mut headers, body } = Answer::error(429, "too many requests") else {
            return None;
        };
        headers.push(("retry-after".into(), "120".into()));
        Some(Answer::Raw { status, headers, body })
    };
    let limited = Model::start(limit).await.unwrap();
    let mut fleet = Fleet::plan()
        .model(&down.url())
        .env("MODEL__BREAKER_FAILURES", "2")
        .env("MODEL__BREAKER_OPEN_MS", "60000")
        .start()
        .await
        .unwrap();
    // Nobody scrapes it, so it leaves the audit to the others.
    let quota = [("MODEL__URL", &*limited.url()), ("WORKER__POOLS", "quota"), ("LEASE__AUDIT_MS", "3600000")];
    fleet.add_with(Role::Worker, &quota).unwrap();
    fleet.ready().await.unwrap();
    let watched = Watched::start(&mut fleet).await;
    let (api, store) = (fleet.api(), fleet.store().await.unwrap());

    down.down();
    api.submit(&json!({"text": "no model plans this"})).await.unwrap();
    let mut asks = ticket("asks", &[]);
    asks["pool"] = "quota".into();
    asks["integrates"] = true.into();
    api.submit_plan("its endpoint refuses", &json!([asks])).await.unwrap();
    store.dead_letter("work.default", b"junk", "a test").await.unwrap();
    api.submit(&json!({"text": "too poor for a plan", "budget_tokens": 10})).await.unwrap();
    api.submit_plan("a pool that nobody serves", &unserved()).await.unwrap();
    let empty = direct("empty", &[], "data/empty.txt", "open('data/empty.txt', 'w')");
    api.submit_plan("what it delivers is never good", &json!([empty])).await.unwrap();
    fleet.redis.query::<String>(&["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]).await.unwrap();
    fleet.redis.query::<String>(&["CONFIG", "SET", "appendonly", "no"]).await.unwrap();
    // So much that an eighth of it is room: what is evicted now would be the breaker, which has an expiry.
    fleet.redis.query::<String>(&["DEBUG", "POPULATE", "1", "filler", "50000000"]).await.unwrap();
    let info = fleet.redis.query::<String>(&["INFO", "memory"]).await.unwrap();
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap().trim();
    let full = (used.parse::<u64>().unwrap() * 112 / 100).to_string();
    fleet.redis.query::<String>(&["CONFIG", "SET", "maxmemory", &full]).await.unwrap();
    watched.fires(FAULTS).await;

    fleet.program(Role::Reviewer, 0).kill();
    watched.fires(GONE).await;
    fleet.program(Role::Manager, 0).kill();
    watched.fires(LAST).await;
}

#[tokio::test]
async fn alerts_of_a_standstill_fire() {
    // An hour between two sweeps: as if the loop hung.
    let plan = Fleet::plan().env("WORKER__SLOTS", "1").lease(|lease| lease.sweep_ms = 3_600_000);
    let mut fleet = plan.start().await.unwrap();
    let store = fleet.store().await.unwrap();
    // Somebody sweeps until it is watched, however long that takes: an alert that fires before would never end.
    let sweeping = async {
        loop {
            store.sweep(&scale().lease()).await.unwrap();
            wait::moment(Duration::from_millis(500)).await;
        }
    };
    let watched = tokio::select! {
        watched = Watched::start(&mut fleet) => watched,
        never = sweeping => never,
    };
    let api = fleet.api();
    let good: Vec<Value> = (0..8).map(|n| quick(&format!("q{n}"), &[])).collect();
    let goal = api.submit_plan("all of it passes", &json!(good)).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    // Seen by a scrape before whoever counted it is gone.
    watched.fires(PASSED).await;
    fleet.program(Role::Reviewer, 0).kill();
    let tickets = json!([slow("a", &[], 0.0), slow("b", &[], 300.0), slow("c", &[], 0.0)]);
    let goal = api.submit_plan("nobody goes on with it", &tickets).await.unwrap();
    api.event(&goal, "one is done and waits for its review", |e| e.event == "completed").await.unwrap();
    api.event(&goal, "the long one runs", |e| e.key == "b" && e.event == "claimed").await.unwrap();
    fleet.program(Role::Worker, 0).kill();
    watched.fires(STANDSTILL).await;
}

#[tokio::test]
async fn alerts_of_workers_that_come_too_late_fire() {
    const MANY: usize = 8;
    let plan = Fleet::plan().workers(0).env("WORKER__SLOTS", "8").env("CAPS__LOSSES", "2");
    let mut fleet = plan.lease(|lease| lease.lease_ms = 4_000).start().await.unwrap();
    let proxy = Proxy::start(fleet.redis.port()).await.unwrap();
    fleet.add_with(Role::Worker, &[("REDIS__URL", &proxy.redis_url())]).unwrap();
    fleet.ready().await.unwrap();
    let watched = Watched::start(&mut fleet).await;
    let api = fleet.api();

    // Its link is cut while it works, twice: what it did comes too late, and the second loss is one too many.
    let work: Vec<Value> = (0..MANY).map(|n| slow(&format!("s{n}"), &[], 2.0)).collect();
    let goal = api.submit_plan("cut off", &json!(work)).await.unwrap();
    for round in 1..=2 {
        let happened = async |what: &str| {
            let said = format!("{what}, round {round}");
            wait::until(&said, scale().patience(), async || {
                let events = api.events(&goal).await?;
                Ok((events.iter().filter(|e| e.event == what).count() >= MANY * round).then_some(()))
            })
            .await
            .unwrap();
        };
        happened("claimed").await;
        proxy.pause();
        happened("lease_lost").await;
        proxy.pass();
    }
    watched.fires(&["MusterLeasesLapse", "MusterFenced", "MusterPoison"]).await;

    // A slow link, and work in a folder whose disk does not answer: whoever opens that file waits for ever.
    proxy.delay(Duration::from_millis(300));
    fleet.program(Role::Worker, 0).freeze();
    let blob = api.upload(b"on a disk that hangs").await.unwrap();
    let mut reads = slow("reads", &[], 0.0);
    reads["integrates"] = true.into();
    let body = json!({"text": "a disk that hangs", "inputs": [{"path": "inputs/x.txt", "blob": blob}],
        "plan": {"goal": {"text": "a disk that hangs"}, "tickets": [reads]}});
    let stuck = api.submit(&body).await.unwrap();
    api.event(&stuck, "it may be claimed", |e| e.to == "pending").await.unwrap();
    let file = fleet.blobs().join(format!("goals/{stuck}/{}/{blob}", &blob[..2]));
    std::fs::remove_file(&file).unwrap();
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
    fleet.program(Role::Worker, 0).thaw();
    api.event(&stuck, "it is claimed", |e| e.event == "claimed").await.unwrap();
    api.post(&format!("/v1/goals/{stuck}/cancel"), &json!({})).await.unwrap();
    watched.fires(LATE).await;
}
