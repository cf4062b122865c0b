//! The wire format of OpenAI-compatible chat completions: requests out, whole answers and stream chunks in.
//!
//! Anything that is particular to this JSON stays in here; what comes out is a [`Draft`].

use super::dialect::{Rung, Traits};
use super::error::{ErrorClass, Fault};
use super::wire::{Assemble, Draft, RawCall, Request};
use super::{Finish, Message, ToolCall, Usage};
use crate::tool::ToolDecl;
use serde_json::{Value, json};

/// Path below the configured base URL.
pub(super) const PATH: &str = "chat/completions";

/// The body. Keys are sorted and tools too, so that equal prompts are equal bytes (prefix caches).
pub(super) fn body(request: &Request<'_>) -> Value {
    let traits = request.traits;
    let mut body = json!({
        "model": request.model,
        "messages": conversation(request.messages, traits),
        "stream": true,
    });
    let limit = if traits.max_completion_tokens { "max_completion_tokens" } else { "max_tokens" };
    // Always sent: some servers generate until the context is full without it.
    body[limit] = request.output_tokens_max.into();
    if !traits.no_stream_options {
        body["stream_options"] = json!({"include_usage": true});
    }
    if !traits.no_temperature {
        // Through text: the nearest f64 of an f32 is 0.20000000298023224.
        body["temperature"] = request.temperature.to_string().parse::<f64>().unwrap_or(0.2).into();
    }
    if !request.tools.is_empty() {
        let mut tools: Vec<&ToolDecl> = request.tools.iter().collect();
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        body["tools"] = tools
            .iter()
            .map(|t| {
                json!({"type": "function", "function":
                    {"name": t.name, "description": t.description, "parameters": t.schema}})
            })
            .collect();
    }
    if request.json_mode {
        body["response_format"] = json!({"type": "json_object"});
    }
    if let Some(format) = request.format {
        match traits.rung {
            Rung::JsonSchema => {
                body["response_format"] = json!({"type": "json_schema", "json_schema":
                    {"name": format.name, "schema": format.schema, "strict": is_strict(format.schema)}});
            }
            Rung::JsonObject => body["response_format"] = json!({"type": "json_object"}),
            Rung::Plain => {}
        }
    }
    body
}

/// The turns. Images are parts of one message with the user's words beside them; a message without any stays plain text.
fn conversation(messages: &[Message], traits: Traits) -> Vec<Value> {
    let mut turns: Vec<Value> = Vec::with_capacity(messages.len());
    for one in messages {
        let turn = message(one, traits);
        if let Some(last) = turns.last_mut()
            && last["role"] == "user"
            && turn["role"] == "user"
            && (last["content"].is_array() || turn["content"].is_array())
        {
            let mut parts = parts(last["content"].take());
            parts.extend(self::parts(turn["content"].clone()));
            last["content"] = parts.into();
        } else {
            turns.push(turn);
        }
    }
    turns
}

fn parts(content: Value) -> Vec<Value> {
    if let Value::Array(parts) = content {
        return parts;
    }
    vec![json!({"type": "text", "text": content})]
}

fn message(message: &Message, traits: Traits) -> Value {
    match message {
        Message::System(text) => json!({"role": "system", "content": text}),
        Message::User(text) => json!({"role": "user", "content": text}),
        Message::Image(image) => {
            json!({"role": "user", "content": [{"type": "text", "text": image.caption()}, image.openai()]})
        }
        Message::Tool { call_id, content } => {
            json!({"role": "tool", "tool_call_id": call_id, "content": content})
        }
        Message::Assistant { text, reasoning, calls } => {
            let mut turn = json!({"role": "assistant", "content": text});
            if !calls.is_empty() {
                turn["tool_calls"] = calls.iter().map(call).collect();
            }
            if traits.echo_reasoning {
                turn["reasoning_content"] = reasoning.as_str().into();
            }
            turn
        }
    }
}

fn call(call: &ToolCall) -> Value {
    // Servers parse the arguments of the history for their chat template: broken ones would fail every later turn.
    let arguments = match &call.args {
        Ok(object) => serde_json::to_string(object),
        Err(bad) => serde_json::to_string(&json!({"_raw_arguments": bad.raw})),
    }
    .unwrap_or_else(|_| "{}".into());
    json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}})
}

/// Whether it describes an object, as arguments of a call must be.
pub(super) fn is_object_schema(schema: &Value) -> bool {
    schema.get("type") == Some(&"object".into())
}

/// Whether the schema lies in the subset that strict mode takes: every object closed, all of its properties required.
fn is_strict(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => {
            let closed = match map.get("properties") {
                Some(Value::Object(properties)) => {
                    let required = map.get("required").and_then(Value::as_array);
                    map.get("additionalProperties") == Some(&Value::Bool(false))
                        && properties.keys().all(|k| required.is_some_and(|r| r.iter().any(|n| n == k)))
                }
                _ => map.get("type") != Some(&"object".into()),
            };
            closed && map.values().all(is_strict)
        }
        Value::Array(items) => items.iter().all(is_strict),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// Puts a draft together from a stream's chunks, or from one whole answer.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    draft: Draft,
    /// Index that the server gave to the call at the same place of `draft.calls`.
    indexes: Vec<Option<u64>>,
    choices: usize,
}

impl Assemble for Assembly {
    fn has_begun(&self) -> bool {
        self.choices > 0
    }

    fn has_ended(&self) -> bool {
        self.draft.finish.is_some()
    }

    fn has_usage(&self) -> bool {
        self.draft.usage.is_some()
    }

    fn is_closed(&self) -> bool {
        // `[DONE]` says so, and the reader of lines knows it.
        false
    }

