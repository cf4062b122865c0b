//! Down the ladder of dialects: at a refusal, at once, and remembered.

use super::*;

fn refused(message: &str) -> Answer {
    Answer::error(400, message, "invalid_request_error")
}

fn dialects(reply: &Reply) -> Vec<&str> {
    reply.records.iter().map(|r| r.dialect.as_str()).collect()
}

#[tokio::test]
async fn a16_a17_refused_rungs_are_left_at_once_and_for_all() {
    let fake = Fake::start(vec![
        refused("m:latest does not support tools"),
        refused("This response_format type is unavailable now"),
        said("<tool_call><function>search</function><args>{\"q\": \"x\"}</args></tool_call>"),
        said("found"),
    ])
    .await;
    let model = Model::new(&config(&fake)).unwrap();
    let reply = chat_with(&model, &hello(), &tools()).await.unwrap();
    assert_eq!(dialects(&reply), ["native", "json", "xml"]);
    assert_eq!(reply.calls, vec![call("call_0_0", "search", json!({"q": "x"}))]);
    let reply = chat_with(&model, &hello(), &tools()).await.unwrap();
    assert_eq!((dialects(&reply), reply.text.as_str()), (vec!["xml"], "found"));
    let sent = fake.requests();
    assert!(sent[0]["tools"].is_array() && sent[0].get("response_format").is_none());
    assert_eq!(sent[1]["response_format"], json!({"type": "json_object"}));
    assert!(sent[2].get("tools").is_none() && sent[2].get("response_format").is_none());
}

#[tokio::test]
async fn a_model_that_twice_misses_the_form_goes_one_rung_down() {
    let broken = || said("<tool_call><function>search</function><args>{\"q\": \"x");
    let fake = Fake::start(vec![
        refused("m does not support tools"),
        refused("json_object is not supported"),
        broken(),
        broken(),
        said("TOOL: search\nARGS: {\"q\": \"x\"}"),
        said("done"),
    ])
    .await;
    let mut five = config(&fake);
    five.calls_per_answer_max = 5;
    let model = Model::new(&five).unwrap();
    let reply = chat_with(&model, &hello(), &tools()).await.unwrap();
    assert_eq!(dialects(&reply), ["native", "json", "xml", "xml", "text"]);
    assert_eq!(reply.calls, vec![call("call_0_0", "search", json!({"q": "x"}))]);
    assert_eq!(chat_with(&model, &hello(), &tools()).await.unwrap().records[0].dialect, "text");
    let turns: Vec<usize> = fake.requests().iter().map(|r| r["messages"].as_array().unwrap().len()).collect();
    // The repair shows the broken call; the new dialect begins without it.
    assert_eq!(turns, [2, 2, 2, 4, 2, 2]);
}

#[tokio::test]
async fn a16_a_forced_native_dialect_says_so_instead_of_trying_again() {
    let fake = Fake::start(vec![refused("m:latest does not support tools")]).await;
    let mut forced = config(&fake);
    forced.dialect = config::Dialect::Native;
    let error = chat_with(&Model::new(&forced).unwrap(), &hello(), &tools()).await.unwrap_err();
    assert_eq!((error.class, error.records.len()), (ErrorClass::Ours, 1));
    assert!(
        error.detail.contains("does not support tools") && error.detail.contains("model.dialect"),
        "{error}"
    );
}

#[tokio::test]
async fn a17_a_forced_json_dialect_goes_on_without_json_mode() {
    let call = "{\"tool_calls\": [{\"name\": \"search\", \"arguments\": {\"q\": \"x\"}}]}";
    let fake =
        Fake::start(vec![refused("response_format json_object is not supported"), said(call), said(call)])
            .await;
    let mut forced = config(&fake);
    forced.dialect = config::Dialect::Json;
    let model = Model::new(&forced).unwrap();
    let reply = chat_with(&model, &hello(), &tools()).await.unwrap();
    assert_eq!((dialects(&reply), reply.calls.len()), (vec!["json", "json"], 1));
    assert_eq!(chat_with(&model, &hello(), &tools()).await.unwrap().requests, 1);
    assert!(fake.requests()[1].get("response_format").is_none());
}

#[tokio::test]
async fn words_of_the_user_after_results_come_in_one_message() {
    let fake = Fake::start(vec![said("{\"answer\": \"ok\"}")]).await;
    let mut forced = config(&fake);
    forced.dialect = config::Dialect::Json;
    let mut messages = hello();
    let calls = vec![call("a", "search", json!({"q": "x"}))];
    messages.push(Message::Assistant { text: "I look.".into(), reasoning: String::new(), calls });
    messages.push(Message::Tool { call_id: "a".into(), content: "7".into() });
    messages.push(Message::User("hurry".into()));
    let reply = chat_with(&Model::new(&forced).unwrap(), &messages, &tools()).await.unwrap();
    assert_eq!(reply.text, "ok");
    let sent = &fake.requests()[0]["messages"];
    let roles: Vec<&str> = sent.as_array().unwrap().iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user"]);
    assert_eq!(sent[3]["content"], "{\"tool_results\":[{\"name\":\"search\",\"result\":\"7\"}]}\n\nhurry");
}
