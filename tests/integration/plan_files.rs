//! Plan files: direct calls without any model, in parallel on two workers; and everything that is wrong with one.

use harness::fleet::{Fleet, Refused};
use harness::script::{quick, slow};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Start and end of each ticket's run, and who ran it, from the events.
fn runs(events: &[shared::store::LogEvent]) -> BTreeMap<String, (u64, u64, String)> {
    let mut runs = BTreeMap::new();
    for event in events {
        if event.event == "claimed" {
            runs.insert(event.key.clone(), (event.at_ms, 0, event.who.clone()));
        } else if event.from == "running"
            && event.to != "running"
            && let Some(run) = runs.get_mut(&event.key)
        {
            run.1 = event.at_ms;
        }
    }
    runs
}

#[tokio::test]
async fn independent_tickets_run_at_once_on_two_workers() {
    let fleet = Fleet::plan().workers(2).env("WORKER__SLOTS", "1").start().await.unwrap();
    let api = fleet.api();
    let tickets = json!([slow("left", &[], 1.0), slow("right", &[], 1.0), quick("join", &["left", "right"])]);
    let goal = api.submit_plan("two at once", &tickets).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    let runs = runs(&api.events(&goal).await.unwrap());
    let (left, right, join) = (&runs["left"], &runs["right"], &runs["join"]);
    assert!(left.0 < right.1 && right.0 < left.1, "they overlap: {runs:?}");
    assert_ne!(left.2, right.2, "on two consumers");
    assert!(join.0 >= left.1.max(right.1), "the join waits for both: {runs:?}");
    assert_eq!(api.file(&goal, "data/join.txt").await.unwrap(), "made\n");
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn the_shipped_example_runs_without_a_model() {
    let fleet = Fleet::plan().workers(2).env("WORKER__SLOTS", "1").start().await.unwrap();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/examples/parallel.toml");
    let ran = fleet.muster(&["run", example, "--out", "delivered"]).await.unwrap();
    assert_eq!(ran.code, 0, "{}\n{}", ran.stdout, ran.stderr);
    assert!(fleet.folder().join("delivered/outputs/report.md").is_file(), "{ran:?}");
    let goals = fleet.api().get("/v1/goals").await.unwrap();
    let goal = goals["goals"][0]["id"].as_str().unwrap().to_owned();
    let runs = runs(&fleet.api().events(&goal).await.unwrap());
    let (a, b) = (&runs["count_primes"], &runs["measure_collatz"]);
    assert!(a.0 < b.1 && b.0 < a.1 && a.2 != b.2, "{runs:?}");
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn the_same_key_finds_the_same_goal() {
    let fleet = Fleet::plan().start().await.unwrap();
    let api = fleet.api();
    let body = json!({"text": "once", "idempotency_key": "k1", "plan": {"goal": {"text": "once"}, "tickets": [quick("a", &[])]}});
    let first = api.post("/v1/goals", &body).await.unwrap();
    let second = api.post("/v1/goals", &body).await.unwrap();
    assert_eq!((&first["duplicate"], &second["duplicate"]), (&json!(false), &json!(true)));
    assert_eq!(first["goal"], second["goal"]);
    let goal = first["goal"].as_str().unwrap();
    api.reaches(goal, &["done"]).await.unwrap();
    assert_eq!(api.get("/v1/goals").await.unwrap()["goals"].as_array().unwrap().len(), 1);
    fleet.oracle().await.unwrap();
}

/// A plan of these tickets as the API takes it.
fn body(tickets: &Value) -> Value {
    json!({"text": "wrong", "plan": {"goal": {"text": "wrong"}, "tickets": tickets}})
}

#[tokio::test]
async fn c9_what_is_wrong_with_a_plan_is_named_and_nothing_is_submitted() {
    let fleet = Fleet::plan().workers(0).reviewers(0).start().await.unwrap();
    let api = fleet.api();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut ticket = quick("a", &[]);
        change(&mut ticket);
        json!([ticket])
    };
    let many: Vec<Value> = (0..10_000).map(|n| quick(&format!("t{n}"), &[])).collect();
    let cases: Vec<(&str, Value, &[&str])> = vec![
        ("a cycle", json!([quick("a", &["b"]), quick("b", &["a"])]), &["a", "b"]),
        ("a dangling need", json!([quick("a", &["t99"])]), &["t99"]),
        ("two equal ids", json!([quick("t1", &[]), quick("t1", &[])]), &["t1"]),
        ("10,000 tickets", json!(many), &["10000", "1000"]),
        ("no tickets", json!([]), &["tickets"]),
        ("an unknown tool", with(&|t| t["tool"] = json!("rocket")), &["rocket"]),
        (
            "an unknown role",
            json!([{"id": "a", "description": "d", "role": "wizard", "outputs": ["outputs/a"]}]),
            &["wizard"],
        ),
        (
            "an unknown check",
            with(&|t| t["checks"] = json!([{"kind": "smells_good", "path": "a"}])),
            &["smells_good"],
        ),
        ("an unknown field", with(&|t| t["colour"] = json!("red")), &["colour"]),
        ("a path that leaves", with(&|t| t["outputs"] = json!(["../../etc/passwd"])), &["../../etc/passwd"]),
        ("an absolute path", with(&|t| t["outputs"] = json!(["/etc/passwd"])), &["/etc/passwd"]),
        (
            "a check outside",
            with(&|t| t["checks"] = json!([{"kind": "file_exists", "path": "../x"}])),
            &["../x"],
        ),
    ];
    for (what, tickets, named) in cases {
        let Refused { status, body } =
            api.refused("/v1/goals", &body(&tickets)).await.unwrap_or_else(|e| panic!("{what}: {e:#}"));
        let said = body.to_string();
        assert!((400..500).contains(&status), "{what}: {status} {said}");
        assert!(named.iter().any(|n| said.contains(n)), "{what}: {said}");
        assert!(!body["error"]["message"].as_str().unwrap_or_default().is_empty(), "{what}: {said}");
    }
    let empty = api.refused("/v1/goals", &json!({"text": "  "})).await.unwrap();
    assert!(empty.status == 400 && empty.body.to_string().contains("text"), "{empty}");
    let long = api.refused("/v1/goals", &json!({"text": "x".repeat(100_000)})).await.unwrap();
    assert!(long.body.to_string().contains("65536"), "the limit is named: {long}");
    assert_eq!(api.get("/v1/goals").await.unwrap()["goals"], json!([]), "nothing is half-submitted");
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn an_input_that_is_too_large_is_refused_by_its_limit() {
    let fleet = Fleet::plan()
        .workers(0)
        .reviewers(0)
        .env("LIMITS__INPUT_BYTES_MAX", "1048576")
        .start()
        .await
        .unwrap();
    let api = fleet.api();
    let error = api.upload(&vec![b'x'; 2 * 1024 * 1024]).await.unwrap_err();
    let refused = error.downcast::<Refused>().unwrap();
    assert!(refused.status == 413 && refused.body.to_string().contains("1048576"), "{refused}");
    let blob = api.upload(b"a,b\n1,2\n").await.unwrap();
    let outside = json!({"text": "x", "inputs": [{"path": "../a.csv", "blob": blob}], "plan": {"goal": {"text": "x"}, "tickets": [quick("a", &[])]}});
    let refused = api.refused("/v1/goals", &outside).await.unwrap();
    assert!(refused.body.to_string().contains("../a.csv"), "{refused}");
}

#[tokio::test]
async fn a_call_that_fails_ends_with_a_person_when_no_model_can_change_it() {
    let fleet = Fleet::plan().start().await.unwrap();
    let api = fleet.api();
    let mut broken = quick("a", &[]);
    broken["args"] = json!({"code": "raise ValueError('no such thing')"});
    let goal = api.submit_plan("it breaks", &json!([broken])).await.unwrap();
    api.event(&goal, "a person is asked", |e| e.to == "needs_human").await.unwrap();
    let ticket = api.ticket(&goal, "a").await.unwrap();
    assert!(ticket.attempts <= 3 && ticket.attempts > 0, "{}", ticket.attempts);
    let inbox = api.get("/v1/inbox").await.unwrap().to_string();
    assert!(inbox.contains("no such thing") || inbox.contains("ValueError"), "the reason is shown: {inbox}");
    fleet.oracle().await.unwrap();
}