    fn into_draft(self: Box<Self>) -> Draft {
        self.draft
    }

    /// Takes one JSON text: a chunk (`delta`) or a whole answer (`message`).
    fn take(&mut self, value: &Value) -> Result<(), Fault> {
        if let Some(error) = value.get("error").filter(|e| !e.is_null()) {
            return Err(error_object(error, 502));
        }
        if let Some(usage) = value.get("usage").filter(|u| u.is_object()) {
            let count = |pointer: &str| usage.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
            self.draft.usage = Some(Usage {
                input_tokens: count("/prompt_tokens"),
                output_tokens: count("/completion_tokens"),
                cached_tokens: count("/prompt_tokens_details/cached_tokens"),
                estimated: false,
            });
        }
        let Some(choice) = value.pointer("/choices/0") else { return Ok(()) };
        self.choices += 1;
        if let Some(part) = choice.get("delta").or_else(|| choice.get("message")) {
            self.draft.text.push_str(&text_of(part.get("content")));
            let reasoning = part.get("reasoning_content").or_else(|| part.get("reasoning"));
            self.draft.reasoning.push_str(&text_of(reasoning));
            for call in part.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
                self.take_call(call);
            }
        }
        match choice.get("finish_reason").and_then(Value::as_str) {
            // An empty reason in the middle is not terminal (A4).
            None | Some("") => {}
            Some("stop" | "end_turn" | "eos") => self.draft.finish = Some(Finish::Stop),
            Some("tool_calls" | "function_call" | "tool_use") => self.draft.finish = Some(Finish::ToolCalls),
            Some("length" | "max_tokens") => self.draft.finish = Some(Finish::Length),
            Some("content_filter") => self.draft.finish = Some(Finish::Filter),
            Some("error") => {
                return Err(Fault::new(ErrorClass::Overload, "the server ended the answer with an error"));
            }
            Some(other) => {
                tracing::warn!(reason = other, "unknown finish reason, taken as stop");
                self.draft.finish = Some(Finish::Stop);
            }
        }
        Ok(())
    }
}

impl Assembly {
    /// Finds the call that a delta belongs to, or begins one (A6). Servers omit the index, or the id, or number
    /// every call 0: a new id begins a call, and so does a name after complete arguments.
    fn take_call(&mut self, delta: &Value) {
        let index = delta.get("index").and_then(Value::as_u64);
        let id = delta.get("id").and_then(Value::as_str).unwrap_or("");
        let name = delta.pointer("/function/name").and_then(Value::as_str).unwrap_or("");
        let place = match index {
            Some(_) => self.indexes.iter().rposition(|i| *i == index),
            None => self.draft.calls.len().checked_sub(1),
        };
        let begins = match place.and_then(|p| self.draft.calls.get(p)) {
            None => true,
            Some(call) if !id.is_empty() && !call.id.is_empty() && call.id != id => true,
            Some(call) => !name.is_empty() && !call.name.is_empty() && is_complete(&call.arguments),
        };
        let place = match place {
            Some(place) if !begins => place,
            Some(_) | None => {
                self.draft.calls.push(RawCall::default());
                self.indexes.push(index);
                self.draft.calls.len() - 1
            }
        };
        let Some(call) = self.draft.calls.get_mut(place) else { return };
        if call.id.is_empty() {
            call.id = id.to_owned();
        }
        if call.name.is_empty() {
            call.name = name.to_owned();
        }
        match (&mut call.arguments, delta.pointer("/function/arguments")) {
            (_, None | Some(Value::Null)) => {}
            (Value::String(so_far), Some(Value::String(more))) => so_far.push_str(more),
            (arguments, Some(value)) => *arguments = value.clone(),
        }
    }
}

fn is_complete(arguments: &Value) -> bool {
    match arguments {
        Value::Null => false,
        Value::String(text) => serde_json::from_str::<Value>(text).is_ok(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => true,
    }
}

/// Content is a string, null, or a list of parts.
fn text_of(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            parts.iter().filter_map(|p| p.get("text").and_then(Value::as_str)).collect::<String>()
        }
        _ => String::new(),
    }
}

/// Reads the body of an HTTP error.
pub(super) fn error_body(status: u16, body: &str, retry_after_ms: Option<u64>) -> Fault {
    let parsed: Value = serde_json::from_str(body).unwrap_or(Value::Null);
    let error = parsed.get("error").unwrap_or(&parsed);
    let (message, code) = words_of(error);
    let message =
        if message.is_empty() { super::tolerant::cut(body.trim(), 400).to_owned() } else { message };
    Fault::of_status(status, &message, &code, retry_after_ms)
}

/// Reads an error inside an answer with status 200 (A3).
pub(super) fn error_object(error: &Value, status: u16) -> Fault {
    let (message, code) = words_of(error);
    let status = match error.get("code").or_else(|| error.get("status")).and_then(Value::as_u64) {
        Some(code @ 400..=599) => u16::try_from(code).unwrap_or(status),
        _ if code.contains("rate_limit") || code.contains("quota") => 429,
        _ if code.contains("context_length") || code.contains("exceed_context") => 400,
        _ if code.contains("auth") || code.contains("api_key") => 401,
        _ => status,
    };
    Fault::of_status(status, &message, &code, None)
}

fn words_of(error: &Value) -> (String, String) {
    let word = |key: &str| error.get(key).and_then(Value::as_str).unwrap_or("").to_owned();
    let message = match error {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            [word("message"), word("detail"), word("msg")]
                .into_iter()
                .find(|t| !t.is_empty())
                .unwrap_or_default()
        }
    };
    (message, format!("{} {}", word("code"), word("type")).trim().to_owned())
}
