//! The store's part of the invariants that no other file carries: places, counters, caps, gates, satisfied goals.

use harness::desk::{Desk, Planned, completion, expect, independent, spec};
use harness::scale::scale;
use harness::wait;
use serde_json::json;
use shared::goal::{GoalState, NewGoal};
use shared::message::InboxKind;
use shared::store::{Answered, Completion, Finish, Finished, Patched, Permit, PersonDecision, Written};
use shared::ticket::patch::{Edit, PatchOp};
use shared::ticket::{Counters, FailClass, ReviewPolicy, Status, new_id};

/// A lane that no live worker serves is a person's decision, not a queue; work goes on as soon as one comes.
#[tokio::test]
async fn i4_a_lane_that_nobody_serves_is_put_to_a_person() {
    let mut desk = Desk::start().await.unwrap();
    desk.lease.reviewer_wait_ms = 100;
    let plan = desk.plan(&independent(1)).await.unwrap();
    let goal = async || desk.store.goal(&plan.goal).await.unwrap().unwrap();
    wait::until("a person is asked", scale().patience(), async || {
        desk.sweep().await?;
        Ok((goal().await.state == GoalState::NeedsHuman).then_some(()))
    })
    .await
    .unwrap();
    assert_eq!(goal().await.cause, "unserved_lane");
    assert!(goal().await.cause_detail.contains("work.default"));
    assert_eq!(desk.store.open_decisions(10).await.unwrap().len(), 1);
    desk.oracle().await.unwrap();
    let on = PersonDecision::Answer { text: "wait on".into(), budget_tokens: None, budget_microusd: None };
    assert_eq!(desk.store.answer(&plan.goal, 0, "r1", "ann", &on).await.unwrap(), Answered::Ok);
    assert_eq!(goal().await.state, GoalState::Running);
    assert_eq!(desk.drain().await.unwrap(), 1);
}

/// The worker that comes is answer enough: nobody is asked any more, whoever has to look at the goal does.
#[tokio::test]
async fn i4_a_goal_that_waited_for_a_worker_goes_on_when_one_comes() {
    let mut desk = Desk::start().await.unwrap();
    desk.lease.reviewer_wait_ms = 100;
    let plan = desk.plan(&independent(1)).await.unwrap();
    let goal = async || desk.store.goal(&plan.goal).await.unwrap().unwrap();
    let swept_to = async |state: GoalState| {
        wait::until("the goal moves", scale().patience(), async || {
            desk.sweep().await?;
            Ok((goal().await.state == state).then_some(()))
        })
        .await
        .unwrap();
    };
    swept_to(GoalState::NeedsHuman).await;
    desk.serves(&["work.other"]).await.unwrap();
    desk.sweep().await.unwrap();
    assert_eq!(goal().await.state, GoalState::NeedsHuman, "another lane is no answer");
    desk.serves(&["work.default"]).await.unwrap();
    swept_to(GoalState::Running).await;
    assert_eq!((goal().await.cause.as_str(), desk.store.open_decisions(10).await.unwrap().len()), ("", 0));
    desk.oracle().await.unwrap();
    assert_eq!(desk.drain().await.unwrap(), 1);
}

/// Conclusions of accepted work, and of that alone, reach the goal's shared list, once.
#[tokio::test]
async fn conclusions_of_accepted_work_are_shared() {
    let desk = Desk::start().await.unwrap();
    let plan = desk.plan(&[spec("reviewed", &[], ReviewPolicy::Code)]).await.unwrap();
    for (pass, known) in [(false, 0), (true, 1)] {
        let claim = desk.one().await.unwrap();
        let mut done = completion(&claim.held);
        done.report.conclusions = vec!["water is wet".into(), "water is wet".into()];
        assert_eq!(desk.store.complete(&[done]).await.unwrap(), [Written::Ok]);
        let review = desk.one_review().await.unwrap();
        assert_eq!(desk.decide(&review.held, pass).await.unwrap(), Written::Ok);
        assert_eq!(desk.store.goal(&plan.goal).await.unwrap().unwrap().conclusions.len(), known);
    }
}

