//! The fleet's manners towards one endpoint: cool-down for all, a breaker with one probe, calls in flight.

use harness::desk::Desk;
use harness::fleet::{Fleet, Role};
use harness::limited::{Bucket, Limited};
use harness::model::{Answer, Asked, Model};
use harness::proxy::Proxy;
use harness::script::{company, ticket};
use harness::wait;
use serde_json::json;
use shared::config;
use shared::goal::NewGoal;
use shared::model::{Account, Ask, Message, ignore_wait};
use shared::store::{Admission, Heard, Lane, Store, Tokens, Turn};
use shared::ticket::Tier;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio_util::sync::CancellationToken;

fn turn(call: &str, lane: Lane, cap: u32) -> Turn<'_> {
    Turn {
        endpoint: "e",
        name: "test-model at nowhere",
        call,
        lane,
        expiry_ms: 60_000,
        in_flight_max: cap,
        failures_max: 3,
        requests_per_minute: 0,
        goal: "",
        worst: Tokens::default(),
        tokens_per_minute: Tokens::default(),
    }
}

async fn enter(store: &Store, call: &str, cap: u32) -> Admission {
    store.quota_enter(&turn(call, Lane::Worker, cap)).await.unwrap()
}

async fn leave(store: &Store, call: &str, heard: Heard, open_ms: u64) -> bool {
    store.quota_leave(&turn(call, Lane::Worker, 0), "", heard, Tokens::default(), open_ms).await.unwrap()
}

fn is_in(admission: &Admission) -> bool {
    matches!(admission, Admission::Ok { .. })
}

fn waits(admission: &Admission, word: &str) -> u64 {
    match admission {
        Admission::Wait { ms, why } if why == word => *ms,
        other => panic!("{other:?}, not {word}"),
    }
}

#[tokio::test]
async fn a23_one_refused_call_quiets_all_for_as_long_as_it_says() {
    let desk = Desk::start().await.unwrap();
    let other = desk.another_store(&desk.redis.url()).await.unwrap();
    assert!(is_in(&enter(&desk.store, "a", 0).await));
    leave(&desk.store, "a", Heard::Quota { retry_after_ms: Some(7_000) }, 1).await;
    let ms = waits(&enter(&other, "b", 0).await, "cool-down");
    assert!((5_000..=7_000).contains(&ms), "{ms}");
    // A shorter hint of a call that was on its way does not shorten it; another endpoint is not meant.
    leave(&other, "c", Heard::Quota { retry_after_ms: Some(10) }, 1).await;
    assert!(waits(&enter(&other, "b", 0).await, "cool-down") > 4_000);
    let elsewhere = Turn { endpoint: "f", ..turn("b", Lane::Worker, 0) };
    assert!(is_in(&other.quota_enter(&elsewhere).await.unwrap()));
}

#[tokio::test]
async fn a23_calls_in_flight_have_a_cap_and_leave_no_ghosts() {
    let desk = Desk::start().await.unwrap();
    assert!(is_in(&enter(&desk.store, "a", 2).await));
    assert!(is_in(&enter(&desk.store, "a", 2).await), "a repeat is one member");
    // This one's caller dies at once.
    let dead = Turn { expiry_ms: 0, ..turn("dead", Lane::Worker, 2) };
    assert!(is_in(&desk.store.quota_enter(&dead).await.unwrap()));
    assert!(is_in(&enter(&desk.store, "b", 2).await));
    waits(&enter(&desk.store, "c", 2).await, "in flight");
    leave(&desk.store, "a", Heard::Answer, 1).await;
    assert!(is_in(&enter(&desk.store, "c", 2).await));
}

#[tokio::test]
async fn d10_failures_in_a_row_open_a_breaker_and_one_probe_closes_it() {
    let desk = Desk::start().await.unwrap();
    // Repeated after a lost answer, one failure is one failure.
    for _ in 0..4 {
        assert!(!leave(&desk.store, "a", Heard::Network, 60_000).await);
    }
    assert!(!leave(&desk.store, "b", Heard::Network, 60_000).await);
    assert!(leave(&desk.store, "c", Heard::Network, 60_000).await);
    assert!(waits(&enter(&desk.store, "d", 0).await, "breaker") > 30_000);
    // Its time is up: one probe, the others wait for it.
    assert!(leave(&desk.store, "e", Heard::Network, 0).await);
    assert!(is_in(&enter(&desk.store, "d", 0).await));
    waits(&enter(&desk.store, "f", 0).await, "breaker");
    assert!(leave(&desk.store, "d", Heard::Network, 0).await, "still down");
    assert!(is_in(&enter(&desk.store, "f", 0).await));
    assert!(!leave(&desk.store, "f", Heard::Answer, 0).await);
    for call in ["g", "h", "i"] {
        assert!(is_in(&enter(&desk.store, call, 0).await));
    }
}

