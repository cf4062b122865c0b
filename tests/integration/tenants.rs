//! Tenants: limits of their own that hold nobody else back, and budgets for a period.

use harness::desk::{Desk, Planned, expect, independent};
use harness::fleet::Fleet;
use harness::model::{Answer, Asked, Model};
use harness::script::{company, ticket};
use harness::wait;
use serde_json::{Value, json};
use shared::config::{self, Tenants};
use shared::goal::{GoalState, NewGoal};
use shared::model::{Account, Ask, Message, ignore_wait};
use shared::store::{Admission, Heard, Lane, Payer, Reservation, Reserved, Store, Tokens, Turn};
use shared::ticket::Tier;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

async fn goal_of(desk: &Desk, tenant: &str) -> Planned {
    let goal = NewGoal { text: "spend".into(), tenant: tenant.into(), ..NewGoal::default() };
    desk.plan_of(goal, &independent(2)).await.unwrap()
}

async fn publish(desk: &Desk, limits: Value) {
    let tenants: Tenants = serde_json::from_value(limits).unwrap();
    assert!(desk.store.publish_tenants(&tenants).await.unwrap(), "it was not the same before");
}

fn reservation<'a>(call: &'a str, goal: &'a str, tokens: u64, microusd: u64) -> Reservation<'a> {
    let expiry_ms = 60_000;
    Reservation { call, goal, ticket: "", tokens, microusd, expiry_ms, person_expiry_ms: 3_600_000 }
}

/// Reserves and settles at the same size.
async fn spend(store: &Store, call: &str, goal: &str, tokens: u64, microusd: u64) -> Reserved {
    let reserved = store.reserve(&reservation(call, goal, tokens, microusd)).await.unwrap();
    if reserved == Reserved::Ok {
        assert!(store.settle(call, goal, "", tokens, microusd, &json!({})).await.unwrap());
    }
    reserved
}

async fn stands(desk: &Desk, goal: &str) -> (GoalState, String) {
    let goal = desk.store.goal(goal).await.unwrap().unwrap();
    (goal.state, goal.cause)
}

fn refused(left: u64) -> Reserved {
    Reserved::Refused { left, of: Payer::Tenant }
}

fn parked() -> (GoalState, String) {
    (GoalState::NeedsHuman, "tenant_budget".into())
}

#[tokio::test]
async fn d1_a_tenants_budget_parks_its_goals_alone_and_a_raise_lets_them_go_on() {
    let desk = Desk::start().await.unwrap();
    publish(&desk, json!({"of": {"acme": {"budget_tokens": 1000}}})).await;
    let (one, two, other) =
        (goal_of(&desk, "acme").await, goal_of(&desk, "acme").await, goal_of(&desk, "else").await);
    // A model without a price costs nothing.
    expect(spend(&desk.store, "a", &one.goal, 600, 0).await, Reserved::Ok).unwrap();
    // What a call under way gives back may be enough for the next one.
    expect(desk.store.reserve(&reservation("b", &one.goal, 300, 1)).await.unwrap(), Reserved::Ok).unwrap();
    let later = desk.store.reserve(&reservation("c", &two.goal, 300, 1)).await.unwrap();
    assert_eq!(later, Reserved::Later { left: 100 });
    desk.store.settle("b", &one.goal, "", 300, 1, &json!({})).await.unwrap();
    assert_eq!(spend(&desk.store, "c", &two.goal, 300, 1).await, refused(100));
    assert_eq!(stands(&desk, &two.goal).await, parked());
    assert_eq!(stands(&desk, &one.goal).await.0, GoalState::Running, "it has not asked yet");
    assert_eq!(spend(&desk.store, "d", &other.goal, 9_000, 1).await, Reserved::Ok, "another tenant");
    assert_eq!(spend(&desk.store, "e", &one.goal, 101, 1).await, refused(100));
    let open = desk.store.open_decisions(10).await.unwrap();
    assert_eq!(open.len(), 2);
    assert!(open[0].detail.contains("acme") && open[0].detail.contains("month"), "{}", open[0].detail);
    desk.oracle().await.unwrap();

    let book = desk.store.tenant_book("acme").await.unwrap();
    assert_eq!((book.spent_tokens, book.reserved_tokens, book.budget_tokens), (900, 0, 1_000));
    assert_eq!(desk.store.raise_tenant("acme", Some(5_000), None).await.unwrap(), 2);
    desk.sweep().await.unwrap();
    for plan in [&one, &two] {
        assert_eq!(stands(&desk, &plan.goal).await, (GoalState::Running, String::new()));
        expect(spend(&desk.store, "f", &plan.goal, 300, 1).await, Reserved::Ok).unwrap();
    }
    assert_eq!(desk.work(6).await.unwrap().len(), 6, "all of them are claimed again");
    desk.oracle().await.unwrap();
}

