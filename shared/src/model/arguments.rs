//! Raw calls into [`ToolCall`]s: arguments into objects (A9), ids made unique (A10), cut calls marked (A12).

use super::tolerant;
use super::wire::RawCall;
use super::{BadArgs, Finish, Message, ToolCall, wording};
use crate::tool::{self, ToolDecl};
use serde_json::{Map, Value};
use std::collections::HashSet;

/// Most bytes kept of arguments that could not be read.
const RAW_BYTES_MAX: usize = 2_000;

/// Interprets the calls of one turn. The number says how many of them had to be repaired; a missing id counts only
/// where calls have ids.
pub(super) fn read(
    raw: Vec<RawCall>,
    with_ids: bool,
    finish: Option<Finish>,
    tools: &[ToolDecl],
    history: &[Message],
) -> (Vec<ToolCall>, u32) {
    let mut used = ids(history);
    let turn = history.iter().filter(|m| matches!(m, Message::Assistant { .. })).count();
    let mut repairs = 0;
    let calls = raw
        .into_iter()
        .enumerate()
        .map(|(ordinal, call)| {
            let id = unique(&call.id, turn, ordinal, &mut used);
            repairs += u32::from(with_ids && id != call.id);
            let schema = tool::find(tools, &call.name).map(|t| &*t.schema);
            let args = match object(&call.arguments, schema) {
                // What a length limit cut is never run, not even the calls that look complete: the model may have
                // meant more (DESIGN.md 7).
                Ok(_) | Err(_) if finish == Some(Finish::Length) => {
                    Err(bad(&raw_text(&call.arguments), wording::CUT.to_owned(), true))
                }
                Ok((args, repaired)) => {
                    repairs += u32::from(repaired);
                    Ok(args)
                }
                Err(bad) => Err(bad),
            };
            ToolCall { id, name: call.name, args }
        })
        .collect();
    (calls, repairs)
}

fn ids(history: &[Message]) -> HashSet<String> {
    let mut used = HashSet::new();
    for message in history {
        if let Message::Assistant { calls, .. } = message {
            used.extend(calls.iter().map(|c| c.id.clone()));
        }
    }
    used
}

/// The server's id, or a made-up one that is the same each time this turn is read.
fn unique(id: &str, turn: usize, ordinal: usize, used: &mut HashSet<String>) -> String {
    let mut candidate = id.to_owned();
    let mut again = 0;
    while candidate.is_empty() || used.contains(&candidate) {
        candidate = match again {
            0 => format!("call_{turn}_{ordinal}"),
            n => format!("call_{turn}_{ordinal}_{n}"),
        };
        again += 1;
    }
    used.insert(candidate.clone());
    candidate
}

fn object(arguments: &Value, schema: Option<&Value>) -> Result<(Map<String, Value>, bool), BadArgs> {
    let (value, repaired) = match arguments {
        Value::String(text) if text.trim().is_empty() => (Value::Null, false),
        Value::String(text) => match tolerant::json(text) {
            // The whole object was encoded twice.
            Ok((Value::String(inner), _)) if inner.trim_start().starts_with('{') => {
                match tolerant::json(&inner) {
                    Ok((value, _)) => (value, true),
                    Err(e) => return Err(bad(text, wording::bad_arguments(&e.problem), e.truncated)),
                }
            }
            Ok(parsed) => parsed,
            Err(e) if e.truncated => return Err(bad(text, wording::CUT.to_owned(), true)),
            Err(e) => return Err(bad(text, wording::bad_arguments(&e.problem), false)),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            (arguments.clone(), false)
        }
    };
    match value {
        Value::Null => Ok((Map::new(), repaired)),
        Value::Object(mut object) => {
            let nested = decode_nested(&mut object, schema);
            Ok((object, repaired || nested))
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            let problem = format!("they must be one JSON object, not {}", kind(&value));
            Err(bad(&raw_text(arguments), wording::bad_arguments(&problem), false))
        }
    }
}

/// A string is decoded only where the schema wants a list or an object and nothing textual.
fn decode_nested(object: &mut Map<String, Value>, schema: Option<&Value>) -> bool {
    let Some(properties) = schema.and_then(|s| s.get("properties")).and_then(Value::as_object) else {
        return false;
    };
    let mut decoded = false;
    for (key, value) in object.iter_mut() {
        let wanted = properties.get(key).and_then(|p| p.get("type")).and_then(Value::as_str);
        let (Some(wanted @ ("array" | "object")), Value::String(text)) = (wanted, &*value) else { continue };
        if let Ok((inner, _)) = tolerant::json(text)
            && (inner.is_array() && wanted == "array" || inner.is_object() && wanted == "object")
        {
            *value = inner;
            decoded = true;
        }
    }
    decoded
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn raw_text(arguments: &Value) -> String {
    match arguments {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            arguments.to_string()
        }
    }
}

fn bad(raw: &str, problem: String, truncated: bool) -> BadArgs {
    BadArgs { raw: tolerant::cut(raw, RAW_BYTES_MAX).to_owned(), problem, truncated }
}
