//! What must hold of every request to a model, whoever sends it.

use serde_json::Value;
use std::collections::BTreeSet;

/// What is wrong with the body of a chat request; empty: nothing.
#[must_use]
pub fn problems(body: &Value) -> Vec<String> {
    let mut found = vec![];
    if body["model"].as_str().is_none_or(str::is_empty) {
        found.push("no model is named".into());
    }
    tools(body, &mut found);
    format(body, &mut found);
    history(body, &mut found);
    found
}

fn tools(body: &Value, found: &mut Vec<String>) {
    let Some(tools) = body["tools"].as_array() else {
        if !body["tools"].is_null() {
            found.push("tools is no list".into());
        }
        return;
    };
    if tools.is_empty() {
        found.push("an empty list of tools: several servers refuse it".into());
    }
    let mut names: Vec<&str> = vec![];
    for tool in tools {
        let name = tool["function"]["name"].as_str().unwrap_or_default();
        if tool["type"] != "function" || name.is_empty() || !tool["function"]["parameters"].is_object() {
            found.push(format!("a tool is malformed: {tool}"));
        }
        names.push(name);
    }
    if !names.is_sorted() {
        // B7: prompts must be the same bytes from call to call.
        found.push(format!("tools are not sorted: {names:?}"));
    }
    if names.iter().collect::<BTreeSet<_>>().len() != names.len() {
        found.push(format!("two tools of one name: {names:?}"));
    }
}

fn format(body: &Value, found: &mut Vec<String>) {
    match body["response_format"]["type"].as_str() {
        None if body["response_format"].is_null() => {}
        Some("json_schema") => {
            let named = &body["response_format"]["json_schema"];
            if named["name"].as_str().is_none_or(str::is_empty) || !named["schema"].is_object() {
                found.push("json_schema without name or schema".into());
            }
        }
        Some("json_object" | "text") => {}
        other => found.push(format!("unknown response_format {other:?}")),
    }
}

fn history(body: &Value, found: &mut Vec<String>) {
    let Some(messages) = body["messages"].as_array().filter(|m| !m.is_empty()) else {
        found.push("no messages".into());
        return;
    };
    let mut open: Vec<String> = vec![];
    let mut seen = BTreeSet::new();
    for (n, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        if role != "tool" && !open.is_empty() {
            found.push(format!("message {n} ({role}) comes before the results of {open:?}"));
            open.clear();
        }
        match role {
            "system" if n > 0 && messages[..n].iter().any(|m| m["role"] != "system") => {
                found.push(format!("message {n}: a system message in the middle"));
            }
            // Words and images, as a provider takes them.
            "user" if message["content"].is_array() => {
                let parts = message["content"].as_array().map_or(&[][..], Vec::as_slice);
                let sound = |p: &Value| match p["type"].as_str() {
                    Some("text") => p["text"].as_str().is_some_and(|t| !t.trim().is_empty()),
                    Some("image_url") => {
                        p["image_url"]["url"].as_str().is_some_and(|u| u.starts_with("data:image/"))
                    }
                    Some(_) | None => false,
                };
                if parts.is_empty() || !parts.iter().all(sound) {
                    found.push(format!("message {n} ({role}) has parts that are not sound"));
                }
            }
            "system" | "user" => {
                if message["content"].as_str().is_none_or(|c| c.trim().is_empty()) {
                    found.push(format!("message {n} ({role}) is empty"));
                }
            }
            "assistant" => open = calls(n, message, &mut seen, found),
            "tool" => {
                let id = message["tool_call_id"].as_str().unwrap_or_default();
                match open.iter().position(|o| o == id) {
                    Some(at) => {
                        open.remove(at);
                    }
                    None => found
                        .push(format!("message {n}: a result for {id:?}, which was not called or has one")),
                }
                if !message["content"].is_string() {
                    found.push(format!("message {n}: a tool result without text"));
                }
            }
            other => found.push(format!("message {n}: unknown role {other:?}")),
        }
    }
    if !open.is_empty() {
        found.push(format!("the calls {open:?} have no result"));
    }
    if messages.last().is_some_and(|m| m["role"] == "assistant") {
        found.push("the last message is the assistant's own".into());
    }
}

/// Checks the calls of an assistant's message and gives their ids.
fn calls(n: usize, message: &Value, seen: &mut BTreeSet<String>, found: &mut Vec<String>) -> Vec<String> {
    let Some(calls) = message["tool_calls"].as_array() else {
        if message["content"].as_str().is_none_or(|c| c.trim().is_empty()) {
            found.push(format!("message {n}: the assistant says and calls nothing"));
        }
        return vec![];
    };
    let mut ids = vec![];
    for call in calls {
        let id = call["id"].as_str().unwrap_or_default().to_owned();
        if id.is_empty() || !seen.insert(id.clone()) {
            // A10: ids are unique in a history, whatever the server gave.
            found.push(format!("message {n}: call id {id:?} is empty or used twice"));
        }
        if call["type"] != "function" || call["function"]["name"].as_str().is_none_or(str::is_empty) {
            found.push(format!("message {n}: a malformed call {call}"));
        }
        let arguments = call["function"]["arguments"].as_str();
        if arguments.is_none_or(|a| serde_json::from_str::<Value>(a).is_err()) {
            found.push(format!(
                "message {n}: arguments that are no JSON text: {}",
                call["function"]["arguments"]
            ));
        }
        ids.push(id);
    }
    ids
}
