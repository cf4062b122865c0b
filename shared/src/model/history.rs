//! A conversation before it is sent: whether a strict server takes it, and the hash that names it in records.

use super::Message;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Every call answered exactly once, in order, before anything else follows: servers answer 400 otherwise.
pub(super) fn problem(messages: &[Message]) -> Option<String> {
    let mut open: Vec<&str> = vec![];
    for message in messages {
        match message {
            Message::Tool { call_id, .. } if open.first() == Some(&call_id.as_str()) => {
                open.remove(0);
            }
            Message::Tool { call_id, .. } => {
                return Some(format!("the history answers the call `{call_id}` out of turn"));
            }
            Message::System(_) | Message::User(_) | Message::Image(_) | Message::Assistant { .. } => {
                if let Some(id) = open.first() {
                    return Some(format!("the history never answers the call `{id}`"));
                }
                if let Message::Assistant { calls, .. } = message {
                    open = calls.iter().map(|c| c.id.as_str()).collect();
                }
            }
        }
    }
    match open.first() {
        Some(id) => Some(format!("the history never answers the call `{id}`")),
        None if messages.is_empty() => Some("there is no message to send".into()),
        None => None,
    }
}

pub(super) fn prompt_hash(body: &Value) -> String {
    let mut hash = Sha256::new();
    for part in ["system", "messages", "tools"] {
        if let Some(value) = body.get(part) {
            hash.update(value.to_string().as_bytes());
        }
    }
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}
