//! The budget ledger: reserved before a call, settled after it, never more than the budget, whoever dies.

use harness::desk::{Desk, Planned, expect, independent, spec};
use harness::fleet::Fleet;
use harness::model::Model;
use harness::script::{company, ticket};
use harness::wait;
use serde_json::json;
use shared::goal::{GoalState, NewGoal};
use shared::store::{Answered, ClaimReply, Payer, PersonDecision, Reservation, Reserved, Store, Written};
use shared::ticket::{ReviewPolicy, new_id};
use std::time::Duration;

const BUDGET: u64 = 20_000;

async fn goal_of(desk: &Desk, budget_tokens: u64) -> Planned {
    desk.plan_of(NewGoal { text: "spend".into(), budget_tokens, ..NewGoal::default() }, &independent(8))
        .await
        .unwrap()
}

fn reservation<'a>(call: &'a str, goal: &'a str, tokens: u64) -> Reservation<'a> {
    let expiry_ms = 60_000;
    Reservation { call, goal, ticket: "", tokens, microusd: 1, expiry_ms, person_expiry_ms: 3_600_000 }
}

/// Settled and reserved, as one read of the hash shows them.
async fn held(store: &Store, goal: &str) -> (u64, u64) {
    let goal = store.goal(goal).await.unwrap().unwrap();
    (goal.spent_tokens, goal.reserved_tokens)
}

fn raised(budget: u64) -> PersonDecision {
    PersonDecision::Answer { text: "here is more".into(), budget_tokens: Some(budget), budget_microusd: None }
}

#[tokio::test]
async fn d1_eight_callers_on_one_budget_never_pass_it_and_use_nearly_all_of_it() {
    let desk = Desk::start().await.unwrap();
    let plan = goal_of(&desk, BUDGET).await;
    // Each call may take 2,000 and takes 1,000.
    let caller = async |n: usize| {
        let store = desk.another_store(&desk.redis.url()).await.unwrap();
        let ticket = plan.id(&format!("t{n:04}"));
        let mut sent = 0;
        loop {
            let call = new_id();
            let asked = Reservation { ticket, ..reservation(&call, &plan.goal, 2_000) };
            let answer = store.reserve(&asked).await.unwrap();
            let (spent, reserved) = held(&store, &plan.goal).await;
            assert!(spent + reserved <= BUDGET, "{spent} settled and {reserved} reserved");
            match answer {
                Reserved::Ok => {
                    sent += 1;
                    assert!(store.settle(&call, &plan.goal, ticket, 1_000, 1, &json!({})).await.unwrap());
                }
                Reserved::Later { .. } => tokio::task::yield_now().await,
                Reserved::Refused { .. } => return sent,
                Reserved::Gone => panic!("the goal is there"),
            }
        }
    };
    let sent: usize = futures::future::join_all((0..8).map(caller)).await.into_iter().sum();
    assert_eq!(sent, 19, "up to where the worst case of one more does not fit");
    assert_eq!(held(&desk.store, &plan.goal).await, (19_000, 0));
    let goal = desk.store.goal(&plan.goal).await.unwrap().unwrap();
    assert_eq!((goal.state, goal.cause.as_str()), (GoalState::NeedsHuman, "budget"));
    desk.oracle().await.unwrap();
}

