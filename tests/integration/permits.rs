//! Calls that a person confirms: exactly the stored call, once, or never (I7). The ledger is a service outside.

use harness::desk::{Desk, expect, spec};
use harness::fleet::{Api, Fleet, Role};
use harness::model::{Answer, Asked, Model};
use harness::script::{key_of, output_of};
use harness::service::Service;
use serde_json::{Value, json};
use shared::store::{Answered, Patched, Permit, PersonDecision, Written};
use shared::ticket::patch::{Edit, PatchOp};
use shared::ticket::{ReviewPolicy, Status, new_id};
use shared::tool;

/// An agent's ticket with the tools of the service.
fn refund(id: &str) -> Value {
    let path = output_of(id);
    json!({"id": id, "description": "refund order A1", "expected_output": path, "role": "general_assistant",
        "tools": ["orders", "files"], "outputs": [path], "review": "none"})
}

fn args(amount: u64) -> Value {
    json!({"order": "A1", "amount": amount})
}

/// Writes its file and asks for the refund in one turn, then finishes.
fn agent(asked: &Asked) -> Option<Answer> {
    let path = output_of(&key_of(asked));
    Some(match asked.turn() {
        0 => Answer::Calls(vec![
            ("write_file".into(), json!({"path": path, "content": "refunded"})),
            ("refund".into(), args(10)),
            ("list_files".into(), json!({})),
        ]),
        _ => Answer::call("finish", json!({"status": "done", "summary": "it is settled", "outputs": [path]})),
    })
}

async fn waits(api: &Api, goal: &str) -> Value {
    api.event(goal, "a person is asked", |e| e.event == "confirmation_asked").await.unwrap();
    let inbox = api.get("/v1/inbox").await.unwrap();
    let decisions = inbox["decisions"].as_array().unwrap();
    decisions.iter().find(|d| d["goal"] == json!(goal)).unwrap_or_else(|| panic!("{inbox}")).clone()
}