#[tokio::test]
async fn d1_a_tenants_money_is_a_budget_too_and_begins_anew_with_its_period() {
    let mut desk = Desk::start().await.unwrap();
    desk.redis.query::<String>(&["CONFIG", "SET", "appendfsync", "always"]).await.unwrap();
    publish(&desk, json!({"budget_microusd": 500, "budget_period": "day"})).await;
    let plan = goal_of(&desk, "acme").await;
    expect(spend(&desk.store, "a", &plan.goal, 1_000_000, 400).await, Reserved::Ok).unwrap();
    desk.redis.restart().await.unwrap();
    let store = desk.another_store(&desk.redis.url()).await.unwrap();
    assert_eq!(spend(&store, "b", &plan.goal, 1, 200).await, refused(100));
    assert_eq!(stands(&desk, &plan.goal).await, parked());
    desk.sweep().await.unwrap();
    assert_eq!(stands(&desk, &plan.goal).await, parked(), "the day is not over");
    // A person has all the usual time after the day's end.
    let open = desk.store.open_decisions(10).await.unwrap();
    let (book, now) = (store.tenant_book("acme").await.unwrap(), store.now_ms().await.unwrap());
    assert!(book.ends_in_ms <= 86_400_000, "{book:?}");
    assert!(open[0].expires_at_ms + 60_000 >= now + book.ends_in_ms + 3_600_000, "{open:?}");

    // Midnight: its book and the goals that wait for it say that it was a moment ago.
    let past = (now - 1).to_string();
    desk.redis.query::<u64>(&["HSET", "muster:{s0}:tb:acme", "until", &past]).await.unwrap();
    desk.redis.query::<u64>(&["ZADD", "muster:{s0}:tbp", &past, &plan.goal]).await.unwrap();
    desk.sweep().await.unwrap();
    assert_eq!(stands(&desk, &plan.goal).await.0, GoalState::Running);
    expect(spend(&store, "c", &plan.goal, 1, 200).await, Reserved::Ok).unwrap();
    assert_eq!(store.tenant_book("acme").await.unwrap().spent_microusd, 200);
    desk.oracle().await.unwrap();
}

#[tokio::test]
async fn d1_what_managers_publish_anew_frees_the_goals_that_wait_and_what_lapses_is_booked() {
    let desk = Desk::start().await.unwrap();
    publish(&desk, json!({"budget_tokens": 1000})).await;
    let plan = goal_of(&desk, "acme").await;
    let lost = Reservation { expiry_ms: 1, ..reservation("lost", &plan.goal, 700, 5) };
    expect(desk.store.reserve(&lost).await.unwrap(), Reserved::Ok).unwrap();
    harness::wait::until("the expiry", harness::scale::scale().patience(), async || {
        desk.sweep().await?;
        let book = desk.store.tenant_book("acme").await?;
        Ok((book.spent_tokens == 700 && book.reserved_tokens == 0 && book.reserved_microusd == 0)
            .then_some(()))
    })
    .await
    .unwrap();
    assert_eq!(spend(&desk.store, "a", &plan.goal, 400, 1).await, refused(300));
    let same: Tenants = serde_json::from_value(json!({"budget_tokens": 1000})).unwrap();
    assert!(!desk.store.publish_tenants(&same).await.unwrap());
    desk.sweep().await.unwrap();
    assert_eq!(stands(&desk, &plan.goal).await, parked());
    publish(&desk, json!({"budget_tokens": 2000})).await;
    desk.sweep().await.unwrap();
    expect(spend(&desk.store, "a", &plan.goal, 400, 1).await, Reserved::Ok).unwrap();
    // Words alone are no money: the next call parks it again.
    assert_eq!(spend(&desk.store, "b", &plan.goal, 4_000, 1).await, refused(900));
    let words = shared::store::PersonDecision::Answer {
        text: "go on".into(),
        budget_tokens: None,
        budget_microusd: None,
    };
    desk.store.answer(&plan.goal, 0, "r", "ann", &words).await.unwrap();
    assert_eq!(spend(&desk.store, "c", &plan.goal, 4_000, 1).await, refused(900));
    assert_eq!(stands(&desk, &plan.goal).await, parked());
}

