//! The one client for language models: what is asked, what comes back, and the front door [`Model`].
//!
//! Callers speak in the types of this file and never see a provider's JSON. Below it, one noun a file:
//! `wire` with `openai` and `anthropic` (wire formats), `dialect` (how a call or a structured answer is asked of this model), `sse` and
//! `exchange` (one HTTP request), `session` (the budget of one answer and the only retries there are), `chain` (which
//! model answers when another is out), `governor` (the fleet's manners) and `account` (whose money it is),
//! `structured` (validated JSON), `tolerant` (reading what models really send), `error` and `record`.

mod account;
mod anthropic;
mod arguments;
mod chain;
mod dialect;
mod error;
mod exchange;
mod governor;
mod hint;
mod history;
mod image;
mod openai;
mod probe;
mod record;
mod session;
mod size;
mod sse;
mod structured;
#[cfg(test)]
mod tests;
mod tolerant;
mod transcript;
mod wire;
mod wording;

pub use account::Account;
pub use error::{ErrorClass, ModelError};
pub use image::{Image, images, without_images};
pub use probe::Findings;
pub use record::CallRecord;
pub use structured::Schema;
pub use transcript::redacted;

use crate::config;
use crate::telemetry::genai;
use crate::ticket::Tier;
use crate::tool::ToolDecl;
use chain::{Chain, Rest};
use dialect::Memory;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use session::Session;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use wire::Wire;

/// One turn of a conversation. Serialisable: an attempt's step log keeps them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    System(String),
    User(String),
    /// Shown by the user's side; a model that takes no images reads its name.
    Image(Image),
    Assistant {
        text: String,
        /// Kept apart from the text; shown to nobody but the model that wrote it.
        reasoning: String,
        calls: Vec<ToolCall>,
    },
    /// The answer to one call; every call of an assistant turn has exactly one, in the same order.
    Tool {
        call_id: String,
        content: String,
    },
}

/// A tool call as the model made it, its id unique within the conversation (A10).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    /// The arguments as an object, not yet validated against the tool's schema, or why they are none. A call with
    /// bad arguments is never run: its problem goes back to the model under the same id.
    pub args: Result<Map<String, Value>, BadArgs>,
}

/// Arguments that are no JSON object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadArgs {
    /// What the model sent, at most 2,000 bytes of it.
    pub raw: String,
    /// What to tell the model.
    pub problem: String,
    /// The reply was cut off in the middle of them (A12).
    pub truncated: bool,
}

/// What is asked of a model.
pub struct Ask<'a> {
    /// `planner`, `worker` or `reviewer`: a word for records and metrics.
    pub role: &'static str,
    pub tier: Tier,
    pub messages: &'a [Message],
    /// Empty: no tool may be called. Sent sorted by name, whatever their order here.
    pub tools: &'a [ToolDecl],
    /// 0 means the configured `model.output_tokens_max`.
    pub output_tokens_max: u32,
    /// Ends the call at once; the connection is closed, which frees the server's slot.
    pub stop: &'a CancellationToken,
    /// Called whenever a part of the answer arrived: the ticket's progress clock.
    pub on_bytes: &'a (dyn Fn() + Send + Sync),
    /// Called with true when the call begins to wait for its turn at the endpoint, with false when it waits no more.
    pub on_wait: &'a (dyn Fn(bool) + Send + Sync),
}

/// For callers whose clock does not mind a wait.
pub fn ignore_wait(_: bool) {}

/// Why a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    Stop,
    ToolCalls,
    /// Cut off by a token limit. Its calls are all marked as bad: nothing of it is run.
    Length,
    /// Withheld by the provider's content filter.
    Filter,
}

impl Finish {
    /// The word of records and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::ToolCalls => "tool_calls",
            Self::Length => "length",
            Self::Filter => "filter",
        }
    }
}

/// Tokens of one request or of a whole answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// Part of `input_tokens` that the server had cached.
    pub cached_tokens: u64,
    /// The server named no usage: estimated from the bytes, so that a budget never counts nothing.
    pub estimated: bool,
}