#[tokio::test]
async fn i8_only_faults_of_the_work_count_as_faults() {
    let desk = Desk::start().await.unwrap();
    desk.sweep().await.unwrap();
    let plan = desk.plan(&independent(1)).await.unwrap();
    for _ in 0..2 {
        let quota = desk.one().await.unwrap();
        expect(desk.fail(&quota.held, FailClass::Wait, 0).await.unwrap(), Written::Ok).unwrap();
        let drained = desk.one().await.unwrap();
        expect(desk.store.release(&drained.held).await.unwrap(), Written::Ok).unwrap();
        let lost = desk.one().await.unwrap();
        desk.redis.query::<i64>(&["ZADD", "muster:{s0}:lease", "1", &lost.held.id]).await.unwrap();
        assert_eq!(desk.sweep().await.unwrap().requeued, 1);
    }
    let counters = desk.ticket(plan.id("t0000")).await.unwrap().counters;
    assert_eq!(counters, Counters { waits: 2, releases: 2, losses: 2, ..Counters::default() });
    let fault = desk.one().await.unwrap();
    expect(desk.fail(&fault.held, FailClass::Fault, 0).await.unwrap(), Written::Ok).unwrap();
    assert_eq!(desk.ticket(plan.id("t0000")).await.unwrap().counters.faults, 1);
    desk.oracle().await.unwrap();
}

#[tokio::test]
async fn q34_giving_back_has_a_cap_of_its_own() {
    let desk = Desk::start().await.unwrap();
    let plan = desk.plan(&independent(2)).await.unwrap();
    let mut given_back = 0;
    while desk.status(plan.id("t0000")).await.unwrap() != Status::Escalated {
        let claim = desk.one().await.unwrap();
        if claim.ticket.key != "t0000" {
            // The others keep flowing.
            expect(desk.complete(&claim.held).await.unwrap(), Written::Ok).unwrap();
            continue;
        }
        given_back += 1;
        let word = desk.store.release(&claim.held).await.unwrap();
        assert_eq!(word, if given_back == 5 { Written::Escalated } else { Written::Ok });
    }
    let ticket = desk.ticket(plan.id("t0000")).await.unwrap();
    assert_eq!((given_back, ticket.cause.as_str(), ticket.counters.faults), (5, "releases", 0));
    desk.oracle().await.unwrap();
}

#[tokio::test]
async fn i11_every_counter_has_a_cap_and_the_manager_has_two_edits() {
    let desk = Desk::start().await.unwrap();
    let plan = desk.plan(&[spec("a", &[], ReviewPolicy::Code)]).await.unwrap();
    let (mut attempts, mut reviews, mut edits) = (0, 0, 0);
    loop {
        for round in 1..=3 {
            let work = desk.one().await.unwrap();
            attempts += 1;
            expect(desk.complete(&work.held).await.unwrap(), Written::Ok).unwrap();
            let review = desk.one_review().await.unwrap();
            reviews += 1;
            let want = if round == 3 { Written::Escalated } else { Written::Ok };
            expect(desk.decide(&review.held, false).await.unwrap(), want).unwrap();
        }
        let step = desk.manage().await.unwrap().expect("the manager hears of it");
        let ticket = desk.ticket(plan.id("a")).await.unwrap();
        assert_eq!((ticket.status, ticket.cause.as_str()), (Status::Escalated, "faults"));
        let edit = Edit { description: Some(format!("do it better, {edits}")), ..Edit::default() };
        let op = PatchOp::Rewrite { id: plan.id("a").into(), epoch: ticket.epoch, edit: Box::new(edit) };
        let id = new_id();
        let patched =
            desk.store.patch(&step.held, &id, step.goal.plan_version, step.read, &[op]).await.unwrap();
        if let Patched::Refused { reason, .. } = patched {
            assert!(reason.contains("cap"), "{reason}");
            let over = PatchOp::HandOver {
                id: plan.id("a").into(),
                epoch: ticket.epoch,
                reason: "two edits did not help".into(),
                expiry_ms: 60_000,
            };
            let handed = desk
                .store
                .patch(&step.held, &new_id(), step.goal.plan_version, step.read, &[over])
                .await
                .unwrap();
            assert!(matches!(handed, Patched::Ok { .. }), "{handed:?}");
            desk.finish(&step, 0).await.unwrap();
            break;
        }
        assert!(matches!(patched, Patched::Ok { .. }), "{patched:?}");
        let again = desk.store.patch(&step.held, &id, step.goal.plan_version, step.read, &[]).await.unwrap();
        assert!(matches!(again, Patched::Dup { .. }), "a repeated step: {again:?}");
        desk.finish(&step, 0).await.unwrap();
        edits += 1;
    }
    assert_eq!((attempts, reviews, edits), (9, 9, 2));
    let open = desk.store.open_decisions(10).await.unwrap();
    assert_eq!(open.len(), 1);
    assert!(open[0].expires_at_ms > 0 && open[0].kind == "needs_human", "{open:?}");
    assert!(open[0].detail.contains("two edits did not help"), "who, why, until when: {open:?}");
    desk.oracle().await.unwrap();
}

