//! Needs: every node is readied exactly once, whoever accepts how often, and nothing waits for what will never come.

use harness::desk::{Desk, decision, expect, spec};
use shared::message::InboxKind;
use shared::store::{Answered, Finish, Finished, PersonDecision, Written};
use shared::ticket::{NeedsPolicy, ReviewPolicy, Status, TicketSpec, new_id};
use std::collections::BTreeMap;

const CODE: ReviewPolicy = ReviewPolicy::Code;

/// Nested diamonds: a → (b, c) → d → (e, f, g) → h, and i that needs a, d and h.
fn nested() -> Vec<TicketSpec> {
    vec![
        spec("a", &[], CODE),
        spec("b", &["a"], CODE),
        spec("c", &["a"], CODE),
        spec("d", &["b", "c"], CODE),
        spec("e", &["d"], CODE),
        spec("f", &["d"], CODE),
        spec("g", &["d", "a"], CODE),
        spec("h", &["e", "f", "g"], CODE),
        spec("i", &["a", "d", "h"], CODE),
    ]
}

#[tokio::test]
async fn q14_nested_diamonds_are_readied_once_under_doubled_acceptances() {
    let desk = Desk::start().await.unwrap();
    let other = desk.another_store(&desk.redis.url()).await.unwrap();
    let plan = desk.plan(&nested()).await.unwrap();
    let mut round = 0;
    loop {
        for claim in desk.work(16).await.unwrap() {
            expect(desk.complete(&claim.held).await.unwrap(), Written::Ok).unwrap();
        }
        let reviews = desk.reviews(16).await.unwrap();
        if reviews.is_empty() {
            break;
        }
        for claim in reviews {
            // The same verdict one to three times, from two reviewers' connections at once.
            let batch = vec![decision(&claim.held, true); 1 + round % 3];
            let (mine, theirs) = tokio::join!(desk.store.decide(&batch), other.decide(&batch));
            let all = [mine.unwrap(), theirs.unwrap()].concat();
            assert_eq!(all.iter().filter(|w| **w == Written::Ok).count(), 1, "{all:?}");
            assert_eq!(all.iter().filter(|w| **w == Written::Dup).count(), all.len() - 1, "{all:?}");
            round += 1;
        }
    }
    assert_eq!(round, 9);
    let events = harness::oracle::events(&desk.store, &plan.goal).await.unwrap();
    let mut readied: BTreeMap<&str, usize> = BTreeMap::new();
    for event in events.iter().filter(|e| e.from == "blocked" && e.to == "pending") {
        *readied.entry(&event.key).or_default() += 1;
    }
    assert_eq!(readied.into_values().collect::<Vec<_>>(), [1; 9]);
    assert_eq!(harness::oracle::acceptances(&events).into_values().collect::<Vec<_>>(), [1; 9]);

    // The goal is done once, too.
    let step = desk.manage().await.unwrap().expect("all closed calls the manager");
    assert!(step.events.iter().any(|e| e.kind == InboxKind::AllClosed), "{:?}", step.events);
    let id = new_id();
    let version = step.goal.plan_version;
    let end = async || {
        desk.store.manage_finish(&step.held, &id, version, step.read, &Finish::Done, 1_000).await.unwrap()
    };
    assert_eq!((end().await, end().await), (Finished::Ok, Finished::Dup));
    let done = harness::oracle::events(&desk.store, &plan.goal).await.unwrap();
    assert_eq!(done.iter().filter(|e| e.event == "goal_done").count(), 1);
    desk.oracle().await.unwrap();
}

