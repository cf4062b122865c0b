//! A goal from its text to its deliverable, with a model server that is not the rehearsal one.

use harness::fleet::{Fleet, Role};
use harness::model::{Answer, Asked, Model};
use harness::oracle::acceptances;
use harness::script::{company, key_of, plan, ticket, verdict, work};
use serde_json::json;
use std::time::Duration;

const TEXT: &str = "Explain {{ queues }} to \"non-technical\" readers";
const CONSTRAINT: &str = "≤300 words, no jargon";

#[tokio::test]
async fn i9_i10_b5_a_goal_is_planned_worked_reviewed_and_delivered() {
    let tickets = vec![ticket("intro", &[]), ticket("body", &[]), ticket("whole", &["intro", "body"])];
    let model = Model::start(company(tickets)).await.unwrap();
    let fleet = Fleet::plan().workers(2).model(&model.url()).start().await.unwrap();
    let api = fleet.api();
    let goal = api.submit(&json!({"text": TEXT, "constraints": [CONSTRAINT]})).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();

    let mut files = api.files(&goal).await.unwrap();
    files.sort();
    assert_eq!(files, ["outputs/body.md", "outputs/intro.md", "outputs/whole.md"]);
    assert_eq!(api.file(&goal, "outputs/whole.md").await.unwrap(), "# whole\n\nA text about whole.\n");
    let todo = api.file(&goal, "TODO.md").await.unwrap();
    assert!(todo.contains(TEXT) && todo.contains("whole"), "{todo}");

    // Goal and constraint stand verbatim in every prompt of every role (I9).
    let asked = model.asked();
    let of = |role: &str| asked.iter().filter(|a| role_of(a) == role).count();
    assert_eq!((of("plan"), of("verdict"), of("work")), (1, 3, 6));
    for request in &asked {
        assert!(request.says(TEXT) && request.says(CONSTRAINT), "{:?}", request.body);
        // Histories do not travel: a prompt holds its own ticket's turns only.
        assert!(request.turn() <= 1, "{:?}", request.body);
    }
    for request in asked.iter().filter(|a| role_of(a) == "work") {
        assert!(request.says(&format!("{} is well written", key_of(request))), "the checklist as well");
    }
    // A ticket hears what its needs delivered.
    assert!(asked.iter().filter(|a| key_of(a) == "whole").all(|a| a.says("intro is written")));

    // Every call has left a record (I10).
    let events = api.events(&goal).await.unwrap();
    let calls: Vec<serde_json::Value> = events
        .iter()
        .filter(|e| e.event == "model_call")
        .filter_map(|e| serde_json::from_str(&e.detail).ok())
        .collect();
    assert_eq!(calls.len(), 10, "{:?}", events.iter().map(|e| e.event.as_str()).collect::<Vec<_>>());
    for call in &calls {
        for field in [
            "role",
            "model",
            "prompt_hash",
            "input_tokens",
            "output_tokens",
            "started_at_ms",
            "duration_ms",
            "finish",
        ] {
            assert!(!call[field].is_null(), "{field} in {call}");
        }
    }
    let spent: u64 = calls
        .iter()
        .map(|c| c["input_tokens"].as_u64().unwrap_or(0) + c["output_tokens"].as_u64().unwrap_or(0))
        .sum();
    assert_eq!(api.goal(&goal).await.unwrap()["spent_tokens"], json!(spent));
    assert!(acceptances(&events).values().all(|n| *n == 1));
    model.verify().unwrap();
    fleet.no_panics().unwrap();
    fleet.oracle().await.unwrap();
}

fn role_of(asked: &Asked) -> &str {
    match asked.schema() {
        "" => "work",
        other => other,
    }
}