fn rooted(claim: &shared::store::Claim, from: &str, to: &str) -> Completion {
    Completion { roots: Some((from.into(), to.into())), ..completion(&claim.held) }
}

#[tokio::test]
async fn i5_files_enter_in_the_step_that_makes_the_ticket_done() {
    let desk = Desk::start().await.unwrap();
    desk.sweep().await.unwrap();
    let plan =
        desk.plan(&[spec("a", &[], ReviewPolicy::None), spec("b", &[], ReviewPolicy::None)]).await.unwrap();
    let root = async || desk.store.goal(&plan.goal).await.unwrap().unwrap().root;
    let claims = desk.work(2).await.unwrap();
    // A dead attempt leaves nothing, and its late write neither.
    desk.redis.query::<i64>(&["ZADD", "muster:{s0}:lease", "1", &claims[0].held.id]).await.unwrap();
    desk.sweep().await.unwrap();
    assert_eq!(desk.store.complete(&[rooted(&claims[0], "", "root-dead")]).await.unwrap(), [Written::Fenced]);
    assert_eq!(root().await, "");
    // The accepted one is in at once; the other was made from an old root and has to merge.
    assert_eq!(desk.store.complete(&[rooted(&claims[1], "", "root-1")]).await.unwrap(), [Written::Ok]);
    assert_eq!(root().await, "root-1");
    let again = desk.one().await.unwrap();
    assert_eq!(desk.store.complete(&[rooted(&again, "", "root-2")]).await.unwrap(), [Written::Moved]);
    assert_eq!(
        (root().await, desk.status(&again.held.id).await.unwrap()),
        ("root-1".into(), Status::Running)
    );
    assert_eq!(desk.store.complete(&[rooted(&again, "root-1", "root-2")]).await.unwrap(), [Written::Ok]);
    assert_eq!(root().await, "root-2");
    desk.oracle().await.unwrap();
}

#[tokio::test]
async fn i6_code_refuses_satisfied_while_something_is_open_unread_or_moved() {
    let desk = Desk::start().await.unwrap();
    let plan = desk.plan(&independent(1)).await.unwrap();
    desk.store.note(&plan.goal, "tester", "look").await.unwrap();
    let step = desk.manage().await.unwrap().expect("the note calls the manager");
    let version = step.goal.plan_version;
    let refused = async |version: u64, read: usize| match desk
        .store
        .manage_finish(&step.held, &new_id(), version, read, &Finish::Done, 1_000)
        .await
        .unwrap()
    {
        Finished::Refused(why) => why,
        other => panic!("{other:?}"),
    };
    assert!(refused(version, step.read).await.contains("mandatory"));
    desk.drain().await.unwrap();
    let unread = refused(version, step.read).await;
    assert!(unread.contains("unread"), "{unread}");
    let moved = refused(version + 1, step.read + 1).await;
    assert!(moved.contains("version"), "{moved}");
    let done = desk
        .store
        .manage_finish(&step.held, &new_id(), version, step.read + 1, &Finish::Done, 1_000)
        .await
        .unwrap();
    assert_eq!(done, Finished::Ok);
    desk.oracle().await.unwrap();
}

#[tokio::test]
async fn i7_d7_no_answer_is_a_no() {
    let desk = Desk::start().await.unwrap();
    let plan = desk.plan(&independent(1)).await.unwrap();
    for args in [json!(null), json!([]), json!({"amount": "NaN"})] {
        let claim = desk.one().await.unwrap();
        let permit = Permit {
            digest: "d".into(),
            tool: "pay".into(),
            args: args.clone(),
            revision: claim.ticket.revision,
            state: "asked".into(),
            note: String::new(),
            ..Permit::default()
        };
        expect(desk.store.park(&claim.held, &permit, 1).await.unwrap(), Written::Ok).unwrap();
        assert_eq!(desk.work(1).await.unwrap().len(), 0, "parked: nobody runs it");
        let back =
            harness::wait::until("the question expires", harness::scale::scale().patience(), async || {
                desk.sweep().await?;
                Ok((desk.status(plan.id("t0000")).await? == Status::Pending).then_some(()))
            });
        back.await.unwrap();
        let ticket = desk.ticket(plan.id("t0000")).await.unwrap();
        assert_eq!((&ticket.permit["state"], &ticket.permit["args"]), (&json!("denied"), &args));
        desk.oracle().await.unwrap();
    }
    // An approval that comes too late does nothing.
    let late = PersonDecision::Approve { args: None };
    let answer = desk.store.answer(plan.id("t0000"), 0, &new_id(), "tester", &late).await.unwrap();
    assert!(matches!(answer, Answered::Refused(_)), "{answer:?}");
}

