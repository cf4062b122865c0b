//! Messages of the Model Context Protocol: JSON-RPC 2.0 as values. Pure; what moves them is [`super::stdio`], [`super::http`].

use serde_json::{Value, json};

/// The protocol's version that is asked for; what the server answers is taken.
pub(super) const VERSION: &str = "2025-06-18";
/// Method not found.
const NO_SUCH_METHOD: i64 = -32601;
/// Errors by which a server says that it did nothing: no request, no such method, wrong arguments.
const NOTHING_DONE: std::ops::RangeInclusive<i64> = -32602..=-32600;

/// What became of a request that was answered, or not.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(super) enum Fault {
    /// The server is not there any more, or talks nonsense; whether it did what it was asked is not known.
    #[error("{0}")]
    Gone(String),
    #[error("it did not answer in time")]
    Late,
    /// It answered with an error.
    #[error("{message} ({code})")]
    Refused { code: i64, message: String },
    /// Nothing was sent.
    #[error("{0}")]
    NotSent(String),
}

impl Fault {
    /// The server itself is no longer of use.
    pub(super) fn is_end(&self) -> bool {
        match self {
            Self::Gone(_) | Self::Late => true,
            Self::Refused { .. } | Self::NotSent(_) => false,
        }
    }

    /// Surely nothing happened.
    pub(super) fn nothing_done(&self) -> bool {
        match self {
            Self::NotSent(_) => true,
            Self::Refused { code, .. } => NOTHING_DONE.contains(code),
            Self::Gone(_) | Self::Late => false,
        }
    }
}

/// A message from the server, seen by one who waits for the answer to `id`.
#[derive(Debug, PartialEq)]
pub(super) enum Message {
    Answer(Result<Value, Fault>),
    /// The server asks something; this goes back.
    Asks(Value),
    /// A notification, or an answer that nobody waits for any more.
    Other,
}

pub(super) fn request(id: u64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

pub(super) fn initialized() -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/initialized"})
}

/// The first request's parameters. Nothing is offered to the server: no files, no model, no questions to people.
pub(super) fn hello() -> Value {
    json!({"protocolVersion": VERSION, "capabilities": {},
        "clientInfo": {"name": "muster", "version": env!("CARGO_PKG_VERSION")}})
}

/// Reads one message.
pub(super) fn read(message: &Value, id: u64) -> Message {
    if let Some(method) = message["method"].as_str() {
        let Some(theirs) = message.get("id").filter(|id| !id.is_null()) else { return Message::Other };
        return Message::Asks(if method == "ping" {
            json!({"jsonrpc": "2.0", "id": theirs, "result": {}})
        } else {
            json!({"jsonrpc": "2.0", "id": theirs, "error": {"code": NO_SUCH_METHOD, "message": "not offered"}})
        });
    }
    if message["id"].as_u64() != Some(id) {
        return Message::Other;
    }
    Message::Answer(match message.get("error").filter(|e| !e.is_null()) {
        Some(error) => Err(Fault::Refused {
            code: error["code"].as_i64().unwrap_or_default(),
            message: error["message"].as_str().unwrap_or("an error").chars().take(500).collect(),
        }),
        None => Ok(message["result"].clone()),
    })
}

/// The text of a call's result, and whether the tool says that it failed.
pub(super) fn said(result: &Value) -> (String, bool) {
    let mut parts = vec![];
    for part in result["content"].as_array().into_iter().flatten() {
        let bytes = |field: &str| part[field].as_str().map_or(0, str::len) / 4 * 3;
        parts.push(match part["type"].as_str().unwrap_or_default() {
            "text" => part["text"].as_str().unwrap_or_default().to_owned(),
            "resource" => match part["resource"]["text"].as_str() {
                Some(text) => text.to_owned(),
                None => format!("[{}, not shown]", part["resource"]["uri"].as_str().unwrap_or("a resource")),
            },
            "resource_link" => format!("[see {}]", part["uri"].as_str().unwrap_or_default()),
            kind => format!("[{kind} of {} bytes, not shown]", bytes("data")),
        });
    }
    if parts.is_empty() && !result["structuredContent"].is_null() {
        parts.push(result["structuredContent"].to_string());
    }
    let text = if parts.is_empty() { "(no content)".into() } else { parts.join("\n") };
    (text, result["isError"].as_bool().unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_apart() {
        let read = |value: Value| read(&value, 7);
        assert_eq!(read(json!({"id": 7, "result": {"a": 1}})), Message::Answer(Ok(json!({"a": 1}))));
        assert_eq!(read(json!({"id": 6, "result": {}})), Message::Other);
        assert_eq!(read(json!({"method": "notifications/message", "params": {}})), Message::Other);
        let Message::Asks(back) = read(json!({"id": "p", "method": "ping"})) else { panic!() };
        assert_eq!(back, json!({"jsonrpc": "2.0", "id": "p", "result": {}}));
        // A server that wants a model or a person's words gets none.
        let Message::Asks(back) = read(json!({"id": 1, "method": "sampling/createMessage"})) else {
            panic!()
        };
        assert_eq!(back["error"]["code"], -32601);
        let Message::Answer(Err(fault)) = read(json!({"id": 7, "error": {"code": -32602, "message": "bad"}}))
        else {
            panic!()
        };
        assert!(fault.nothing_done() && !fault.is_end());
        for odd in [json!(null), json!([]), json!(5), json!({"id": null, "error": {}})] {
            assert_eq!(read(odd), Message::Other);
        }
        let inner = Fault::Refused { code: -32603, message: String::new() };
        assert!(!inner.nothing_done() && !Fault::Late.nothing_done());
    }

    #[test]
    fn results_are_text() {
        let result = json!({"isError": true, "content": [{"type": "text", "text": "a"}, {"type": "image", "data": "AAAA"},
            {"type": "resource", "resource": {"uri": "f", "text": "b"}}, {"type": "resource_link", "uri": "u"}]});
        assert_eq!(said(&result), ("a\n[image of 3 bytes, not shown]\nb\n[see u]".into(), true));
        assert_eq!(said(&json!({"structuredContent": {"x": 1}})), ("{\"x\":1}".into(), false));
        assert_eq!(said(&json!(null)), ("(no content)".into(), false));
    }
}
