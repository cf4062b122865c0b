//! The record of one HTTP request to a model: who asked, what it cost, how it ended. No bodies, no secrets (I10, I12).

use super::Usage;
use crate::config::Price;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// More than any window holds: what a server counts beyond it is a mistake, and is booked as this much.
const CALL_TOKENS_MAX: u64 = 1_000_000_000;
/// A million dollars.
const CALL_MICROUSD_MAX: u64 = 1_000_000_000_000;

/// One request, successful or not. Handed to the store by the caller, who knows goal, ticket and epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallRecord {
    /// Version of this format; readers take N and N−1.
    pub v: u32,
    /// What it was reserved under in the ledger; empty: it was not.
    pub call: String,
    /// Booked already, on its real usage.
    #[serde(skip)]
    pub settled: bool,
    /// `planner`, `worker` or `reviewer`.
    pub role: String,
    pub model: String,
    /// Host of the server that was asked.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub endpoint: String,
    /// Models that come first in the chain of the tier and were out, each with why; empty for the first.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instead_of: String,
    /// Class of the model that was asked for.
    #[serde(default)]
    pub tier: String,
    /// How the answer was asked for: `native`, `json`, `xml` or `text`; a structured one `json_schema`, `json_object`
    /// or `plain`.
    pub dialect: String,
    /// sha-256 of the messages and tools as sent.
    pub prompt_hash: String,
    pub messages: u32,
    pub tools: u32,
    /// 1 for the first request of an answer.
    pub request: u32,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cached_tokens: u64,
    /// The server named no usage; the tokens are estimated.
    pub estimated: bool,
    /// Millionths of a dollar.
    pub microusd: u64,
    /// Unix time, this machine's clock.
    pub started_at_ms: u64,
    pub duration_ms: u64,
    /// Finish reason, empty when there was no answer.
    pub finish: String,
    /// Error class, empty when there was an answer.
    pub error: String,
    pub detail: String,
    /// What had to be read tolerantly in the answer.
    pub repairs: u32,
    /// Blob of what was said, redacted and cut to size; empty: it was not kept.
    #[serde(default)]
    pub body: String,
}

impl CallRecord {
    /// What is booked on goal and ticket.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.input_tokens + self.output_tokens
    }

    /// For [`crate::store::Store::settle`].
    #[must_use]
    pub fn to_value(&self) -> Value {
        serde_json::to_value(self).unwrap_or(Value::Null)
    }

    pub(super) fn spend(&mut self, usage: Usage, price: Price) {
        self.input_tokens = usage.input_tokens.min(CALL_TOKENS_MAX);
        self.output_tokens = usage.output_tokens.min(CALL_TOKENS_MAX);
        self.cached_tokens = usage.cached_tokens.min(CALL_TOKENS_MAX);
        self.estimated = usage.estimated;
        let microusd = price.microusd(self.input_tokens, self.cached_tokens, self.output_tokens);
        self.microusd = microusd.min(CALL_MICROUSD_MAX);
    }
}