#[tokio::test]
async fn c3_a_word_to_the_manager_is_neither_lost_nor_doubled() {
    let desk = Desk::start().await.unwrap();
    let plan = desk.plan(&independent(1)).await.unwrap();
    desk.store.note(&plan.goal, "tester", "first").await.unwrap();
    let step = desk.manage().await.unwrap().expect("called");
    let notes = |c: &shared::store::GoalClaim| {
        c.events.iter().filter(|e| e.kind == InboxKind::Note).map(|e| e.detail.clone()).collect::<Vec<_>>()
    };
    assert_eq!(notes(&step), ["first"]);
    // While it works, more comes, twice the same; nobody else may take the goal.
    desk.store.note(&plan.goal, "tester", "second").await.unwrap();
    desk.store.note(&plan.goal, "tester", "second").await.unwrap();
    assert!(desk.manage().await.unwrap().is_none(), "one manager at a time");
    assert_eq!(desk.finish(&step, step.read).await.unwrap(), Finished::Again);
    let next = desk.manage().await.unwrap().expect("called again");
    assert_eq!(notes(&next), ["second", "second"]);
    // A manager that dies trims nothing: the next one reads the same.
    desk.redis.query::<i64>(&["ZADD", "muster:{s0}:lease", "1", &format!("g:{}", plan.goal)]).await.unwrap();
    desk.sweep().await.unwrap();
    desk.sweep().await.unwrap();
    let heir = desk.manage().await.unwrap().expect("called after the loss");
    assert_eq!(notes(&heir), ["second", "second"]);
    assert_eq!(
        desk.store.manage_finish(&next.held, &new_id(), 0, next.read, &Finish::Done, 1).await.unwrap(),
        Finished::Fenced
    );
    desk.finish(&heir, heir.read).await.unwrap();
    assert!(desk.manage().await.unwrap().is_none(), "nothing is left to hear");
    // The wake itself is lost: the audit sees a goal that waits for nobody.
    desk.drain().await.unwrap();
    desk.redis.query::<i64>(&["DEL", "muster:{s0}:q:manage"]).await.unwrap();
    assert!(!desk.store.audit().await.unwrap().is_empty());
    desk.store.repair(&desk.lease).await.unwrap();
    assert!(desk.manage().await.unwrap().is_some());
    desk.oracle().await.unwrap();
}

#[tokio::test]
async fn i10_every_transition_says_who_when_and_which_epoch() {
    let desk = Desk::start().await.unwrap();
    let plan: Planned = desk.plan(&[spec("a", &[], ReviewPolicy::Code)]).await.unwrap();
    desk.drain().await.unwrap();
    let events = harness::oracle::events(&desk.store, &plan.goal).await.unwrap();
    let moves: Vec<_> = events.iter().filter(|e| e.ticket == plan.id("a") && !e.from.is_empty()).collect();
    assert_eq!(
        moves.iter().map(|e| e.to.as_str()).collect::<Vec<_>>(),
        ["pending", "running", "reviewing", "reviewing", "done"]
    );
    for event in moves {
        assert!(!event.who.is_empty() && event.at_ms > 0 && event.epoch > 0, "{event:?}");
    }
}

