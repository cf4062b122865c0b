//! Reading a chat request, as strictly as the strictest provider: what is wrong with it is said, not guessed around.

use super::script::Role;
use axum::http::HeaderMap;
use serde_json::Value;
use std::collections::{HashSet, VecDeque};

/// How the system prompts of the fleet begin their introduction (`shared/src/prompt`).
const OPENINGS: [(Role, &str); 3] = [
    (Role::Planner, "You are the manager of a fleet"),
    (Role::Worker, "You are one worker of a fleet"),
    (Role::Reviewer, "You are a reviewer in a fleet"),
];
/// Bytes for one token, for the usage that is named.
const BYTES_PER_TOKEN: u64 = 4;

/// What the script is matched against.
#[derive(Debug, Default)]
pub(super) struct Request {
    pub(super) role: Option<Role>,
    pub(super) model: String,
    /// System and user messages.
    pub(super) prompt: String,
    /// Results of tools.
    pub(super) results: String,
    pub(super) last_result: String,
    /// Assistant turns so far.
    pub(super) turns: usize,
    pub(super) tools: HashSet<String>,
    /// Ids of the calls in the history.
    pub(super) call_ids: HashSet<String>,
    /// Items that a verdict has to judge.
    pub(super) items: Option<u64>,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    pub(super) prompt_tokens: u64,
}

impl Request {
    /// Reads and checks it.
    ///
    /// # Errors
    /// What a provider would answer 400 to, as one sentence.
    pub(super) fn read(headers: &HeaderMap, body: &[u8]) -> Result<Self, String> {
        let value: Value = serde_json::from_slice(body).map_err(|e| format!("the body is not JSON: {e}"))?;
        let mut request = Self {
            model: text(&value, "model").filter(|m| !m.is_empty()).ok_or("`model` is required")?.to_owned(),
            stream: flag(value.get("stream"), "stream")?,
            include_usage: flag(
                value.pointer("/stream_options/include_usage"),
                "stream_options.include_usage",
            )?,
            prompt_tokens: (body.len() as u64).div_ceil(BYTES_PER_TOKEN),
            ..Self::default()
        };
        let limit = ["max_tokens", "max_completion_tokens"].iter().find_map(|k| value.get(*k));
        if limit.and_then(Value::as_u64).is_none_or(|n| n == 0) {
            return Err("`max_tokens` is required, a number above 0".into());
        }
        request.read_tools(value.get("tools"))?;
        request.read_messages(value.get("messages"))?;
        request.read_format(value.get("response_format"))?;
        request.role = match headers.get("x-muster-role").and_then(|h| h.to_str().ok()) {
            Some(word) => Some(Role::parse(word).ok_or_else(|| format!("there is no role `{word}`"))?),
            None => OPENINGS.iter().find(|(_, words)| request.prompt.contains(words)).map(|(role, _)| *role),
        };
        Ok(request)
    }

    fn read_tools(&mut self, tools: Option<&Value>) -> Result<(), String> {
        let Some(tools) = tools else { return Ok(()) };
        let tools =
            tools.as_array().filter(|t| !t.is_empty()).ok_or("`tools` must be a list that is not empty")?;
        for (n, tool) in tools.iter().enumerate() {
            let at = |what: &str| format!("`tools[{n}]` {what}");
            if text(tool, "type") != Some("function") {
                return Err(at("must be of type function"));
            }
            let name = tool.pointer("/function/name").and_then(Value::as_str).unwrap_or("");
            let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
            if name.is_empty() || name.len() > 64 || !name.bytes().all(word) {
                return Err(at("needs a name of 1 to 64 letters, digits, _ and -"));
            }
            if tool.pointer("/function/parameters/type").and_then(Value::as_str) != Some("object") {
                return Err(at("needs parameters of type object"));
            }
            if !self.tools.insert(name.to_owned()) {
                return Err(at("has a name that another tool has too"));
            }
        }
        Ok(())
    }

