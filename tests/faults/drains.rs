//! SIGTERM under load: nothing is lost, what is finished is handed in, what is not goes back unharmed.

use harness::fleet::{Fleet, Role};
use harness::scale::scale;
use harness::script::{quick, slow};
use harness::wait;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use std::time::Duration;

#[tokio::test]
async fn q01_waiters_that_are_stopped_while_work_arrives_lose_nothing() {
    let (rounds, count) = scale().pick((3, 40), (50, 1_000));
    let mut random = StdRng::seed_from_u64(1);
    let mut fleet = Fleet::plan().workers(4).env("WORKER__SLOTS", "8").start().await.unwrap();
    let api = fleet.api();
    for round in 0..rounds {
        // No review, no sandbox: claims are what is tested.
        let tickets: Vec<Value> = (0..count).map(|n| note(&format!("t{n:04}"))).collect();
        let goal = api.submit_plan(&format!("round {round}"), &json!(tickets)).await.unwrap();
        for n in 0..4 {
            wait::moment(Duration::from_millis(random.random_range(0..50))).await;
            fleet.program(Role::Worker, n).terminate();
        }
        for n in 0..4 {
            let status = fleet.program(Role::Worker, n).ended(scale().patience()).await.unwrap();
            assert_eq!(status.code(), Some(0), "a drain ends well");
            fleet.program(Role::Worker, n).start().unwrap();
        }
        fleet.ready().await.unwrap();
        api.reaches(&goal, &["done"]).await.unwrap();
        let tickets = api.tickets(&goal).await.unwrap();
        assert!(tickets.iter().all(|t| t.counters.losses == 0), "given back, not lost");
        let times = harness::oracle::acceptances(&api.events(&goal).await.unwrap());
        assert_eq!((times.len(), times.values().all(|n| *n == 1)), (count, true));
    }
    fleet.oracle().await.unwrap();
}

/// A ticket that only writes a note: no Python, no review.
fn note(id: &str) -> Value {
    let path = format!("data/{id}.txt");
    json!({"id": id, "description": "note", "tool": "write_file", "args": {"path": path, "content": "noted\n"},
        "outputs": [path], "review": "none"})
}

#[tokio::test]
async fn q13_work_that_ends_during_the_drain_is_handed_in() {
    let mut fleet = Fleet::plan().workers(1).env("WORKER__SLOTS", "4").start().await.unwrap();
    let api = fleet.api();
    let tickets: Vec<Value> = (0..4).map(|n| slow(&format!("t{n}"), &[], 0.8)).collect();
    let goal = api.submit_plan("ends while it drains", &json!(tickets)).await.unwrap();
    let started = async || {
        let tickets = api.tickets(&goal).await?;
        Ok((tickets.iter().filter(|t| t.status.as_str() == "running").count() == 4).then_some(()))
    };
    wait::until("all four run", scale().patience(), started).await.unwrap();
    let status = fleet.program(Role::Worker, 0).drain(scale().patience()).await.unwrap();
    assert_eq!(status.code(), Some(0));
    let tickets = api.tickets(&goal).await.unwrap();
    let handed_in = tickets.iter().filter(|t| ["reviewing", "done"].contains(&t.status.as_str())).count();
    assert_eq!((handed_in, tickets.iter().all(|t| t.attempts == 1)), (4, true), "{tickets:?}");
    assert!(
        fleet.api().get("/v1/fleet").await.unwrap()["consumers"]
            .as_array()
            .unwrap()
            .iter()
            .all(|c| c["role"] != "worker")
    );
    fleet.program(Role::Worker, 0).start().unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn work_that_does_not_end_in_time_is_given_back_and_not_counted_as_a_fault() {
    let mut fleet = Fleet::plan().workers(1).env("WORKER__DRAIN_MS", "500").start().await.unwrap();
    let api = fleet.api();
    let goal = api
        .submit_plan("too long for the drain", &json!([slow("long", &[], 4.0), quick("after", &["long"])]))
        .await
        .unwrap();
    api.event(&goal, "it runs", |e| e.event == "claimed").await.unwrap();
    fleet.program(Role::Worker, 0).drain(scale().patience()).await.unwrap();
    let back = api.ticket(&goal, "long").await.unwrap();
    assert_eq!((back.status.as_str(), back.counters.releases, back.counters.faults), ("pending", 1, 0));
    fleet.program(Role::Worker, 0).start().unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn a_second_signal_leaves_at_once_and_the_sweeper_takes_over() {
    let mut fleet = Fleet::plan().workers(1).start().await.unwrap();
    let api = fleet.api();
    let goal = api.submit_plan("left in a hurry", &json!([slow("long", &[], 3.0)])).await.unwrap();
    api.event(&goal, "it runs", |e| e.event == "claimed").await.unwrap();
    let worker = fleet.program(Role::Worker, 0);
    worker.terminate();
    wait::moment(Duration::from_millis(200)).await;
    worker.terminate();
    let status = worker.ended(Duration::from_secs(2)).await.unwrap();
    assert_eq!(status.code(), Some(130));
    worker.start().unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    fleet.oracle().await.unwrap();
}

/// Its listener may have ended before anything else of it has seen the stop.
#[tokio::test]
async fn q13_a_manager_that_is_told_to_stop_ends_well_whichever_part_ends_first() {
    let mut fleet = Fleet::plan().workers(0).reviewers(0).start().await.unwrap();
    for _ in 0..scale().pick(12, 200) {
        let status = fleet.program(Role::Manager, 0).drain(scale().patience()).await.unwrap();
        fleet.no_panics().unwrap();
        assert_eq!(status.code(), Some(0), "a drain ends well");
        fleet.program(Role::Manager, 0).start().unwrap();
        fleet.ready().await.unwrap();
    }
}
