//! The same conversation for a model that knows no tools: described in the system prompt, called and answered as
//! text in a dialect's own forms.

use crate::model::{Message, ToolCall};
use crate::tool::ToolDecl;
use serde_json::{Value, json};
use std::collections::HashMap;

/// A call's result, with the name of the tool: these dialects have no ids.
pub(super) struct Answered<'a> {
    pub(super) name: &'a str,
    pub(super) content: &'a str,
}

/// How a dialect writes.
pub(super) struct Forms {
    /// The tools, one JSON text each.
    pub(super) instructions: fn(&[String]) -> String,
    /// What the model said: text and calls.
    pub(super) turn: fn(&str, &[ToolCall]) -> String,
    /// The results of one turn's calls, in their order.
    pub(super) results: fn(&[Answered<'_>]) -> String,
}

/// Tools in the first system message, sorted by name: equal prompts are equal bytes (B7).
pub(super) fn rewrite(messages: &[Message], tools: &[ToolDecl], forms: &Forms) -> Vec<Message> {
    let mut out: Vec<Message> = Vec::with_capacity(messages.len() + 1);
    let mut names: HashMap<&str, &str> = HashMap::new();
    let mut open: Vec<Answered<'_>> = vec![];
    // The answers of one turn come in one message, and the next words of the user with them: chat templates want
    // the roles to alternate.
    let flush = |open: &mut Vec<Answered<'_>>, out: &mut Vec<Message>| {
        if !open.is_empty() {
            out.push(Message::User((forms.results)(open)));
            open.clear();
        }
    };
    for message in messages {
        match message {
            Message::Tool { call_id, content } => {
                let name = names.get(call_id.as_str()).copied().unwrap_or("");
                open.push(Answered { name, content });
                continue;
            }
            Message::User(text) if !open.is_empty() => {
                let results = (forms.results)(&open);
                open.clear();
                out.push(Message::User(format!("{results}\n\n{text}")));
            }
            Message::Image(_) => {
                flush(&mut open, &mut out);
                out.push(message.clone());
            }
            Message::System(_) | Message::User(_) => out.push(message.clone()),
            Message::Assistant { text, reasoning, calls } => {
                flush(&mut open, &mut out);
                names = calls.iter().map(|c| (c.id.as_str(), c.name.as_str())).collect();
                let text = (forms.turn)(text, calls);
                out.push(Message::Assistant { text, reasoning: reasoning.clone(), calls: vec![] });
            }
        }
    }
    flush(&mut open, &mut out);
    if tools.is_empty() {
        return out;
    }
    let mut sorted: Vec<&ToolDecl> = tools.iter().collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    let catalogue: Vec<String> = sorted
        .iter()
        .map(|t| json!({"name": t.name, "description": t.description, "parameters": t.schema}).to_string())
        .collect();
    let words = (forms.instructions)(&catalogue);
    match out.first_mut() {
        Some(Message::System(text)) => {
            text.push_str("\n\n");
            text.push_str(&words);
        }
        _ => out.insert(0, Message::System(words)),
    }
    out
}

/// Arguments as they are shown to the model again.
pub(super) fn arguments(call: &ToolCall) -> Value {
    match &call.args {
        Ok(object) => Value::Object(object.clone()),
        Err(bad) => json!({"_raw_arguments": bad.raw}),
    }
}
