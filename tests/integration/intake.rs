//! Ways in: a plan that a person approves first, and quick requests that are routed.

use harness::fleet::{Api, Fleet, Role};
use harness::model::{Answer, Asked, Model};
use harness::script::{key_of, plan, ticket, verdict, work};
use serde_json::{Value, json};

const INTENTS: &str = r#"
[[intake.intents]]
name = "order"
description = "Where an order is."
[[intake.intents]]
name = "returns"
description = "How goods are sent back."
"#;
const BOTH: &str = "Where is order A1 and what is the return policy?";

async fn plan_waits(api: &Api, goal: &str) -> Value {
    let now = api.reaches(goal, &["needs_human"]).await.unwrap();
    assert_eq!(now["cause"], "plan_approval", "{now}");
    assert_eq!(api.tickets(goal).await.unwrap(), [], "nothing of the plan is there yet");
    let inbox = api.get("/v1/inbox").await.unwrap();
    let open = inbox["decisions"].as_array().unwrap().clone();
    open.into_iter().find(|d| d["goal"] == json!(goal)).unwrap()
}

/// Its first plan has `draft`; after a denial it has `second` instead.
fn company(asked: &Asked) -> Option<Answer> {
    match asked.schema() {
        "plan" if asked.says("no draft, please") => Some(plan(&[ticket("second", &[])])),
        "plan" => Some(plan(&[ticket("draft", &[]), ticket("whole", &["draft"])])),
        "verdict" => Some(verdict(asked, true)),
        "" => Some(work(asked)),
        _ => None,
    }
}