impl Usage {
    fn add(&mut self, record: &CallRecord) {
        self.input_tokens += record.input_tokens;
        self.output_tokens += record.output_tokens;
        self.cached_tokens += record.cached_tokens;
        self.estimated |= record.estimated;
    }
}

/// A model's answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    pub text: String,
    pub reasoning: String,
    pub calls: Vec<ToolCall>,
    pub finish: Finish,
    /// Of all requests of this answer together.
    pub usage: Usage,
    /// HTTP requests that this answer took.
    pub requests: u32,
    /// How often something in it was read tolerantly or asked again.
    pub repairs: u32,
    pub model: String,
    pub duration_ms: u64,
    /// One a request, failed ones too; to be booked by the caller (I10).
    pub records: Vec<CallRecord>,
}

/// The client. Cheap to clone; one for each process, so that what it learns of a model is learnt once.
#[derive(Clone)]
pub struct Model {
    inner: Arc<Inner>,
    /// Those that answer when it is out, each with the tier that it is for.
    behind: Arc<[(Option<Tier>, Arc<Inner>)]>,
    account: Option<Account>,
}

struct Inner {
    http: reqwest::Client,
    config: config::Model,
    wire: Wire,
    memory: Memory,
    rest: Rest,
}

impl Inner {
    fn new(config: &config::Model) -> Result<Arc<Self>, ModelError> {
        let url = reqwest::Url::parse(&config.url)
            .map_err(|e| ModelError::new(ErrorClass::Ours, format!("model.url `{}`: {e}", config.url)))?;
        let mut builder = reqwest::Client::builder()
            .connect_timeout(Duration::from_millis(config.connect_timeout_ms))
            // A redirect would carry the key to another host.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("muster/", env!("CARGO_PKG_VERSION")));
        if url.host_str().is_some_and(is_loopback) {
            builder = builder.no_proxy();
        }
        let http = builder
            .build()
            .map_err(|e| ModelError::new(ErrorClass::Ours, format!("cannot make an HTTP client: {e}")))?;
        Ok(Arc::new(Self {
            http,
            config: config.clone(),
            wire: Wire::of(config),
            memory: Memory::new(config.dialect, config.images),
            rest: Rest::default(),
        }))
    }

    fn endpoint(&self, model: &str) -> String {
        governor::endpoint(&self.config.url, model)
    }
}

impl Model {
    /// Makes the client; nothing is sent.
    ///
    /// # Errors
    /// Class `Ours` when the URL is empty or is none.
    pub fn new(config: &config::Model) -> Result<Self, ModelError> {
        let behind = config.behind();
        let behind = behind.iter().map(|(tier, section)| Ok((*tier, Inner::new(section)?)));
        Ok(Self {
            inner: Inner::new(config)?,
            behind: behind.collect::<Result<_, ModelError>>()?,
            account: None,
        })
    }

    /// The chain of a tier, each model by itself.
    #[must_use]
    pub fn links(&self, tier: Tier) -> Vec<Self> {
        let alone = |inner: &Arc<Inner>| Self {
            inner: Arc::clone(inner),
            behind: Arc::from([]),
            account: self.account.clone(),
        };
        let behind = self.behind.iter().filter(|(of, _)| of.is_none_or(|of| of == tier));
        std::iter::once(alone(&self.inner)).chain(behind.map(|(_, inner)| alone(inner))).collect()
    }

    /// The model's name that serves the tier: part of an actor's identity.
    #[must_use]
    pub fn name(&self, tier: Tier) -> &str {
        self.inner.config.name(tier)
    }

    /// Name and server, for people.
    #[must_use]
    pub fn described(&self, tier: Tier) -> String {
        self.inner.described(tier)
    }

    fn span(&self, ask: &Ask<'_>) -> tracing::Span {
        let (inner, server) = (&self.inner, self.inner.host());
        genai::chat(&genai::Chat {
            provider: inner.wire.provider(),
            model: inner.config.name(ask.tier),
            server: &server,
            output_tokens_max: u64::from(ask.output_tokens_max),
        })
    }

    /// The same client, whose calls are reserved and settled on this account.
    #[must_use]
    pub fn on_account(&self, account: Account) -> Self {
        Self { account: Some(account), ..self.clone() }
    }

