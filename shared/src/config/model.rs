//! The section `model`: endpoint, tiers, limits, how the fleet behaves towards the endpoint.

use crate::ticket::Tier;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

/// The model endpoint and which model serves which tier.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Model {
    /// Base URL of the server, such as `http://127.0.0.1:11434/v1` or `https://api.anthropic.com/v1`. Empty: no model.
    pub url: String,
    #[serde(serialize_with = "super::redacted")]
    pub api_key: SecretString,
    pub cheap: String,
    pub standard: String,
    pub strong: String,
    /// The protocol that the server speaks.
    pub wire: Wire,
    /// How tools are called.
    pub dialect: Dialect,
    /// Try out a model's ways when the fleet meets it for the first time: a few short calls.
    pub probe: bool,
    /// What was learnt of a model is forgotten after this, in seconds.
    pub probe_expiry_s: u64,
    pub connect_timeout_ms: u64,
    /// A stream that brings no line for this long has stalled.
    pub idle_timeout_ms: u64,
    /// A whole call may take this long, retries included.
    pub call_timeout_ms: u64,
    /// A call whose process gives no sign of life for so long is dead: its place in flight is free, its reservation is
    /// settled at its worst case.
    pub call_expiry_ms: u64,
    /// HTTP requests for one answer, whatever the reasons.
    pub calls_per_answer_max: u32,
    pub output_tokens_max: u32,
    /// Calls under way in the whole fleet, for each endpoint and model; 0: no cap.
    pub in_flight_max: u32,
    /// Requests a minute that the provider allows, for each endpoint and model; 0: learnt from its 429s.
    pub requests_per_minute: u32,
    /// Network failures in a row after which the fleet stops calling the endpoint; 0: never.
    pub breaker_failures: u32,
    /// Until one call tries whether it is back.
    pub breaker_open_ms: u64,
    pub response_bytes_max: usize,
    /// What is kept of one request and its answer, redacted; 0: nothing.
    pub record_bytes_max: usize,
    pub temperature: f32,
    /// Money for a million tokens, in millionths of a dollar.
    pub input_microusd_per_mtok: u64,
    pub output_microusd_per_mtok: u64,
}

/// The protocol of the model's server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wire {
    /// Anthropic's for its own address, OpenAI's for every other.
    #[default]
    Auto,
    /// Chat completions as OpenAI and most servers have them.
    Openai,
    /// Messages as Anthropic has them.
    Anthropic,
}

/// How a model is told of tools and calls them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// Native first, then down the ladder at each refusal.
    #[default]
    Auto,
    /// The server's own tool calls.
    Native,
    /// One JSON object a message, held to it by JSON mode.
    Json,
    /// `<tool_call><function>…</function><args>…</args></tool_call>` in the text.
    Xml,
    /// `TOOL: name` and `ARGS: {…}` lines.
    Text,
}

impl Model {
    /// The model that serves the tier; a tier without a model of its own has the standard one.
    #[must_use]
    pub fn name(&self, tier: Tier) -> &str {
        let name = match tier {
            Tier::Cheap => &self.cheap,
            Tier::Standard => &self.standard,
            Tier::Strong => &self.strong,
        };
        if name.is_empty() { &self.standard } else { name }
    }

    /// Whether the server speaks Anthropic's protocol: as configured, or by its address.
    #[must_use]
    pub fn speaks_anthropic(&self) -> bool {
        match self.wire {
            Wire::Openai => false,
            Wire::Anthropic => true,
            Wire::Auto => {
                let rest = self.url.split_once("://").map_or(self.url.as_str(), |(_, rest)| rest);
                let host = rest.split(['/', ':']).next().unwrap_or("");
                host == "anthropic.com" || host.ends_with(".anthropic.com")
            }
        }
    }

    /// Whether a model is configured at all.
    #[must_use]
    pub fn is_configured(&self) -> bool {
        !self.url.is_empty()
    }
}

impl Default for Model {
    fn default() -> Self {
        Self {
            url: String::new(),
            api_key: SecretString::default(),
            cheap: String::new(),
            standard: String::new(),
            strong: String::new(),
            wire: Wire::Auto,
            dialect: Dialect::Auto,
            probe: true,
            probe_expiry_s: 7 * 86_400,
            connect_timeout_ms: 5_000,
            idle_timeout_ms: 120_000,
            call_timeout_ms: 900_000,
            call_expiry_ms: 60_000,
            calls_per_answer_max: 3,
            output_tokens_max: 4_096,
            in_flight_max: 0,
            requests_per_minute: 0,
            breaker_failures: 5,
            breaker_open_ms: 5_000,
            response_bytes_max: 8 * 1024 * 1024,
            record_bytes_max: 256 * 1024,
            temperature: 0.2,
            input_microusd_per_mtok: 0,
            output_microusd_per_mtok: 0,
        }
    }
}
