//! The wire format of Anthropic's messages: requests out, whole answers and stream events in.
//!
//! Its own: the system prompt stands apart, roles alternate, results of tools open the next user turn, a structured
//! answer is a forced call of one tool, and thinking blocks are signed and go back unchanged with their turn.

use super::error::{ErrorClass, Fault};
use super::openai::{error_object, is_object_schema};
use super::wire::{Assemble, Draft, RawCall, Request};
use super::{Finish, Message, ToolCall, Usage};
use crate::tool::ToolDecl;
use serde_json::{Value, json};

/// Path below the configured base URL.
pub(super) const PATH: &str = "messages";
/// Version of the protocol, sent with every request.
pub(super) const VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");
pub(super) const KEY_HEADER: &str = "x-api-key";

/// The body. Keys are sorted and tools too, so that equal prompts are equal bytes (prefix caches).
pub(super) fn body(request: &Request<'_>) -> Value {
    let (system, mut messages) = conversation(request.messages);
    // What stands before a mark is cached: the tools and the system prompt, then the conversation so far.
    let marks = !request.traits.no_cache_control;
    let last = messages.last_mut().and_then(|m| m["content"].as_array_mut()?.last_mut());
    if let Some(block) = last.filter(|_| marks) {
        block["cache_control"] = json!({"type": "ephemeral"});
    }
    let mut body = json!({
        "model": request.model,
        "max_tokens": request.output_tokens_max,
        "messages": messages,
        "stream": true,
    });
    if !system.is_empty() {
        body["system"] = json!([{"type": "text", "text": system}]);
        if marks {
            body["system"][0]["cache_control"] = json!({"type": "ephemeral"});
        }
    }
    if !request.traits.no_temperature {
        // Through text: the nearest f64 of an f32 is 0.20000000298023224.
        body["temperature"] = request.temperature.to_string().parse::<f64>().unwrap_or(0.2).into();
    }
    if !request.tools.is_empty() {
        let mut tools: Vec<&ToolDecl> = request.tools.iter().collect();
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        body["tools"] = tools
            .iter()
            .map(|t| json!({"name": t.name, "description": t.description, "input_schema": t.schema}))
            .collect();
    }
    if let Some(format) = forced(request) {
        body["tools"] = json!([{"name": format.name, "description": "Give the answer by calling this tool once.",
            "input_schema": format.schema}]);
        body["tool_choice"] = json!({"type": "tool", "name": format.name});
    }
    body
}

/// The format that is asked for as a forced call; others stand in the prompt's words.
fn forced<'a>(request: &'a Request<'_>) -> Option<&'a super::wire::Format<'a>> {
    let format = request.format?;
    let by_call = request.traits.rung == super::dialect::Rung::JsonSchema && is_object_schema(format.schema);
    by_call.then_some(format)
}

/// The system prompt, and turns that alternate.
fn conversation(messages: &[Message]) -> (String, Vec<Value>) {
    let (mut system, mut turns) = (String::new(), Vec::<Value>::new());
    let mut push = |role: &str, mut blocks: Vec<Value>| {
        if blocks.is_empty() {
            return;
        }
        match turns.last_mut() {
            Some(turn) if turn["role"] == role => {
                if let Some(content) = turn["content"].as_array_mut() {
                    content.append(&mut blocks);
                }
            }
            Some(_) | None => turns.push(json!({"role": role, "content": blocks})),
        }
    };
    for message in messages {
        match message {
            Message::System(text) => {
                if !system.is_empty() {
                    system.push_str("\n\n");
                }
                system.push_str(text);
            }
            Message::User(text) => push("user", text_blocks(text)),
            Message::Image(image) => {
                let mut blocks = text_blocks(&image.caption());
                blocks.push(image.anthropic());
                push("user", blocks);
            }
            Message::Tool { call_id, content } => push(
                "user",
                vec![json!({"type": "tool_result", "tool_use_id": id(call_id), "content": content})],
            ),
            Message::Assistant { text, reasoning, calls } => {
                let mut blocks = thinking(reasoning);
                blocks.extend(text_blocks(text));
                blocks.extend(calls.iter().map(call));
                push("assistant", blocks);
            }
        }
    }
    if turns.is_empty() {
        // There must be a turn to answer.
        return (String::new(), vec![json!({"role": "user", "content": text_blocks(&system)})]);
    }
    (system, turns)
}

