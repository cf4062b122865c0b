//! Redis is away, full, or forgets its scripts: nothing is lost and nothing is run again that still runs.

use harness::desk::{Desk, completion, expect, independent};
use harness::redis::Options;
use harness::scale::scale;
use harness::wait;
use shared::goal::NewGoal;
use shared::store::{Held, Renewal, StoreError, Submitted, Written};
use shared::ticket::{Status, new_id};
use std::time::{Duration, Instant};

#[tokio::test]
async fn q12_an_outage_longer_than_the_lease_requeues_nobody_who_still_works() {
    let mut desk = Desk::start().await.unwrap();
    desk.lease.outage_ms = desk.lease.lease_ms;
    desk.sweep().await.unwrap();
    desk.plan(&independent(10)).await.unwrap();
    let claims = desk.work(10).await.unwrap();
    let (alive, gone) = claims.split_at(5);
    desk.redis.stop().await.unwrap();
    wait::moment(Duration::from_millis(desk.lease.lease_ms * 2)).await;
    desk.redis.restart().await.unwrap();
    let back = Instant::now();

    let first = desk.sweep().await.unwrap();
    assert_eq!((first.requeued, first.grace), (0, true), "all leases look lapsed; the grace holds them");
    let held: Vec<(Held, u64)> = alive.iter().map(|c| (c.held.clone(), 0)).collect();
    let renew = async || {
        let lease = &desk.lease;
        desk.store.renew("w", &[], lease.lease_ms, 600_000, 600_000, &held).await.unwrap()
    };
    assert!(renew().await.iter().all(|r| matches!(r, Renewal::Ok { .. })));
    let mut requeued = 0;
    let swept = wait::until("those that are gone are swept", scale().patience(), async || {
        assert!(renew().await.iter().all(|r| matches!(r, Renewal::Ok { .. })));
        requeued += desk.sweep().await?.requeued;
        Ok((requeued >= 5).then_some(()))
    });
    swept.await.unwrap();
    assert!(
        back.elapsed() < Duration::from_millis(desk.lease.lease_ms * 2 + 1_000),
        "after {:?}",
        back.elapsed()
    );
    assert_eq!(requeued, 5);
    for claim in alive {
        let ticket = desk.ticket(&claim.held.id).await.unwrap();
        assert_eq!((ticket.status, ticket.attempts, ticket.counters.losses), (Status::Running, 1, 0));
        expect(desk.complete(&claim.held).await.unwrap(), Written::Ok).unwrap();
    }
    for claim in gone {
        assert_eq!(desk.complete(&claim.held).await.unwrap(), Written::Fenced);
    }
    assert_eq!(desk.drain().await.unwrap(), 5);
    desk.oracle().await.unwrap();
}

#[tokio::test]
async fn q05_a_full_server_refuses_submits_and_drains_the_rest() {
    let desk = Desk::start_with(Options::default()).await.unwrap();
    desk.sweep().await.unwrap();
    let plan = desk.plan(&independent(200)).await.unwrap();
    let running = desk.work(16).await.unwrap();
    // The limit goes below what is used already.
    desk.redis.query::<String>(&["CONFIG", "SET", "maxmemory", "1mb"]).await.unwrap();
    let goal = NewGoal { id: new_id(), text: "more".into(), ..NewGoal::default() };
    let full = desk.store.submit_goal(&goal, 100_000).await.unwrap_err();
    assert!(matches!(full, StoreError::OutOfMemory), "{full}");
    assert!(desk.store.goal(&goal.id).await.unwrap().is_none(), "nothing is half-submitted");
    let completions: Vec<_> = running.iter().map(|c| completion(&c.held)).collect();
    assert_eq!(desk.store.complete(&completions).await.unwrap(), vec![Written::Ok; 16]);
    assert_eq!(desk.drain().await.unwrap(), 184);
    assert_eq!(desk.store.goal(&plan.goal).await.unwrap().unwrap().counts.get("done"), Some(&200));
    desk.oracle().await.unwrap();
    desk.redis.query::<String>(&["CONFIG", "SET", "maxmemory", "0"]).await.unwrap();
    assert_eq!(desk.store.submit_goal(&goal, 100_000).await.unwrap(), Submitted::New);
    desk.oracle().await.unwrap();
}

#[tokio::test]
async fn scripts_that_were_flushed_are_loaded_again() {
    let desk = Desk::start().await.unwrap();
    desk.plan(&independent(3)).await.unwrap();
    let claims = desk.work(3).await.unwrap();
    for claim in claims {
        desk.redis.query::<String>(&["SCRIPT", "FLUSH"]).await.unwrap();
        expect(desk.complete(&claim.held).await.unwrap(), Written::Ok).unwrap();
    }
    desk.oracle().await.unwrap();
}

#[tokio::test]
async fn q07_a_kill_loses_at_most_the_last_second_and_a_key_finds_what_is_there() {
    let mut desk = Desk::start().await.unwrap();
    let count = scale().pick(300, 3_000);
    let goals: Vec<NewGoal> = (0..count)
        .map(|n| NewGoal { id: new_id(), text: format!("goal {n}"), ..NewGoal::default() })
        .collect();
    let mut acknowledged = vec![];
    for goal in &goals {
        assert_eq!(desk.store.submit_goal(goal, usize::MAX / 2).await.unwrap(), Submitted::New);
        acknowledged.push(Instant::now());
    }
    let killed = Instant::now();
    desk.redis.kill();
    desk.redis.restart().await.unwrap();
    let (mut lost, mut kept) = (0, 0);
    for (goal, at) in goals.iter().zip(acknowledged) {
        match desk.store.submit_goal(goal, usize::MAX / 2).await.unwrap() {
            Submitted::Duplicate => kept += 1,
            Submitted::New => {
                lost += 1;
                assert!(killed - at < Duration::from_millis(1_500), "lost although {:?} old", killed - at);
            }
            Submitted::Busy => panic!("busy"),
        }
    }
    assert_eq!(lost + kept, count);
    let all = desk.store.goals(None, 0, 2 * count).await.unwrap();
    assert_eq!(all.len(), count, "each goal is there once");
    desk.oracle().await.unwrap();
}
