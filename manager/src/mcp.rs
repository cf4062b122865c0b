//! The manager as a server of the Model Context Protocol (`POST /mcp`): other agents hand goals in, see how they stand,
//! answer what they ask, and read their files.
//!
//! One message a request, one JSON text an answer; no session, nothing kept. Each tool asks the API's own routes in this
//! process with the caller's token: nothing can be seen or done here that the API would refuse.

mod door;
mod tools;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use door::Door;
use serde_json::{Value, json};

/// Versions of the protocol that are spoken, newest first.
const VERSIONS: [&str; 3] = ["2025-06-18", "2025-03-26", "2024-11-05"];
/// Largest message.
const MESSAGE_BYTES_MAX: usize = 1024 * 1024;
/// What to do with it, for a model that has just met this server.
const INSTRUCTIONS: &str = "Muster works goals off with a fleet of agents. Submit a goal, look at its status until it is done, \
    failed or cancelled, answer what waits for a person only as your own person says, then list and read its files.";

/// Errors of JSON-RPC.
const NO_JSON: i32 = -32700;
const NO_REQUEST: i32 = -32600;
const NO_METHOD: i32 = -32601;
const NO_PARAMS: i32 = -32602;

/// The route; `api` is the router that the tools ask.
pub(crate) fn router(api: Router) -> Router {
    Router::new().route("/mcp", post(message)).layer(DefaultBodyLimit::max(MESSAGE_BYTES_MAX)).with_state(api)
}

async fn message(State(api): State<Router>, headers: HeaderMap, body: Bytes) -> Response {
    let door = Door::new(api, headers.get(header::AUTHORIZATION).cloned());
    // Who may not read learns nothing, not even which tools there are.
    if let Err(refused) = door.get("/v1/goals?limit=1").await {
        return refused.into_response();
    }
    let Ok(message) = serde_json::from_slice::<Value>(&body) else {
        return failed(&Value::Null, NO_JSON, "this is no JSON");
    };
    let id = message["id"].clone();
    let Some(method) = message["method"].as_str().filter(|_| message["jsonrpc"] == "2.0") else {
        return failed(&id, NO_REQUEST, "this is no request of JSON-RPC 2.0");
    };
    if id.is_null() {
        // A notification: heard, not answered.
        return StatusCode::ACCEPTED.into_response();
    }
    let params = &message["params"];
    match method {
        "initialize" => answered(&id, &hello(params)),
        "ping" => answered(&id, &json!({})),
        "tools/list" => answered(&id, &json!({"tools": tools::list()})),
        "tools/call" => {
            let arguments = params.get("arguments").cloned().unwrap_or_else(|| json!({}));
            match tools::call(&door, params["name"].as_str().unwrap_or_default(), arguments).await {
                Some(result) => answered(&id, &result),
                None => failed(&id, NO_PARAMS, "there is no tool of this name"),
            }
        }
        _ => failed(&id, NO_METHOD, "this method is not known here"),
    }
}

fn hello(params: &Value) -> Value {
    let asked = params["protocolVersion"].as_str().unwrap_or_default();
    let version = VERSIONS.into_iter().find(|v| *v == asked).unwrap_or(VERSIONS[0]);
    json!({"protocolVersion": version, "capabilities": {"tools": {}}, "instructions": INSTRUCTIONS,
        "serverInfo": {"name": "muster", "version": env!("CARGO_PKG_VERSION")}})
}

fn answered(id: &Value, result: &Value) -> Response {
    axum::Json(json!({"jsonrpc": "2.0", "id": id, "result": result})).into_response()
}

fn failed(id: &Value, code: i32, message: &str) -> Response {
    axum::Json(json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}))
        .into_response()
}

#[cfg(test)]
#[path = "mcp/tests.rs"]
mod tests;
