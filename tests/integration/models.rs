//! What whole fleets do with models that stall, refuse or speak other dialects, and with workers that die in a call.

use harness::desk::Desk;
use harness::fleet::{Fleet, Role};
use harness::model::{Answer, Asked, Model};
use harness::script::{company, key_of, output_of, plan, ticket, verdict, work};
use harness::{scale, wait};
use serde_json::{Value, json};
use shared::config;
use shared::goal::NewGoal;
use shared::model::{Account, Ask, Message, ignore_wait};
use shared::ticket::Tier;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const BUDGET: u64 = 20_000;

#[tokio::test]
async fn a5_a_server_that_stalls_in_the_middle_costs_its_ticket_no_fault_and_the_worker_no_slot() {
    let (script, stalled) = (company(vec![ticket("a", &[])]), Arc::new(AtomicUsize::new(0)));
    let model = Model::start(move |asked: &Asked| {
        if asked.schema().is_empty() && stalled.fetch_add(1, Ordering::SeqCst) == 0 {
            return Some(Answer::Stall);
        }
        script(asked)
    })
    .await
    .unwrap();
    let fleet = Fleet::plan()
        .workers(1)
        .model(&model.url())
        .env("WORKER__SLOTS", "1")
        .env("MODEL__IDLE_TIMEOUT_MS", "500")
        .env("MODEL__CALLS_PER_ANSWER_MAX", "1")
        .start()
        .await
        .unwrap();
    let api = fleet.api();
    let goal = api.submit(&json!({"text": "in spite of it"})).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    let ticket = api.ticket(&goal, "a").await.unwrap();
    assert_eq!(
        (ticket.counters.faults, ticket.attempts),
        (0, 2),
        "given back, and done by the only slot there is"
    );
    let events = api.events(&goal).await.unwrap();
    let stalls =
        events.iter().filter(|e| e.event == "model_call" && e.detail.contains("fell silent in the middle"));
    assert_eq!(stalls.count(), 1);
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn c11_d1_workers_killed_in_their_calls_cost_the_budget_their_worst_case_and_no_more() {
    let keys: Vec<String> = (0..8).map(|n| format!("part{n}")).collect();
    let mut tickets: Vec<_> = keys.iter().map(|k| ticket(k, &[])).collect();
    tickets.push(ticket("whole", &keys.iter().map(String::as_str).collect::<Vec<_>>()));
    let script = company(tickets);
    let model = Model::start(move |asked: &Asked| {
        let slow = asked.schema().is_empty() && asked.turn() > 0;
        let answer = script(asked)?;
        Some(if slow { Answer::After(Duration::from_millis(400), Box::new(answer)) } else { answer })
    })
    .await
    .unwrap();
    let mut fleet = Fleet::plan()
        .workers(3)
        .model(&model.url())
        .env("WORKER__SLOTS", "3")
        .env("MODEL__OUTPUT_TOKENS_MAX", "100")
        .env("MODEL__CALL_EXPIRY_MS", "2000")
        .start()
        .await
        .unwrap();
    let (api, store) = (fleet.api(), fleet.store().await.unwrap());
    let goal = api.submit(&json!({"text": "eight parts", "budget_tokens": BUDGET})).await.unwrap();
    let within = async || -> anyhow::Result<(u64, u64)> {
        let now = store.goal(&goal).await?.ok_or_else(|| anyhow::anyhow!("the goal is gone"))?;
        let (spent, reserved) = (now.spent_tokens, now.reserved_tokens);
        assert!(spent + reserved <= BUDGET, "{spent} settled and {reserved} reserved");
        Ok((spent, reserved))
    };
    wait::until("second calls of tickets are under way", scale::scale().patience(), async || {
        let (_, reserved) = within().await?;
        let second = model.asked().iter().filter(|a| a.schema().is_empty() && a.turn() > 0).count();
        Ok((second >= 2 && reserved > 0).then_some(()))
    })
    .await
    .unwrap();
    fleet.program(Role::Worker, 0).kill();
    fleet.program(Role::Worker, 1).kill();
    let parked = wait::until("the goal waits for money", Duration::from_secs(120), async || {
        within().await?;
        let now = store.goal(&goal).await?;
        Ok(now.filter(|g| g.state == shared::goal::GoalState::NeedsHuman))
    })
    .await
    .unwrap();
    assert_eq!(parked.cause, "budget");
    wait::until("what the dead had reserved is settled", scale::scale().patience(), async || {
        Ok((within().await?.1 == 0).then_some(()))
    })
    .await
    .unwrap();
    let calls = model.asked().len();
    assert!(calls >= 8, "{calls} calls were sent");
    let said = fleet.muster(&["answer", &goal, "go on", "--budget-tokens", "1000000"]).await.unwrap();
    assert_eq!(said.code, 0, "{said:?}");
    api.reaches_within(&goal, &["done"], Duration::from_secs(90)).await.unwrap();
    for key in &keys {
        assert_eq!(api.ticket(&goal, key).await.unwrap().counters.faults, 0, "{key}: nothing failed");
    }
    model.verify().unwrap();
    fleet.oracle().await.unwrap();
}

/// The calls of an answer, as a model writes them that has no native ones.
fn spoken(answer: Answer, dialect: &str) -> Answer {
    let Answer::Calls(calls) = answer else { return answer };
    let write = |(name, args): &(String, Value)| match dialect {
        "json" => json!({"tool_calls": [{"name": name, "arguments": args}]}).to_string(),
        "xml" => format!("<tool_call><function>{name}</function><args>{args}</args></tool_call>"),
        _ => format!("TOOL: {name}\nARGS: {args}"),
    };
    match dialect {
        "native" => Answer::Calls(calls),
        _ => Answer::Text(calls.iter().map(write).collect::<Vec<_>>().join("\n")),
    }
}

#[tokio::test]
async fn a16_the_same_goal_on_four_dialects_has_the_same_deliverable() {
    let mut delivered = vec![];
    for dialect in ["native", "json", "xml", "text"] {
        let tickets = vec![ticket("a", &[]), ticket("whole", &["a"])];
        let model = Model::start(move |asked: &Asked| match asked.schema() {
            "plan" => Some(plan(&tickets)),
            "verdict" => Some(verdict(asked, true)),
            _ if !key_of(asked).is_empty() => Some(spoken(work(asked), dialect)),
            _ => None,
        })
        .await
        .unwrap();
        let fleet = Fleet::plan()
            .workers(1)
            .model(&model.url())
            .env("MODEL__DIALECT", dialect)
            .start()
            .await
            .unwrap();
        let api = fleet.api();
        let goal = api.submit(&json!({"text": "two parts"})).await.unwrap();
        api.reaches(&goal, &["done"]).await.unwrap_or_else(|e| panic!("{dialect}: {e:#}"));
        let mut files = vec![];
        for key in ["a", "whole"] {
            files.push(api.file(&goal, &output_of(key)).await.unwrap());
        }
        delivered.push((dialect, files));
        let native = model.asked().iter().any(|a| a.body.get("tools").is_some());
        assert_eq!(native, dialect == "native");
        model.verify().unwrap();
        fleet.no_panics().unwrap();
    }
    for (dialect, files) in &delivered {
        assert_eq!(*files, delivered[0].1, "{dialect}");
    }
}

#[tokio::test]
async fn a16_what_one_worker_was_refused_no_other_asks_again() {
    let refusals = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&refusals);
    let model = Model::start(move |asked: &Asked| match asked.schema() {
        "plan" => Some(plan(&[ticket("a", &[])])),
        "verdict" => Some(verdict(asked, true)),
        _ if asked.body.get("tools").is_some() => {
            counted.fetch_add(1, Ordering::SeqCst);
            Some(Answer::error(400, "test-model does not support tools"))
        }
        _ => Some(spoken(work(asked), "json")),
    })
    .await
    .unwrap();
    let mut fleet = Fleet::plan().workers(1).model(&model.url()).start().await.unwrap();
    let api = fleet.api();
    let first = api.submit(&json!({"text": "once"})).await.unwrap();
    api.reaches(&first, &["done"]).await.unwrap();
    fleet.program(Role::Worker, 0).kill();
    fleet.add(Role::Worker).unwrap();
    let second = api.submit(&json!({"text": "and again"})).await.unwrap();
    api.reaches(&second, &["done"]).await.unwrap();
    assert_eq!(refusals.load(Ordering::SeqCst), 1);
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn i10_i12_every_call_can_be_looked_into_and_no_key_is_in_it() {
    const KEY: &str = "sk-planted0123456789";
    let script = company(vec![ticket("a", &[])]);
    let model = Model::start(move |asked: &Asked| {
        // The model quotes what it should not know.
        match script(asked)? {
            Answer::Calls(calls) if calls[0].0 == "write_file" => Some(Answer::Message {
                message: json!({"role": "assistant", "content": format!("The key is {KEY}."), "tool_calls": [{"id": "c",
                    "type": "function", "function": {"name": "write_file", "arguments": calls[0].1.to_string()}}]}),
                finish: "tool_calls".into(),
            }),
            answer => Some(answer),
        }
    })
    .await
    .unwrap();
    let fleet =
        Fleet::plan().workers(1).model(&model.url()).env("MODEL__API_KEY", KEY).start().await.unwrap();
    let api = fleet.api();
    let goal = api.submit(&json!({"text": "look into it"})).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();

    let listed = fleet.muster(&["logs", &goal, "--calls"]).await.unwrap();
    let lines: Vec<&str> = listed.stdout.lines().collect();
    assert_eq!(lines.len(), model.asked().len(), "{listed:?}");
    let line = lines.iter().find(|l| l.contains("worker")).unwrap();
    let id = line.split_whitespace().last().unwrap();
    let shown = wait::until("the body is written", scale::scale().patience(), async || {
        let shown = fleet.muster(&["show", &goal, "--call", id, "--json"]).await?.json()?;
        Ok((!shown["body"].is_null()).then_some(shown))
    })
    .await
    .unwrap();
    assert_eq!((&shown["record"]["role"], &shown["record"]["tier"]), (&json!("worker"), &json!("standard")));
    assert!(shown["body"]["request"]["messages"].to_string().contains("# Your ticket: a"), "{shown}");
    assert_eq!(shown["body"]["answer"]["text"], "The key is [redacted].");
    assert_eq!(shown["body"]["answer"]["calls"][0]["name"], "write_file");
    let unknown = fleet.muster(&["show", &goal, "--call", "ffffffffffff"]).await.unwrap();
    assert!(unknown.code != 0 && unknown.stderr.contains("--calls"), "{unknown:?}");
    let several = fleet.muster(&["show", &goal, "--call", &id[..1]]).await.unwrap();
    assert!(several.code != 0 && several.stderr.contains("begins more than one call"), "{several:?}");

    let stats = fleet.muster(&["stats", "--json"]).await.unwrap().json().unwrap();
    let calls: u64 = stats["usage"].as_array().unwrap().iter().map(|u| u["calls"].as_u64().unwrap()).sum();
    assert_eq!(calls, model.asked().len() as u64, "{}", stats["usage"]);
    let roles: Vec<&str> =
        stats["usage"].as_array().unwrap().iter().map(|u| u["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["planner", "reviewer", "worker"]);
    let drawn = fleet.muster(&["stats"]).await.unwrap().stdout;
    assert!(drawn.contains("worker") && drawn.contains("0 in flight, 0 waiting"), "{drawn}");
    assert!(drawn.contains("1 of 1 (100 %)"), "its work passed the first review: {drawn}");
    fleet.oracle().await.unwrap();
}

/// What is sent in front of what belongs to one ticket: a provider that keeps it pays for it once (B7).
#[tokio::test]
async fn b7_requests_of_a_role_begin_with_the_same_bytes_and_turns_only_grow() {
    const CONSTRAINT: &str = "at most 300 words";
    let model =
        Model::start(company(vec![ticket("a", &[]), ticket("b", &[]), ticket("whole", &["a", "b"])])).await;
    let model = model.unwrap();
    let fleet = Fleet::plan().workers(2).model(&model.url()).start().await.unwrap();
    let api = fleet.api();
    let goal =
        api.submit(&json!({"text": "the same words first", "constraints": [CONSTRAINT]})).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    let asked = model.asked();
    let text = |a: &Asked, n: usize| a.messages()[n]["content"].as_str().unwrap_or_default().to_owned();
    let (work, reviews): (Vec<&Asked>, Vec<&Asked>) =
        asked.iter().filter(|a| a.schema() != "plan").partition(|a| a.schema().is_empty());
    for requests in [&work, &reviews] {
        assert!(requests.len() >= 3);
        let first = requests[0];
        for other in requests.iter().skip(1) {
            assert_eq!(text(first, 0), text(other, 0), "the system prompt knows no ticket and no clock");
            assert_eq!(first.body["tools"], other.body["tools"], "the same tools in the same order");
            let (one, two) = (text(first, 1), text(other, 1));
            let shared = one.bytes().zip(two.bytes()).take_while(|(a, b)| a == b).count();
            let prefix = String::from_utf8_lossy(&one.as_bytes()[..shared]).into_owned();
            assert!(prefix.contains("the same words first") && prefix.contains(CONSTRAINT), "{prefix}");
        }
    }
    // Within an attempt nothing that was said is said otherwise.
    for later in work.iter().filter(|a| a.turn() > 0) {
        let before =
            work.iter().find(|a| key_of(a) == key_of(later) && a.turn() + 1 == later.turn()).unwrap();
        assert_eq!(before.messages(), &later.messages()[..before.messages().len()], "{}", key_of(later));
    }
}

#[tokio::test]
async fn a16_a_probe_that_failed_is_made_again_by_whoever_calls_later() {
    let desk = Desk::start().await.unwrap();
    let plan = desk.plan_of(NewGoal { text: "hello".into(), ..NewGoal::default() }, &[]).await.unwrap();
    let is_probe = |asked: &Asked| asked.says("PINEAPPLE");
    let refused = Arc::new(AtomicUsize::new(0));
    let model = Model::start(move |asked: &Asked| {
        // Its first probe meets a server that does not know the model yet; then it refuses a temperature.
        if is_probe(asked) && refused.fetch_add(1, Ordering::SeqCst) == 0 {
            return Some(Answer::error(404, "the model is not loaded"));
        }
        if asked.body.get("temperature").is_some() {
            return Some(Answer::error(400, "temperature is not supported by this model"));
        }
        Some(Answer::Text("hm".into()))
    })
    .await
    .unwrap();
    let config = config::Model { url: model.url(), standard: "m".into(), ..config::Model::default() };
    let client = shared::model::Model::new(&config).unwrap();
    let client = client.on_account(Account::new(&desk.store, &plan.goal, "", &desk.lease));
    let messages = [Message::User("hello".into())];
    let say = async || {
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
        client.chat(&ask).await.unwrap()
    };
    let probes = || model.asked().iter().filter(|a| is_probe(a)).count();
    say().await;
    say().await;
    assert_eq!(probes(), 1, "nobody tries again at once");
    // The mark of the probe expires.
    let keys: Vec<String> = desk.redis.query(&["KEYS", "muster:{s0}:mtp:*"]).await.unwrap();
    assert_eq!(keys.len(), 1);
    desk.redis.query::<u64>(&["DEL", &keys[0]]).await.unwrap();
    say().await;
    assert!(probes() > 1, "it was tried out again");
    let after = probes();
    desk.redis.query::<u64>(&["DEL", &keys[0]]).await.unwrap();
    say().await;
    assert_eq!(probes(), after, "now it is known");
}
