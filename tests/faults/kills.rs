//! kill −9 of each program at seeded moments, and of Redis: the goal ends the same, each ticket accepted once.

use harness::fleet::{Fleet, Role};
use harness::oracle::acceptances;
use harness::scale::{Scale, scale};
use harness::script::{quick, slow};
use harness::wait;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use shared::config::Lease;
use shared::store::LogEvent;
use std::time::Duration;

/// Two layers and a join: something is always claimed, reviewed or released somewhere. The second layer's tickets
/// take `middle_s` seconds.
fn tickets(middle_s: f64) -> Value {
    let mut all: Vec<Value> = (0..3).map(|n| slow(&format!("a{n}"), &[], 0.3)).collect();
    all.extend((0..3).map(|n| slow(&format!("b{n}"), &["a0", "a1"], middle_s)));
    all.push(quick("join", &["a2", "b0", "b1", "b2"]));
    json!(all)
}

/// How it must have ended, whatever happened on the way.
async fn ended_the_same(fleet: &Fleet, goal: &str) -> Vec<LogEvent> {
    let api = fleet.api();
    let mut files = api.files(goal).await.unwrap();
    files.sort();
    let want = ["a0", "a1", "a2", "b0", "b1", "b2", "join"].map(|k| format!("data/{k}.txt"));
    assert_eq!(files, want);
    let events = api.events(goal).await.unwrap();
    let times = acceptances(&events);
    assert_eq!((times.len(), times.values().all(|n| *n == 1)), (7, true), "each accepted once: {times:?}");
    fleet.oracle().await.unwrap();
    events
}

/// Kills for each program.
const MOMENTS: u64 = 30;

/// A second, unless the full periods are asked for.
fn short_lease(lease: &mut Lease) {
    if scale() == Scale::Short {
        lease.lease_ms = 1_000;
        lease.renew_ms = 200;
        lease.sweep_ms = 100;
    }
}

/// Every ticket whose lease lapsed ran again within lease + 1 s of the kill.
fn recovered_in_time(events: &[LogEvent], killed_ms: u64) {
    let mut lease = scale().lease();
    short_lease(&mut lease);
    within(events, killed_ms, lease.lease_ms + 1_000);
}

/// Every lapse after `from_ms` was swept within `limit_ms`.
fn within(events: &[LogEvent], from_ms: u64, limit_ms: u64) {
    for event in events.iter().filter(|e| e.at_ms >= from_ms && e.event == "lease_lost") {
        let took = event.at_ms - from_ms;
        assert!(took <= limit_ms, "{} was swept {took} ms after the kill, limit {limit_ms}", event.key);
    }
}

/// One fleet, thirty goals, a kill in the middle of each.
async fn moments(role: Role, first: u64) {
    let mut fleet = Fleet::plan()
        .workers(2)
        .reviewers(2)
        .managers(2)
        .env("WORKER__SLOTS", "2")
        .lease(short_lease)
        .start()
        .await
        .unwrap();
    for seed in first..first + MOMENTS {
        let mut random = StdRng::seed_from_u64(seed);
        let api = fleet.api_of(1);
        let goal = api.submit_plan(&format!("killed {role:?} {seed}"), &tickets(0.2)).await.unwrap();
        wait::moment(Duration::from_millis(random.random_range(0..1_200))).await;
        let killed_ms = fleet.store().await.unwrap().now_ms().await.unwrap();
        fleet.program(role, 0).kill();
        if random.random_bool(0.5) {
            wait::moment(Duration::from_millis(random.random_range(0..400))).await;
        }
        fleet.program(role, 0).start().unwrap();
        api.reaches(&goal, &["done"]).await.unwrap_or_else(|e| panic!("{role:?} seed {seed}: {e:#}"));
        fleet.ready().await.unwrap();
        let events = ended_the_same(&fleet, &goal).await;
        recovered_in_time(&events, killed_ms);
    }
    fleet.no_panics().unwrap();
}

#[tokio::test]
async fn c1_a_worker_that_is_killed_loses_no_ticket() {
    moments(Role::Worker, 100).await;
}