#[tokio::test]
async fn a23_refused_calls_cost_no_ticket_an_attempt() {
    let tickets = vec![ticket("a", &[]), ticket("b", &[]), ticket("whole", &["a", "b"])];
    let (script, refused) = (company(tickets), Arc::new(AtomicUsize::new(0)));
    let model = Model::start(move |asked: &Asked| {
        if asked.schema().is_empty() && refused.fetch_add(1, Ordering::SeqCst) < 6 {
            return Some(Answer::Raw {
                status: 429,
                headers: vec![("retry-after-ms".into(), "300".into())],
                body: json!({"error": {"message": "slow down"}}).to_string(),
            });
        }
        script(asked)
    })
    .await
    .unwrap();
    let fleet = Fleet::plan().workers(2).model(&model.url()).start().await.unwrap();
    let api = fleet.api();
    let goal = api.submit(&json!({"text": "in good time"})).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    for key in ["a", "b", "whole"] {
        let ticket = api.ticket(&goal, key).await.unwrap();
        let counted = (ticket.attempts, ticket.counters.faults, ticket.counters.waits);
        assert_eq!(counted, (1, 0, 0), "{key}");
    }
    fleet.no_panics().unwrap();
    fleet.oracle().await.unwrap();
}

/// One word of a model, on the goal's account; its requests beyond the first.
async fn say(desk: &Desk, goal: &str, url: &str, role: &'static str) -> u32 {
    let config =
        config::Model { url: url.into(), standard: "m".into(), probe: false, ..config::Model::default() };
    let model = shared::model::Model::new(&config).unwrap();
    let model = model.on_account(Account::new(&desk.store, goal, "", &desk.lease));
    let messages = [Message::User("hello".into())];
    let ask = Ask {
        role,
        tier: Tier::Standard,
        messages: &messages,
        tools: &[],
        output_tokens_max: 10,
        stop: &CancellationToken::new(),
        on_bytes: &|| {},
        on_wait: &ignore_wait,
    };
    model.chat(&ask).await.unwrap().requests - 1
}

#[tokio::test]
async fn d10_an_open_breaker_sends_calls_to_the_next_model_at_once_and_both_keep_their_own() {
    let desk = Desk::start().await.unwrap();
    let plan = desk.plan_of(NewGoal { text: "hello".into(), ..NewGoal::default() }, &[]).await.unwrap();
    let server = Model::start(|_: &Asked| Some(Answer::Text("here".into()))).await.unwrap();
    // Nobody listens there.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let fallback =
        config::Fallback { model: "spare".into(), url: server.url(), ..config::Fallback::default() };
    let config = config::Model {
        url: format!("http://{closed}/v1"),
        standard: "main".into(),
        probe: false,
        breaker_failures: 2,
        breaker_open_ms: 3_600_000,
        fallback: vec![fallback],
        ..config::Model::default()
    };
    let model = shared::model::Model::new(&config).unwrap();
    let model = model.on_account(Account::new(&desk.store, &plan.goal, "", &desk.lease));
    let messages = [Message::User("hello".into())];
    for nth in 0..3 {
        let ask = Ask {
            role: "worker",
            tier: Tier::Standard,
            messages: &messages,
            tools: &[],
            output_tokens_max: 10,
            stop: &CancellationToken::new(),
            on_bytes: &|| {},
            on_wait: &ignore_wait,
        };
        let reply = model.chat(&ask).await.unwrap();
        assert_eq!((reply.text.as_str(), reply.model.as_str()), ("here", "spare"));
        // Two failures open the breaker; after that nothing is sent there.
        assert_eq!(reply.records.len(), if nth == 0 { 3 } else { 1 }, "{:?}", reply.records);
        let why = reply.records.last().unwrap().instead_of.clone();
        assert!(why.starts_with("main at 127.0.0.1 (network") && why.contains("breaker"), "{why}");
    }
    let seen = desk.store.quotas().await.unwrap();
    let of = |name: &str| seen.iter().find(|e| e.name.starts_with(name)).unwrap();
    assert!(of("main").closed_for_ms > 0 && of("spare").closed_for_ms == 0, "{seen:?}");
    assert_eq!((of("main").failures, of("spare").failures), (2, 0));
}

#[tokio::test]
async fn a23_a_fleet_finds_the_pace_of_a_limited_server() {
    let desk = Desk::start().await.unwrap();
    let plan = desk.plan_of(NewGoal { text: "hello".into(), ..NewGoal::default() }, &[]).await.unwrap();
    for hint in [None, Some("0.2")] {
        let server = Limited::start(Bucket { per_s: 50.0, burst: 20.0, hint }).await.unwrap();
        let url = server.url();
        let callers = (0..200).map(|_| say(&desk, &plan.goal, &url, "worker"));
        let again: u32 = futures::future::join_all(callers).await.into_iter().sum();
        let (answered, refused) = server.counts();
        // Nobody failed; how many are refused on the way is the benchmark's (`muster-bench run quota`), not a test's.
        assert_eq!((answered, refused), (200, u64::from(again)));
        assert!(refused > 0, "the limit was never met");
    }
    for endpoint in desk.store.quotas().await.unwrap() {
        assert!(endpoint.rate > 0.0, "a pace was learnt: {endpoint:?}");
        let here = (endpoint.in_flight, endpoint.workers_waiting, endpoint.name.as_str());
        assert_eq!(here, (0, 0, "m at 127.0.0.1"));
    }
}