#[tokio::test]
async fn d4_i7_a_plan_waits_for_its_approval_across_a_restart_of_everything() {
    let model = Model::start(company).await.unwrap();
    let mut fleet = Fleet::plan().model(&model.url()).start().await.unwrap();
    let api = fleet.api();
    let goal = api.submit(&json!({"text": "write it", "approve_plan": true})).await.unwrap();
    let before = plan_waits(&api, &goal).await;
    let detail = before["detail"].as_str().unwrap();
    assert!(detail.contains("- whole (summarizer, after draft): write the part whole"), "{detail}");
    assert!(
        before["expires_at_ms"].as_u64() > Some(0)
            && before["choices"][0].as_str().unwrap().starts_with("approve")
    );

    for role in [Role::Manager, Role::Worker, Role::Reviewer] {
        fleet.program(role, 0).kill();
    }
    fleet.redis.stop().await.unwrap();
    fleet.redis.restart().await.unwrap();
    for role in [Role::Manager, Role::Worker, Role::Reviewer] {
        fleet.program(role, 0).start().unwrap();
    }
    fleet.ready().await.unwrap();
    let after = plan_waits(&api, &goal).await;
    assert_eq!(after, before);

    // Words alone are no approval.
    let refused = api.refused(&format!("/v1/goals/{goal}/answer"), &json!({"text": "nice"})).await.unwrap();
    assert_eq!(refused.status, 409, "{refused}");
    let ran = fleet.muster(&["approve", &goal]).await.unwrap();
    assert_eq!(ran.code, 0, "{ran:?}");
    api.reaches(&goal, &["done"]).await.unwrap();
    assert_eq!(model.asked().iter().filter(|a| a.schema() == "plan").count(), 1, "the stored plan ran");
    let events = api.events(&goal).await.unwrap();
    assert_eq!(events.iter().filter(|e| e.event == "plan_approved").count(), 1);
    // Approved once; nobody asks again.
    let again = json!({"decision": "approve", "text": ""});
    assert_eq!(api.refused(&format!("/v1/goals/{goal}/answer"), &again).await.unwrap().status, 409);
    model.verify().unwrap();
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn a_denied_plan_is_made_anew_with_the_persons_words() {
    let model = Model::start(company).await.unwrap();
    let fleet = Fleet::plan().model(&model.url()).start().await.unwrap();
    let api = fleet.api();
    let goal = api.submit(&json!({"text": "write it", "approve_plan": true})).await.unwrap();
    plan_waits(&api, &goal).await;
    let ran = fleet.muster(&["deny", &goal, "no draft, please"]).await.unwrap();
    assert_eq!(ran.code, 0, "{ran:?}");
    api.event(&goal, "a second plan is stored", {
        let mut stored = 0;
        move |e| {
            stored =
                if e.event == "goal_submitted" { 0 } else { stored + usize::from(e.event == "plan_stored") };
            stored == 2
        }
    })
    .await
    .unwrap();
    let again = plan_waits(&api, &goal).await;
    assert!(again["detail"].as_str().unwrap().contains("- second"), "{again}");
    let second: Vec<Asked> = model.asked().into_iter().filter(|a| a.says("no draft, please")).collect();
    assert!(
        second.iter().any(|a| a.says("Your plan was denied") && a.says("- whole (summarizer, after draft)"))
    );
    let ran = fleet.muster(&["answer", &goal, "--approve", "--note", "good"]).await.unwrap();
    assert_eq!(ran.code, 0, "{ran:?}");
    api.reaches(&goal, &["done"]).await.unwrap();
    assert_eq!(api.files(&goal).await.unwrap(), ["outputs/second.md"]);

    // A plan that was given can be mended by nobody but its writer.
    let given = json!({"text": "x", "approve_plan": true, "plan": {"goal": {"text": "x"}, "tickets": [
        harness::script::quick("a", &[])]}});
    let goal = api.submit(&given).await.unwrap();
    plan_waits(&api, &goal).await;
    fleet.muster(&["deny", &goal, "not this"]).await.unwrap();
    let ended = api.reaches(&goal, &["cancelled"]).await.unwrap();
    assert_eq!((&ended["cause"], &ended["cause_detail"]), (&json!("plan_denied"), &json!("not this")));
    model.verify().unwrap();
    fleet.oracle().await.unwrap();
}

fn answers(asked: &Asked) -> Option<Answer> {
    let finish = |words: &str| Some(Answer::call("finish", json!({"status": "done", "summary": words})));
    match asked.schema() {
        "route" => {
            let score = |name: &str, score: f64| json!({"name": name, "score": score});
            let intents = match (asked.says("order A1"), asked.says("return policy")) {
                (true, true) => json!([score("order", 0.9), score("returns", 0.8), score("weather", 0.9)]),
                (true, false) => json!([score("order", 0.9), score("returns", 0.2)]),
                _ => json!([score("order", 0.1)]),
            };
            Some(Answer::json(&json!({"intents": intents})))
        }
        "" => match key_of(asked).as_str() {
            "order" => finish("A1 is on its way."),
            "returns" => finish("Thirty days."),
            // Words without a call: with nothing else to do they are the answer.
            "merge" => Some(Answer::Text("A1 is on its way; you have thirty days.".into())),
            _ => None,
        },
        _ => None,
    }
}

#[tokio::test]
async fn two_intents_are_answered_in_parallel_and_merged_by_one_call() {
    let model = Model::start(answers).await.unwrap();
    let fleet = Fleet::plan().model(&model.url()).file(INTENTS).start().await.unwrap();
    let api = fleet.api();
    let ran = fleet.muster(&["run", "--route", BOTH]).await.unwrap();
    assert_eq!((ran.code, ran.stdout.trim()), (0, "A1 is on its way; you have thirty days."), "{ran:?}");
    let goals = api.get("/v1/goals").await.unwrap();
    let goal = goals["goals"][0]["id"].as_str().unwrap().to_owned();
    let tickets = api.tickets(&goal).await.unwrap();
    let keys: Vec<&str> = tickets.iter().map(|t| t.key.as_str()).collect();
    assert_eq!(keys, ["order", "returns", "merge"], "a name that nobody knows is dropped");
    // Neither waits for the other, and the merge for both.
    assert!(tickets[0].needs.is_empty() && tickets[1].needs.is_empty());
    assert_eq!(tickets[2].needs, [tickets[0].task_id.clone(), tickets[1].task_id.clone()]);
    let asked = model.asked();
    let calls = |key: &str| asked.iter().filter(|a| key_of(a) == key).count();
    assert_eq!((calls("order"), calls("returns"), calls("merge"), asked.len()), (1, 1, 1, 4));
    let merge = asked.iter().find(|a| key_of(a) == "merge").unwrap();
    assert!(merge.says("A1 is on its way.") && merge.says("Thirty days.") && merge.says(BOTH));
    model.verify().unwrap();
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn one_intent_is_passed_through_and_gibberish_asks_to_be_clearer_without_a_worker() {
    let model = Model::start(answers).await.unwrap();
    let fleet = Fleet::plan().model(&model.url()).file(INTENTS).start().await.unwrap();
    let api = fleet.api();
    let ran = fleet.muster(&["run", "--route", "--json", "Where is order A1?"]).await.unwrap();
    let said: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((ran.code, &said["answer"]), (0, &json!("A1 is on its way.")));
    assert_eq!(model.asked().len(), 2, "one classification, one answer");

    let goal = api.submit(&json!({"text": "wrzlbrmpft", "intake": "route"})).await.unwrap();
    let now = api.reaches(&goal, &["needs_human"]).await.unwrap();
    assert_eq!(now["cause"], "unclear", "{now}");
    assert!(now["cause_detail"].as_str().unwrap().contains("How goods are sent back."), "{now}");
    assert_eq!((model.asked().len(), api.tickets(&goal).await.unwrap().len()), (3, 0));
    // Said more clearly, it is answered.
    let ran = fleet.muster(&["answer", &goal, "I mean order A1"]).await.unwrap();
    assert_eq!(ran.code, 0, "{ran:?}");
    api.reaches(&goal, &["done"]).await.unwrap();
    assert_eq!(api.tickets(&goal).await.unwrap()[0].result["summary"], "A1 is on its way.");

    let planned = json!({"text": "x", "intake": "route", "plan": {"goal": {"text": "x"}, "tickets": [
        harness::script::quick("a", &[])]}});
    assert_eq!(api.refused("/v1/goals", &planned).await.unwrap().status, 400);
    model.verify().unwrap();
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn an_intent_that_fails_does_not_take_the_others_answer_with_it() {
    let model = Model::start(|asked: &Asked| match key_of(asked).as_str() {
        "order" if asked.schema().is_empty() => {
            Some(Answer::call("finish", json!({"status": "failed", "summary": "no such order"})))
        }
        "merge" => Some(Answer::Text("Thirty days; of the order nothing is known.".into())),
        _ if asked.schema() == "escalation" => {
            Some(Answer::json(&json!({"action": "hand_over", "reason": "nobody knows the order"})))
        }
        _ => answers(asked),
    })
    .await
    .unwrap();
    let fleet = Fleet::plan().model(&model.url()).file(INTENTS).start().await.unwrap();
    let api = fleet.api();
    let goal = api.submit(&json!({"text": BOTH, "intake": "route"})).await.unwrap();
    api.event(&goal, "a person is asked", |e| e.key == "order" && e.to == "needs_human").await.unwrap();
    let ran = fleet.muster(&["answer", &format!("{goal}/order"), "--skip"]).await.unwrap();
    assert_eq!(ran.code, 0, "{ran:?}");
    api.reaches(&goal, &["done"]).await.unwrap();
    let merged = api.ticket(&goal, "merge").await.unwrap();
    assert_eq!(merged.result["summary"], "Thirty days; of the order nothing is known.");
    fleet.oracle().await.unwrap();
}
