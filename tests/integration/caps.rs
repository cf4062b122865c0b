//! Every loop ends, and says in whose hands it ended (I11).

use harness::fleet::Fleet;
use harness::model::{Answer, Asked, Model};
use harness::script::{plan, ticket, verdict, work};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[tokio::test]
async fn c4_i11_a_reviewer_that_always_rejects_and_a_manager_that_always_rewrites_end_with_a_person() {
    let edits = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&edits);
    let model = Model::start(move |asked: &Asked| match asked.schema() {
        "plan" => Some(plan(&[ticket("only", &[])])),
        "verdict" => Some(verdict(asked, false)),
        "escalation" => {
            let n = counted.fetch_add(1, Ordering::SeqCst);
            Some(Answer::json(&json!({"action": "rewrite", "reason": "it was unclear",
                "description": format!("write the part, better, edit {n}")})))
        }
        "" => Some(work(asked)),
        _ => None,
    })
    .await
    .unwrap();
    let fleet = Fleet::plan().model(&model.url()).start().await.unwrap();
    let api = fleet.api();
    let goal = api.submit(&json!({"text": "never good enough"})).await.unwrap();
    api.event(&goal, "the ticket is handed over", |e| e.to == "needs_human" && !e.ticket.is_empty())
        .await
        .unwrap();
    let ticket = api.ticket(&goal, "only").await.unwrap();
    assert_eq!((ticket.attempts, ticket.reviews, ticket.counters.interventions), (9, 9, 2));
    assert_eq!(edits.load(Ordering::SeqCst), 2, "the manager's model is not asked a third time");
    let events = api.events(&goal).await.unwrap();
    let count = |word: &str| events.iter().filter(|e| e.event == word).count();
    assert_eq!((count("claimed"), count("review_claimed"), count("rewritten")), (9, 9, 2));

    let inbox = fleet.muster(&["inbox", "--json"]).await.unwrap();
    assert_eq!(inbox.code, 0, "{inbox:?}");
    let text = inbox.stdout.clone();
    assert!(text.contains(&ticket.task_id) && text.contains("expires_at_ms"), "{text}");
    assert!(text.contains("2 times already"), "why: {text}");
    let shown = fleet.muster(&["inbox"]).await.unwrap();
    assert!(shown.stdout.contains("only"), "{shown:?}");
    model.verify().unwrap();
    fleet.oracle().await.unwrap();

    // A person ends it.
    let answer = json!({"decision": "skip", "reason": "not needed", "request_id": "r1", "expected_epoch": ticket.epoch});
    let path = format!("/v1/tickets/{}/answer", ticket.task_id);
    assert_eq!(api.post(&path, &answer).await.unwrap()["outcome"], "ok");
    assert_eq!(api.post(&path, &answer).await.unwrap()["outcome"], "duplicate");
    fleet.oracle().await.unwrap();
}

/// A goal of one ticket whose worker repeats itself as `call` says; how many of its calls the model got.
async fn repeats(call: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> (Fleet, Model, String, usize) {
    let model = Model::start(move |asked: &Asked| match asked.schema() {
        "plan" => Some(plan(&[ticket("only", &[])])),
        "escalation" => {
            Some(Answer::json(&json!({"action": "hand_over", "reason": "it goes round in circles"})))
        }
        "" => Some(call(asked)),
        _ => None,
    })
    .await
    .unwrap();
    let fleet = Fleet::plan().model(&model.url()).start().await.unwrap();
    let api = fleet.api();
    let goal = api.submit(&json!({"text": "turn round"})).await.unwrap();
    api.event(&goal, "the attempt ends", |e| {
        !e.ticket.is_empty() && e.from == "running" && e.to != "running"
    })
    .await
    .unwrap();
    let calls =
        model.asked().iter().filter(|a| a.schema().is_empty()).map(Asked::turn).max().unwrap_or(0) + 1;
    (fleet, model, goal, calls)
}

#[tokio::test]
async fn b1_the_same_call_is_nudged_at_three_and_stopped_at_four() {
    let (fleet, model, goal, calls) = repeats(|asked| {
        // Another order of the keys is the same call.
        let args = if asked.turn() % 2 == 0 {
            json!({"offset_bytes": 0, "path": "a.md"})
        } else {
            json!({"path": "a.md", "offset_bytes": 0})
        };
        Answer::call("read_file", args)
    })
    .await;
    assert_eq!(calls, 4, "a fifth call is never asked for");
    let asked = model.asked();
    let fourth = asked.iter().find(|a| a.schema().is_empty() && a.turn() == 3).unwrap();
    let third = asked.iter().find(|a| a.schema().is_empty() && a.turn() == 2).unwrap();
    assert!(fourth.messages().len() > third.messages().len() + 1, "the nudge is said after the third");
    let end = fleet
        .api()
        .event(&goal, "the failure", |e| e.from == "running" && e.to == "escalated")
        .await
        .unwrap();
    assert!(end.detail.contains("loop"), "not retried unchanged: {end:?}");
    model.verify().unwrap();
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn b1_an_alternation_is_caught_at_six() {
    let (fleet, model, _goal, calls) = repeats(|asked| {
        let path = if asked.turn() % 2 == 0 { "a.md" } else { "b.md" };
        Answer::call("read_file", json!({"path": path}))
    })
    .await;
    assert_eq!(calls, 6);
    model.verify().unwrap();
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn b1_steps_end_although_every_call_differs() {
    let model = Model::start(|asked: &Asked| match asked.schema() {
        "plan" => Some(plan(&[ticket("only", &[])])),
        "escalation" => Some(Answer::json(&json!({"action": "hand_over", "reason": "no end"}))),
        "" => Some(Answer::call("read_file", json!({"path": format!("file-{}.md", asked.nth)}))),
        _ => None,
    })
    .await
    .unwrap();
    let fleet = Fleet::plan().model(&model.url()).env("WORKER__STEPS_MAX", "8").start().await.unwrap();
    let api = fleet.api();
    let goal = api.submit(&json!({"text": "go on and on"})).await.unwrap();
    api.event(&goal, "the ticket is handed over", |e| e.to == "needs_human" && !e.ticket.is_empty())
        .await
        .unwrap();
    let deepest = model.asked().iter().filter(|a| a.schema().is_empty()).map(Asked::turn).max().unwrap();
    assert!(deepest < 8, "an attempt of {deepest} turns");
    let ticket = api.ticket(&goal, "only").await.unwrap();
    assert!(ticket.attempts <= 3, "{}", ticket.attempts);
    model.verify().unwrap();
    fleet.oracle().await.unwrap();
}
