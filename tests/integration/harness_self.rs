//! The harness itself: what the other tests stand on must hold.

use harness::model::{Answer, Asked, Model, problems};
use harness::redis::{Options, Persistence, Redis};
use serde_json::{Value, json};

#[tokio::test]
async fn a_redis_without_persistence_starts_empty_and_answers() {
    let redis =
        Redis::start_with(Options { persistence: Persistence::None, ..Options::default() }).await.unwrap();
    assert_eq!(redis.keys().await.unwrap(), Vec::<String>::new());
    let policy: Vec<String> = redis.query(&["CONFIG", "GET", "maxmemory-policy"]).await.unwrap();
    assert_eq!(policy, ["maxmemory-policy", "noeviction"]);
}

fn history(messages: &Value) -> Vec<String> {
    problems(&json!({"model": "m", "messages": messages}))
}

#[test]
fn a_call_without_a_result_with_two_or_before_its_time_is_seen() {
    let call = json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]});
    let user = json!({"role": "user", "content": "go"});
    let result = json!({"role": "tool", "tool_call_id": "c1", "content": "done"});
    assert_eq!(history(&json!([user, call, result])), Vec::<String>::new());
    assert!(history(&json!([user, call])).iter().any(|p| p.contains("no result")));
    assert!(
        history(&json!([user, call, result, result])).iter().any(|p| p.contains("not called or has one"))
    );
    assert!(history(&json!([user, call, user, result])).iter().any(|p| p.contains("before the results")));
    assert!(history(&json!([user, call, result, call, result])).iter().any(|p| p.contains("used twice")));
    assert!(
        history(&json!([user, {"role": "assistant", "content": "hm"}])).iter().any(|p| p.contains("own"))
    );
}

#[tokio::test]
async fn a_model_that_is_asked_for_more_than_its_script_holds_fails_the_test() {
    let model = Model::in_order(vec![Answer::Text("one".into())]).await.unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "go"}]});
    let ask =
        async || client.post(format!("{}/chat/completions", model.url())).json(&body).send().await.unwrap();
    let first: Value = ask().await.json().await.unwrap();
    assert_eq!(first["choices"][0]["message"]["content"], "one");
    model.verify().unwrap();
    assert_eq!(ask().await.status(), 500);
    let why = model.verify().unwrap_err().to_string();
    assert!(why.contains("more than the script holds"), "{why}");
    assert_eq!(model.asked().iter().map(Asked::turn).collect::<Vec<_>>(), [0, 0]);
}
