//! Lines: `TOOL: name`, then `ARGS: {…}`. The last rung: any model that can write can write these.

use super::content::{self, Reading};
use super::prompted::{self, Answered, Forms};
use super::{Dressed, Speech};
use crate::model::wire::RawCall;
use crate::model::{Message, ToolCall, tolerant, wording};
use crate::tool::{self, ToolDecl};
use serde_json::Value;
use std::borrow::Cow;

const TOOL: &str = "TOOL:";
const ARGS: &str = "ARGS:";

pub(super) struct Text;

impl Speech for Text {
    fn word(&self) -> &'static str {
        "text"
    }

    fn dress<'a>(&self, messages: &'a [Message], tools: &'a [ToolDecl]) -> Dressed<'a> {
        let forms = Forms { instructions: wording::tools_text, turn, results };
        Dressed {
            messages: Cow::Owned(prompted::rewrite(messages, tools, &forms)),
            tools: &[],
            json_mode: false,
        }
    }

    fn read(&self, text: &str, tools: &[ToolDecl]) -> Reading {
        if tools.is_empty() {
            return Reading::Text;
        }
        let mut at = 0;
        let mut before = None;
        let mut calls = vec![];
        while let Some((start, name, behind)) = tool_line(text, at) {
            let known = tool::find(tools, name).is_some();
            let rest = text[behind..].trim_start();
            let arguments = rest.trim_start_matches(['*', '`']).strip_prefix(ARGS);
            match arguments {
                None if !known && (rest.is_empty() || !ARGS.starts_with(rest)) => {
                    // A line of prose that only looks like the form.
                    at = behind;
                }
                None => {
                    let truncated = ARGS.starts_with(rest);
                    let problem = format!("`{TOOL} {name}` is not followed by `{ARGS} {{…}}`");
                    return Reading::Unreadable {
                        before: told(text, before.unwrap_or(start)),
                        problem,
                        truncated,
                    };
                }
                Some(arguments) => {
                    before.get_or_insert(start);
                    let body = arguments.trim_start_matches([' ', '\t', '*', '`']).trim_start();
                    let (raw, left) = match tolerant::leading(body) {
                        Some(parts) => parts,
                        None if body.starts_with(['{', '[']) || body.is_empty() => {
                            let problem = format!("the {ARGS} of `{name}` are not complete");
                            let before = told(text, before.unwrap_or(start));
                            return Reading::Unreadable { before, problem, truncated: true };
                        }
                        None => body.split_once('\n').unwrap_or((body, "")),
                    };
                    calls.push(RawCall {
                        id: String::new(),
                        name: name.to_owned(),
                        arguments: Value::from(raw),
                    });
                    at = text.len() - left.len();
                }
            }
        }
        match before {
            None => content::read(text, tools),
            // What follows the last call is a result that the model made up.
            Some(start) => Reading::Calls { before: told(text, start), calls, stray: false },
        }
    }
}

/// The text before the first call, without the fence that may open there.
fn told(text: &str, start: usize) -> String {
    text[..start].trim_end().trim_end_matches("```text").trim_end_matches("```").trim_end().to_owned()
}

/// The next `TOOL: name` line at or behind `from`: where it starts, the name, where the next line starts.
fn tool_line(text: &str, from: usize) -> Option<(usize, &str, usize)> {
    let mut at = from;
    for line in text[from..].split_inclusive('\n') {
        let start = at;
        at += line.len();
        let bare = line.trim_start().trim_start_matches(['*', '`', '-', '#', ' ']);
        let Some(name) = bare.strip_prefix(TOOL) else { continue };
        // Both may stand on one line.
        let (name, behind) = match name.split_once(ARGS) {
            Some((name, rest)) => (name, at - rest.len() - ARGS.len()),
            None => (name, at),
        };
        let name = name.trim_matches(|c: char| c.is_whitespace() || c == '*' || c == '`');
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if !name.is_empty() && name.chars().all(is_name) {
            return Some((start, name, behind));
        }
    }
    None
}

fn turn(text: &str, calls: &[ToolCall]) -> String {
    let mut parts = vec![text.to_owned()];
    parts.extend(calls.iter().map(|c| format!("{TOOL} {}\n{ARGS} {}", c.name, prompted::arguments(c))));
    parts.retain(|p| !p.is_empty());
    parts.join("\n")
}

fn results(results: &[Answered<'_>]) -> String {
    results.iter().map(|r| format!("RESULT of {}:\n{}", r.name, r.content)).collect::<Vec<_>>().join("\n\n")
}