/// Empty blocks are refused.
fn text_blocks(text: &str) -> Vec<Value> {
    match text.trim().is_empty() {
        true => vec![],
        false => vec![json!({"type": "text", "text": text})],
    }
}

/// The signed blocks of a turn, as they came. Reasoning of another wire format is not theirs.
fn thinking(reasoning: &str) -> Vec<Value> {
    let blocks: Vec<Value> = serde_json::from_str(reasoning).unwrap_or_default();
    let own = |b: &Value| matches!(b["type"].as_str(), Some("thinking" | "redacted_thinking"));
    if blocks.iter().all(own) { blocks } else { vec![] }
}

fn call(call: &ToolCall) -> Value {
    let input = match &call.args {
        Ok(object) => Value::Object(object.clone()),
        Err(bad) => json!({"_raw_arguments": bad.raw}),
    };
    json!({"type": "tool_use", "id": id(&call.id), "name": call.name, "input": input})
}

/// Letters, digits, `_` and `-` only: ids of another provider may hold more.
fn id(id: &str) -> String {
    id.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect()
}

/// Puts a draft together from a stream's events, or from one whole message.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    blocks: Vec<Value>,
    /// Arguments of the call at the same place, as they stream in.
    partial: Vec<String>,
    finish: Option<Finish>,
    usage: Option<Usage>,
    created_tokens: u64,
    fresh_tokens: u64,
    begun: bool,
    closed: bool,
    /// The name of the tool that stands for a structured answer.
    format: Option<String>,
}

impl Assembly {
    /// `format`: the name of a structured answer that is asked for.
    pub(super) fn new(format: Option<&str>) -> Self {
        Self { format: format.map(str::to_owned), ..Self::default() }
    }

    fn block(&mut self, value: &Value) -> Option<usize> {
        // A place far off is a mistake of the server, not a reason to make room for it.
        let index = usize::try_from(value.get("index")?.as_u64()?).ok().filter(|i| *i < 1_000)?;
        while self.blocks.len() <= index {
            self.blocks.push(Value::Null);
            self.partial.push(String::new());
        }
        Some(index)
    }

    fn delta(&mut self, value: &Value) {
        let Some(index) = self.block(value) else { return };
        let delta = &value["delta"];
        let mut append = |key: &str, from: &str| {
            let more = delta[from].as_str().unwrap_or("");
            let Some(block) = self.blocks.get_mut(index) else { return };
            if block.is_null() {
                *block = json!({"type": if key == "text" { "text" } else { "thinking" }});
            }
            let so_far = block[key].as_str().unwrap_or("").to_owned();
            block[key] = format!("{so_far}{more}").into();
        };
        match delta["type"].as_str() {
            Some("text_delta") => append("text", "text"),
            Some("thinking_delta") => append("thinking", "thinking"),
            Some("signature_delta") => append("signature", "signature"),
            Some("input_json_delta") => {
                if let Some(partial) = self.partial.get_mut(index) {
                    partial.push_str(delta["partial_json"].as_str().unwrap_or(""));
                }
            }
            // Citations and whatever comes new: not the answer.
            Some(_) | None => {}
        }
    }

    /// Counts are cumulative; the cached parts of the prompt are counted apart from the rest of it.
    fn spend(&mut self, usage: Option<&Value>) {
        let Some(usage) = usage.filter(|u| u.is_object()) else { return };
        let count = |key: &str| usage.get(key).and_then(Value::as_u64);
        let spent = self.usage.get_or_insert_default();
        if let Some(fresh) = count("input_tokens") {
            self.fresh_tokens = fresh;
        }
        if let Some(created) = count("cache_creation_input_tokens") {
            self.created_tokens = created;
        }
        if let Some(cached) = count("cache_read_input_tokens") {
            spent.cached_tokens = cached;
        }
        if let Some(output) = count("output_tokens") {
            spent.output_tokens = output;
        }
        spent.input_tokens = self.fresh_tokens + self.created_tokens + spent.cached_tokens;
    }