#[tokio::test]
async fn a23_managers_go_before_reviewers_before_workers() {
    let desk = Desk::start().await.unwrap();
    let store = &desk.store;
    assert!(is_in(&enter(store, "first", 1).await));
    // All wait for the one place; the last to come is the first to go.
    for n in 0..20 {
        waits(&enter(store, &format!("w{n}"), 1).await, "in flight");
    }
    for (call, lane) in [("r", Lane::Reviewer), ("m", Lane::Manager)] {
        waits(&store.quota_enter(&turn(call, lane, 1)).await.unwrap(), "in flight");
    }
    let seen = &store.quotas().await.unwrap()[0];
    assert_eq!(
        (seen.in_flight, seen.managers_waiting, seen.reviewers_waiting, seen.workers_waiting),
        (1, 1, 1, 20)
    );
    leave(store, "first", Heard::Answer, 1).await;
    let order = ["m", "r", "w0", "w1"];
    for (nth, call) in order.iter().enumerate() {
        for later in &order[nth + 1..] {
            let lane = if *later == "r" { Lane::Reviewer } else { Lane::Worker };
            waits(&store.quota_enter(&turn(later, lane, 1)).await.unwrap(), "in flight");
        }
        let lane = match *call {
            "m" => Lane::Manager,
            "r" => Lane::Reviewer,
            _ => Lane::Worker,
        };
        assert!(is_in(&store.quota_enter(&turn(call, lane, 1)).await.unwrap()), "{call}");
        leave(store, call, Heard::Answer, 1).await;
    }
    // Who waits no more, or died waiting, stands in nobody's way.
    for n in 2..19 {
        leave(store, &format!("w{n}"), Heard::Nothing, 1).await;
    }
    wait::until("the dead waiter's place is free", std::time::Duration::from_secs(20), async || {
        Ok(is_in(&enter(store, "new", 1).await).then_some(()))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn d10_the_fleet_waits_for_an_endpoint_that_is_down_and_goes_on_without_a_fault() {
    let tickets = vec![ticket("a", &[]), ticket("b", &[]), ticket("whole", &["a", "b"])];
    let script = company(tickets.clone());
    let asked = Arc::new(tokio::sync::Notify::new());
    let told = Arc::clone(&asked);
    // The first word of a worker is the last for now.
    let model = Model::start(move |request: &Asked| {
        if request.schema().is_empty() {
            told.notify_one();
            return Some(Answer::Stall);
        }
        script(request)
    })
    .await
    .unwrap();
    let between = Proxy::start(model.port()).await.unwrap();
    let fleet = Fleet::plan()
        .workers(2)
        .model(&format!("http://127.0.0.1:{}/v1", between.port()))
        .env("MODEL__BREAKER_OPEN_MS", "300")
        .start()
        .await
        .unwrap();
    let (api, store) = (fleet.api(), fleet.store().await.unwrap());
    let goal = api.submit(&json!({"text": "in good time"})).await.unwrap();
    asked.notified().await;
    between.refuse();
    wait::until("the breaker opens", harness::scale::scale().patience(), async || {
        let open = store.quotas().await?.iter().any(|e| e.failures >= 5 && e.workers_waiting > 0);
        Ok(open.then_some(()))
    })
    .await
    .unwrap();
    model.play(company(tickets));
    between.pass();
    api.reaches(&goal, &["done"]).await.unwrap();
    for key in ["a", "b", "whole"] {
        let ticket = api.ticket(&goal, key).await.unwrap();
        assert_eq!(ticket.counters.faults, 0, "{key}: an outage is not the work's fault");
    }
    fleet.no_panics().unwrap();
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn a23_a_killed_worker_leaves_no_ghost_in_flight() {
    let model = Model::start(|asked: &Asked| {
        if asked.schema().is_empty() { Some(Answer::Stall) } else { company(vec![ticket("a", &[])])(asked) }
    })
    .await
    .unwrap();
    let mut fleet = Fleet::plan()
        .workers(1)
        .model(&model.url())
        .env("MODEL__CALL_EXPIRY_MS", "2000")
        .start()
        .await
        .unwrap();
    let (api, store) = (fleet.api(), fleet.store().await.unwrap());
    api.submit(&json!({"text": "never mind"})).await.unwrap();
    let in_flight = async || store.quotas().await.unwrap().iter().map(|e| e.in_flight).sum::<u64>();
    wait::until("a worker's call is in flight", harness::scale::scale().patience(), async || {
        Ok((!model.asked().is_empty() && model.asked().iter().any(|a| a.schema().is_empty())).then_some(()))
    })
    .await
    .unwrap();
    assert_eq!(in_flight().await, 1);
    fleet.program(Role::Worker, 0).kill();
    wait::until("its member expires", harness::scale::scale().patience(), async || {
        Ok((in_flight().await == 0).then_some(()))
    })
    .await
    .unwrap();
}