#[tokio::test]
async fn c1_a_reviewer_that_is_killed_loses_no_ticket() {
    moments(Role::Reviewer, 200).await;
}

#[tokio::test]
async fn c1_a_manager_that_is_killed_loses_no_goal() {
    moments(Role::Manager, 300).await;
}

#[tokio::test]
async fn a_single_manager_that_is_killed_while_it_plans_goes_on_where_it_was() {
    let mut fleet = Fleet::plan().start().await.unwrap();
    let count = scale().pick(6, 30);
    for n in 0..count {
        let goal = fleet.api().submit_plan(&format!("plan {n}"), &tickets(0.2)).await.unwrap();
        wait::moment(Duration::from_millis(n * 7)).await;
        fleet.program(Role::Manager, 0).kill();
        fleet.program(Role::Manager, 0).start().unwrap();
        fleet.ready().await.unwrap();
        fleet.api().reaches(&goal, &["done"]).await.unwrap();
        ended_the_same(&fleet, &goal).await;
    }
}

#[tokio::test]
async fn a_redis_that_is_killed_and_restarted_loses_no_sealed_goal() {
    let mut fleet = Fleet::plan().workers(2).env("WORKER__SLOTS", "2").start().await.unwrap();
    let api = fleet.api();
    for round in 0..scale().pick(2, 30) {
        let goal = api.submit_plan(&format!("redis dies {round}"), &tickets(2.5)).await.unwrap();
        api.event(&goal, "work has begun", |e| e.event == "completed").await.unwrap();
        // What was written up to now is on the disk a second later.
        wait::moment(Duration::from_millis(1_100)).await;
        fleet.redis.kill();
        wait::moment(Duration::from_millis(200)).await;
        fleet.redis.restart().await.unwrap();
        let back_ms = fleet.store().await.unwrap().now_ms().await.unwrap();
        api.reaches(&goal, &["done"]).await.unwrap();
        let events = ended_the_same(&fleet, &goal).await;
        let limit = scale().lease().lease_ms * 2 + 1_000;
        within(&events, back_ms, limit);
        let first = events.iter().map(|e| e.at_ms).find(|at| *at >= back_ms).expect("killed in its middle");
        assert!(first - back_ms <= limit, "nothing happened for {} ms", first - back_ms);
    }
    fleet.no_panics().unwrap();
}

/// Which process an assignee is: `role-host-pid-random`.
fn pid_of(assignee: &str) -> u32 {
    assignee.rsplit('-').nth(1).and_then(|p| p.parse().ok()).unwrap_or(0)
}

#[tokio::test]
async fn q34_a_ticket_that_kills_its_worker_stops_after_its_cap_and_others_go_on() {
    let mut fleet = Fleet::plan().workers(3).env("WORKER__SLOTS", "1").start().await.unwrap();
    let api = fleet.api();
    let others: Vec<Value> = (0..6).map(|n| slow(&format!("o{n}"), &[], 0.2)).collect();
    let calm = api.submit_plan("the others", &json!(others)).await.unwrap();
    let goal = api.submit_plan("a killer", &json!([slow("killer", &[], 60.0)])).await.unwrap();
    let mut kills = 0;
    let stopped = wait::until("the killer is stopped", scale().patience() * 3, async || {
        let ticket = api.ticket(&goal, "killer").await?;
        match ticket.status.as_str() {
            "needs_human" => return Ok(Some(ticket)),
            "running" => {
                let pid = pid_of(&ticket.assignee);
                let mut owner = fleet.all(Role::Worker).find(|w| w.pid() == pid);
                if let Some(owner) = owner.as_mut() {
                    owner.start()?;
                    kills += 1;
                }
            }
            _ => {}
        }
        Ok(None)
    });
    let ticket = stopped.await.unwrap();
    assert_eq!((kills, ticket.attempts), (3, 3), "as often as the cap of lost workers says");
    assert!(ticket.cause.contains("loss") || ticket.cause == "handed_over", "{}", ticket.cause);
    api.reaches(&calm, &["done"]).await.unwrap();
    fleet.oracle().await.unwrap();
}
