//! A write is accepted from its owner, once, and from nobody else (I3); what it cost is booked all the same.

use harness::desk::{Desk, completion, expect, independent, spec};
use serde_json::json;
use shared::message::Kind;
use shared::store::{Claim, ClaimReply, Held, Permit, Renewal, Written};
use shared::ticket::{FailClass, ReviewPolicy, Status};

fn permit() -> Permit {
    Permit {
        digest: "d".into(),
        tool: "shell".into(),
        args: json!({}),
        revision: 0,
        state: "asked".into(),
        note: String::new(),
        ..Permit::default()
    }
}

/// Every write that an owner can make, by one that is no longer (or never was) the owner.
async fn every_write_is_fenced(desk: &Desk, stale: &Held) {
    let others = [
        desk.complete(stale).await.unwrap(),
        desk.decide(stale, true).await.unwrap(),
        desk.decide(stale, false).await.unwrap(),
        desk.fail(stale, FailClass::Fault, 0).await.unwrap(),
        desk.fail(stale, FailClass::Wait, 0).await.unwrap(),
        desk.store.release(stale).await.unwrap(),
        desk.store.park(stale, &permit(), 1_000).await.unwrap(),
        desk.store.conflict(stale, "a: 1 2", true, "").await.unwrap(),
        desk.store.progress(stale, "working", "still here", Some("a fact")).await.unwrap(),
    ];
    assert_eq!(others, [Written::Fenced; 9]);
    let renewed =
        desk.store.renew("worker-test", &[], 1_000, 60_000, 60_000, &[(stale.clone(), 0)]).await.unwrap();
    assert_eq!(renewed, [Renewal::Lost]);
}

/// The lease of the claim lapses and a sweeper takes the ticket back.
async fn lapse(desk: &Desk, claim: &Claim) {
    desk.redis.query::<i64>(&["ZADD", "muster:{s0}:lease", "1", &claim.held.id]).await.unwrap();
    assert_eq!(desk.sweep().await.unwrap().requeued, 1);
}

#[tokio::test]
async fn c2_a_late_result_of_a_lost_claim_is_refused_and_billed() {
    let desk = Desk::start().await.unwrap();
    desk.sweep().await.unwrap();
    let plan = desk.plan(&independent(1)).await.unwrap();
    let a = desk.one().await.unwrap();
    lapse(&desk, &a).await;
    let b = desk.one().await.unwrap();
    assert_eq!((b.held.id.as_str(), b.ticket.attempts), (a.held.id.as_str(), 2));
    expect(desk.complete(&b.held).await.unwrap(), Written::Ok).unwrap();

    every_write_is_fenced(&desk, &a.held).await;
    let record = json!({"role": "worker", "model": "m", "input_tokens": 70, "output_tokens": 30});
    desk.store.book(&plan.goal, &a.held.id, 100, 5, &record).await.unwrap();

    let ticket = desk.ticket(&a.held.id).await.unwrap();
    assert_eq!((ticket.status, ticket.counters.losses, ticket.spent_tokens), (Status::Done, 1, 100));
    assert_eq!(desk.store.goal(&plan.goal).await.unwrap().unwrap().spent_tokens, 100);
    let events = harness::oracle::events(&desk.store, &plan.goal).await.unwrap();
    assert!(
        events.iter().any(|e| e.event == "lease_lost" && e.ticket == a.held.id),
        "the audit trail shows it"
    );
    desk.oracle().await.unwrap();
}

#[tokio::test]
async fn q15_a_recoverer_that_acts_on_an_old_list_hits_the_fence() {
    let desk = Desk::start().await.unwrap();
    desk.sweep().await.unwrap();
    desk.plan(&independent(1)).await.unwrap();
    // Recoverer A lists the ticket's first attempt, then sleeps; B retries it and it runs again.
    let listed = desk.one().await.unwrap();
    lapse(&desk, &listed).await;
    let runs = desk.one().await.unwrap();
    every_write_is_fenced(&desk, &listed.held).await;
    // A guess that has the new epoch but not the lease is fenced as well, and the reverse.
    every_write_is_fenced(&desk, &Held { epoch: runs.held.epoch, ..listed.held.clone() }).await;
    every_write_is_fenced(&desk, &Held { epoch: listed.held.epoch, ..runs.held.clone() }).await;
    let ticket = desk.ticket(&runs.held.id).await.unwrap();
    assert_eq!(
        (ticket.status, ticket.epoch),
        (Status::Running, runs.held.epoch),
        "the new attempt goes on untouched"
    );
    desk.oracle().await.unwrap();
}

#[tokio::test]
async fn i3_a_repeated_write_is_answered_dup_and_changes_nothing() {
    let desk = Desk::start().await.unwrap();
    let plan = desk.plan(&[spec("a", &[], ReviewPolicy::Code)]).await.unwrap();
    let work = desk.one().await.unwrap();
    assert_eq!(desk.complete(&work.held).await.unwrap(), Written::Ok);
    assert_eq!(desk.complete(&work.held).await.unwrap(), Written::Dup);
    let review = desk.one_review().await.unwrap();
    assert_eq!(desk.decide(&review.held, true).await.unwrap(), Written::Ok);
    assert_eq!(desk.decide(&review.held, true).await.unwrap(), Written::Dup);
    // The owner of the work is not the owner of the review.
    assert_eq!(desk.complete(&work.held).await.unwrap(), Written::Dup);
    let twice = desk.store.complete(&[completion(&work.held), completion(&review.held)]).await.unwrap();
    assert_eq!(twice, [Written::Dup, Written::Fenced]);
    let times =
        harness::oracle::acceptances(&harness::oracle::events(&desk.store, &plan.goal).await.unwrap());
    assert_eq!(times.into_iter().collect::<Vec<_>>(), [("a".to_owned(), 1)]);
    desk.oracle().await.unwrap();
}

#[tokio::test]
async fn i3_a_repeated_claim_gets_the_same_tickets() {
    let desk = Desk::start().await.unwrap();
    desk.plan(&independent(3)).await.unwrap();
    let claim = async || {
        harness::desk::claim_through(&desk.store, Kind::Work, "w", "f0f0prefix", 5_000, 2).await.unwrap()
    };
    let (ClaimReply::Got(first), ClaimReply::Got(second)) = (claim().await, claim().await) else {
        panic!("both calls get tickets");
    };
    let held = |claims: &[Claim]| claims.iter().map(|c| c.held.clone()).collect::<Vec<_>>();
    assert_eq!(held(&first), held(&second));
    assert_eq!(desk.work(16).await.unwrap().len(), 1, "only the third is left");
    desk.oracle().await.unwrap();
}