#[tokio::test]
async fn q08_a_delay_longer_than_the_lease_is_neither_leased_nor_doubled() {
    let mut desk = Desk::start().await.unwrap();
    desk.lease.lease_ms = 200;
    let plan = desk.plan(&independent(1)).await.unwrap();
    let claim = desk.one().await.unwrap();
    let due = desk.store.now_ms().await.unwrap() + 2_000;
    expect(desk.fail(&claim.held, FailClass::Wait, 2_000).await.unwrap(), Written::Ok).unwrap();
    let mut early = 0;
    let again = harness::wait::until("the delay is over", harness::scale::scale().patience(), async || {
        desk.sweep().await?;
        let leases: i64 = desk.redis.query(&["ZCARD", "muster:{s0}:lease"]).await?;
        assert_eq!(leases, 0, "a delayed ticket holds no lease");
        let got = desk.work(1).await?.pop();
        early += usize::from(got.is_none());
        Ok(got)
    });
    let again = again.await.unwrap();
    assert!(desk.store.now_ms().await.unwrap() >= due, "not before it is due");
    assert!(early > 5, "it was looked for meanwhile");
    expect(desk.complete(&again.held).await.unwrap(), Written::Ok).unwrap();
    assert_eq!(desk.ticket(plan.id("t0000")).await.unwrap().attempts, 2);
    desk.oracle().await.unwrap();
}

#[tokio::test]
async fn a_review_that_has_to_wait_waits_and_is_not_claimed_again_at_once() {
    let desk = Desk::start().await.unwrap();
    desk.sweep().await.unwrap();
    let plan = desk.plan(&[spec("a", &[], ReviewPolicy::Code)]).await.unwrap();
    let work = desk.one().await.unwrap();
    expect(desk.complete(&work.held).await.unwrap(), Written::Ok).unwrap();
    let review = desk.one_review().await.unwrap();
    let due = desk.store.now_ms().await.unwrap() + 1_000;
    // The reviewer's model is over quota: 50 tries in a row would hand the ticket to a person within seconds.
    expect(desk.fail(&review.held, FailClass::Wait, 1_000).await.unwrap(), Written::Ok).unwrap();
    assert!(desk.reviews(1).await.unwrap().is_empty(), "not before it is due");
    assert_eq!(desk.store.audit().await.unwrap(), [], "a delayed review is in its place");
    desk.redis.query::<i64>(&["DEL", "muster:{s0}:delay"]).await.unwrap();
    assert_eq!(desk.store.audit().await.unwrap().len(), 1, "one that nothing wakes is found");
    desk.store.repair(&desk.lease).await.unwrap();
    let again = wait::until("the delay is over", scale().patience(), async || {
        desk.sweep().await?;
        Ok(desk.reviews(1).await?.pop())
    });
    let again = again.await.unwrap();
    assert!(desk.store.now_ms().await.unwrap() >= due);
    assert_eq!(desk.decide(&again.held, true).await.unwrap(), Written::Ok);
    assert_eq!(desk.status(plan.id("a")).await.unwrap(), Status::Done);
    desk.oracle().await.unwrap();
}

#[tokio::test]
async fn what_the_end_of_a_goal_had_not_cancelled_yet_goes_on_when_it_is_reopened() {
    let desk = Desk::start().await.unwrap();
    let mut spare = spec("spare", &[], ReviewPolicy::None);
    spare.mandatory = false;
    let plan = desk.plan(&[spec("a", &[], ReviewPolicy::None), spare]).await.unwrap();
    let claims = desk.work(2).await.unwrap();
    for claim in &claims {
        let written = if claim.ticket.key == "a" {
            desk.complete(&claim.held).await
        } else {
            desk.store.release(&claim.held).await.map_err(Into::into)
        };
        expect(written.unwrap(), Written::Ok).unwrap();
    }
    let step = desk.manage().await.unwrap().expect("all mandatory tickets are closed");
    let (id, version) = (new_id(), step.goal.plan_version);
    let done = desk.store.manage_finish(&step.held, &id, version, 1, &Finish::Done, 1_000).await;
    assert_eq!(done.unwrap(), Finished::Ok);
    desk.store.reopen_goal(&plan.goal, "test", "").await.unwrap();
    assert_eq!(desk.store.audit().await.unwrap(), []);
    assert_eq!(desk.one().await.unwrap().ticket.key, "spare");
}

#[tokio::test]
async fn a_full_ready_list_answers_busy() {
    let desk = Desk::start().await.unwrap();
    desk.plan(&independent(3)).await.unwrap();
    let goal = NewGoal { id: new_id(), text: "one more".into(), ..NewGoal::default() };
    assert_eq!(desk.store.submit_goal(&goal, 2).await.unwrap(), shared::store::Submitted::Busy);
    assert_eq!(desk.store.submit_goal(&goal, 3).await.unwrap(), shared::store::Submitted::New);
    assert_eq!(desk.store.submit_goal(&goal, 3).await.unwrap(), shared::store::Submitted::Duplicate);
}