fn turn<'a>(call: &'a str, goal: &'a str, in_flight_max: u32) -> Turn<'a> {
    Turn {
        endpoint: "e",
        name: "test-model at nowhere",
        call,
        lane: Lane::Worker,
        expiry_ms: 60_000,
        in_flight_max,
        failures_max: 3,
        requests_per_minute: 0,
        goal,
        worst: Tokens { input: 80, output: 80 },
        tokens_per_minute: Tokens::default(),
    }
}

/// `ok`, or why it waits.
async fn enter(store: &Store, turn: &Turn<'_>) -> String {
    match store.quota_enter(turn).await.unwrap() {
        Admission::Ok { .. } => "ok".into(),
        Admission::Wait { why, .. } => why,
    }
}

async fn leave(store: &Store, turn: &Turn<'_>) {
    store.quota_leave(turn, "", Heard::Answer, Tokens::default(), 1).await.unwrap();
}

#[tokio::test]
async fn a23_a_tenant_at_its_limits_waits_and_stands_in_nobodys_way() {
    let desk = Desk::start().await.unwrap();
    publish(&desk, json!({"of": {"acme": {"in_flight_max": 1}, "slow": {"requests_per_minute": 1}}})).await;
    let (acme, slow, free) = (
        goal_of(&desk, "acme").await.goal,
        goal_of(&desk, "slow").await.goal,
        goal_of(&desk, "free").await.goal,
    );
    let store = &desk.store;
    assert_eq!(enter(store, &turn("a1", &acme, 0)).await, "ok");
    assert_eq!(enter(store, &turn("a1", &acme, 0)).await, "ok", "a repeat is one member");
    for call in ["a2", "a3"] {
        assert_eq!(enter(store, &turn(call, &acme, 0)).await, "tenant");
    }
    // Another endpoint is no way around it.
    assert_eq!(enter(store, &Turn { endpoint: "f", ..turn("a4", &acme, 0) }).await, "tenant");
    assert_eq!(enter(store, &turn("s1", &slow, 0)).await, "ok");
    assert_eq!(enter(store, &turn("s2", &slow, 0)).await, "tenant");
    for call in ["f1", "f2", "f3"] {
        assert_eq!(enter(store, &turn(call, &free, 0)).await, "ok");
    }
    let seen = store.quotas().await.unwrap();
    let e = seen.iter().find(|e| e.word == "e").unwrap();
    assert_eq!((e.in_flight, e.workers_waiting, e.held), (5, 0, 3));
    assert_eq!(store.tenant_book("acme").await.unwrap().in_flight, 1);
    // A manager's call of the tenant goes before its workers'.
    let manager = Turn { lane: Lane::Manager, ..turn("m", &acme, 0) };
    assert_eq!(enter(store, &manager).await, "tenant");
    leave(store, &turn("a1", &acme, 0)).await;
    assert_eq!(enter(store, &turn("a2", &acme, 0)).await, "tenant");
    assert_eq!(enter(store, &manager).await, "ok");
    leave(store, &manager).await;
    assert_eq!(enter(store, &turn("a3", &acme, 0)).await, "tenant", "a2 came first");
    assert_eq!(enter(store, &turn("a2", &acme, 0)).await, "ok");
}

