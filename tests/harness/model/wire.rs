//! How an answer goes out: as one body or as a stream of events.

use super::{Answer, Asked};
use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::response::Response;
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use std::convert::Infallible;

/// Writes the answer.
pub(super) async fn respond(asked: &Asked, answer: Answer, streamed: bool) -> Response {
    match answer {
        Answer::After(time, then) => {
            tokio::time::sleep(time).await;
            Box::pin(respond(asked, *then, streamed)).await
        }
        Answer::When(mut go, then) => {
            // A test that has ended says nothing more.
            let _ = go.wait_for(|go| *go).await;
            Box::pin(respond(asked, *then, streamed)).await
        }
        Answer::Raw { status, headers, body } => {
            let mut response = Response::builder().status(StatusCode::from_u16(status).unwrap_or_default());
            for (name, value) in headers {
                response = response.header(name, value);
            }
            response.body(Body::from(body)).unwrap_or_default()
        }
        Answer::Stall => {
            let first = chunk(asked, json!({"role": "assistant", "content": "one mo"}), Value::Null);
            let endless = stream::iter([Ok::<_, Infallible>(Bytes::from(first))]).chain(stream::pending());
            event_stream(Body::from_stream(endless))
        }
        Answer::Text(text) => {
            message(asked, streamed, &json!({"role": "assistant", "content": text}), "stop")
        }
        Answer::Calls(calls) => {
            let calls: Vec<Value> = calls
                .into_iter()
                .enumerate()
                .map(|(n, (name, args))| {
                    json!({"id": format!("call_{}_{n}", asked.nth), "type": "function",
                           "function": {"name": name, "arguments": args.to_string()}})
                })
                .collect();
            message(
                asked,
                streamed,
                &json!({"role": "assistant", "content": null, "tool_calls": calls}),
                "tool_calls",
            )
        }
        Answer::Message { message: m, finish } => message(asked, streamed, &m, &finish),
    }
}

fn usage(asked: &Asked) -> Value {
    // About what a tokenizer would say: four bytes a token.
    let prompt = asked.body["messages"].to_string().len() / 4;
    json!({"prompt_tokens": prompt, "completion_tokens": 20, "total_tokens": prompt + 20})
}

fn message(asked: &Asked, streamed: bool, message: &Value, finish: &str) -> Response {
    if streamed {
        return event_stream(Body::from(events(asked, message, finish)));
    }
    let body = json!({"id": format!("r{}", asked.nth), "object": "chat.completion", "created": 0,
        "model": asked.body["model"], "usage": usage(asked),
        "choices": [{"index": 0, "message": message, "finish_reason": finish}]});
    Response::builder()
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()))
        .unwrap_or_default()
}

fn event_stream(body: Body) -> Response {
    Response::builder().header("content-type", "text/event-stream").body(body).unwrap_or_default()
}

fn chunk(asked: &Asked, delta: Value, finish: Value) -> String {
    let body = json!({"id": format!("r{}", asked.nth), "object": "chat.completion.chunk", "created": 0,
        "model": asked.body["model"], "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
    format!("data: {body}\n\n")
}

/// The message in pieces: text in the middle of words, arguments in two halves, comments in between.
fn events(asked: &Asked, message: &Value, finish: &str) -> String {
    let mut out = String::from(": a comment line\n\n");
    out += &chunk(asked, json!({"role": "assistant", "content": ""}), Value::Null);
    if let Some(text) = message["content"].as_str() {
        let letters: Vec<char> = text.chars().collect();
        for piece in letters.chunks(letters.len().div_ceil(5).max(1)) {
            out += &chunk(asked, json!({"content": piece.iter().collect::<String>()}), Value::Null);
        }
    }
    for (n, call) in
        message["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default().iter().enumerate()
    {
        let arguments: Vec<char> =
            call["function"]["arguments"].as_str().unwrap_or_default().chars().collect();
        let (head, tail) = arguments.split_at(arguments.len() / 2);
        let first = json!({"tool_calls": [{"index": n, "id": call["id"], "type": "function",
            "function": {"name": call["function"]["name"], "arguments": head.iter().collect::<String>()}}]});
        out += &chunk(asked, first, Value::Null);
        let second =
            json!({"tool_calls": [{"index": n, "function": {"arguments": tail.iter().collect::<String>()}}]});
        out += &chunk(asked, second, Value::Null);
    }
    out += &chunk(asked, json!({}), json!(finish));
    let counted = json!({"id": format!("r{}", asked.nth), "object": "chat.completion.chunk", "created": 0,
        "model": asked.body["model"], "choices": [], "usage": usage(asked)});
    out + &format!("data: {counted}\n\ndata: [DONE]\n\n")
}
