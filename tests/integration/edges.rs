//! Needs that are added late: to tickets that are done already, and to one that ends in that very moment.

use harness::desk::{Desk, expect, spec};
use harness::scale::scale;
use shared::store::{Patched, Written};
use shared::ticket::patch::{NewTicket, PatchOp};
use shared::ticket::{ReviewPolicy, Status, new_id};

fn added(goal: &str, key: &str, needs: &[&str]) -> PatchOp {
    let need_ids = needs.iter().map(|n| (*n).to_owned()).collect();
    let spec = spec(key, &[], ReviewPolicy::None);
    PatchOp::Add { ticket: Box::new(NewTicket { id: new_id(), parent_id: goal.into(), need_ids, spec }) }
}

#[tokio::test]
async fn q20_a_need_that_is_done_already_is_no_need() {
    let desk = Desk::start().await.unwrap();
    let plan = desk
        .plan(&[
            spec("a", &[], ReviewPolicy::None),
            spec("b", &[], ReviewPolicy::None),
            spec("c", &["b"], ReviewPolicy::None),
        ])
        .await
        .unwrap();
    let claims = desk.work(2).await.unwrap();
    let a = claims.iter().find(|c| c.ticket.key == "a").unwrap();
    let b = claims.iter().find(|c| c.ticket.key == "b").unwrap();
    expect(desk.complete(&a.held).await.unwrap(), Written::Ok).unwrap();
    desk.store.note(&plan.goal, "tester", "call the manager").await.unwrap();
    let step = desk.manage().await.unwrap().unwrap();
    let blocked = desk.ticket(plan.id("c")).await.unwrap();
    let ops = [
        added(&plan.goal, "on-done", &[plan.id("a")]),
        added(&plan.goal, "on-both", &[plan.id("a"), plan.id("b")]),
        PatchOp::Link { id: plan.id("c").into(), epoch: blocked.epoch, need: plan.id("a").into() },
    ];
    let version = step.goal.plan_version;
    let patched = desk.store.patch(&step.held, &new_id(), version, step.read, &ops).await.unwrap();
    assert!(matches!(patched, Patched::Ok { .. }), "{patched:?}");
    desk.finish(&step, 0).await.unwrap();
    let status = async |key: &str| {
        let all = desk.store.all_tickets(&plan.goal).await.unwrap();
        all.into_iter().find(|t| t.key == key).unwrap().status
    };
    assert_eq!((status("on-done").await, status("on-both").await), (Status::Pending, Status::Blocked));
    expect(desk.complete(&b.held).await.unwrap(), Written::Ok).unwrap();
    assert_eq!((status("on-both").await, status("c").await), (Status::Pending, Status::Pending));
    assert_eq!(desk.drain().await.unwrap(), 3);
    desk.oracle().await.unwrap();
}

#[tokio::test]
async fn q20_a_need_that_ends_while_it_is_added_is_met_either_way() {
    let desk = Desk::start().await.unwrap();
    let other = desk.another_store(&desk.redis.url()).await.unwrap();
    let (mut before, mut after) = (0, 0);
    for round in 0..scale().pick(100, 1_000) {
        desk.redis.query::<String>(&["FLUSHALL"]).await.unwrap();
        let plan = desk
            .plan(&[spec("a", &[], ReviewPolicy::None), spec("z", &[], ReviewPolicy::None)])
            .await
            .unwrap();
        let claims = desk.work(2).await.unwrap();
        let a = claims.iter().find(|c| c.ticket.key == "a").unwrap();
        let z = claims.iter().find(|c| c.ticket.key == "z").unwrap();
        desk.store.note(&plan.goal, "tester", "call the manager").await.unwrap();
        let step = desk.manage().await.unwrap().unwrap();
        let ops = [added(&plan.goal, "late", &[plan.id("a")])];
        let (id, version) = (new_id(), step.goal.plan_version);
        let done = [harness::desk::completion(&a.held)];
        // Each of the two is sent first in half of the rounds; which one the server takes first is open.
        let patch = other.patch(&step.held, &id, version, step.read, &ops);
        let complete = desk.store.complete(&done);
        let (patched, completed) = if round % 2 == 0 {
            tokio::join!(patch, complete)
        } else {
            let (completed, patched) = tokio::join!(complete, patch);
            (patched, completed)
        };
        assert!(matches!(patched.unwrap(), Patched::Ok { .. }));
        assert_eq!(completed.unwrap(), [Written::Ok]);
        desk.finish(&step, 0).await.unwrap();
        let events = harness::oracle::events(&desk.store, &plan.goal).await.unwrap();
        let at =
            |event: &str, key: &str| events.iter().position(|e| e.event == event && e.key == key).unwrap();
        if at("added", "late") < at("completed", "a") {
            before += 1
        } else {
            after += 1
        }
        let late = desk.one().await.unwrap();
        assert_eq!(late.ticket.key, "late", "round {round}");
        for claim in [&late, z] {
            expect(desk.complete(&claim.held).await.unwrap(), Written::Ok).unwrap();
        }
        desk.oracle().await.unwrap();
    }
    assert!(before > 0 && after > 0, "both orders: {before} and {after}");
}
