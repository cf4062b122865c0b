//! A worker dies in the middle of an attempt: another goes on from the last finished step.

use harness::fleet::{Fleet, Role};
use harness::model::{Answer, Asked, Model};
use harness::scale::scale;
use harness::script::{output_of, ticket, verdict};
use harness::service::Service;
use harness::wait;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const STEPS: usize = 10;

/// Step by step: a line to the file, at the third one a payment, at the end the report.
fn step(turn: usize) -> Answer {
    match turn {
        2 => Answer::call("pay", json!({"order": "A1", "amount": 7})),
        n if n + 1 < STEPS => {
            Answer::call("append_file", json!({"path": output_of("long"), "content": format!("line {n}\n")}))
        }
        _ => Answer::call(
            "finish",
            json!({"status": "done", "summary": "all lines", "outputs": [output_of("long")]}),
        ),
    }
}

#[tokio::test]
async fn c2_killed_at_step_7_of_10_another_worker_goes_on_at_step_8() {
    let service = Service::start().await.unwrap();
    let hangs = Arc::new(AtomicBool::new(true));
    let still = Arc::clone(&hangs);
    let model = Model::start(move |asked: &Asked| {
        // The eighth question is never answered to the first worker.
        if asked.turn() == 7 && still.load(Ordering::SeqCst) {
            return Some(Answer::Stall);
        }
        Some(step(asked.turn()))
    })
    .await
    .unwrap();
    // Some steps in Redis, the longer ones in blobs.
    let plan =
        Fleet::plan().model(&model.url()).file(&service.tools()).env("WORKER__STEP_BYTES_INLINE_MAX", "700");
    let mut fleet = plan.env("MODEL__IDLE_TIMEOUT_MS", "60000").start().await.unwrap();
    let api = fleet.api();
    let long = json!({"id": "long", "description": "write ten lines", "expected_output": output_of("long"),
        "role": "general_assistant", "tools": ["orders", "files"], "outputs": [output_of("long")], "review": "none"});
    let goal = api.submit_plan("ten lines", &json!([long])).await.unwrap();
    let eighth = wait::until("the eighth question is asked", scale().patience(), async || {
        Ok(model.asked().iter().any(|a| a.turn() == 7).then_some(()))
    });
    eighth.await.unwrap();
    fleet.program(Role::Worker, 0).kill();
    hangs.store(false, Ordering::SeqCst);
    fleet.add(Role::Worker).unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();

    let turns: Vec<usize> = model.asked().iter().map(Asked::turn).collect();
    let want: Vec<usize> = (0..=7).chain(7..STEPS).collect();
    assert_eq!(turns, want, "no question of the steps 1 to 7 was asked again");
    let lines: Vec<String> = (0..STEPS - 1).filter(|n| *n != 2).map(|n| format!("line {n}\n")).collect();
    assert_eq!(api.file(&goal, &output_of("long")).await.unwrap(), lines.concat());
    assert_eq!(service.done().len(), 1, "the payment of step 3 was made once");
    let ticket = api.ticket(&goal, "long").await.unwrap();
    assert_eq!((ticket.attempts, ticket.counters.losses, ticket.counters.faults), (2, 1, 0));
    // Nobody goes on from the steps of a ticket that is done.
    let left: Vec<String> = fleet.redis.keys().await.unwrap();
    assert!(!left.iter().any(|k| k.ends_with(":s")), "{left:?}");
    model.verify().unwrap();
    fleet.no_panics().unwrap();
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn a_rejected_attempt_begins_anew_with_the_comment() {
    let model = Model::start(|asked: &Asked| match asked.schema() {
        "plan" => Some(harness::script::plan(&[ticket("only", &[])])),
        "verdict" => Some(verdict(asked, asked.says("second try"))),
        "" if asked.turn() == 0 => {
            Some(Answer::call("write_file", json!({"path": output_of("only"), "content": "text"})))
        }
        "" => {
            let summary = if asked.says("sent it back") { "second try" } else { "first try" };
            Some(Answer::call(
                "finish",
                json!({"status": "done", "summary": summary, "outputs": [output_of("only")]}),
            ))
        }
        _ => None,
    })
    .await
    .unwrap();
    let fleet = Fleet::plan().model(&model.url()).start().await.unwrap();
    let api = fleet.api();
    let goal = api.submit(&json!({"text": "a text"})).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    let work: Vec<usize> = model.asked().iter().filter(|a| a.schema().is_empty()).map(Asked::turn).collect();
    assert_eq!(work, [0, 1, 0, 1], "not from where the rejected one stopped");
    model.verify().unwrap();
    fleet.oracle().await.unwrap();
}