#[tokio::test]
async fn a_rejection_travels_to_the_next_attempt_with_its_reason() {
    let model = Model::start(|asked: &Asked| match asked.schema() {
        "plan" => Some(plan(&[ticket("only", &[])])),
        "verdict" if asked.says("second try") => Some(verdict(asked, true)),
        "verdict" => {
            let items =
                json!([{"item": 1, "evidence": "report:1-1", "reason": "nobody is named", "pass": false}]);
            Some(Answer::json(&json!({"items": items, "verdict": "fail"})))
        }
        // The second attempt knows why the first came back.
        "" if asked.says("nobody is named") && asked.turn() == 1 => Some(Answer::call(
            "finish",
            json!({"status": "done", "summary": "second try", "outputs": ["outputs/only.md"]}),
        )),
        "" => Some(work(asked)),
        _ => None,
    })
    .await
    .unwrap();
    let fleet = Fleet::plan().model(&model.url()).start().await.unwrap();
    let api = fleet.api();
    let goal = api.submit(&json!({"text": TEXT})).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    let ticket = api.ticket(&goal, "only").await.unwrap();
    assert_eq!((ticket.attempts, ticket.reviews), (2, 2));
    model.verify().unwrap();
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn i6_c9_a_plan_that_is_unsound_is_refused_with_reasons_and_then_put_to_a_person() {
    let two = |a: &str, b: &str| plan(&[ticket("a", &[a]), ticket("b", &[b])]);
    let cases: Vec<(&str, Answer, &str)> = vec![
        ("a cycle", two("b", "a"), "wait for each other"),
        ("a dangling need", two("t99", "a"), "t99"),
        ("two equal ids", plan(&[ticket("t1", &[]), ticket("t1", &[])]), "t1"),
        ("500 tickets", plan(&(0..500).map(|n| ticket(&format!("t{n}"), &[])).collect::<Vec<_>>()), "500"),
    ];
    let model = Model::start(|_: &Asked| None).await.unwrap();
    let fleet = Fleet::plan().workers(0).reviewers(0).model(&model.url()).start().await.unwrap();
    let api = fleet.api();
    for (what, answer, reason) in cases {
        let before = model.asked().len();
        model.play(move |asked| (asked.schema() == "plan").then(|| answer.clone()));
        let goal = api.submit(&json!({"text": format!("goal with {what}")})).await.unwrap();
        let now = api.reaches(&goal, &["needs_human"]).await.unwrap();
        let asked = model.asked().split_off(before);
        assert_eq!(asked.len(), 3, "{what}: three calls for one plan, whatever the reasons");
        assert!(asked[1].says(reason) && asked[2].says(reason), "{what}: the reason goes back to the model");
        let said = format!("{} {}", now["cause"], now["cause_detail"]);
        assert!(said.contains(reason), "{what}: {said}");
        assert_eq!(api.tickets(&goal).await.unwrap(), [], "{what}: nothing is half-submitted");
    }
    model.verify().unwrap();
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn a_model_that_is_down_garbled_or_stalled_is_named_to_a_person() {
    let mut model = Model::start(|_: &Asked| Some(Answer::garbage())).await.unwrap();
    let fleet = Fleet::plan()
        .workers(0)
        .reviewers(0)
        .model(&model.url())
        .env("MODEL__IDLE_TIMEOUT_MS", "400")
        .env("MODEL__CALL_TIMEOUT_MS", "3000")
        .start()
        .await
        .unwrap();
    let api = fleet.api();
    let scripts: Vec<(&str, Option<Answer>)> = vec![
        ("garbage", Some(Answer::garbage())),
        ("stalls", Some(Answer::Stall)),
        ("slow", Some(Answer::After(Duration::from_secs(20), Box::new(Answer::Text("late".into()))))),
        ("broken", Some(Answer::error(503, "the backend is on fire"))),
        ("locked", Some(Answer::error(401, "no such key"))),
        ("down", None),
    ];
    for (what, answer) in scripts {
        match answer {
            Some(answer) => model.play(move |_| Some(answer.clone())),
            None => model.down(),
        }
        let goal = api.submit(&json!({"text": format!("a goal whose model is {what}")})).await.unwrap();
        let now = api.reaches(&goal, &["needs_human"]).await.unwrap();
        assert!(now["cause"].as_str().is_some_and(|c| c.contains("model")), "{what}: {now}");
        assert!(!now["cause_detail"].as_str().unwrap_or_default().is_empty(), "{what}: {now}");
        let inbox = api.get("/v1/inbox").await.unwrap();
        let open = inbox["decisions"].as_array().unwrap();
        assert!(
            open.iter().any(|d| d["goal"] == json!(goal) && d["expires_at_ms"].as_u64() > Some(0)),
            "{inbox}"
        );
    }
    fleet.no_panics().unwrap();
    // Back again, a person's answer is enough.
    model.up().await.unwrap();
    model.play(company(vec![ticket("only", &[])]));
    let mut fleet = fleet;
    fleet.add(Role::Worker).unwrap();
    fleet.add(Role::Reviewer).unwrap();
    fleet.ready().await.unwrap();
    let inbox = api.get("/v1/inbox").await.unwrap();
    let goal = inbox["decisions"][0]["goal"].as_str().unwrap().to_owned();
    api.post(&format!("/v1/goals/{goal}/answer"), &json!({"text": "it is back"})).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn a_tool_that_is_not_there_and_arguments_that_do_not_fit_go_back_to_the_model() {
    let model = Model::start(|asked: &Asked| match (asked.schema(), asked.turn()) {
        ("plan", _) => Some(plan(&[ticket("only", &[])])),
        ("verdict", _) => Some(verdict(asked, true)),
        ("", 0) => Some(Answer::Calls(vec![
            ("launch_rocket".into(), json!({"to": "moon"})),
            ("write_file".into(), json!({"path": "outputs/only.md"})),
            ("write_file".into(), json!({"path": "../../etc/passwd", "content": "x"})),
            ("read_file".into(), json!([1, 2])),
        ])),
        ("", 1) => {
            let said: Vec<&str> = asked
                .messages()
                .iter()
                .filter(|m| m["role"] == "tool")
                .filter_map(|m| m["content"].as_str())
                .collect();
            let named =
                said[0].contains("launch_rocket") && said[1].contains("content") && said[2].contains("..");
            named.then(|| Answer::call("write_file", json!({"path": "outputs/only.md", "content": "text\n"})))
        }
        ("", 2) => Some(Answer::call(
            "finish",
            json!({"status": "done", "summary": "ok", "outputs": ["outputs/only.md"]}),
        )),
        _ => None,
    })
    .await
    .unwrap();
    let fleet = Fleet::plan().model(&model.url()).start().await.unwrap();
    let api = fleet.api();
    let goal = api.submit(&json!({"text": TEXT})).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    assert_eq!(api.files(&goal).await.unwrap(), ["outputs/only.md"]);
    model.verify().unwrap();
    fleet.no_panics().unwrap();
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn i1_what_is_drawn_is_never_read_back() {
    let model = Model::start(|asked: &Asked| match (asked.schema(), asked.turn()) {
        ("plan", _) => Some(plan(&[ticket("a", &[]), ticket("b", &["a"])])),
        ("verdict", _) => Some(verdict(asked, true)),
        // A worker that edits the plan as it sees it, and says that all is done.
        ("", 0) => Some(Answer::Calls(vec![
            ("write_file".into(), json!({"path": "TODO.md", "content": "everything is done"})),
            ("write_file".into(), json!({"path": "FILE_INDEX.json", "content": "{}"})),
            ("write_file".into(), json!({"path": "temp/scratch.txt", "content": "x"})),
            (
                "write_file".into(),
                json!({"path": format!("outputs/{}.md", key_of(asked)), "content": "text\n"}),
            ),
        ])),
        ("", 1) => Some(Answer::call("finish", json!({"status": "done", "summary": "ok"}))),
        _ => None,
    })
    .await
    .unwrap();
    let fleet = Fleet::plan().model(&model.url()).start().await.unwrap();
    let api = fleet.api();
    let goal = api.submit(&json!({"text": TEXT})).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    assert_eq!(api.ticket(&goal, "b").await.unwrap().attempts, 1, "the second ticket ran all the same");
    let mut files = api.files(&goal).await.unwrap();
    files.sort();
    assert_eq!(files, ["outputs/a.md", "outputs/b.md"]);
    assert!(!api.file(&goal, "TODO.md").await.unwrap().contains("everything is done"));
    let index: serde_json::Value =
        serde_json::from_str(&api.file(&goal, "FILE_INDEX.json").await.unwrap()).unwrap();
    assert!(index.to_string().contains("outputs/a.md"));
    fleet.oracle().await.unwrap();
}