/// Three parents, of which `p2` fails for good; the child has this policy.
async fn with_a_failed_parent(policy: NeedsPolicy) -> (Desk, harness::desk::Planned) {
    let desk = Desk::start().await.unwrap();
    let child = TicketSpec { needs_policy: policy, ..spec("child", &["p1", "p2", "p3"], ReviewPolicy::None) };
    let parents = ["p1", "p2", "p3"].map(|key| spec(key, &[], ReviewPolicy::None));
    let plan = desk.plan(&[parents.to_vec(), vec![child]].concat()).await.unwrap();
    let fail = PersonDecision::Fail { reason: "not possible".into() };
    let answer = desk.store.answer(plan.id("p2"), 0, &new_id(), "tester", &fail).await.unwrap();
    assert_eq!(answer, Answered::Ok);
    desk.drain().await.unwrap();
    (desk, plan)
}

#[tokio::test]
async fn q19_a_dead_need_is_put_to_the_manager_at_once() {
    let (desk, plan) = with_a_failed_parent(NeedsPolicy::Block).await;
    assert_eq!(desk.status(plan.id("child")).await.unwrap(), Status::Blocked);
    let step = desk.manage().await.unwrap().expect("the manager is called");
    let heard = step.events.iter().find(|e| e.kind == InboxKind::DeadNeed).expect("of the dead need");
    assert_eq!(heard.ticket, plan.id("child"));
    // A step that decides nothing does not make it forget.
    let finish = Finish::Continue { decided: false };
    let again = desk.store.manage_finish(&step.held, &new_id(), 0, step.read, &finish, 1_000).await.unwrap();
    assert_eq!(again, Finished::Again);
    desk.oracle().await.unwrap();
}

#[tokio::test]
async fn q19_skip_skips_and_run_runs() {
    let (desk, plan) = with_a_failed_parent(NeedsPolicy::Skip).await;
    assert_eq!(desk.status(plan.id("child")).await.unwrap(), Status::Skipped);
    desk.oracle().await.unwrap();

    let (desk, plan) = with_a_failed_parent(NeedsPolicy::Run).await;
    assert_eq!(
        desk.status(plan.id("child")).await.unwrap(),
        Status::Done,
        "it ran when the other two were done"
    );
    desk.oracle().await.unwrap();
}

#[tokio::test]
async fn a_wide_join_is_released_over_several_pages() {
    let desk = Desk::start().await.unwrap();
    let mut specs = vec![spec("root", &[], ReviewPolicy::None)];
    specs.extend((0..350).map(|i| spec(&format!("w{i:03}"), &["root"], ReviewPolicy::None)));
    let plan = desk.plan(&specs).await.unwrap();
    assert_eq!(desk.drain().await.unwrap(), 351);
    let counts = desk.store.goal(&plan.goal).await.unwrap().unwrap().counts;
    assert_eq!(counts.get("done"), Some(&351));
    desk.oracle().await.unwrap();
}

#[tokio::test]
async fn one_call_settles_a_bounded_number_of_dependents_and_the_sweeper_the_others() {
    let desk = Desk::start().await.unwrap();
    let roots: Vec<String> = (0..8).map(|r| format!("root{r}")).collect();
    let mut specs: Vec<TicketSpec> = roots.iter().map(|r| spec(r, &[], ReviewPolicy::None)).collect();
    for root in &roots {
        specs.extend((0..90).map(|i| spec(&format!("{root}-{i:02}"), &[root], ReviewPolicy::None)));
    }
    let plan = desk.plan(&specs).await.unwrap();
    let held: Vec<_> = desk.work(8).await.unwrap();
    let done: Vec<_> = held.iter().map(|claim| harness::desk::completion(&claim.held)).collect();
    assert_eq!(desk.store.complete(&done).await.unwrap(), [Written::Ok; 8]);
    let counts = desk.store.goal(&plan.goal).await.unwrap().unwrap().counts;
    assert_eq!(counts.get("done"), Some(&8), "all eight are accepted in the one call");
    assert_eq!(
        counts.get("pending"),
        Some(&450),
        "five roots' dependents: the bound is seen before the sixth"
    );
    desk.oracle().await.unwrap();
    assert_eq!(desk.drain().await.unwrap(), 8 * 90);
    desk.oracle().await.unwrap();
}