#[tokio::test]
async fn a23_tenants_take_turns_where_not_all_may_go() {
    let desk = Desk::start().await.unwrap();
    let (many, few) = (goal_of(&desk, "many").await.goal, goal_of(&desk, "few").await.goal);
    let store = &desk.store;
    assert_eq!(enter(store, &turn("first", &many, 1)).await, "ok");
    for n in 0..10 {
        assert_eq!(enter(store, &turn(&format!("m{n}"), &many, 1)).await, "in flight");
    }
    for call in ["a", "b"] {
        assert_eq!(enter(store, &turn(call, &few, 1)).await, "in flight");
    }
    let mut last = turn("first", &many, 1);
    // Ten came before those of the other tenant; they do not all go before.
    for (call, goal) in [("a", &few), ("m0", &many), ("b", &few), ("m1", &many), ("m2", &many)] {
        leave(store, &last).await;
        assert_eq!(enter(store, &turn("m9", &many, 1)).await, "in flight");
        last = turn(call, goal, 1);
        assert_eq!(enter(store, &last).await, "ok", "{call}");
    }
}

#[tokio::test]
async fn a23_a_minutes_tokens_are_kept_to_and_what_was_not_used_is_given_back() {
    let desk = Desk::start().await.unwrap();
    let store = &desk.store;
    // 10 tokens a second, 100 at once. The output is reckoned with a quarter of its worst case at first.
    let limited =
        |call| Turn { tokens_per_minute: Tokens { input: 600, output: 60_000 }, ..turn(call, "", 0) };
    let Admission::Ok { entry } = store.quota_enter(&limited("a")).await.unwrap() else {
        panic!("a full bucket")
    };
    assert_eq!(enter(store, &limited("b")).await, "tokens");
    let used = Tokens { input: 5, output: 9 };
    store.quota_leave(&limited("a"), &entry, Heard::Answer, used, 1).await.unwrap();
    let Admission::Ok { entry } = store.quota_enter(&limited("b")).await.unwrap() else {
        panic!("given back")
    };
    // Refused, it took nothing.
    let quota = Heard::Quota { retry_after_ms: Some(1) };
    store.quota_leave(&limited("b"), &entry, quota, Tokens::default(), 1).await.unwrap();
    harness::wait::until("the cool-down to end", harness::scale::scale().patience(), async || {
        Ok((enter(store, &limited("c")).await == "ok").then_some(()))
    })
    .await
    .unwrap();
    // Larger than all that goes at once: it goes when the bucket is full, and not before.
    let huge = Turn { worst: Tokens { input: 5_000, output: 1 }, ..limited("huge") };
    assert_eq!(enter(store, &huge).await, "tokens");
    let elsewhere = Turn { endpoint: "f", ..huge };
    assert_eq!(enter(store, &elsewhere).await, "ok");
    // Output has a limit of its own, and so have a tenant's tokens.
    let wordy = |call| Turn {
        endpoint: "g",
        tokens_per_minute: Tokens { input: 0, output: 120 },
        ..turn(call, "", 0)
    };
    assert_eq!(enter(store, &wordy("v")).await, "ok");
    assert_eq!(enter(store, &wordy("w")).await, "tokens");
    publish(&desk, json!({"output_tokens_per_minute": 120})).await;
    let goal = goal_of(&desk, "acme").await.goal;
    assert_eq!(enter(store, &Turn { endpoint: "h", ..turn("x", &goal, 0) }).await, "ok");
    assert_eq!(enter(store, &Turn { endpoint: "i", ..turn("y", &goal, 0) }).await, "tenant");
}

/// Nothing is broken then, so no person is asked, however much of a hurry the caller is in.
#[tokio::test]
async fn a23_a_planner_waits_for_its_tenants_turn_but_not_for_an_endpoint_that_is_out() {
    let desk = Desk::start().await.unwrap();
    publish(&desk, json!({"of": {"acme": {"in_flight_max": 1}}})).await;
    let goal = goal_of(&desk, "acme").await.goal;
    let store = &desk.store;
    let server = Model::start(|_: &Asked| Some(Answer::Text("here".into()))).await.unwrap();
    let config = config::Model {
        url: server.url(),
        standard: "m".into(),
        probe: false,
        calls_per_answer_max: 1,
        ..config::Model::default()
    };
    let account = Account::new(store, &goal, "", &desk.lease).in_a_hurry(Duration::ZERO);
    let model = shared::model::Model::new(&config).unwrap().on_account(account);
    let messages = [Message::User("hello".into())];
    let stop = CancellationToken::new();
    let ask = Ask {
        role: "planner",
        tier: Tier::Standard,
        messages: &messages,
        tools: &[],
        output_tokens_max: 10,
        stop: &stop,
        on_bytes: &|| {},
        on_wait: &ignore_wait,
    };
    assert_eq!(enter(store, &turn("other", &goal, 0)).await, "ok");
    let freed = async {
        wait::until("the planner's call is seen to wait", Duration::from_secs(20), async || {
            Ok(store.quotas().await?.iter().any(|e| e.held == 1).then_some(()))
        })
        .await
        .unwrap();
        leave(store, &turn("other", &goal, 0)).await;
    };
    let (reply, ()) = tokio::join!(model.chat(&ask), freed);
    assert_eq!(reply.unwrap().text, "here");
    server.play(|_: &Asked| Some(Answer::error(429, "slow down, please retry in 3600s")));
    for _ in 0..2 {
        let error = model.chat(&ask).await.unwrap_err();
        assert_eq!(error.class.as_str(), "quota", "{error}");
    }
    assert_eq!(server.asked().len(), 2, "the second one was not even sent");
}