/// The tool results of the turn that asked.
fn heard(model: &Model) -> Vec<String> {
    let asked = model.asked();
    let last = asked.iter().rev().find(|a| a.turn() == 1).unwrap();
    let results = last.messages().iter().filter(|m| m["role"] == "tool");
    results.map(|m| m["content"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn d4_i7_a_refund_waits_across_a_restart_of_everything_and_runs_once_as_stored() {
    let service = Service::start().await.unwrap();
    let model = Model::start(agent).await.unwrap();
    let mut fleet = Fleet::plan().model(&model.url()).file(&service.tools()).start().await.unwrap();
    let api = fleet.api();
    let goal = api.submit_plan("settle A1", &json!([refund("r")])).await.unwrap();
    let digest = tool::digest("refund", &args(10));
    let before = waits(&api, &goal).await;
    assert!(before["detail"].as_str().unwrap().contains(&digest), "{before}");
    assert_eq!(before["cause"], "confirmation");
    assert_eq!(service.done(), []);

    for role in [Role::Manager, Role::Worker, Role::Reviewer] {
        fleet.program(role, 0).kill();
    }
    fleet.redis.stop().await.unwrap();
    fleet.redis.restart().await.unwrap();
    for role in [Role::Manager, Role::Worker, Role::Reviewer] {
        fleet.program(role, 0).start().unwrap();
    }
    fleet.ready().await.unwrap();
    assert_eq!(waits(&api, &goal).await, before);
    let inbox = api.get("/v1/inbox").await.unwrap();
    assert_eq!(inbox["decisions"].as_array().unwrap().len(), 1, "listed once: {inbox}");

    let ran = fleet.muster(&["approve", &format!("{goal}/r")]).await.unwrap();
    assert_eq!(ran.code, 0, "{ran:?}");
    api.reaches(&goal, &["done"]).await.unwrap();
    let done = service.done();
    assert_eq!(done.len(), 1, "{done:?}");
    assert_eq!((done[0].path.as_str(), &done[0].body), ("/refund/A1", &json!({"amount": 10})));
    // The model was not asked again what to do, and every call of its turn is answered once, in order.
    let turns: Vec<usize> = model.asked().iter().map(Asked::turn).collect();
    assert_eq!(turns, [0, 1]);
    let heard = heard(&model);
    assert!(
        heard[0].contains("wrote") && heard[1].contains("R-1") && heard[2].contains("outputs/r.md"),
        "{heard:?}"
    );
    // Single use.
    let again = fleet.muster(&["approve", &format!("{goal}/r")]).await.unwrap();
    assert_ne!(again.code, 0, "{again:?}");
    model.verify().unwrap();
    fleet.no_panics().unwrap();
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn i7_a_denied_refund_never_runs_and_the_agent_hears_why() {
    let service = Service::start().await.unwrap();
    let model = Model::start(agent).await.unwrap();
    let fleet = Fleet::plan().model(&model.url()).file(&service.tools()).start().await.unwrap();
    let api = fleet.api();
    let goal = api.submit_plan("settle A1", &json!([refund("r")])).await.unwrap();
    waits(&api, &goal).await;
    let ran = fleet.muster(&["deny", &format!("{goal}/r"), "it was delivered"]).await.unwrap();
    assert_eq!(ran.code, 0, "{ran:?}");
    api.reaches(&goal, &["done"]).await.unwrap();
    assert!(heard(&model)[1].contains("denied (it was delivered)"), "{:?}", heard(&model));
    assert_eq!(service.done(), []);
    model.verify().unwrap();
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn i7_an_edited_refund_runs_with_the_persons_arguments_under_a_digest_of_its_own() {
    let service = Service::start().await.unwrap();
    let model = Model::start(agent).await.unwrap();
    let fleet = Fleet::plan().model(&model.url()).file(&service.tools()).start().await.unwrap();
    let api = fleet.api();
    let goal = api.submit_plan("settle A1", &json!([refund("r")])).await.unwrap();
    waits(&api, &goal).await;
    let edited = tool::digest("refund", &args(4));
    let name = format!("{goal}/r");
    let ran = fleet.muster(&["approve", &name, "--args", r#"{"amount":4,"order":"A1"}"#]).await.unwrap();
    assert_eq!(ran.code, 0, "{ran:?}");
    api.reaches(&goal, &["done"]).await.unwrap();
    let done = service.done();
    assert_eq!(done.iter().map(|d| &d.body).collect::<Vec<_>>(), [&json!({"amount": 4})]);
    let ticket = api.ticket(&goal, "r").await.unwrap();
    assert_eq!(ticket.permit["digest"], json!(edited), "{}", ticket.permit);
    assert_eq!(ticket.permit["asked_digest"], json!(tool::digest("refund", &args(10))));
    let events = api.events(&goal).await.unwrap();
    assert!(events.iter().any(|e| e.event == "approved" && e.detail.contains(&edited)), "the log shows it");
    model.verify().unwrap();
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn d7_i7_without_an_approver_it_never_runs_and_an_expiry_is_a_no() {
    let service = Service::start().await.unwrap();
    let model = Model::start(agent).await.unwrap();
    let nobody = Fleet::plan().model(&model.url()).file(&service.tools()).env("TOOLS__APPROVALS", "false");
    let fleet = nobody.start().await.unwrap();
    let api = fleet.api();
    let goal = api.submit_plan("settle A1", &json!([refund("r")])).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    assert!(heard(&model)[1].contains("nobody can be asked"), "{:?}", heard(&model));
    assert_eq!(service.done(), []);
    fleet.oracle().await.unwrap();
    drop(fleet);

    let nobody_in_time = Fleet::plan().model(&model.url()).file(&service.tools());
    let fleet = nobody_in_time.lease(|l| l.person_expiry_ms = 300).start().await.unwrap();
    let api = fleet.api();
    let goal = api.submit_plan("settle A1", &json!([refund("r")])).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    assert!(heard(&model)[1].contains("denied (expired)"), "{:?}", heard(&model));
    assert_eq!(service.done(), []);
    model.verify().unwrap();
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn i7_a_direct_call_waits_for_its_confirmation_too() {
    let service = Service::start().await.unwrap();
    let fleet = Fleet::plan().file(&service.tools()).start().await.unwrap();
    let api = fleet.api();
    let direct = json!({"id": "r", "description": "refund A1", "expected_output": "a receipt", "tool": "refund",
        "args": args(3), "review": "none"});
    let goal = api.submit_plan("settle A1", &json!([direct])).await.unwrap();
    waits(&api, &goal).await;
    assert_eq!(service.done(), []);
    fleet.muster(&["approve", &format!("{goal}/r")]).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    assert_eq!(service.done().len(), 1);
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn d4_i7_a_ticket_that_the_plan_changes_while_it_waits_never_runs_the_old_call() {
    let service = Service::start().await.unwrap();
    let words = "call the customer first";
    let model = Model::start(move |asked: &Asked| match asked.schema() {
        "replan" => Some(Answer::json(&json!({"reason": "a person said so", "next": "go_on",
            "modify": [{"id": "r", "description": words}]}))),
        // With the new words nobody asks for the refund any more.
        "" if asked.says(words) => Some(match asked.turn() {
            0 => Answer::call("write_file", json!({"path": output_of("r"), "content": "called"})),
            _ => Answer::call(
                "finish",
                json!({"status": "done", "summary": "called", "outputs": [output_of("r")]}),
            ),
        }),
        "" => agent(asked),
        _ => None,
    });
    let model = model.await.unwrap();
    let fleet = Fleet::plan().model(&model.url()).file(&service.tools()).start().await.unwrap();
    let api = fleet.api();
    let goal = api.submit_plan("settle A1", &json!([refund("r")])).await.unwrap();
    waits(&api, &goal).await;
    let asked = api.ticket(&goal, "r").await.unwrap();
    api.post(&format!("/v1/goals/{goal}/note"), &json!({"text": words})).await.unwrap();
    api.event(&goal, "the note was heard", |e| e.event == "modified" && e.key == "r").await.unwrap();
    let late = json!({"decision": "approve", "request_id": "late", "expected_epoch": asked.epoch});
    let path = format!("/v1/tickets/{}/answer", asked.task_id);
    api.refused(&path, &late).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    assert_eq!(service.done(), []);
    assert_eq!(api.file(&goal, &output_of("r")).await.unwrap(), "called");
    assert_eq!(api.ticket(&goal, "r").await.unwrap().permit, Value::Null, "the permit is void");
    model.verify().unwrap();
    fleet.no_panics().unwrap();
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn i7_a_ticket_that_changed_meanwhile_has_no_permit_any_more() {
    let desk = Desk::start().await.unwrap();
    let plan = desk.plan(&[spec("a", &[], ReviewPolicy::None)]).await.unwrap();
    let claim = desk.one().await.unwrap();
    let permit = Permit {
        digest: tool::digest("refund", &args(10)),
        tool: "refund".into(),
        args: args(10),
        state: "asked".into(),
        ..Permit::default()
    };
    expect(desk.store.park(&claim.held, &permit, 60_000).await.unwrap(), Written::Ok).unwrap();
    let id = plan.id("a");
    let asked = desk.ticket(id).await.unwrap();
    desk.store.note(&plan.goal, "tester", "call the manager").await.unwrap();
    let step = desk.manage().await.unwrap().unwrap();
    let edit = Edit { description: Some("other work".into()), ..Edit::default() };
    let ops = [PatchOp::Modify { id: id.into(), epoch: asked.epoch, edit: Box::new(edit) }];
    let version = step.goal.plan_version;
    let patched = desk.store.patch(&step.held, &new_id(), version, step.read, &ops).await.unwrap();
    assert!(matches!(patched, Patched::Ok { .. }), "{patched:?}");
    desk.finish(&step, 0).await.unwrap();
    let yes = PersonDecision::Approve { args: None };
    let late = desk.store.answer(id, asked.epoch, "r1", "person", &yes).await.unwrap();
    assert_eq!(late, Answered::Stale);
    let late = desk.store.answer(id, 0, "r2", "person", &yes).await.unwrap();
    assert!(matches!(late, Answered::Refused(_)), "{late:?}");
    let now = desk.one().await.unwrap();
    assert_eq!((now.ticket.status, &now.ticket.permit), (Status::Running, &Value::Null));
    assert!(!desk.store.permit_use(&now.held).await.unwrap());
    desk.oracle().await.unwrap();
}
