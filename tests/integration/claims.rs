//! What one claim hands out: whole tickets, a fair share for every goal, no more than a goal's cap.

use harness::desk::{Desk, expect, independent, spec};
use serde_json::json;
use shared::goal::NewGoal;
use shared::message::Kind;
use shared::store::{Claim, Patched, Written};
use shared::ticket::patch::{Edit, PatchOp};
use shared::ticket::{Check, DirectCall, FailClass, ReviewPolicy, Tier, new_id};
use std::collections::BTreeMap;

async fn is_what_the_hash_holds(desk: &Desk, claim: &Claim) {
    let stored = desk.store.ticket(&claim.held.id).await.unwrap().unwrap();
    assert_eq!(claim.ticket, stored);
}

#[tokio::test]
async fn a_claimed_ticket_is_what_its_hash_holds() {
    let desk = Desk::start().await.unwrap();
    let mut rich = spec("rich", &[], ReviewPolicy::Judged);
    rich.role = "data_analyst".into();
    rich.persona = "a patient reader of \"quoted\" text, ünïcode".into();
    rich.tier = Tier::Strong;
    rich.tools = vec!["files".into(), "code".into()];
    rich.call = Some(DirectCall { tool: "write_file".into(), args: json!({"path": "a", "content": "b\nc"}) });
    rich.outputs = vec!["outputs/rich.md".into()];
    rich.checklist = vec![Check::MinBytes { path: "outputs/rich.md".into(), min: 3 }];
    rich.input_context = json!({"n": 1, "list": ["x", null]});
    rich.mandatory = false;
    let mut late = rich.clone();
    late.key = "late".into();
    late.needs = vec!["rich".into()];
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let goal =
        NewGoal { id: new_id(), tenant: "acme".into(), traceparent: trace.into(), ..NewGoal::default() };
    let manager = desk.submit(&goal).await.unwrap();
    let plan = desk.seal(&manager, &[rich.clone(), late]).await.unwrap();

    // Fresh, then after a fault, then after a rejection.
    let claim = desk.one().await.unwrap();
    assert_eq!(claim.ticket.traceparent, trace, "one goal, one trace");
    assert_eq!(claim.delivery.as_ref().unwrap().traceparent, trace);
    assert_eq!((claim.ticket.persona.as_str(), claim.ticket.attempts), (rich.persona.as_str(), 1));
    assert_eq!((&claim.ticket.call, &claim.ticket.checklist), (&rich.call, &rich.checklist));
    is_what_the_hash_holds(&desk, &claim).await;
    expect(desk.fail(&claim.held, FailClass::Fault, 0).await.unwrap(), Written::Ok).unwrap();
    let claim = desk.one().await.unwrap();
    assert_eq!(claim.ticket.counters.faults, 1);
    is_what_the_hash_holds(&desk, &claim).await;
    expect(desk.complete(&claim.held).await.unwrap(), Written::Ok).unwrap();
    let review = desk.one_review().await.unwrap();
    is_what_the_hash_holds(&desk, &review).await;
    expect(desk.decide(&review.held, false).await.unwrap(), Written::Ok).unwrap();
    let claim = desk.one().await.unwrap();
    assert!(claim.ticket.verdict.is_some());
    is_what_the_hash_holds(&desk, &claim).await;

    // Edited while it was blocked: it is as old as a fresh one, and not what was planned.
    let epoch = desk.ticket(plan.id("late")).await.unwrap().epoch;
    let edit = Edit { persona: Some("somebody else".into()), ..Edit::default() };
    let op = PatchOp::Modify { id: plan.id("late").into(), epoch, edit: Box::new(edit) };
    let patched = desk.store.patch(&manager.held, &new_id(), 1, 0, &[op]).await.unwrap();
    assert!(matches!(patched, Patched::Ok { .. }), "{patched:?}");
    expect(desk.complete(&claim.held).await.unwrap(), Written::Ok).unwrap();
    let review = desk.one_review().await.unwrap();
    expect(desk.decide(&review.held, true).await.unwrap(), Written::Ok).unwrap();
    let claim = desk.one().await.unwrap();
    assert_eq!((claim.ticket.key.as_str(), claim.ticket.persona.as_str()), ("late", "somebody else"));
    assert_eq!(claim.ticket.checklist, rich.checklist);
    is_what_the_hash_holds(&desk, &claim).await;
}

fn shares(claims: &[Claim]) -> BTreeMap<&str, usize> {
    let mut shares = BTreeMap::new();
    for claim in claims {
        *shares.entry(claim.ticket.goal.as_str()).or_default() += 1;
    }
    shares
}

#[tokio::test]
async fn one_big_claim_shares_its_turns_between_tenants_and_their_goals() {
    let desk = Desk::start().await.unwrap();
    let goal = |tenant: &str| NewGoal { tenant: tenant.into(), ..NewGoal::default() };
    let big = desk.plan_of(goal("big"), &independent(200)).await.unwrap().goal;
    let more = desk.plan_of(goal("big"), &independent(100)).await.unwrap().goal;
    let small = desk.plan_of(goal("small"), &independent(40)).await.unwrap().goal;
    // Whatever the size of the call: half for each tenant, and a tenant's half is shared by its goals.
    for n in [64, 8, 1, 1, 1, 1, 4] {
        let claims = desk.work(n).await.unwrap();
        assert_eq!(claims.len(), n);
        if n > 4 {
            let shares = shares(&claims);
            assert_eq!(
                (shares[big.as_str()], shares[more.as_str()], shares[small.as_str()]),
                (n / 4, n / 4, n / 2)
            );
        }
    }
    desk.oracle().await.unwrap();
    // The small one is empty: the others get all of it.
    let claims = desk.work(60).await.unwrap();
    assert_eq!(shares(&claims).get(small.as_str()).copied().unwrap_or(0), 40 - 32 - 4 - 4);
    assert_eq!(shares(&claims)[big.as_str()], 30);
    desk.oracle().await.unwrap();
}

#[tokio::test]
async fn a_goals_cap_bounds_a_claim_of_any_size() {
    let desk = Desk::start().await.unwrap();
    let capped = NewGoal { in_flight_max: 3, ..NewGoal::default() };
    desk.plan_of(capped, &independent(20)).await.unwrap();
    let held = desk.work(64).await.unwrap();
    assert_eq!(held.len(), 3);
    assert!(desk.work(64).await.unwrap().is_empty());
    expect(desk.complete(&held[0].held).await.unwrap(), Written::Ok).unwrap();
    assert_eq!(desk.take(Kind::Work, "another", 64).await.unwrap().len(), 1);
    desk.oracle().await.unwrap();
}
