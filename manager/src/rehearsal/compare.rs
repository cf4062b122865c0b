//! Two requests side by side: what of them has to be equal, and the first line in which they are not. Pure.
//!
//! Set aside are times, ids, and the parts of a prompt that tell how far the other tickets are: those depend on who was
//! faster, not on what was asked.

use regex::Regex;
use serde_json::Value;
use std::sync::LazyLock;

/// Headings whose parts tell how far the others are, or what the fleet had learnt by then (`shared/src/prompt`).
const STANDING: [&str; 6] = [
    "# What earlier work of this kind taught",
    "# Where the goal stands",
    "# Facts that others confirmed",
    "# Files in the workspace",
    "# The other tickets",
    "# Confirmed facts",
];
/// Headings that may follow them.
const AFTER: [&str; 5] = [
    "# What the tickets before yours delivered",
    "# Your ticket was tried before",
    "# Already done outside by earlier attempts of your ticket",
    "# Note of the manager or a person",
    "# What a person said",
];
/// Characters of a line that are shown.
const SHOWN_CHARS: usize = 300;

static TIMES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?|\b\d{2}:\d{2}:\d{2}(?:[.,]\d+)?").ok()
});
static IDS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"\b[0-9a-f]{32}\b|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b").ok()
});

/// One part of a request, under the name that people are told.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    name: String,
    text: String,
}

/// The text with times and ids set aside.
pub(crate) fn timeless(text: &str) -> String {
    let mut text = text.to_owned();
    for (pattern, word) in [(&TIMES, "<time>"), (&IDS, "<id>")] {
        if let Some(pattern) = pattern.as_ref() {
            text = pattern.replace_all(&text, word).into_owned();
        }
    }
    text
}

/// The first difference of a request to the recorded one, in words; `None`: they ask the same.
pub(super) fn difference(recorded: &Value, now: &Value) -> Option<String> {
    let (then, now) = (parts(recorded), parts(now));
    for (old, new) in then.iter().zip(&now) {
        if old.name != new.name {
            return Some(format!("{} was recorded, {} comes now", old.name, new.name));
        }
        if let Some(line) = line(&old.text, &new.text) {
            return Some(format!("{}, {line}", old.name));
        }
    }
    match (then.get(now.len()), now.get(then.len())) {
        (None, None) => None,
        (Some(old), _) => Some(format!("{} was recorded and does not come now", old.name)),
        (None, Some(new)) => Some(format!("{} comes now and was not recorded", new.name)),
    }
}

/// The first differing line of two texts.
fn line(old: &str, new: &str) -> Option<String> {
    let (mut old, mut new) = (telling(old).into_iter(), telling(new).into_iter());
    loop {
        let (a, b) = (old.next(), new.next());
        match (a, b) {
            (None, None) => return None,
            (Some((_, a)), Some((_, b))) if a == b => {}
            (a, b) => {
                let at = b.as_ref().or(a.as_ref()).map_or(0, |(n, _)| *n);
                let shown = |line: Option<(usize, String)>| match line {
                    Some((_, text)) => text.chars().take(SHOWN_CHARS).collect(),
                    None => "(nothing)".to_owned(),
                };
                return Some(format!("line {at}:\n  recorded: {}\n  now:      {}", shown(a), shown(b)));
            }
        }
    }
}

/// The lines that have to be equal, with their numbers.
fn telling(text: &str) -> Vec<(usize, String)> {
    let mut standing = false;
    let mut lines = vec![];
    for (n, line) in text.lines().enumerate() {
        if STANDING.contains(&line) {
            standing = true;
        } else if AFTER.contains(&line) || line.starts_with("Date: ") {
            standing = false;
        }
        if !standing && !line.trim().is_empty() {
            lines.push((n + 1, timeless(line)));
        }
    }
    lines
}

