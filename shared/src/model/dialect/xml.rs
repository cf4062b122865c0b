//! Markup: `<tool_call><function>name</function><args>{…}</args></tool_call>`.

use super::content::{self, Reading};
use super::prompted::{self, Answered, Forms};
use super::{Dressed, Speech};
use crate::model::wire::RawCall;
use crate::model::{Message, ToolCall, tolerant, wording};
use crate::tool::{self, ToolDecl};
use serde_json::{Map, Value};
use std::borrow::Cow;

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";
const ARGS: &str = "<args>";
const ARGS_END: &str = "</args>";

pub(super) struct Xml;

impl Speech for Xml {
    fn word(&self) -> &'static str {
        "xml"
    }

    fn dress<'a>(&self, messages: &'a [Message], tools: &'a [ToolDecl]) -> Dressed<'a> {
        let forms = Forms { instructions: wording::tools_xml, turn, results };
        Dressed {
            messages: Cow::Owned(prompted::rewrite(messages, tools, &forms)),
            tools: &[],
            json_mode: false,
        }
    }

    fn read(&self, text: &str, tools: &[ToolDecl]) -> Reading {
        let Some(start) = text.find(OPEN).filter(|_| !tools.is_empty()) else {
            return content::read(text, tools);
        };
        let mut rest = &text[start..];
        if rest[OPEN.len()..].trim_start().starts_with(['{', '`']) || rest.contains("<function=") {
            // Another markup, which the model brought along from its training.
            return content::read(text, tools);
        }
        let before = text[..start].trim_end().to_owned();
        let mut calls = vec![];
        while let Some(open) = rest.find(OPEN) {
            match block(&rest[open + OPEN.len()..], tools) {
                Ok((call, behind)) => {
                    calls.push(call);
                    rest = behind;
                }
                Err((problem, truncated)) => {
                    return Reading::Unreadable { before, problem: problem.to_owned(), truncated };
                }
            }
        }
        Reading::Calls { before, calls, stray: false }
    }
}

/// One block behind its opening tag, and what follows it.
fn block<'a>(text: &'a str, tools: &[ToolDecl]) -> Result<(RawCall, &'a str), (&'static str, bool)> {
    let cut = ("the tool_call block is not complete", true);
    let inside = text.trim_start();
    let named = match inside.strip_prefix("<function>") {
        Some(named) => named,
        None if "<function>".starts_with(inside) => return Err(cut),
        None => return Err(("a tool_call block begins with <function>name</function>", false)),
    };
    let (name, rest) = named.split_once("</function>").ok_or(cut)?;
    let name = name.trim();
    let call = |arguments: Value| RawCall { id: String::new(), name: name.to_owned(), arguments };
    let Some(args) = rest.trim_start().strip_prefix(ARGS) else {
        // No arguments at all: only a closed block says that none were meant.
        let (between, behind) = rest.split_once(CLOSE).ok_or(cut)?;
        return match between.trim().is_empty() {
            true => Ok((call(Value::Null), behind)),
            false => Err(("the arguments stand in <args>…</args>", false)),
        };
    };
    let args = args.trim_start();
    // JSON is followed to its end first: a string in it may hold the closing tag.
    if let Some((json, behind)) = tolerant::leading(args) {
        let behind = behind.trim_start();
        let behind = behind.strip_prefix(ARGS_END).unwrap_or(behind).trim_start();
        return Ok((call(json.into()), behind.strip_prefix(CLOSE).unwrap_or(behind)));
    }
    let (raw, behind) = args.split_once(ARGS_END).ok_or(cut)?;
    let behind = behind.trim_start();
    let behind = behind.strip_prefix(CLOSE).unwrap_or(behind);
    let raw = raw.trim();
    if raw.starts_with('<') {
        let schema = tool::find(tools, name).map(|t| &*t.schema);
        return match elements(raw, schema) {
            Some(arguments) => Ok((call(Value::Object(arguments)), behind)),
            None => Err(("<args> holds one JSON object", false)),
        };
    }
    Ok((call(raw.into()), behind))
}

/// `<q>rust</q><limit>3</limit>`: an element for each argument, as some models write it.
fn elements(mut raw: &str, schema: Option<&Value>) -> Option<Map<String, Value>> {
    let mut arguments = Map::new();
    while !raw.is_empty() {
        let (key, rest) = raw.strip_prefix('<')?.split_once('>')?;
        let (value, rest) = rest.split_once(&format!("</{key}>"))?;
        arguments.insert(key.to_owned(), content::typed(value.trim(), schema, key));
        raw = rest.trim_start();
    }
    Some(arguments)
}

fn turn(text: &str, calls: &[ToolCall]) -> String {
    let mut parts = vec![text.to_owned()];
    parts.extend(calls.iter().map(|c| {
        let arguments = prompted::arguments(c);
        format!("{OPEN}<function>{}</function>{ARGS}{arguments}{ARGS_END}{CLOSE}", c.name)
    }));
    parts.retain(|p| !p.is_empty());
    parts.join("\n")
}

fn results(results: &[Answered<'_>]) -> String {
    let one = |r: &Answered<'_>| {
        // A result must not end its own block.
        let content = r.content.replace("</tool_result>", "<\\/tool_result>");
        format!("<tool_result><function>{}</function>\n{content}\n</tool_result>", r.name)
    };
    results.iter().map(one).collect::<Vec<_>>().join("\n")
}