#[tokio::test]
async fn d1_a_goals_money_is_a_budget_beside_its_tokens() {
    let desk = Desk::start().await.unwrap();
    let goal = NewGoal { text: "spend".into(), budget_microusd: 1_000, ..NewGoal::default() };
    let goal = desk.plan_of(goal, &independent(2)).await.unwrap().goal;
    let asked = |call, microusd| Reservation { microusd, ..reservation(call, &goal, 5_000) };
    assert_eq!(desk.store.reserve(&asked("a", 600)).await.unwrap(), Reserved::Ok);
    assert_eq!(desk.store.reserve(&asked("b", 600)).await.unwrap(), Reserved::Later { left: 400 });
    assert!(desk.store.settle("a", &goal, "", 5_000, 500, &json!({})).await.unwrap());
    let refused = desk.store.reserve(&asked("b", 600)).await.unwrap();
    assert_eq!(refused, Reserved::Refused { left: 500, of: Payer::Goal });
    let parked = desk.store.goal(&goal).await.unwrap().unwrap();
    assert_eq!((parked.state, parked.cause.as_str()), (GoalState::NeedsHuman, "budget"));
    assert_eq!((parked.spent_microusd, parked.reserved_microusd), (500, 0));
    assert!(parked.cause_detail.contains("budget_microusd"), "{}", parked.cause_detail);
    let more =
        PersonDecision::Answer { text: String::new(), budget_tokens: None, budget_microusd: Some(2_000) };
    assert_eq!(desk.store.answer(&goal, 0, "r", "ann", &more).await.unwrap(), Answered::Ok);
    assert_eq!(desk.store.reserve(&asked("b", 600)).await.unwrap(), Reserved::Ok);
    assert_eq!(desk.store.goal(&goal).await.unwrap().unwrap().reserved_microusd, 600);
    desk.oracle().await.unwrap();
}

#[tokio::test]
async fn d1_a_refused_goal_is_parked_unharmed_and_goes_on_when_it_is_raised() {
    let desk = Desk::start().await.unwrap();
    let plan = goal_of(&desk, 1_000).await;
    let claim = desk.one().await.unwrap();
    let refused = desk.store.reserve(&reservation("a", &plan.goal, 1_001)).await.unwrap();
    assert_eq!(refused, Reserved::Refused { left: 1_000, of: Payer::Goal });
    // Given back for want of money: no counter of the ticket moves, nobody claims it meanwhile.
    expect(desk.store.release(&claim.held).await.unwrap(), Written::Ok).unwrap();
    assert_eq!(desk.ticket(&claim.held.id).await.unwrap().counters, shared::ticket::Counters::default());
    let reply = desk.claim(shared::message::Kind::Work, "w", 8).await.unwrap();
    assert!(matches!(reply, ClaimReply::Empty), "{reply:?}");
    let open = desk.store.open_decisions(10).await.unwrap();
    assert_eq!((open.len(), open[0].cause.as_str()), (1, "budget"));
    assert!(open[0].detail.contains("1001") && open[0].detail.contains("1000"), "{}", open[0].detail);
    desk.oracle().await.unwrap();

    // Words alone are no money: the next call parks it again.
    let words = PersonDecision::Answer { text: "go on".into(), budget_tokens: None, budget_microusd: None };
    let answered = desk.store.answer(&plan.goal, 0, "r1", "ann", &words).await.unwrap();
    assert_eq!(answered, Answered::Ok);
    let refused = desk.store.reserve(&reservation("b", &plan.goal, 1_001)).await.unwrap();
    assert_eq!(refused, Reserved::Refused { left: 1_000, of: Payer::Goal });
    let goal = desk.store.goal(&plan.goal).await.unwrap().unwrap();
    assert_eq!((goal.state, goal.cause.as_str()), (GoalState::NeedsHuman, "budget"));

    let answered = desk.store.answer(&plan.goal, 0, "r2", "ann", &raised(5_000)).await.unwrap();
    assert_eq!(answered, Answered::Ok);
    assert_eq!(desk.store.reserve(&reservation("c", &plan.goal, 1_001)).await.unwrap(), Reserved::Ok);
    assert_eq!(desk.work(8).await.unwrap().len(), 8, "all of them are claimed again");
    desk.oracle().await.unwrap();
}