    /// One answer: text, tool calls, or both. All retries happen in here, within `calls_per_answer_max` requests
    /// and `call_timeout_ms`; a model that is out is asked at most twice before the next of its chain is.
    ///
    /// Cancellation safe: dropping the future closes the connection; its records are lost then, so prefer `stop`.
    ///
    /// # Errors
    /// [`ModelError`] says whose fault it was and carries the records of what was sent all the same.
    pub async fn chat(&self, ask: &Ask<'_>) -> Result<Reply, ModelError> {
        let span = self.span(ask);
        let ended = self.chat_in_span(ask).instrument(span.clone()).await;
        match &ended {
            Ok(r) => traced(&span, &r.model, r.finish.as_str(), &r.records),
            Err(error) => genai::failed(&span, error.class.as_str()),
        }
        ended
    }

    async fn chat_in_span(&self, ask: &Ask<'_>) -> Result<Reply, ModelError> {
        let mut chain = Chain::new(self, ask.tier);
        let mut reply = loop {
            // Boxed: the model may be tried out in there first.
            let (link, leg) = Box::pin(chain.next(ask)).await;
            match Session::new(&link.inner, ask, link.account.as_ref(), leg).chat().await {
                Ok(reply) => break reply,
                Err(error) => chain.failed(&link, ask.role, error)?,
            }
        };
        let before = chain.records;
        reply.requests += u32::try_from(before.len()).unwrap_or(u32::MAX);
        for record in &before {
            reply.usage.add(record);
        }
        reply.records.splice(0..0, before);
        Ok(reply)
    }

    /// One JSON value that is valid against the schema and accepted by `check`. Problems are quoted back to the
    /// model; all requests together stay within `calls_per_answer_max`. `ask.tools` must be empty: servers that
    /// get both quietly drop one.
    ///
    /// Cancellation safe as [`Model::chat`].
    ///
    /// # Errors
    /// Class `Reply` when no answer was acceptable, with the last problems as its detail; else as [`Model::chat`].
    pub async fn structured<T>(
        &self,
        ask: &Ask<'_>,
        name: &str,
        schema: &Value,
        check: impl Fn(&Value) -> Result<T, Vec<String>>,
    ) -> Result<(T, Vec<CallRecord>), ModelError> {
        let span = self.span(ask);
        let ended = self.structured_in_span(ask, name, schema, check).instrument(span.clone()).await;
        match &ended {
            Ok((_, records)) => {
                let last = records.last();
                let (model, finish) = last.map_or(("", ""), |r| (r.model.as_str(), r.finish.as_str()));
                traced(&span, model, finish, records);
            }
            Err(error) => genai::failed(&span, error.class.as_str()),
        }
        ended
    }

    async fn structured_in_span<T>(
        &self,
        ask: &Ask<'_>,
        name: &str,
        schema: &Value,
        check: impl Fn(&Value) -> Result<T, Vec<String>>,
    ) -> Result<(T, Vec<CallRecord>), ModelError> {
        let mut chain = Chain::new(self, ask.tier);
        loop {
            // Boxed: the model may be tried out in there first.
            let (link, leg) = Box::pin(chain.next(ask)).await;
            let session = Session::new(&link.inner, ask, link.account.as_ref(), leg);
            match structured::ask(session, ask, name, schema, &check).await {
                Ok((value, mut records)) => {
                    records.splice(0..0, chain.records);
                    return Ok((value, records));
                }
                Err(error) => chain.failed(&link, ask.role, error)?,
            }
        }
    }
}

/// Books an answer's requests on its span.
fn traced(span: &tracing::Span, model: &str, finish: &str, records: &[CallRecord]) {
    let answered = genai::Answered {
        model,
        finish,
        input_tokens: records.iter().map(|r| r.input_tokens).sum(),
        output_tokens: records.iter().map(|r| r.output_tokens).sum(),
        requests: records.len(),
    };
    genai::answered(span, &answered);
}

/// A proxy from the environment never serves this machine's own addresses.
fn is_loopback(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}