    fn stop(&mut self, reason: Option<&str>) {
        match reason {
            None | Some("") => {}
            Some("end_turn" | "stop_sequence" | "pause_turn") => self.finish = Some(Finish::Stop),
            Some("tool_use") => self.finish = Some(Finish::ToolCalls),
            Some("max_tokens" | "model_context_window_exceeded") => self.finish = Some(Finish::Length),
            Some("refusal") => self.finish = Some(Finish::Filter),
            Some(other) => {
                tracing::warn!(reason = other, "unknown stop reason, taken as stop");
                self.finish = Some(Finish::Stop);
            }
        }
    }
}

impl Assemble for Assembly {
    fn has_begun(&self) -> bool {
        self.begun
    }

    fn has_ended(&self) -> bool {
        self.finish.is_some()
    }

    fn has_usage(&self) -> bool {
        // The first event names a usage already.
        self.usage.is_some() && self.finish.is_some()
    }

    fn is_closed(&self) -> bool {
        self.closed
    }

    fn take(&mut self, value: &Value) -> Result<(), Fault> {
        if let Some(error) = value.get("error").filter(|e| !e.is_null()) {
            return Err(error_object(error, 502));
        }
        match value["type"].as_str() {
            Some("message_start") => {
                self.begun = true;
                self.spend(value.pointer("/message/usage"));
            }
            Some("content_block_start") => {
                self.begun = true;
                if let Some(index) = self.block(value)
                    && let Some(block) = self.blocks.get_mut(index)
                {
                    *block = value["content_block"].clone();
                }
            }
            Some("content_block_delta") => {
                self.begun = true;
                self.delta(value);
            }
            Some("message_delta") => {
                self.stop(value.pointer("/delta/stop_reason").and_then(Value::as_str));
                self.spend(value.get("usage"));
            }
            Some("message_stop") => self.closed = true,
            Some("message") => {
                self.begun = true;
                self.closed = true;
                self.blocks = value["content"].as_array().cloned().unwrap_or_default();
                self.partial = vec![String::new(); self.blocks.len()];
                self.stop(value["stop_reason"].as_str());
                self.spend(value.get("usage"));
            }
            // Pings, ends of blocks, and what is new.
            Some(_) => {}
            None => return Err(Fault::new(ErrorClass::Reply, "the answer is no message of this protocol")),
        }
        Ok(())
    }

    fn into_draft(self: Box<Self>) -> Draft {
        let mut draft = Draft { finish: self.finish, usage: self.usage, ..Draft::default() };
        let mut thoughts = vec![];
        for (block, partial) in self.blocks.into_iter().zip(self.partial) {
            match block["type"].as_str() {
                Some("text") => draft.text.push_str(block["text"].as_str().unwrap_or("")),
                Some("thinking" | "redacted_thinking") => thoughts.push(block),
                Some("tool_use") => {
                    let name = block["name"].as_str().unwrap_or("").to_owned();
                    let arguments = match partial.is_empty() {
                        true => block["input"].clone(),
                        false => partial.into(),
                    };
                    if self.format.as_ref() == Some(&name) {
                        draft.text = arguments.as_str().map_or_else(|| arguments.to_string(), str::to_owned);
                        // The call is the answer.
                        if draft.finish == Some(Finish::ToolCalls) {
                            draft.finish = Some(Finish::Stop);
                        }
                        continue;
                    }
                    let id = block["id"].as_str().unwrap_or("").to_owned();
                    draft.calls.push(RawCall { id, name, arguments });
                }
                Some(_) | None => {}
            }
        }
        if !thoughts.is_empty() {
            // With their signatures: they go back as they are.
            draft.reasoning = Value::Array(thoughts).to_string();
        }
        draft
    }
}
