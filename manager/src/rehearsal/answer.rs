//! Words into the wire format, streamed or whole; and the faults.

use super::request::Request;
use super::script::Fault;
use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::response::Response;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Characters of one streamed piece.
const PIECE_CHARS: usize = 60;

/// What is said.
pub(super) struct Words {
    pub(super) text: String,
    pub(super) reasoning: String,
    /// Id, tool, arguments as the model writes them: JSON, or what it takes for it.
    pub(super) calls: Vec<(String, String, String)>,
    pub(super) finish: Option<String>,
}

impl Words {
    fn finish(&self) -> &str {
        match &self.finish {
            Some(finish) => finish,
            None if self.calls.is_empty() => "stop",
            None => "tool_calls",
        }
    }

    fn usage(&self, request: &Request) -> Value {
        let calls: usize = self.calls.iter().map(|(_, name, args)| name.len() + args.len()).sum();
        let output = (self.text.len() + self.reasoning.len() + calls).div_ceil(4) as u64;
        json!({"prompt_tokens": request.prompt_tokens, "completion_tokens": output,
            "total_tokens": request.prompt_tokens + output, "prompt_tokens_details": {"cached_tokens": 0}})
    }

    fn message(&self) -> Value {
        let mut message = json!({"role": "assistant", "content": self.text});
        if !self.reasoning.is_empty() {
            message["reasoning_content"] = self.reasoning.as_str().into();
        }
        if !self.calls.is_empty() {
            let call = |(id, name, args): &(String, String, String)| json!({"id": id, "type": "function", "function": {"name": name, "arguments": args}});
            message["tool_calls"] = self.calls.iter().map(call).collect();
        }
        message
    }

    /// The deltas of a stream, the finish among them.
    fn deltas(&self) -> Vec<(Value, Option<&str>)> {
        let mut deltas = vec![(json!({"role": "assistant", "content": null}), None)];
        deltas.extend(pieces(&self.reasoning).map(|p| (json!({"reasoning_content": p}), None)));
        deltas.extend(pieces(&self.text).map(|p| (json!({"content": p}), None)));
        for (index, (id, name, args)) in self.calls.iter().enumerate() {
            let head = json!({"tool_calls": [{"index": index, "id": id, "type": "function",
                "function": {"name": name, "arguments": ""}}]});
            deltas.push((head, None));
            deltas
                .extend(pieces(args).map(|p| {
                    (json!({"tool_calls": [{"index": index, "function": {"arguments": p}}]}), None)
                }));
        }
        deltas.push((json!({}), Some(self.finish())));
        deltas
    }
}

fn pieces(text: &str) -> impl Iterator<Item = String> {
    let chars: Vec<char> = text.chars().collect();
    let pieces: Vec<String> = chars.chunks(PIECE_CHARS).map(|c| c.iter().collect()).collect();
    pieces.into_iter()
}

/// An answer in words.
pub(super) fn words(words: &Words, request: &Request, stop: &CancellationToken) -> Response {
    let usage = words.usage(request);
    if !request.stream {
        let choice = json!({"index": 0, "message": words.message(), "finish_reason": words.finish()});
        let mut answer = envelope(request, "chat.completion", &json!([choice]));
        answer["usage"] = usage;
        return response(200, "application/json", Body::from(answer.to_string()));
    }
    let mut events: Vec<String> = words
        .deltas()
        .into_iter()
        .map(|(delta, finish)| {
            event(&chunk(request, &json!([{"index": 0, "delta": delta, "finish_reason": finish}])))
        })
        .collect();
    if request.include_usage {
        let mut last = chunk(request, &json!([]));
        last["usage"] = usage;
        events.push(event(&last));
    }
    events.push("data: [DONE]\n\n".into());
    let events = events.into_iter().map(|e| Ok::<_, std::io::Error>(Bytes::from(e)));
    streamed(stream::iter(events).boxed(), stop)
}

/// An answer that is a fault.
pub(super) fn fault(fault: &Fault, request: &Request, stop: &CancellationToken) -> Response {
    let begun = || {
        let delta =
            json!([{"index": 0, "delta": {"role": "assistant", "content": "I beg"}, "finish_reason": null}]);
        stream::iter([Ok::<_, std::io::Error>(Bytes::from(event(&chunk(request, &delta))))])
    };
    match fault {
        Fault::Status { status, message, retry_after_s } => {
            error(*status, message, "rehearsed_fault", *retry_after_s)
        }
        Fault::Garbage { body } => response(200, "text/plain", Body::from(body.clone())),
        Fault::Stall => streamed(begun().chain(stream::pending()).boxed(), stop),
        Fault::Cut => {
            let cut = stream::once(async { Err(std::io::Error::other("rehearsed cut")) });
            streamed(begun().chain(cut).boxed(), stop)
        }
    }
}

/// An error body as OpenAI's.
pub(super) fn error(status: u16, message: &str, kind: &str, retry_after_s: Option<u64>) -> Response {
    let body = json!({"error": {"message": message, "type": kind, "param": null, "code": null}});
    let mut response = response(status, "application/json", Body::from(body.to_string()));
    if let Some(seconds) = retry_after_s {
        response.headers_mut().insert("retry-after", seconds.into());
    }
    response
}

/// The stream ends with the server: an open one would hold up its shutdown for ever.
fn streamed(events: BoxStream<'static, std::io::Result<Bytes>>, stop: &CancellationToken) -> Response {
    let events = events.take_until(stop.clone().cancelled_owned());
    response(200, "text/event-stream", Body::from_stream(events))
}

fn response(status: u16, kind: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert("content-type", axum::http::HeaderValue::from_static(kind));
    response
}

fn envelope(request: &Request, object: &str, choices: &Value) -> Value {
    json!({"id": "rehearsal", "object": object, "created": 0, "model": request.model, "choices": choices})
}

fn chunk(request: &Request, choices: &Value) -> Value {
    envelope(request, "chat.completion.chunk", choices)
}

fn event(value: &Value) -> String {
    format!("data: {value}\n\n")
}
