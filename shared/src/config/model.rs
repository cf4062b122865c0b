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
    /// Whether images of the workspace are shown to the models.
    pub images: Images,
    /// Images of one conversation; 0: none is shown.
    pub images_max: usize,
    /// Bytes of one image; a larger one is named in words.
    pub image_bytes_max: u64,
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
    /// Tokens a minute that the provider allows, for each endpoint and model; 0: no limit is kept.
    pub input_tokens_per_minute: u64,
    pub output_tokens_per_minute: u64,
    /// Longest time for which the fleet keeps quiet after a 429, whatever the server asks for.
    pub cool_down_max_ms: u64,
    /// Network failures in a row after which the fleet stops calling the endpoint; 0: never.
    pub breaker_failures: u32,
    /// Until one call tries whether it is back.
    pub breaker_open_ms: u64,
    pub response_bytes_max: usize,
    /// What is kept of one request and its answer, redacted; 0: nothing.
    pub record_bytes_max: usize,
    pub temperature: f32,
    /// Money for a million tokens, in millionths of a dollar; of cached input 0 means: as other input.
    pub input_microusd_per_mtok: u64,
    pub cached_input_microusd_per_mtok: u64,
    pub output_microusd_per_mtok: u64,
    /// Prices of single models, which win over those above.
    pub prices: Vec<ModelPrice>,
    /// False: as if `fallback` were empty.
    pub use_fallback: bool,
    /// A call whose endpoint keeps quiet for longer than this goes to the next model of the chain.
    pub fallback_after_ms: u64,
    /// Models that answer, in this order, when that of a tier is out.
    pub fallback: Vec<Fallback>,
}

/// What a model costs: money for a million tokens, in millionths of a dollar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Price {
    pub input: u64,
    /// Input that the server had cached.
    pub cached_input: u64,
    pub output: u64,
}

impl Price {
    /// Millionths of a dollar, rounded up. `cached` is a part of `input`.
    #[must_use]
    pub fn microusd(self, input: u64, cached: u64, output: u64) -> u64 {
        let cached = cached.min(input);
        let sum = u128::from(input - cached) * u128::from(self.input)
            + u128::from(cached) * u128::from(self.cached_input)
            + u128::from(output) * u128::from(self.output);
        u64::try_from(sum.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

/// The price of one model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelPrice {
    pub model: String,
    #[serde(default)]
    pub input_microusd_per_mtok: u64,
    /// 0: as other input.
    #[serde(default)]
    pub cached_input_microusd_per_mtok: u64,
    #[serde(default)]
    pub output_microusd_per_mtok: u64,
}

/// A model that answers when those before it are out.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fallback {
    pub model: String,
    /// The tier that it is for; none: all of them.
    #[serde(default)]
    pub tier: Option<Tier>,
    /// Empty: the server of `model.url`, with its key.
    #[serde(default)]
    pub url: String,
    /// The key for `url`.
    #[serde(default, serialize_with = "super::redacted")]
    pub api_key: SecretString,
    #[serde(default)]
    pub wire: Wire,
    #[serde(default)]
    pub in_flight_max: u32,
    #[serde(default)]
    pub requests_per_minute: u32,
    #[serde(default)]
    pub input_tokens_per_minute: u64,
    #[serde(default)]
    pub output_tokens_per_minute: u64,
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

/// Whether models are shown images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Images {
    /// The probe finds out, or a refusal.
    #[default]
    Auto,
    Yes,
    No,
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

    /// What a model costs.
    #[must_use]
    pub fn price(&self, model: &str) -> Price {
        let (input, cached, output) = match self.prices.iter().find(|p| p.model == model) {
            Some(p) => {
                (p.input_microusd_per_mtok, p.cached_input_microusd_per_mtok, p.output_microusd_per_mtok)
            }
            None => (
                self.input_microusd_per_mtok,
                self.cached_input_microusd_per_mtok,
                self.output_microusd_per_mtok,
            ),
        };
        Price { input, cached_input: if cached == 0 { input } else { cached }, output }
    }

    /// The section as it holds for each model of the chain behind the first, with the tier that it is for.
    #[must_use]
    pub fn behind(&self) -> Vec<(Option<Tier>, Self)> {
        let own = |f: &Fallback| {
            let elsewhere = !f.url.is_empty();
            let section = Self {
                url: if elsewhere { f.url.clone() } else { self.url.clone() },
                // A key never goes to a server that it was not given for.
                api_key: if elsewhere { f.api_key.clone() } else { self.api_key.clone() },
                wire: if elsewhere { f.wire } else { self.wire },
                cheap: String::new(),
                standard: f.model.clone(),
                strong: String::new(),
                in_flight_max: f.in_flight_max,
                requests_per_minute: f.requests_per_minute,
                input_tokens_per_minute: f.input_tokens_per_minute,
                output_tokens_per_minute: f.output_tokens_per_minute,
                fallback: vec![],
                ..self.clone()
            };
            (f.tier, section)
        };
        if self.use_fallback { self.fallback.iter().map(own).collect() } else { vec![] }
    }

    /// What is wrong with the chain.
    pub(super) fn fallback_problem(&self) -> Option<String> {
        let wrong = self.fallback.iter().find_map(|f| {
            let http = f.url.is_empty() || f.url.starts_with("http://") || f.url.starts_with("https://");
            match (f.model.is_empty(), http) {
                (true, _) => Some("a table without `model`".to_owned()),
                (false, false) => Some(format!("`{}`: url must begin with http:// or https://", f.model)),
                (false, true) => None,
            }
        });
        wrong.map(|wrong| format!("holds {wrong}"))
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
            images: Images::Auto,
            images_max: 8,
            image_bytes_max: 1024 * 1024,
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
            input_tokens_per_minute: 0,
            output_tokens_per_minute: 0,
            cool_down_max_ms: 3_600_000,
            breaker_failures: 5,
            breaker_open_ms: 5_000,
            response_bytes_max: 8 * 1024 * 1024,
            record_bytes_max: 256 * 1024,
            temperature: 0.2,
            input_microusd_per_mtok: 0,
            cached_input_microusd_per_mtok: 0,
            output_microusd_per_mtok: 0,
            prices: vec![],
            use_fallback: true,
            fallback_after_ms: 5_000,
            fallback: vec![],
        }
    }
}