#[tokio::test]
async fn a23_a_lifted_endpoint_is_called_again() {
    let desk = Desk::start().await.unwrap();
    let store = &desk.store;
    assert_eq!(enter(store, &turn("a", "", 0)).await, "ok");
    let day = Heard::Quota { retry_after_ms: Some(86_400_000) };
    store.quota_leave(&turn("a", "", 0), "", day, Tokens::default(), 1).await.unwrap();
    assert_eq!(enter(store, &turn("b", "", 0)).await, "cool-down");
    assert!(!store.quota_lift("nobody").await.unwrap());
    assert!(store.quota_lift("e").await.unwrap());
    // The pace that the refusal taught stays.
    assert_ne!(enter(store, &turn("b", "", 0)).await, "cool-down");
    for call in ["c", "d", "f"] {
        let left = store.quota_leave(&turn(call, "", 0), "", Heard::Network, Tokens::default(), 60_000).await;
        assert_eq!(left.unwrap(), call == "f", "{call}");
    }
    assert_eq!(enter(store, &turn("g", "", 0)).await, "breaker");
    assert!(store.quota_lift("e").await.unwrap());
    assert_ne!(enter(store, &turn("g", "", 0)).await, "breaker");
}

#[tokio::test]
async fn d1_a_fleet_of_a_tenant_at_its_budget_waits_and_ends_done_once_it_is_raised() {
    let keys: Vec<String> = (0..4).map(|n| format!("part{n}")).collect();
    let mut tickets: Vec<_> = keys.iter().map(|k| ticket(k, &[])).collect();
    tickets.push(ticket("whole", &keys.iter().map(String::as_str).collect::<Vec<_>>()));
    let model = Model::start(company(tickets)).await.unwrap();
    let fleet = Fleet::plan()
        .workers(2)
        .model(&model.url())
        .env("MODEL__OUTPUT_TOKENS_MAX", "100")
        .env("TENANTS__IN_FLIGHT_MAX", "1")
        .env("TENANTS__OF__DEFAULT__BUDGET_TOKENS", "6000")
        .start()
        .await
        .unwrap();
    let api = fleet.api();
    let goal = api.submit(&json!({"text": "four parts"})).await.unwrap();
    let now = api.reaches(&goal, &["needs_human", "done"]).await.unwrap();
    let book = fleet.store().await.unwrap().tenant_book("default").await.unwrap();
    assert_eq!(now["cause"], "tenant_budget", "{now} {book:?}");
    let shown = fleet.muster(&["fleet", "tenants"]).await.unwrap();
    assert!(shown.stdout.contains("of 6000"), "{shown:?}");
    let said = fleet.muster(&["fleet", "budget", "default", "--tokens", "1000000"]).await.unwrap();
    assert_eq!(said.code, 0, "{said:?}");
    api.reaches(&goal, &["done"]).await.unwrap();
    for key in &keys {
        let ticket = api.ticket(&goal, key).await.unwrap();
        assert_eq!((ticket.counters.faults, ticket.counters.waits), (0, 0), "{key}: nothing failed");
    }
    let spent = fleet.store().await.unwrap().tenant_book("default").await.unwrap();
    assert!(spent.spent_tokens > 0 && spent.reserved_tokens == 0, "{spent:?}");
    model.verify().unwrap();
    fleet.no_panics().unwrap();
    fleet.oracle().await.unwrap();
}
