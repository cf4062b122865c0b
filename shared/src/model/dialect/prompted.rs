//! Tools without native calls (A16): described in the system prompt, called in Hermes markup, answered as text.

use crate::model::{Message, ToolCall, wording};
use crate::tool::ToolDecl;
use serde_json::json;

/// The same conversation for a model that knows no tools.
pub(in crate::model) fn rewrite(messages: &[Message], tools: &[ToolDecl]) -> Vec<Message> {
    let mut out: Vec<Message> = Vec::with_capacity(messages.len());
    for message in messages {
        match message {
            Message::System(_) | Message::User(_) => out.push(message.clone()),
            Message::Assistant { text, reasoning, calls } => {
                let mut parts = vec![text.clone()];
                parts.extend(calls.iter().map(markup));
                parts.retain(|p| !p.is_empty());
                out.push(Message::Assistant {
                    text: parts.join("\n"),
                    reasoning: reasoning.clone(),
                    calls: vec![],
                });
            }
            Message::Tool { content, .. } => {
                let response = format!("<tool_response>\n{content}\n</tool_response>");
                // The answers of one turn come in one message: chat templates want the roles to alternate.
                match out.last_mut() {
                    Some(Message::User(text)) if text.starts_with("<tool_response>") => {
                        text.push('\n');
                        text.push_str(&response);
                    }
                    _ => out.push(Message::User(response)),
                }
            }
        }
    }
    let mut sorted: Vec<&ToolDecl> = tools.iter().collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    let catalogue: Vec<String> = sorted
        .iter()
        .map(|t| json!({"name": t.name, "description": t.description, "parameters": t.schema}).to_string())
        .collect();
    let words = wording::tools(&catalogue);
    match out.first_mut() {
        Some(Message::System(text)) => {
            text.push_str("\n\n");
            text.push_str(&words);
        }
        _ => out.insert(0, Message::System(words)),
    }
    out
}

fn markup(call: &ToolCall) -> String {
    let arguments = match &call.args {
        Ok(object) => json!(object),
        Err(bad) => json!({"_raw_arguments": bad.raw}),
    };
    format!("<tool_call>\n{}\n</tool_call>", json!({"name": call.name, "arguments": arguments}))
}