#[tokio::test]
async fn c11_a_dead_callers_reservation_is_settled_once_at_its_worst() {
    let desk = Desk::start().await.unwrap();
    let plan = goal_of(&desk, BUDGET).await;
    let ticket = plan.id("t0000");
    let dead = Reservation { ticket, expiry_ms: 1, ..reservation("dead", &plan.goal, 3_000) };
    expect(desk.store.reserve(&dead).await.unwrap(), Reserved::Ok).unwrap();
    let live = reservation("live", &plan.goal, 2_000);
    expect(desk.store.reserve(&live).await.unwrap(), Reserved::Ok).unwrap();
    expect(desk.store.reserve(&live).await.unwrap(), Reserved::Ok).unwrap();
    assert_eq!(held(&desk.store, &plan.goal).await, (0, 5_000), "a repeat reserves once");
    wait::until("the expiry", Duration::from_secs(10), async || {
        desk.sweep().await?;
        Ok((held(&desk.store, &plan.goal).await.0 > 0).then_some(()))
    })
    .await
    .unwrap();
    for _ in 0..3 {
        desk.sweep().await.unwrap();
        // It was not dead after all: its late word changes nothing.
        assert!(!desk.store.settle("dead", &plan.goal, ticket, 700, 1, &json!({})).await.unwrap());
        assert_eq!(held(&desk.store, &plan.goal).await, (3_000, 2_000));
    }
    assert_eq!(desk.ticket(ticket).await.unwrap().spent_tokens, 3_000);
    assert!(desk.store.settle("live", &plan.goal, "", 500, 1, &json!({})).await.unwrap());
    assert!(!desk.store.settle("live", &plan.goal, "", 500, 1, &json!({})).await.unwrap(), "a repeat");
    assert_eq!(held(&desk.store, &plan.goal).await, (3_500, 0));
    let left: u64 = desk.redis.query(&["EXISTS", "muster:{s0}:res"]).await.unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn c11_the_ledger_outlives_callers_and_redis() {
    let mut desk = Desk::start().await.unwrap();
    // On a busy disk `everysec` may owe more than the second before a kill: this test is about the ledger.
    desk.redis.query::<String>(&["CONFIG", "SET", "appendfsync", "always"]).await.unwrap();
    let plan = goal_of(&desk, 1_000).await;
    expect(desk.store.reserve(&reservation("a", &plan.goal, 400)).await.unwrap(), Reserved::Ok).unwrap();
    desk.store.settle("a", &plan.goal, "", 400, 1, &json!({})).await.unwrap();
    expect(desk.store.reserve(&reservation("b", &plan.goal, 500)).await.unwrap(), Reserved::Ok).unwrap();
    desk.redis.restart().await.unwrap();
    // A new process that knows nothing.
    let store = desk.another_store(&desk.redis.url()).await.unwrap();
    assert_eq!(held(&store, &plan.goal).await, (400, 500));
    let answer = store.reserve(&reservation("c", &plan.goal, 200)).await.unwrap();
    assert_eq!(answer, Reserved::Later { left: 100 }, "what b gives back may be enough");
    store.settle("b", &plan.goal, "", 500, 1, &json!({})).await.unwrap();
    let answer = store.reserve(&reservation("c", &plan.goal, 200)).await.unwrap();
    assert_eq!(answer, Reserved::Refused { left: 100, of: Payer::Goal });
    store.cancel_goal(&plan.goal, "ann").await.unwrap();
    assert_eq!(store.reserve(&reservation("d", &plan.goal, 1)).await.unwrap(), Reserved::Gone);
}

#[tokio::test]
async fn d1_parallel_tickets_on_one_budget_park_their_goal_and_end_done_once_it_is_raised() {
    let keys: Vec<String> = (0..8).map(|n| format!("part{n}")).collect();
    let mut tickets: Vec<_> = keys.iter().map(|k| ticket(k, &[])).collect();
    tickets.push(ticket("whole", &keys.iter().map(String::as_str).collect::<Vec<_>>()));
    let model = Model::start(company(tickets)).await.unwrap();
    let fleet = Fleet::plan()
        .workers(2)
        .model(&model.url())
        .env("MODEL__OUTPUT_TOKENS_MAX", "100")
        .start()
        .await
        .unwrap();
    let api = fleet.api();
    let goal = api.submit(&json!({"text": "eight parts", "budget_tokens": BUDGET})).await.unwrap();
    let now = api.reaches(&goal, &["needs_human"]).await.unwrap();
    assert_eq!(now["cause"], "budget", "{now}");
    let sent = model.asked().len();
    assert!(sent >= 8, "{sent} calls were sent");
    let store = fleet.store().await.unwrap();
    wait::until("calls under way to be settled", harness::scale::scale().patience(), async || {
        let (spent, reserved) = held(&store, &goal).await;
        assert!(spent + reserved <= BUDGET, "{spent} settled and {reserved} reserved");
        Ok((reserved == 0).then_some(()))
    })
    .await
    .unwrap();

    let said = fleet.muster(&["answer", &goal, "go on", "--budget-tokens", "1000000"]).await.unwrap();
    assert_eq!(said.code, 0, "{said:?}");
    api.reaches(&goal, &["done"]).await.unwrap();
    for key in &keys {
        let ticket = api.ticket(&goal, key).await.unwrap();
        assert_eq!((ticket.counters.faults, ticket.counters.waits), (0, 0), "{key}: nothing failed");
    }
    model.verify().unwrap();
    fleet.no_panics().unwrap();
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn a_count_that_no_counter_holds_is_booked_as_much_and_never_as_nothing() {
    let desk = Desk::start().await.unwrap();
    let goal = NewGoal { budget_tokens: 1_000, ..NewGoal::default() };
    let plan = desk.plan_of(goal, &independent(1)).await.unwrap();
    let held = desk.one().await.unwrap().held;
    let reservation = |call| Reservation {
        call,
        goal: &plan.goal,
        ticket: &held.id,
        tokens: 900,
        microusd: 0,
        expiry_ms: 60_000,
        person_expiry_ms: 60_000,
    };
    assert_eq!(desk.store.reserve(&reservation("one")).await.unwrap(), Reserved::Ok);
    let wrong = desk.store.settle("one", &plan.goal, &held.id, u64::MAX, u64::MAX, &json!({"v": 1})).await;
    assert!(wrong.unwrap(), "it is booked");
    let goal = desk.store.goal(&plan.goal).await.unwrap().unwrap();
    assert_eq!((goal.reserved_tokens, goal.spent_tokens), (0, 1_000_000_000_000));
    let next = desk.store.reserve(&reservation("two")).await.unwrap();
    assert!(matches!(next, Reserved::Refused { .. }), "{next:?}");
}

#[tokio::test]
async fn i10_first_passes_are_counted_by_the_model_that_did_the_work() {
    let desk = Desk::start().await.unwrap();
    let specs = ["t0000", "t0001", "t0002"].map(|key| spec(key, &[], ReviewPolicy::Judged));
    let plan = desk.plan(&specs).await.unwrap();
    let record = |model: &str| json!({"role": "worker", "tier": "cheap", "model": model});
    let mut held = vec![];
    // The third one is done without any model.
    for claim in desk.work(3).await.unwrap() {
        let id = claim.held.id.clone();
        let model = if id == plan.id("t0000") { "a" } else { "b" };
        if id != plan.id("t0002") {
            desk.store.settle("", &plan.goal, &id, 10, 1, &record(model)).await.unwrap();
        }
        expect(desk.complete(&claim.held).await.unwrap(), Written::Ok).unwrap();
        held.push(id);
    }
    for review in desk.reviews(3).await.unwrap() {
        let passes = review.held.id != plan.id("t0000");
        expect(desk.decide(&review.held, passes).await.unwrap(), Written::Ok).unwrap();
    }
    // Better at the second try, and by another model: the first verdict stands.
    let again = desk.one().await.unwrap();
    desk.store.settle("", &plan.goal, &again.held.id, 10, 1, &record("b")).await.unwrap();
    expect(desk.complete(&again.held).await.unwrap(), Written::Ok).unwrap();
    let review = desk.one_review().await.unwrap();
    expect(desk.decide(&review.held, true).await.unwrap(), Written::Ok).unwrap();
    let used = desk.store.usage().await.unwrap();
    let counts: Vec<(&str, u64, u64)> =
        used.iter().map(|u| (u.model.as_str(), u.judged, u.first_pass)).collect();
    assert_eq!(counts, [("a", 1, 0), ("b", 1, 1)]);
    desk.oracle().await.unwrap();
}
