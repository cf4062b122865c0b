//! Restarts in a row: of the server, of one worker after the other. Everybody works again afterwards.

use harness::fleet::{Fleet, Role};
use harness::scale::scale;
use harness::script::slow;
use harness::wait;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

#[tokio::test]
async fn q23_after_two_outages_in_a_row_every_worker_claims_again() {
    let workers = 3;
    let mut fleet = Fleet::plan().workers(workers).env("WORKER__SLOTS", "1").start().await.unwrap();
    for round in 0..scale().pick(2, 20) {
        // The second one hits them while they reconnect.
        for gap_ms in [600, 50] {
            fleet.redis.kill();
            wait::moment(Duration::from_millis(300)).await;
            fleet.redis.restart().await.unwrap();
            wait::moment(Duration::from_millis(gap_ms)).await;
        }
        let api = fleet.api();
        let text = format!("after the outages {round}");
        let tickets: Vec<Value> = (0..9).map(|n| slow(&format!("t{n}"), &[], 0.7)).collect();
        let body = json!({"text": text, "idempotency_key": text, "plan": {"goal": {"text": text}, "tickets": tickets}});
        let submitted =
            wait::until("it is taken", scale().patience(), async || api.submit(&body).await.map(Some));
        let goal = submitted.await.unwrap();
        api.reaches(&goal, &["done"]).await.unwrap();
        let events = api.events(&goal).await.unwrap();
        let owners: BTreeSet<&str> =
            events.iter().filter(|e| e.event == "claimed").map(|e| e.who.as_str()).collect();
        assert_eq!(owners.len(), workers, "none of them is alive and does nothing: {owners:?}");
    }
    fleet.no_panics().unwrap();
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn q29_a_rolling_restart_loses_no_orphan_and_keeps_every_cap() {
    let workers = 6;
    let (job_s, gap_ms) = scale().pick((2.5, 500), (90.0, 10_000));
    let plan = Fleet::plan().workers(workers).env("WORKER__SLOTS", "1").env("WORKER__DRAIN_MS", "200");
    let mut fleet = plan.start().await.unwrap();
    let api = fleet.api();
    let tickets: Vec<Value> = (0..workers).map(|n| slow(&format!("t{n}"), &[], job_s)).collect();
    let goal = api.submit_plan("rolling", &json!(tickets)).await.unwrap();
    let all_run = wait::until("all run", scale().patience(), async || {
        let running = api.tickets(&goal).await?.iter().filter(|t| t.status.as_str() == "running").count();
        Ok((running == workers).then_some(()))
    });
    all_run.await.unwrap();
    let store = fleet.store().await.unwrap();
    let mut kills = vec![];
    for n in 0..workers {
        let worker = fleet.program(Role::Worker, n);
        if n.is_multiple_of(2) {
            kills.push(store.now_ms().await.unwrap());
            worker.kill();
        } else {
            worker.drain(scale().patience()).await.unwrap();
        }
        worker.start().unwrap();
        wait::moment(Duration::from_millis(gap_ms)).await;
    }
    api.reaches_within(&goal, &["done"], scale().patience() * 3).await.unwrap();
    // Each orphan was found by whoever swept, within the lease and a bit, not at the next start.
    let limit_ms = scale().lease().lease_ms + scale().pick(2_000, 5_000);
    let events = api.events(&goal).await.unwrap();
    let lapses: Vec<_> = events.iter().filter(|e| e.event == "lease_lost").collect();
    assert!(!lapses.is_empty(), "nobody was orphaned");
    for lapse in lapses {
        let late = kills.iter().filter_map(|k| lapse.at_ms.checked_sub(*k)).min().unwrap();
        assert!(late <= limit_ms, "{} lay about for {late} ms", lapse.key);
    }
    for ticket in api.tickets(&goal).await.unwrap() {
        assert!(ticket.counters.releases < 5 && ticket.counters.losses < 3, "{ticket:?}");
    }
    fleet.oracle().await.unwrap();
}
