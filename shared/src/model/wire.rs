//! What every wire format has in common: what is asked, what comes back, and how an answer is put together.
//!
//! A format's own JSON stays in its file, `openai` or `anthropic`.

use super::dialect::Traits;
use super::error::Fault;
use super::{Finish, Message, Usage, anthropic, openai};
use crate::config;
use crate::store::Tokens;
use crate::tool::ToolDecl;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

/// What an answer must look like.
pub(super) struct Format<'a> {
    pub(super) name: &'a str,
    pub(super) schema: &'a Value,
}

/// An answer as it came, not yet interpreted.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) text: String,
    /// Of the wire format's own form; for nobody but its writer.
    pub(super) reasoning: String,
    pub(super) calls: Vec<RawCall>,
    /// `None`: the stream ended without saying so (A4).
    pub(super) finish: Option<Finish>,
    pub(super) usage: Option<Usage>,
}

/// A call as it came.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct RawCall {
    pub(super) id: String,
    pub(super) name: String,
    /// A string of JSON, or the object itself (Ollama, Anthropic), or null.
    pub(super) arguments: Value,
}

/// What one request asks for.
pub(super) struct Request<'a> {
    pub(super) model: &'a str,
    pub(super) messages: &'a [Message],
    pub(super) tools: &'a [ToolDecl],
    pub(super) format: Option<&'a Format<'a>>,
    /// One JSON object of whatever shape, where the format knows such a mode.
    pub(super) json_mode: bool,
    pub(super) output_tokens_max: u32,
    pub(super) temperature: f32,
    pub(super) traits: Traits,
}

/// Puts a draft together from a stream's events, or from one whole answer.
pub(super) trait Assemble: Send {
    /// Whether something of an answer arrived.
    fn has_begun(&self) -> bool;

    /// Whether the server said that the answer is complete.
    fn has_ended(&self) -> bool;

    /// Whether the usage is there that comes last: after it nothing is missing, whatever happens to the connection.
    fn has_usage(&self) -> bool;

    /// Whether the last event of all was there.
    fn is_closed(&self) -> bool;

    /// Takes one JSON text.
    ///
    /// # Errors
    /// The server sent an error in it (A3).
    fn take(&mut self, value: &Value) -> Result<(), Fault>;

    fn into_draft(self: Box<Self>) -> Draft;
}

/// A wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    Openai,
    Anthropic,
}

impl Wire {
    /// As configured, or by the address.
    pub(super) fn of(config: &config::Model) -> Self {
        if config.speaks_anthropic() { Self::Anthropic } else { Self::Openai }
    }

    /// The word for it in traces.
    pub(super) fn provider(self) -> &'static str {
        match self {
            Self::Openai => "openai",
            Self::Anthropic => "anthropic",
        }
    }

    /// Tokens as the provider counts them against its limits: Anthropic leaves out what it had cached.
    pub(super) fn counted(self, usage: Usage) -> Tokens {
        let input = match self {
            Self::Openai => usage.input_tokens,
            Self::Anthropic => usage.input_tokens.saturating_sub(usage.cached_tokens),
        };
        Tokens { input, output: usage.output_tokens }
    }

    pub(super) fn body(self, request: &Request<'_>) -> Value {
        match self {
            Self::Openai => openai::body(request),
            Self::Anthropic => anthropic::body(request),
        }
    }

    pub(super) fn assembly(self, format: Option<&str>) -> Box<dyn Assemble> {
        match self {
            Self::Openai => Box::new(openai::Assembly::default()),
            Self::Anthropic => Box::new(anthropic::Assembly::new(format)),
        }
    }

    /// A request without its body: address and key.
    pub(super) fn post(
        self,
        http: &reqwest::Client,
        base: &str,
        key: &SecretString,
    ) -> reqwest::RequestBuilder {
        let path = match self {
            Self::Openai => openai::PATH,
            Self::Anthropic => anthropic::PATH,
        };
        self.keyed(http.post(address(base, path)), key)
    }

    pub(super) fn get(
        self,
        http: &reqwest::Client,
        base: &str,
        path: &str,
        key: &SecretString,
    ) -> reqwest::RequestBuilder {
        self.keyed(http.get(address(base, path)), key)
    }

    fn keyed(self, request: reqwest::RequestBuilder, key: &SecretString) -> reqwest::RequestBuilder {
        let key = key.expose_secret();
        match self {
            Self::Openai if key.is_empty() => request,
            Self::Openai => request.bearer_auth(key),
            Self::Anthropic => {
                let request = request.header(anthropic::VERSION.0, anthropic::VERSION.1);
                if key.is_empty() { request } else { request.header(anthropic::KEY_HEADER, key) }
            }
        }
    }
}

fn address(base: &str, path: &str) -> String {
    format!("{}/{path}", base.trim_end_matches('/'))
}
