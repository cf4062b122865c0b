//! HTTP calls that the operator declared as tools. Address and token are the operator's; the model fills in arguments.

use super::ToolError;
use anyhow::{Context as _, bail};
use reqwest::{Client, RequestBuilder, Url};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};
use shared::egress::{Guard, Refused};
use shared::prompt;
use shared::tool::Effect;
use shared::tool::http::{HttpTool, Method};
use std::time::Duration;

/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// A declared tool, ready to be called.
pub(super) struct Caller {
    tool: HttpTool,
    token: Option<SecretString>,
    guard: Guard,
    client: Client,
}

impl Caller {
    /// # Errors
    /// A token that is not set, or a client that cannot be made.
    pub(super) fn new(tool: &HttpTool, guard: &Guard) -> anyhow::Result<Self> {
        let token = match tool.token_env.as_str() {
            "" => None,
            name => match std::env::var(name) {
                Ok(token) if !token.is_empty() => Some(SecretString::from(token)),
                Ok(_) | Err(_) => bail!(
                    "tool `{}`: {name} is not set\n  hint: set it in the worker's environment, or leave token_env out",
                    tool.name
                ),
            },
        };
        // The host is the operator's: placeholders stand in path and query.
        let url = Url::parse(&tool.url.replace(['{', '}'], ""))
            .with_context(|| format!("tool `{}`: url", tool.name))?;
        let guard = guard.clone().also(&url);
        // No redirects: one would carry the token and the arguments to another host.
        let client = guard.client().timeout(Duration::from_millis(tool.timeout_ms)).build();
        Ok(Self { tool: tool.clone(), token, guard, client: client.context("an HTTP client")? })
    }

    /// Makes the call. `key` names the effect to the service, which may refuse to do it twice.
    pub(super) async fn call(&self, args: &Map<String, Value>, key: &str) -> Result<String, ToolError> {
        let mut request = self.request(args)?;
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.expose_secret());
        }
        if !key.is_empty() {
            request = request.header("Idempotency-Key", key);
        }
        let name = &self.tool.name;
        let response = match request.send().await {
            Ok(response) => response,
            Err(e) if Refused::of(&e).is_some() => {
                let why = Refused::of(&e).map(|r| r.to_string()).unwrap_or_default();
                return Err(ToolError::NotDone(format!("{name}: {why}; nothing was done")));
            }
            // Nothing was sent.
            Err(e) if e.is_connect() || e.is_builder() => {
                return Err(ToolError::NotDone(format!("{name} could not be reached; nothing was done")));
            }
            Err(e) => {
                return Err(self.lost(if e.is_timeout() {
                    "it did not answer in time"
                } else {
                    "its line broke"
                }));
            }
        };
        let status = response.status();
        let text = match read(response).await {
            Ok(text) => self.redacted(text),
            Err(_) => return Err(self.lost("its answer broke off")),
        };
        let said = prompt::fence(&text, &format!("answer of {name}"));
        if status.is_success() {
            return Ok(said);
        }
        if status.is_client_error() {
            return Err(ToolError::NotDone(format!(
                "{name} refused the call ({}):\n{said}",
                status.as_u16()
            )));
        }
        Err(self.lost(&format!("it answered {}:\n{said}", status.as_u16())))
    }

    /// Sent, and what came of it is not known.
    fn lost(&self, why: &str) -> ToolError {
        let text = format!("{}: {why}", self.tool.name);
        match self.tool.effect {
            Effect::Reads | Effect::Attempt => ToolError::Tell(text),
            Effect::World => ToolError::Unknown(text),
        }
    }

    fn request(&self, args: &Map<String, Value>) -> Result<RequestBuilder, ToolError> {
        let in_url = self.tool.placeholders();
        let mut url = self.tool.url.clone();
        for name in &in_url {
            let value = args.get(*name).map(plain).unwrap_or_default();
            url = url.replace(&format!("{{{name}}}"), &segment(name, &value)?);
        }
        let url = Url::parse(&url).map_err(|e| ToolError::NotDone(format!("{}: {e}", self.tool.name)))?;
        self.guard
            .check(&url)
            .map_err(|e| ToolError::NotDone(format!("{}: {e}; nothing was done", self.tool.name)))?;
        let rest: Map<String, Value> = args
            .iter()
            .filter(|(k, _)| !in_url.contains(&k.as_str()))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        let query: Vec<(&String, String)> = rest.iter().map(|(k, v)| (k, plain(v))).collect();
        Ok(match self.tool.method {
            Method::Get => self.client.get(url).query(&query),
            Method::Delete => self.client.delete(url).query(&query),
            Method::Post => self.client.post(url).json(&rest),
            Method::Put => self.client.put(url).json(&rest),
            Method::Patch => self.client.patch(url).json(&rest),
        })
    }

    /// I12: a service that echoes the token does not show it to the model.
    fn redacted(&self, text: String) -> String {
        match &self.token {
            Some(token) => text.replace(token.expose_secret(), "[redacted]"),
            None => text,
        }
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// One segment of a path and never more: what the model says cannot lead to another address.
fn segment(name: &str, value: &str) -> Result<String, ToolError> {
    if value.is_empty() || value == "." || value == ".." {
        return Err(ToolError::NotDone(format!("`{name}` must not be {value:?}; nothing was done")));
    }
    let is_plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'~');
    Ok(value
        .bytes()
        .map(|b| if is_plain(&b) { char::from(b).to_string() } else { format!("%{b:02X}") })
        .collect())
}

async fn read(mut response: reqwest::Response) -> reqwest::Result<String> {
    let mut bytes = vec![];
    while let Some(piece) = response.chunk().await? {
        let room = ANSWER_BYTES_MAX.saturating_sub(bytes.len());
        bytes.extend_from_slice(&piece[..piece.len().min(room)]);
        if piece.len() >= room {
            bytes.extend_from_slice(b"\n[cut]");
            break;
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn url_of(order: Value) -> Result<String, String> {
        let tool: HttpTool = serde_json::from_value(json!({
            "name": "refund", "bundle": "orders", "description": "d", "method": "POST",
            "url": "http://127.0.0.1:9/orders/{order}/refund",
        }))
        .unwrap();
        let args = json!({"order": order, "amount": 3});
        let guard = Guard::new(&Default::default()).unwrap();
        let request = Caller::new(&tool, &guard)
            .unwrap()
            .request(args.as_object().unwrap())
            .map_err(|e| e.to_string())?;
        Ok(request.build().unwrap().url().to_string())
    }

    #[test]
    fn an_argument_never_leaves_its_segment_of_the_path() {
        assert_eq!(url_of(json!("A-1")).unwrap(), "http://127.0.0.1:9/orders/A-1/refund");
        assert_eq!(url_of(json!(17)).unwrap(), "http://127.0.0.1:9/orders/17/refund");
        assert_eq!(
            url_of(json!("../admin?x=1#é")).unwrap(),
            "http://127.0.0.1:9/orders/..%2Fadmin%3Fx%3D1%23%C3%A9/refund"
        );
        for value in ["..", ".", ""] {
            assert!(url_of(json!(value)).is_err(), "{value}");
        }
    }
}