/// Messages, tools and format in the order of the request; both wire formats give the same parts.
fn parts(request: &Value) -> Vec<Part> {
    let mut parts = vec![];
    let mut add = |name: String, text: String| {
        if !text.is_empty() {
            parts.push(Part { name, text });
        }
    };
    let messages = request.get("messages").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    // Anthropic's system prompt stands beside the messages, OpenAI's is the first of them.
    let system = request.get("system");
    let mut n = 0;
    if let Some(system) = system {
        n += 1;
        add(format!("message {n} (system)"), words(system));
    }
    for message in messages {
        n += 1;
        let role = message.get("role").and_then(Value::as_str).unwrap_or_default();
        let content = message.get("content").unwrap_or(&Value::Null);
        let role = if role == "tool" { "tool result" } else { role };
        let blocks = match content {
            Value::Array(blocks) => blocks.as_slice(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
                std::slice::from_ref(content)
            }
        };
        for block in blocks {
            match block.get("type").and_then(Value::as_str) {
                Some("tool_result") => {
                    add(format!("message {n} (tool result)"), words(block.get("content").unwrap_or(block)));
                }
                Some("tool_use") => {
                    let name = block.get("name").and_then(Value::as_str).unwrap_or_default();
                    let input = block.get("input").cloned().unwrap_or_default();
                    add(format!("message {n} (call)"), format!("{name}\n{input:#}"));
                }
                Some(_) | None => add(format!("message {n} ({role})"), words(block)),
            }
        }
        for call in message.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            let of = |path: &str| call.pointer(path).and_then(Value::as_str).unwrap_or_default();
            let arguments: Value = serde_json::from_str(of("/function/arguments")).unwrap_or_default();
            add(format!("message {n} (call)"), format!("{}\n{arguments:#}", of("/function/name")));
        }
    }
    for tool in request.get("tools").and_then(Value::as_array).into_iter().flatten() {
        let tool = tool.get("function").unwrap_or(tool);
        let of = |key: &str| tool.get(key).and_then(Value::as_str).unwrap_or_default();
        let schema = tool.get("parameters").or(tool.get("input_schema")).cloned().unwrap_or_default();
        add(format!("tool {}", of("name")), format!("{}\n{schema:#}", of("description")));
    }
    if let Some(format) = request.get("response_format") {
        add("the answer's format".into(), format!("{format:#}"));
    }
    parts
}

/// The text of a message's content or of one of its blocks.
fn words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(words).collect::<Vec<_>>().join("\n"),
        Value::Object(block) => block.get("text").map(words).unwrap_or_default(),
        Value::Null | Value::Bool(_) | Value::Number(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request(task: &str) -> Value {
        json!({"model": "m", "messages": [{"role": "system", "content": "You work."}, {"role": "user", "content": task}]})
    }

    #[test]
    fn the_first_changed_line_is_named_with_its_message() {
        let (old, new) = (
            request("# Your ticket: a\n\nCount rows.\nAll."),
            request("# Your ticket: a\nCount lines.\nAny."),
        );
        let found = difference(&old, &new).unwrap();
        assert_eq!(found, "message 2 (user), line 2:\n  recorded: Count rows.\n  now:      Count lines.");
        let more = json!({"messages": [old["messages"][0], old["messages"][1], {"role": "user", "content": "Again"}]});
        assert_eq!(difference(&old, &more).unwrap(), "message 3 (user) comes now and was not recorded");
        assert_eq!(difference(&more, &old).unwrap(), "message 3 (user) was recorded and does not come now");
    }

    #[test]
    fn times_ids_and_how_far_others_are_make_no_difference() {
        let task = |id: &str, files: &str, at: &str| {
            request(&format!(
                "Goal {id}\n\n# Files in the workspace\n{files}\n\n# Your ticket was tried before\nx\n\nDate: {at}"
            ))
        };
        let old = task("0193f0a0b1c2d3e4f5060718293a4b5c", "- a (1 bytes)", "2026-11-30");
        let new = task("1193f0a0b1c2d3e4f5060718293a4b5d", "- a (1 bytes)\n- b (2 bytes)", "2027-01-01");
        assert_eq!(difference(&old, &new), None);
        assert!(difference(&old, &request("Goal 1")).is_some());
    }

    #[test]
    fn calls_results_tools_and_format_count_and_their_ids_do_not() {
        let of = |id: &str, arguments: &str, result: &str| {
            json!({"messages": [
                {"role": "assistant", "content": "", "tool_calls": [{"id": id, "function": {"name": "f", "arguments": arguments}}]},
                {"role": "tool", "tool_call_id": id, "content": result}]})
        };
        assert_eq!(difference(&of("a", "{\"x\": 1}", "r"), &of("b", "{\"x\":1}", "r")), None);
        assert!(
            difference(&of("a", "{}", "r"), &of("a", "{}", "s"))
                .unwrap()
                .starts_with("message 2 (tool result), line 1")
        );
        assert!(
            difference(&of("a", "{}", "r"), &of("a", "{\"x\":1}", "r"))
                .unwrap()
                .starts_with("message 1 (call)")
        );
        // The same in Anthropic's form, but for the tools' place in the numbering.
        let theirs = json!({"messages": [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "x", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "r"}]}]});
        assert_eq!(difference(&theirs, &of("a", "{}", "r")), None);
        let tools = |about: &str| json!({"messages": [], "tools": [{"function": {"name": "f", "description": about}}]});
        assert!(difference(&tools("a"), &tools("b")).unwrap().starts_with("tool f, line 1"));
    }
}
