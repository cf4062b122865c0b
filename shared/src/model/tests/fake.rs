//! A model server with a script: it checks each request as strict providers do and fails when asked for more.

use crate::config;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use futures::StreamExt;
use serde_json::{Value, json};
use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex};

/// What the server does with one request.
pub(in crate::model) enum Answer {
    Json(u16, Value),
    /// A 429 with that `Retry-After`, or another status with that header.
    Header(u16, &'static str, String, Value),
    /// These bytes, then the end, a broken connection, or silence.
    Stream(String, Ending),
}

pub(in crate::model) enum Ending {
    Close,
    Break,
    Stall,
}

impl Answer {
    pub(in crate::model) fn sse(events: &[Value]) -> Self {
        let mut text: String = events.iter().map(|e| format!("data: {e}\n\n")).collect();
        text.push_str("data: [DONE]\n\n");
        Self::Stream(text, Ending::Close)
    }

    pub(in crate::model) fn error(status: u16, message: &str, kind: &str) -> Self {
        Self::Json(status, json!({"error": {"message": message, "type": kind, "param": null, "code": null}}))
    }
}

/// A chunk of a stream.
pub(in crate::model) fn chunk(delta: Value, finish: Option<&str>) -> Value {
    json!({"id": "x", "object": "chat.completion.chunk", "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
}

/// A stream as Anthropic sends it: named events and no `[DONE]`.
pub(in crate::model) fn messages(events: &[Value]) -> Answer {
    let event = |e: &Value| format!("event: {}\ndata: {e}\n\n", e["type"].as_str().unwrap_or("?"));
    Answer::Stream(events.iter().map(event).collect(), Ending::Close)
}

/// The same answer as a stream: text and arguments in pieces of a few characters, the usage at the end.
pub(in crate::model) fn streamed(answer: Answer) -> Answer {
    let Answer::Json(200, body) = answer else { return answer };
    let pieces = |text: &str| -> Vec<String> {
        let chars: Vec<char> = text.chars().collect();
        chars.chunks(3).map(|c| c.iter().collect()).collect()
    };
    let mut events = vec![];
    for choice in body["choices"].as_array().into_iter().flatten() {
        let message = &choice["message"];
        events.push(chunk(json!({"role": "assistant", "content": null}), None));
        for field in ["reasoning_content", "content"] {
            let text = message[field].as_str().unwrap_or_default();
            events.extend(pieces(text).into_iter().map(|piece| chunk(json!({field: piece}), None)));
        }
        for (index, call) in message["tool_calls"].as_array().into_iter().flatten().enumerate() {
            let mut call = call.clone();
            call["index"] = index.into();
            // What is no text comes in one piece, as the servers have it that send such things.
            let arguments = call["function"]["arguments"].as_str().map(pieces).unwrap_or_default();
            if !arguments.is_empty() {
                call["function"]["arguments"] = "".into();
            }
            events.push(chunk(json!({"tool_calls": [call]}), None));
            events.extend(arguments.into_iter().map(|piece| {
                chunk(json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}), None)
            }));
        }
        events.push(chunk(json!({}), choice["finish_reason"].as_str()));
    }
    let mut last = body.clone();
    last["choices"] = json!([]);
    events.push(last);
    Answer::sse(&events)
}

/// A whole answer with that message.
pub(in crate::model) fn whole(message: Value, finish: &str) -> Answer {
    Answer::Json(
        200,
        json!({"id": "x", "object": "chat.completion", "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}}),
    )
}

pub(in crate::model) fn said(text: &str) -> Answer {
    whole(json!({"role": "assistant", "content": text}), "stop")
}

/// A real answer from `tests/fixtures/model`.
pub(in crate::model) fn fixture(text: &str) -> Answer {
    let fixture: Value = serde_json::from_str(text).unwrap();
    match fixture.get("sse_lines") {
        Some(lines) => {
            let lines: Vec<&str> = lines.as_array().unwrap().iter().map(|l| l.as_str().unwrap()).collect();
            Answer::Stream(lines.join("\n\n") + "\n\n", Ending::Close)
        }
        None => Answer::Json(fixture["status"].as_u64().unwrap() as u16, fixture["response"].clone()),
    }
}

/// The running server.
pub(in crate::model) struct Fake {
    pub(in crate::model) url: String,
    script: Arc<Script>,
    task: tokio::task::JoinHandle<()>,
}

struct Script {
    answers: Mutex<VecDeque<Answer>>,
    requests: Mutex<Vec<Value>>,
    problems: Mutex<Vec<String>>,
}

impl Fake {
    pub(in crate::model) async fn start(answers: Vec<Answer>) -> Self {
        let script = Arc::new(Script {
            answers: Mutex::new(answers.into()),
            requests: Mutex::default(),
            problems: Mutex::default(),
        });
        let app = axum::Router::new()
            .route("/v1/chat/completions", axum::routing::post(serve))
            .route("/v1/messages", axum::routing::post(serve_messages))
            .with_state(Arc::clone(&script));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { url, script, task }
    }

    /// Nobody listens any more at its address.
    pub(in crate::model) async fn stop(&mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }

    pub(in crate::model) fn requests(&self) -> Vec<Value> {
        self.script.requests.lock().unwrap().clone()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
        if !std::thread::panicking() {
            assert_eq!(*self.script.problems.lock().unwrap(), Vec::<String>::new());
            assert_eq!(self.script.answers.lock().unwrap().len(), 0, "answers left in the script");
        }
    }
}

/// A configuration with short times for this server.
pub(in crate::model) fn config(fake: &Fake) -> config::Model {
    config::Model {
        url: fake.url.clone(),
        api_key: "sk-secret-key-of-tests".into(),
        standard: "m".into(),
        idle_timeout_ms: 5_000,
        call_timeout_ms: 10_000,
        // Where it matters a test asks for `Auto`.
        images: config::Images::Yes,
        ..config::Model::default()
    }
}

async fn serve(State(script): State<Arc<Script>>, headers: HeaderMap, body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let mut problems = problems(&request);
    if headers.get("authorization").is_none_or(|h| h != "Bearer sk-secret-key-of-tests") {
        problems.push("no or wrong key".into());
    }
    answer(&script, request, problems)
}

async fn serve_messages(State(script): State<Arc<Script>>, headers: HeaderMap, body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let mut problems = messages_problems(&request);
    let header = |name: &str, value: &str| headers.get(name).is_some_and(|h| h == value);
    if !header("x-api-key", "sk-secret-key-of-tests") || !header("anthropic-version", "2023-06-01") {
        problems.push("no or wrong key or version".into());
    }
    answer(&script, request, problems)
}

fn answer(script: &Script, request: Value, mut problems: Vec<String>) -> Response {
    script.requests.lock().unwrap().push(request);
    let answer = script.answers.lock().unwrap().pop_front();
    if answer.is_none() {
        problems.push("asked for more than the script holds".into());
    }
    if !problems.is_empty() {
        script.problems.lock().unwrap().extend(problems.clone());
        return json_response(500, &json!({"error": {"message": problems.join("; ")}}));
    }
    match answer.unwrap() {
        Answer::Json(status, value) => json_response(status, &value),
        Answer::Header(status, name, header, value) => {
            let mut response = json_response(status, &value);
            response.headers_mut().insert(name, header.parse().unwrap());
            response
        }
        Answer::Stream(text, ending) => {
            let first = futures::stream::iter([Ok::<_, std::io::Error>(Bytes::from(text))]);
            let rest = match ending {
                Ending::Close => futures::stream::empty().boxed(),
                Ending::Break => {
                    // The broken end must not overtake the bytes before it.
                    futures::stream::once(async {
                        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                        Err(std::io::Error::other("cut"))
                    })
                    .boxed()
                }
                Ending::Stall => futures::stream::pending().boxed(),
            };
            Response::builder()
                .header("content-type", "text/event-stream")
                .body(Body::from_stream(first.chain(rest)))
                .unwrap()
        }
    }
}

fn json_response(status: u16, value: &Value) -> Response {
    Response::builder()
        .status(StatusCode::from_u16(status).unwrap())
        .header("content-type", "application/json")
        .body(Body::from(value.to_string()))
        .unwrap()
}

/// What a strict provider would answer 400 to.
fn problems(request: &Value) -> Vec<String> {
    let mut problems = vec![];
    if request["model"] != "m" || request["stream"] != true {
        problems.push("model or stream is wrong".into());
    }
    if request["max_tokens"].as_u64().is_none() && request["max_completion_tokens"].as_u64().is_none() {
        problems.push("no token limit".to_owned());
    }
    let mut seen = HashSet::new();
    let mut open = VecDeque::new();
    for message in request["messages"].as_array().into_iter().flatten() {
        if message["role"] == "tool" {
            if open.pop_front().as_deref() != message["tool_call_id"].as_str() {
                problems.push("a tool message answers no open call".into());
            }
            continue;
        }
        if !open.is_empty() {
            problems.push("an unanswered call".into());
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let id = call["id"].as_str().unwrap_or("").to_owned();
            if id.is_empty() || !seen.insert(id.clone()) {
                problems.push(format!("id `{id}` is empty or used twice"));
            }
            let arguments = call["function"]["arguments"].as_str().unwrap_or("");
            if !serde_json::from_str::<Value>(arguments).is_ok_and(|v| v.is_object()) {
                problems.push("arguments in the history are no object".into());
            }
            open.push_back(id);
        }
        if message["role"] == "assistant" && message["content"].is_null() {
            problems.push("an assistant message without content".into());
        }
    }
    if !open.is_empty() {
        problems.push("an unanswered call at the end".into());
    }
    problems
}

/// What Anthropic would answer 400 to.
fn messages_problems(request: &Value) -> Vec<String> {
    let mut problems = vec![];
    if request["model"] != "m" || request["stream"] != true || request["max_tokens"].as_u64().is_none() {
        problems.push("model, stream or max_tokens is wrong".into());
    }
    let mut open: VecDeque<String> = VecDeque::new();
    let mut seen = HashSet::new();
    for (n, turn) in request["messages"].as_array().into_iter().flatten().enumerate() {
        if turn["role"] != if n % 2 == 0 { "user" } else { "assistant" } {
            problems.push(format!("turn {n} is of {}", turn["role"]));
        }
        let blocks = turn["content"].as_array().cloned().unwrap_or_default();
        if blocks.is_empty() {
            problems.push(format!("turn {n} is empty"));
        }
        for (b, block) in blocks.iter().enumerate() {
            match block["type"].as_str() {
                Some("tool_result") => {
                    if open.pop_front().as_deref() != block["tool_use_id"].as_str() {
                        problems.push("a result answers no open call".into());
                    }
                }
                Some("text") if block["text"].as_str().is_none_or(|t| t.trim().is_empty()) => {
                    problems.push("an empty text".into());
                }
                Some("text") => {}
                Some("tool_use") => {
                    let id = block["id"].as_str().unwrap_or("").to_owned();
                    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
                    if id.is_empty()
                        || !id.chars().all(plain)
                        || !seen.insert(id.clone())
                        || !block["input"].is_object()
                    {
                        problems.push(format!("the call {block} is not sound"));
                    }
                    open.push_back(id);
                }
                Some("thinking") if b == 0 && block["signature"].as_str().is_some_and(|s| !s.is_empty()) => {}
                Some("image")
                    if block["source"]["type"] == "base64" && block["source"]["data"].is_string() => {}
                Some("redacted_thinking") if block["data"].is_string() => {}
                Some(_) | None => problems.push(format!("the block {block} is not sound")),
            }
        }
        if turn["role"] == "user" && !open.is_empty() {
            problems.push("a call without a result in the next turn".into());
        }
    }
    problems
}
