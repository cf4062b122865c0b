//! A server elsewhere: streamable HTTP, through the guard. A request is a POST; its answer is one JSON text or a stream of
//! events that holds it.

use super::protocol::{self, Fault, Message};
use anyhow::{Context as _, bail};
use reqwest::{Client, Response, Url};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use shared::egress::{Guard, Refused};
use shared::tool::mcp::McpServer;
use std::time::Duration;

const CONNECT: Duration = Duration::from_secs(10);
/// What an answer has beside the result in it.
const ANSWER_SLACK: usize = 64 * 1024;
const SESSION: &str = "mcp-session-id";
const VERSION: &str = "mcp-protocol-version";

/// The address and how to get there; made once of the configuration.
pub(super) struct Address {
    url: Url,
    token: Option<SecretString>,
    guard: Guard,
    client: Client,
    bytes_max: usize,
}

impl Address {
    /// # Errors
    /// A token that is not set, an address that is none.
    pub(super) fn new(server: &McpServer, guard: &Guard) -> anyhow::Result<Self> {
        let name = &server.name;
        let url = Url::parse(&server.url).with_context(|| format!("MCP server `{name}`: url"))?;
        let token = match server.token_env.as_str() {
            "" => None,
            variable => match std::env::var(variable) {
                Ok(token) if !token.is_empty() => Some(SecretString::from(token)),
                Ok(_) | Err(_) => bail!(
                    "MCP server `{name}`: {variable} is not set\n  hint: set it in the worker's environment, or leave token_env out"
                ),
            },
        };
        let guard = guard.clone().also(&url);
        let client = guard.client().connect_timeout(CONNECT).build().context("an HTTP client")?;
        Ok(Self { url, token, guard, client, bytes_max: server.result_bytes_max + ANSWER_SLACK })
    }
}

/// A session with the server.
pub(super) struct Session<'a> {
    address: &'a Address,
    state: &'a mut State,
}

/// What a session is between two requests.
#[derive(Default)]
pub(super) struct State {
    id: Option<String>,
    version: Option<String>,
}

impl<'a> Session<'a> {
    pub(super) fn new(address: &'a Address, state: &'a mut State) -> Self {
        Self { address, state }
    }

    async fn post(&self, message: &Value) -> Result<Response, Fault> {
        let address = self.address;
        address.guard.check(&address.url).map_err(|e| Fault::NotSent(e.to_string()))?;
        let mut request = address.client.post(address.url.clone()).json(message);
        request = request.header("Accept", "application/json, text/event-stream");
        for (name, value) in [(SESSION, &self.state.id), (VERSION, &self.state.version)] {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        if let Some(token) = &address.token {
            request = request.bearer_auth(token.expose_secret());
        }
        let answer = request.send().await.map_err(|e| match Refused::of(&e) {
            Some(refused) => Fault::NotSent(refused.to_string()),
            None if e.is_connect() => Fault::NotSent("it cannot be reached".into()),
            None => Fault::Gone("its line broke".into()),
        })?;
        match answer.status().as_u16() {
            200..=299 => Ok(answer),
            404 if self.state.id.is_some() => Err(Fault::Gone("it has forgotten the session".into())),
            401 | 403 => {
                Err(Fault::NotSent("it refuses this fleet (an operator has to look at its token)".into()))
            }
            status @ 400..=499 => {
                Err(Fault::Refused { code: -32600, message: format!("it answered {status}") })
            }
            status => Err(Fault::Gone(format!("it answered {status}"))),
        }
    }

    pub(super) async fn tell(&self, message: &Value) -> Result<(), Fault> {
        self.post(message).await.map(drop)
    }

    pub(super) async fn request(&mut self, id: u64, message: &Value) -> Result<Value, Fault> {
        let mut answer = self.post(message).await?;
        let header = |name: &str| answer.headers().get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
        if let Some(session) = header(SESSION) {
            self.state.id = Some(session);
        }
        let is_stream = header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
        let (mut bytes, mut seen) = (vec![], 0);
        loop {
            let piece = answer.chunk().await.map_err(|_| Fault::Gone("its answer broke off".into()))?;
            let is_end = piece.is_none();
            bytes.extend_from_slice(&piece.unwrap_or_default());
            if seen + bytes.len() > self.address.bytes_max {
                return Err(Fault::Gone(format!(
                    "its answer is longer than {} bytes",
                    self.address.bytes_max - ANSWER_SLACK
                )));
            }
            if is_stream {
                while let Some(end) = end_of_event(&bytes, is_end) {
                    seen += end;
                    let event: Vec<u8> = bytes.drain(..end).collect();
                    if let Some(answer) = self.hear(&data(&event), id).await? {
                        return self.checked(answer);
                    }
                }
            } else if is_end {
                let answer = self.hear(&String::from_utf8_lossy(&bytes), id).await?;
                let answer = answer.ok_or_else(|| Fault::Gone("it answered something else".into()))?;
                return self.checked(answer);
            }
            if is_end {
                return Err(Fault::Gone("its stream ended without an answer".into()));
            }
        }
    }

    /// One message; the answer, if it is it.
    async fn hear(&self, text: &str, id: u64) -> Result<Option<Result<Value, Fault>>, Fault> {
        let Ok(message) = serde_json::from_str::<Value>(text) else { return Ok(None) };
        match protocol::read(&message, id) {
            Message::Answer(answer) => Ok(Some(answer)),
            Message::Asks(back) => self.tell(&back).await.map(|()| None),
            Message::Other => Ok(None),
        }
    }

    fn checked(&mut self, answer: Result<Value, Fault>) -> Result<Value, Fault> {
        let mut answer = answer?;
        if let Some(version) = answer["protocolVersion"].as_str() {
            self.state.version = Some(version.to_owned());
        }
        // I12: a server that echoes the token does not show it to the model.
        if let Some(token) = &self.address.token {
            redact(&mut answer, token.expose_secret());
        }
        Ok(answer)
    }
}

fn redact(value: &mut Value, secret: &str) {
    match value {
        Value::String(text) => *text = text.replace(secret, "[redacted]"),
        Value::Array(list) => list.iter_mut().for_each(|v| redact(v, secret)),
        Value::Object(map) => map.values_mut().for_each(|v| redact(v, secret)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Where the first event ends: at an empty line, or at the end of the stream.
fn end_of_event(bytes: &[u8], is_end: bool) -> Option<usize> {
    let marks: [&[u8]; 2] = [b"\n\n", b"\r\n\r\n"];
    let ends = marks.iter().filter_map(|m| Some(bytes.windows(m.len()).position(|w| w == *m)? + m.len()));
    ends.min().or((is_end && !bytes.is_empty()).then_some(bytes.len()))
}

/// The data of an event, its lines joined.
fn data(event: &[u8]) -> String {
    let text = String::from_utf8_lossy(event);
    let lines = text.lines().filter_map(|line| line.strip_prefix("data:"));
    lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_cut_at_empty_lines() {
        let bytes = b": hi\r\n\r\ndata: {\"a\":\ndata: 1}\n\ndata: x";
        let end = end_of_event(bytes, false).unwrap();
        assert_eq!((end, data(&bytes[..end]).as_str()), (8, ""));
        let rest = &bytes[end..];
        let end = end_of_event(rest, false).unwrap();
        assert_eq!(data(&rest[..end]), "{\"a\":\n1}");
        assert_eq!(end_of_event(&rest[end..], false), None);
        assert_eq!(end_of_event(&rest[end..], true), Some(7));
    }
}
