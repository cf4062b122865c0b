//! Tool calls that a model left in its text (A7): Hermes and `<function=…>` markup, fenced and bare JSON.
//!
//! Only a known tool's name makes a call of it; an answer that merely talks about JSON stays an answer.

use crate::model::tolerant;
use crate::model::wire::RawCall;
use crate::tool::{self, ToolDecl};
use serde_json::{Map, Value};

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";
const FUNCTION: &str = "<function=";

/// What the text turned out to be.
#[derive(Debug, PartialEq)]
pub(in crate::model) enum Reading {
    /// No call in it.
    Text,
    /// No call; the answer without the dialect's own wrapping.
    Answer(String),
    /// Calls, and the text before them.
    Calls {
        before: String,
        calls: Vec<RawCall>,
        /// Not in the form that was asked for: counted as a repair.
        stray: bool,
    },
    /// A call was meant but cannot be read; the model must be asked again. The text before it is no answer either.
    Unreadable { before: String, problem: String, truncated: bool },
}

/// Looks for calls of `tools` in a text.
pub(in crate::model) fn read(text: &str, tools: &[ToolDecl]) -> Reading {
    if tools.is_empty() {
        return Reading::Text;
    }
    let markup = [OPEN, FUNCTION].iter().filter_map(|m| text.find(m)).min();
    match markup {
        Some(start) => read_markup(&text[..start], &text[start..], tools),
        None => read_json(text, tools),
    }
}

fn read_markup(before: &str, marked: &str, tools: &[ToolDecl]) -> Reading {
    let mut calls = vec![];
    for block in blocks(marked) {
        match block_calls(block, tools) {
            Ok(more) => calls.extend(more),
            Err((problem, truncated)) => {
                let before = before.trim_end().to_owned();
                return Reading::Unreadable { before, problem, truncated };
            }
        }
    }
    if let Some(unknown) = calls.iter().find(|c| tool::find(tools, &c.name).is_none()) {
        return Reading::Unreadable {
            before: before.trim_end().to_owned(),
            problem: format!("there is no tool `{}`", unknown.name),
            truncated: false,
        };
    }
    Reading::Calls { before: before.trim_end().to_owned(), calls, stray: true }
}

/// The insides of the `<tool_call>` blocks, closed or not; or the whole when there is no such tag.
fn blocks(marked: &str) -> Vec<&str> {
    if !marked.starts_with(OPEN) {
        return vec![marked];
    }
    marked
        .split(OPEN)
        .skip(1)
        .map(|block| block.split_once(CLOSE).map_or(block, |(inside, _)| inside).trim())
        .collect()
}

fn block_calls(block: &str, tools: &[ToolDecl]) -> Result<Vec<RawCall>, (String, bool)> {
    if block.contains(FUNCTION) {
        return block.split(FUNCTION).skip(1).map(|f| function_call(f, tools)).collect();
    }
    // A closing brace gets lost at the end of the outer object (vLLM): nothing but the brace is missing then.
    let closed = format!("{block}}}");
    let parsed = match tolerant::json(block) {
        Err(e) if e.truncated && block.ends_with('}') => tolerant::json(&closed).map_err(|_| e),
        other => other,
    };
    match parsed {
        Ok((value, _)) => match json_call(&value) {
            Some(call) => Ok(vec![call]),
            None => Err(("the block has no `name` and `arguments`".to_owned(), false)),
        },
        Err(e) => Err((e.problem, e.truncated)),
    }
}

/// `search>\n<parameter=q>\nrust\n</parameter>\n</function>`
fn function_call(text: &str, tools: &[ToolDecl]) -> Result<RawCall, (String, bool)> {
    let cut = || ("the function block is not complete".to_owned(), true);
    let (name, rest) = text.split_once('>').ok_or_else(cut)?;
    let name = name.trim().trim_matches(['"', '\'']);
    let schema = tool::find(tools, name).map(|t| &*t.schema);
    let inside = rest.split_once("</function>").map(|(inside, _)| inside);
    let mut arguments = Map::new();
    // Without its end, the last parameter must be complete at least.
    for parameter in inside.unwrap_or(rest).split("<parameter=").skip(1) {
        let (key, value) = parameter.split_once('>').ok_or_else(cut)?;
        let (value, _) = match value.split_once("</parameter>") {
            Some(parts) => parts,
            None if inside.is_some() => (value, ""),
            None => return Err(cut()),
        };
        let key = key.trim().trim_matches(['"', '\'']);
        let value = value.strip_prefix('\n').unwrap_or(value);
        let value = value.strip_suffix('\n').unwrap_or(value);
        arguments.insert(key.to_owned(), typed(value, schema, key));
    }
    if inside.is_none() && arguments.is_empty() {
        return Err(cut());
    }
    Ok(RawCall { id: String::new(), name: name.to_owned(), arguments: Value::Object(arguments) })
}

/// Markup has no types: the schema says whether a value is text.
pub(super) fn typed(value: &str, schema: Option<&Value>, key: &str) -> Value {
    let kind = schema.and_then(|s| s.pointer("/properties")?.get(key)?.get("type")?.as_str());
    match kind {
        Some("integer" | "number" | "boolean" | "array" | "object") => {
            tolerant::json(value.trim()).map_or_else(|_| value.into(), |(v, _)| v)
        }
        Some(_) | None => value.into(),
    }
}

/// The whole text, or a fence at its end, is nothing but calls of known tools.
fn read_json(text: &str, tools: &[ToolDecl]) -> Reading {
    let answer = text.trim();
    let (before, body) = match (answer.find("```"), tolerant::fenced(answer)) {
        (Some(start), Some((inside, after))) if after.trim().is_empty() => (&answer[..start], inside.trim()),
        _ => ("", answer),
    };
    if !body.starts_with(['{', '[']) {
        return Reading::Text;
    }
    let mut values = vec![];
    match tolerant::json(body) {
        Ok((Value::Array(items), _)) => values = items,
        Ok((value, _)) => values.push(value),
        Err(_) => {
            // Several objects, one after the other; or the doubled braces of a template's typo.
            let single = body.strip_prefix('{').and_then(|b| b.strip_suffix('}')).map(str::trim);
            if let Some(Ok((value, _))) = single.map(tolerant::json) {
                values.push(value);
            } else {
                let parts = tolerant::balanced(body);
                let covered: usize = parts.iter().map(|p| p.len()).sum();
                let between = body.chars().filter(|c| c.is_whitespace() || *c == ',').count();
                if covered + between >= body.len() {
                    values = parts.iter().filter_map(|p| tolerant::json(p).ok()).map(|(v, _)| v).collect();
                }
            }
        }
    }
    let calls: Vec<RawCall> =
        values.iter().filter_map(json_call).filter(|call| tool::find(tools, &call.name).is_some()).collect();
    if calls.is_empty() || calls.len() != values.len() {
        return Reading::Text;
    }
    Reading::Calls { before: before.trim_end().to_owned(), calls, stray: true }
}

/// `{"name": …, "arguments": {…}}`, `parameters` instead, or OpenAI's own nesting under `function`; nothing else.
fn json_call(value: &Value) -> Option<RawCall> {
    let object = value.as_object()?;
    let object = match object.get("function") {
        Some(Value::Object(inner)) => inner,
        _ => object,
    };
    let name = object.get("name")?.as_str()?;
    let arguments = object.get("arguments").or_else(|| object.get("parameters"))?;
    let known = ["name", "arguments", "parameters", "id", "type"];
    object.keys().all(|k| known.contains(&k.as_str())).then(|| RawCall {
        id: String::new(),
        name: name.to_owned(),
        arguments: arguments.clone(),
    })
}
