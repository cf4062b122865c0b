//! JSON mode: every message is one object, with `tool_calls` or with an `answer`.

use super::content::{self, Reading};
use super::prompted::{self, Answered, Forms};
use super::{Dressed, Speech};
use crate::model::wire::RawCall;
use crate::model::{Message, ToolCall, tolerant, wording};
use crate::tool::ToolDecl;
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// Keys of a message in this dialect; an object with others is a text that happens to be JSON.
const KEYS: [&str; 4] = ["tool_calls", "tool_call", "answer", "thought"];

pub(super) struct Json;

impl Speech for Json {
    fn word(&self) -> &'static str {
        "json"
    }

    fn dress<'a>(&self, messages: &'a [Message], tools: &'a [ToolDecl]) -> Dressed<'a> {
        let forms = Forms { instructions: wording::tools_json, turn, results };
        Dressed {
            messages: Cow::Owned(prompted::rewrite(messages, tools, &forms)),
            tools: &[],
            json_mode: !tools.is_empty(),
        }
    }

    fn read(&self, text: &str, tools: &[ToolDecl]) -> Reading {
        if tools.is_empty() {
            return Reading::Text;
        }
        let answer = text.trim();
        let body = match tolerant::fenced(answer) {
            Some((inside, after)) if answer.starts_with("```") && after.trim().is_empty() => inside.trim(),
            _ => answer,
        };
        let broken = match tolerant::json(body) {
            Ok((Value::Object(object), _)) if is_envelope(&object) => return envelope(&object, ""),
            Ok(_) => return content::read(text, tools),
            Err(broken) => broken,
        };
        if body.starts_with('{') {
            // Several objects: the first one counts, the others are results that the model made up.
            if let Some((first, _)) = tolerant::leading(body)
                && let Ok((Value::Object(object), _)) = tolerant::json(first)
                && is_envelope(&object)
            {
                return envelope(&object, "");
            }
            if begins_envelope(body) {
                return Reading::Unreadable {
                    before: String::new(),
                    problem: broken.problem,
                    truncated: broken.truncated,
                };
            }
        } else {
            // Words around the object. An `answer` alone is no reason to drop them.
            for part in tolerant::balanced(body) {
                if let Ok((Value::Object(object), _)) = tolerant::json(part)
                    && is_envelope(&object)
                    && object.contains_key("tool_calls")
                {
                    let start = body.find(part).unwrap_or(0);
                    return envelope(
                        &object,
                        body[..start].trim_end().trim_end_matches("```json").trim_end(),
                    );
                }
            }
        }
        content::read(text, tools)
    }
}

fn is_envelope(object: &Map<String, Value>) -> bool {
    !object.is_empty()
        && object.keys().all(|k| KEYS.contains(&k.as_str()))
        && !(object.len() == 1 && object.contains_key("thought"))
}

fn begins_envelope(body: &str) -> bool {
    let inside = body.trim_start_matches('{').trim_start();
    inside.is_empty() || KEYS.iter().any(|k| inside.starts_with(&format!("\"{k}\"")))
}

fn envelope(object: &Map<String, Value>, before: &str) -> Reading {
    let unreadable = |problem: &str| Reading::Unreadable {
        before: before.to_owned(),
        problem: problem.to_owned(),
        truncated: false,
    };
    let answer = match object.get("answer") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    };
    let items: Vec<&Value> = match object.get("tool_calls").or_else(|| object.get("tool_call")) {
        None | Some(Value::Null) => vec![],
        Some(Value::Array(items)) => items.iter().collect(),
        Some(one) => vec![one],
    };
    if items.is_empty() {
        return match answer.trim().is_empty() {
            true => unreadable("the message holds neither tool_calls nor an answer"),
            false => Reading::Answer(answer),
        };
    }
    let calls: Option<Vec<RawCall>> = items.into_iter().map(call).collect();
    let Some(calls) = calls else { return unreadable("each of tool_calls needs `name` and `arguments`") };
    let text = if answer.is_empty() { before.to_owned() } else { answer };
    Reading::Calls { before: text, calls, stray: false }
}

fn call(item: &Value) -> Option<RawCall> {
    let item = item.get("function").filter(|f| f.is_object()).unwrap_or(item);
    let name = item.get("name").or_else(|| item.get("function")).and_then(Value::as_str)?;
    let arguments = ["arguments", "args", "parameters"].iter().find_map(|k| item.get(*k));
    let arguments = arguments.cloned().unwrap_or(Value::Null);
    Some(RawCall { id: String::new(), name: name.to_owned(), arguments })
}

fn turn(text: &str, calls: &[ToolCall]) -> String {
    if calls.is_empty() {
        // A broken message that is shown again for its repair stays as it was.
        return if text.trim_start().starts_with('{') {
            text.to_owned()
        } else {
            json!({"answer": text}).to_string()
        };
    }
    let items: Vec<Value> =
        calls.iter().map(|c| json!({"name": c.name, "arguments": prompted::arguments(c)})).collect();
    match text.is_empty() {
        true => json!({"tool_calls": items}),
        false => json!({"answer": text, "tool_calls": items}),
    }
    .to_string()
}

fn results(results: &[Answered<'_>]) -> String {
    let items: Vec<Value> = results.iter().map(|r| json!({"name": r.name, "result": r.content})).collect();
    json!({"tool_results": items}).to_string()
}
