//! A fleet that other agents use over MCP: a worker of one fleet, with the client that it has, hands a goal to another.

use harness::fleet::{Fleet, Role};
use harness::model::{Answer, Asked, Model};
use harness::script::output_of;
use regex::Regex;
use serde_json::json;

#[tokio::test]
async fn an_agent_hands_a_goal_to_another_fleet_and_reads_how_it_stands() {
    let other = Fleet::plan().workers(0).reviewers(0).start().await.unwrap();
    let made = json!({"name": "agents", "scopes": ["read", "submit"]});
    let token = other.api().post("/v1/tokens", &made).await.unwrap()["token"].as_str().unwrap().to_owned();
    let server = format!(
        "[[tools.mcp]]\nname = \"fleet\"\nbundle = \"elsewhere\"\ndescription = \"another fleet\"\nurl = \"{}/mcp\"\n\
         token_env = \"OTHER_FLEET_TOKEN\"\nreads = [\"status\", \"list_files\", \"read_file\"]\n",
        other.api().base()
    );
    let id = Regex::new("[0-9a-f]{32}").unwrap();
    let model = Model::start(move |asked: &Asked| {
        let goal = || id.find(asked.last_result()).map(|m| m.as_str().to_owned());
        let path = output_of("t");
        Some(match asked.turn() {
            0 => Answer::call("fleet_submit", json!({"text": "count the words", "idempotency_key": "once"})),
            1 => Answer::call("fleet_status", json!({"goal": goal()?})),
            2 => Answer::call("fleet_read_file", json!({"goal": goal()?, "path": "TODO.md"})),
            3 => Answer::call("write_file", json!({"path": path, "content": asked.last_result()})),
            _ => Answer::call("finish", json!({"status": "done", "summary": "handed on", "outputs": [path]})),
        })
    });
    let model = model.await.unwrap();
    let mut fleet = Fleet::plan().model(&model.url()).file(&server).workers(0).start().await.unwrap();
    fleet.add_program_with(Role::Worker, &[("OTHER_FLEET_TOKEN", &token)]).unwrap();
    let api = fleet.api();
    let ticket = json!({"id": "t", "description": "hand it on", "expected_output": output_of("t"),
        "role": "general_assistant", "tools": ["elsewhere", "files"], "outputs": [output_of("t")], "review": "none"});
    let goal = api.submit_plan("hand it on", &json!([ticket])).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    // What the other fleet says of it, through the agent's eyes.
    assert!(api.file(&goal, &output_of("t")).await.unwrap().contains("count the words"));
    let seen = &other.api().get("/v1/goals").await.unwrap()["goals"];
    assert_eq!(seen.as_array().map(Vec::len), Some(1), "{seen}");
    assert_eq!(seen[0]["text"], "count the words");
    assert!(!fleet.logs().contains(&token) && !other.logs().contains(&token), "a token stands in a log");
    model.verify().unwrap();
    fleet.no_panics().unwrap();
    fleet.oracle().await.unwrap();
    other.oracle().await.unwrap();
}
