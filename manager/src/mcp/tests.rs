use super::*;
use crate::api::{self, Api};
use crate::testing::Bench;
use axum::body::Body;
use axum::http::Request;
use shared::telemetry::probe;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

struct Server {
    all: Router,
    _bench: Bench,
}

impl Server {
    async fn new() -> Self {
        let bench = Bench::new().await;
        let config = Arc::new(bench.config.clone());
        let api = Api::new(bench.store.clone(), bench.blobs.clone(), config, None, CancellationToken::new());
        let all = router(api::router(api, probe::Readiness::new(Duration::from_secs(10))));
        Self { all, _bench: bench }
    }

    async fn say(&self, token: &str, body: String) -> (StatusCode, Value) {
        let request = Request::post("/mcp").header("authorization", format!("Bearer {token}"));
        let response = self.all.clone().oneshot(request.body(Body::from(body)).unwrap()).await.unwrap();
        let status = response.status();
        let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    async fn request(&self, method: &str, params: Value) -> Value {
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        let (status, said) = self.say("boss", body.to_string()).await;
        assert_eq!((status, &said["id"]), (StatusCode::OK, &json!(7)), "{said}");
        said
    }

    /// Whether it went wrong, and the text.
    async fn call(&self, name: &str, arguments: Value) -> (bool, String) {
        let said = self.request("tools/call", json!({"name": name, "arguments": arguments})).await;
        let result = &said["result"];
        (result["isError"].as_bool().unwrap(), result["content"][0]["text"].as_str().unwrap().to_owned())
    }
}

#[tokio::test]
async fn i7_nobody_without_a_valid_token_hears_anything() {
    let server = Server::new().await;
    for method in ["initialize", "tools/list", "tools/call", "ping"] {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method}).to_string();
        let (status, said) = server.say("wrong", body).await;
        assert_eq!(
            (status, &said["error"]["code"]),
            (StatusCode::UNAUTHORIZED, &json!("unauthorized")),
            "{said}"
        );
    }
}

#[tokio::test]
async fn what_is_no_request_is_refused_by_its_number() {
    let server = Server::new().await;
    for (body, code) in [("{", NO_JSON), ("{}", NO_REQUEST), ("[]", NO_REQUEST)] {
        assert_eq!(server.say("boss", body.into()).await.1["error"]["code"], code, "{body}");
    }
    assert_eq!(server.request("resources/list", json!({})).await["error"]["code"], NO_METHOD);
    assert_eq!(server.request("tools/call", json!({"name": "rm"})).await["error"]["code"], NO_PARAMS);
    let told = json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string();
    assert_eq!(server.say("boss", told).await, (StatusCode::ACCEPTED, Value::Null));
}

#[tokio::test]
async fn a_version_that_is_known_is_kept_and_every_tool_has_a_sound_schema() {
    let server = Server::new().await;
    for (asked, given) in [("2024-11-05", "2024-11-05"), ("1999-01-01", VERSIONS[0])] {
        let said = server.request("initialize", json!({"protocolVersion": asked})).await;
        assert_eq!(said["result"]["protocolVersion"], given);
    }
    let said = server.request("tools/list", json!({})).await;
    let tools = said["result"]["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 5);
    for tool in tools {
        jsonschema::validator_for(&tool["inputSchema"]).unwrap();
    }
}

#[tokio::test]
async fn a_goal_is_handed_in_once_seen_and_its_refusals_are_words() {
    let server = Server::new().await;
    let wanted = json!({"text": "count the words", "idempotency_key": "k"});
    let (failed, made) = server.call("submit", wanted.clone()).await;
    let made: Value = serde_json::from_str(&made).unwrap();
    let again: Value = serde_json::from_str(&server.call("submit", wanted).await.1).unwrap();
    assert_eq!((failed, &again["goal"], &again["duplicate"]), (false, &made["goal"], &json!(true)));
    let of = json!({"goal": made["goal"]});
    let (failed, shown) = server.call("status", of.clone()).await;
    assert!(!failed && shown.contains("\"state\":\"planning\""), "{shown}");
    assert!(server.call("list_files", of).await.1.contains("no file"));
    let (failed, todo) = server.call("read_file", json!({"goal": made["goal"], "path": "TODO.md"})).await;
    assert!(!failed && todo.contains("count the words"), "{todo}");
    for (name, arguments, words) in [
        ("submit", json!({"text": "x", "colour": 1}), "colour"),
        ("status", json!({"goal": "../tokens"}), "32 hex digits"),
        ("read_file", json!({"goal": made["goal"], "path": "../x"}), "no file"),
        ("answer", json!({"goal": made["goal"], "ticket": "t", "decision": "skip"}), "no ticket t"),
        ("answer", json!({"goal": made["goal"]}), "text"),
        ("status", json!({}), "goal"),
    ] {
        let (failed, said) = server.call(name, arguments).await;
        assert!(failed && said.contains(words), "{name}: {said}");
    }
}