    /// Every call is answered exactly once, in order, before anything else; ids are unique.
    fn read_messages(&mut self, messages: Option<&Value>) -> Result<(), String> {
        let messages = messages.and_then(Value::as_array).filter(|m| !m.is_empty());
        let messages = messages.ok_or("`messages` is required, a list that is not empty")?;
        let mut open: VecDeque<String> = VecDeque::new();
        for (n, message) in messages.iter().enumerate() {
            let at = |what: &str| format!("`messages[{n}]` {what}");
            let role = text(message, "role").unwrap_or("");
            let content = content(message.get("content")).ok_or_else(|| at("has content that is no text"))?;
            if role == "tool" {
                let id = text(message, "tool_call_id").ok_or_else(|| at("needs a tool_call_id"))?;
                match open.pop_front() {
                    Some(expected) if expected == id => {}
                    Some(expected) => {
                        return Err(at(&format!("answers `{id}`, but the next open call is `{expected}`")));
                    }
                    None => return Err(at(&format!("answers `{id}`, but no call is open"))),
                }
                self.last_result = content.clone();
                self.results.push_str(&content);
                self.results.push('\n');
                continue;
            }
            if let Some(id) = open.front() {
                return Err(at(&format!("comes before the call `{id}` was answered")));
            }
            match role {
                "system" | "developer" | "user" => {
                    if content.is_empty() {
                        return Err(at("is empty"));
                    }
                    self.prompt.push_str(&content);
                    self.prompt.push('\n');
                }
                "assistant" => {
                    self.turns += 1;
                    let calls = message.get("tool_calls").map_or(Ok(&[][..]), |c| {
                        c.as_array()
                            .map(Vec::as_slice)
                            .filter(|c| !c.is_empty())
                            .ok_or_else(|| at("has tool_calls that are no list, or an empty one"))
                    })?;
                    if content.is_empty() && calls.is_empty() {
                        return Err(at("has neither content nor calls"));
                    }
                    for call in calls {
                        open.push_back(self.read_call(call).map_err(|p| at(&p))?);
                    }
                }
                other => return Err(at(&format!("has the unknown role `{other}`"))),
            }
        }
        if let Some(id) = open.front() {
            return Err(format!("the call `{id}` was never answered"));
        }
        match messages.last().and_then(|m| text(m, "role")) {
            Some("assistant") => {
                Err("the last message is the assistant's: there is nothing to answer".into())
            }
            _ => Ok(()),
        }
    }

    fn read_call(&mut self, call: &Value) -> Result<String, String> {
        let id = text(call, "id").filter(|id| !id.is_empty()).ok_or("has a call without id")?;
        if !self.call_ids.insert(id.to_owned()) {
            return Err(format!("has the call id `{id}` for the second time"));
        }
        if call.pointer("/function/name").and_then(Value::as_str).is_none_or(str::is_empty) {
            return Err(format!("has the call `{id}` without a name"));
        }
        let arguments = call.pointer("/function/arguments").and_then(Value::as_str);
        let arguments: Option<Value> = arguments.and_then(|a| serde_json::from_str(a).ok());
        if !arguments.is_some_and(|a| a.is_object()) {
            return Err(format!("has the call `{id}` with arguments that are no JSON object in a string"));
        }
        Ok(id.to_owned())
    }

    fn read_format(&mut self, format: Option<&Value>) -> Result<(), String> {
        let Some(format) = format else { return Ok(()) };
        if !self.tools.is_empty() {
            return Err("`tools` and `response_format` together: one of them would be dropped".into());
        }
        match text(format, "type") {
            Some("text") => Ok(()),
            Some("json_object") if self.prompt.contains("JSON") => Ok(()),
            Some("json_object") => {
                Err("'messages' must contain the word JSON for response_format json_object".into())
            }
            Some("json_schema") => {
                let schema = format.pointer("/json_schema/schema").filter(|s| s.is_object());
                if schema.is_none() || format.pointer("/json_schema/name").and_then(Value::as_str).is_none() {
                    return Err("`response_format.json_schema` needs a name and a schema".into());
                }
                self.items =
                    schema.and_then(|s| s.pointer("/properties/items/maxItems")).and_then(Value::as_u64);
                Ok(())
            }
            _ => Err("`response_format.type` must be text, json_object or json_schema".into()),
        }
    }
}

fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

fn flag(value: Option<&Value>, name: &str) -> Result<bool, String> {
    match value {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(_) => Err(format!("`{name}` must be true or false")),
    }
}

/// Content as text; `None` when it is neither text nor parts of text and images. Null is an empty one.
fn content(value: Option<&Value>) -> Option<String> {
    match value {
        None | Some(Value::Null) => Some(String::new()),
        Some(Value::String(text)) => Some(text.clone()),
        // Images stand beside the words and say nothing here.
        Some(Value::Array(parts)) => {
            parts.iter().filter(|p| text(p, "type") != Some("image_url")).map(|p| text(p, "text")).collect()
        }
        Some(Value::Bool(_) | Value::Number(_) | Value::Object(_)) => None,
    }
}
