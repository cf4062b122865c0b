//! Calls that change the world outside: once, whoever dies, and what is not known is a person's question.

use harness::fleet::{Api, Fleet, Role};
use harness::model::{Answer, Asked, Model};
use harness::scale::scale;
use harness::script::{output_of, verdict};
use harness::service::Service;
use harness::wait;
use serde_json::{Value, json};
use shared::ticket::Status;

fn payment() -> Value {
    json!({"order": "A1", "amount": 7})
}

fn pays(review: &str) -> Value {
    let path = output_of("p");
    let judged = json!({"kind": "judged", "text": "it is paid"});
    let checks = if review == "none" { vec![] } else { vec![judged] };
    json!({"id": "p", "description": "pay order A1", "expected_output": path, "role": "general_assistant",
        "tools": ["orders", "files"], "outputs": [path], "review": review, "checks": checks})
}

/// Pays, writes what it heard, reports.
fn agent(asked: &Asked) -> Option<Answer> {
    let path = output_of("p");
    Some(match (asked.schema(), asked.turn()) {
        ("verdict", _) => verdict(asked, asked.says("second try")),
        (_, 0) => Answer::call("pay", payment()),
        (_, 1) => Answer::call("write_file", json!({"path": path, "content": asked.last_result()})),
        _ => {
            let summary = if asked.says("sent it back") { "second try" } else { "first try" };
            Answer::call("finish", json!({"status": "done", "summary": summary, "outputs": [path]}))
        }
    })
}

/// Killed between act and outcome; another worker is there. The decision in the inbox.
async fn in_doubt(fleet: &mut Fleet, service: &Service, goal: &str) -> Value {
    let api = fleet.api();
    let acted = wait::until("the service has acted", scale().patience(), async || {
        Ok((service.done().len() == 1).then_some(()))
    });
    acted.await.unwrap();
    fleet.program(Role::Worker, 0).kill();
    service.answers(200);
    fleet.add(Role::Worker).unwrap();
    api.event(goal, "a person is asked", |e| e.event == "confirmation_asked").await.unwrap();
    let inbox = api.get("/v1/inbox").await.unwrap();
    let open = inbox["decisions"].as_array().unwrap().iter().find(|d| d["goal"] == json!(goal)).cloned();
    open.unwrap_or_else(|| panic!("{inbox}"))
}

async fn paid(api: &Api, goal: &str) -> String {
    api.reaches(goal, &["done"]).await.unwrap();
    api.file(goal, &output_of("p")).await.unwrap()
}

#[tokio::test]
async fn c7_i3_killed_between_act_and_outcome_it_is_in_doubt_and_a_no_settles_it() {
    let service = Service::start().await.unwrap();
    service.silent();
    let model = Model::start(agent).await.unwrap();
    let mut fleet = Fleet::plan().model(&model.url()).file(&service.tools()).start().await.unwrap();
    let api = fleet.api();
    let goal = api.submit_plan("pay A1", &json!([pays("none")])).await.unwrap();
    let open = in_doubt(&mut fleet, &service, &goal).await;
    assert_eq!(open["cause"], "in_doubt", "{open}");
    assert!(open["detail"].as_str().unwrap().contains("may have happened"), "{open}");
    assert_eq!(service.done().len(), 1, "not run again by itself");
    let told = api.ticket(&goal, "p").await.unwrap();
    assert_eq!((told.status, told.permit["doubt"].is_string()), (Status::AwaitingApproval, true), "{told:?}");
    let ran = fleet.muster(&["deny", &format!("{goal}/p"), "receipt R-1 is there"]).await.unwrap();
    assert_eq!(ran.code, 0, "{ran:?}");
    let text = paid(&api, &goal).await;
    assert!(text.contains("receipt R-1 is there"), "the agent hears it: {text}");
    assert_eq!(service.done().len(), 1);
    // The model was asked once what to do first.
    assert_eq!(model.asked().iter().filter(|a| a.turn() == 0).count(), 1);
    model.verify().unwrap();
    fleet.no_panics().unwrap();
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn c7_i3_a_person_who_knows_that_it_did_not_happen_lets_it_run_once_more() {
    let service = Service::start().await.unwrap();
    service.silent();
    let model = Model::start(agent).await.unwrap();
    let mut fleet = Fleet::plan().model(&model.url()).file(&service.tools()).start().await.unwrap();
    let api = fleet.api();
    let goal = api.submit_plan("pay A1", &json!([pays("none")])).await.unwrap();
    in_doubt(&mut fleet, &service, &goal).await;
    fleet.muster(&["approve", &format!("{goal}/p")]).await.unwrap();
    let text = paid(&api, &goal).await;
    assert!(text.contains("R-2"), "{text}");
    let done = service.done();
    assert_eq!(done.len(), 2);
    assert_eq!(done[0].idempotency_key, done[1].idempotency_key, "the service can tell that it is the same");
    assert_eq!(done[0].idempotency_key.len(), 64);
    model.verify().unwrap();
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn an_answer_that_says_nothing_is_in_doubt_and_a_refusal_is_not() {
    let service = Service::start().await.unwrap();
    service.answers(500);
    let model = Model::start(agent).await.unwrap();
    let fleet = Fleet::plan().model(&model.url()).file(&service.tools()).start().await.unwrap();
    let api = fleet.api();
    let goal = api.submit_plan("pay A1", &json!([pays("none")])).await.unwrap();
    let asked = api.event(&goal, "a person is asked", |e| e.event == "confirmation_asked").await.unwrap();
    assert!(asked.detail.contains("doubt"), "{asked:?}");
    service.answers(402);
    fleet.muster(&["approve", &format!("{goal}/p")]).await.unwrap();
    let text = paid(&api, &goal).await;
    assert!(text.contains("refused the call (402)"), "{text}");
    let events = api.events(&goal).await.unwrap();
    assert_eq!(events.iter().filter(|e| e.event == "confirmation_asked").count(), 1);
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn c7_after_a_rejection_the_redo_sees_the_payment_and_does_not_pay_again() {
    let service = Service::start().await.unwrap();
    let model = Model::start(agent).await.unwrap();
    let fleet = Fleet::plan().model(&model.url()).file(&service.tools()).start().await.unwrap();
    let api = fleet.api();
    let goal = api.submit_plan("pay A1", &json!([pays("judged")])).await.unwrap();
    let text = paid(&api, &goal).await;
    assert!(text.contains("Not run again") && text.contains("R-1"), "{text}");
    assert_eq!(service.done().len(), 1);
    let asked = model.asked();
    let redo = asked.iter().rfind(|a| a.schema().is_empty() && a.turn() == 0).unwrap();
    assert!(redo.says("Already done outside") && redo.says("R-1"), "{:?}", redo.body);
    assert_eq!(api.ticket(&goal, "p").await.unwrap().attempts, 2);
    model.verify().unwrap();
    fleet.oracle().await.unwrap();
}
