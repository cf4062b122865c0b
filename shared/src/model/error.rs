//! What can go wrong with a call, by whose fault it is: the class is the decision that a caller takes.

use super::CallRecord;
use super::dialect::Refused;
use super::hint::hint_in_words;
use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::LazyLock;

/// Most bytes of a detail; servers put whole prompts into their errors.
const DETAIL_BYTES_MAX: usize = 600;

/// Whose fault it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// Our own request was wrong: sending it again changes nothing.
    Ours,
    /// The model's answer could not be used, within all the requests allowed.
    Reply,
    /// Too many requests or tokens for the endpoint; the hint is the server's own, if it gave one.
    Quota { retry_after_ms: Option<u64> },
    /// The server is overloaded or broken for now.
    Overload,
    /// The prompt does not fit the model's context.
    Context,
    /// The key is missing, wrong or not allowed, or its account is exhausted: a person must act.
    Auth,
    /// No connection, a cut one, or one that stalled.
    Network,
    /// The goal's budget does not allow the call; it was not sent, and a person is asked.
    Budget,
    /// The caller's `stop` came.
    Cancelled,
}

impl ErrorClass {
    /// The word of records and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Reply => "reply",
            Self::Quota { .. } => "quota",
            Self::Overload => "overload",
            Self::Context => "context",
            Self::Auth => "auth",
            Self::Network => "network",
            Self::Budget => "budget",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether the same request may succeed later.
    #[must_use]
    pub fn retryable(self) -> bool {
        match self {
            Self::Reply | Self::Quota { .. } | Self::Overload | Self::Network => true,
            Self::Ours | Self::Context | Self::Auth | Self::Budget | Self::Cancelled => false,
        }
    }
}

/// A call failed; what was spent on it all the same stands in the records.
#[derive(Clone, Debug, thiserror::Error)]
#[error("model call failed ({}): {detail}", class.as_str())]
pub struct ModelError {
    pub class: ErrorClass,
    /// For people, without secrets, at most 600 bytes.
    pub detail: String,
    pub records: Vec<CallRecord>,
}

impl ModelError {
    pub(super) fn new(class: ErrorClass, detail: impl Into<String>) -> Self {
        Self { class, detail: detail.into(), records: vec![] }
    }
}

/// What one HTTP request came to when it was no answer.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) class: ErrorClass,
    pub(super) detail: String,
    /// The server refused one thing that can be left out or asked in another way.
    pub(super) refused: Option<Refused>,
    /// Bytes of an answer had arrived: it was paid for.
    pub(super) output_bytes: usize,
}

impl Fault {
    pub(super) fn new(class: ErrorClass, detail: impl Into<String>) -> Self {
        Self { class, detail: detail.into(), refused: None, output_bytes: 0 }
    }

    /// Classes an HTTP error, or an error object inside a 200 (A3), by status and words. Providers agree on
    /// neither, so both count.
    pub(super) fn of_status(status: u16, message: &str, code: &str, retry_after_ms: Option<u64>) -> Self {
        let words = format!("{message} {code}").to_lowercase();
        let refused =
            if matches!(status, 400 | 404 | 415 | 422 | 500 | 501) { Refused::read(&words) } else { None };
        let hint = retry_after_ms.or_else(|| hint_in_words(&words));
        let exhausted = is_exhausted(status, &words, &code.to_lowercase(), hint);
        let class = match status {
            // No pace helps an empty account, and a wait only looks like one.
            _ if exhausted => ErrorClass::Auth,
            401 | 403 => ErrorClass::Auth,
            413 => ErrorClass::Context,
            429 => ErrorClass::Quota { retry_after_ms: hint },
            _ if speaks_of_context(&words) => ErrorClass::Context,
            408 | 409 | 425 => ErrorClass::Overload,
            501 => ErrorClass::Ours,
            500.. => ErrorClass::Overload,
            _ => ErrorClass::Ours,
        };
        let why = if exhausted { "the account is exhausted: " } else { "" };
        Self { class, detail: format!("{why}HTTP {status}: {message}"), refused, output_bytes: 0 }
    }
}

/// Whether the account has no money or quota left. Servers say so with 402, with 429 as for a limit of a minute, or
/// with 400.
fn is_exhausted(status: u16, words: &str, code: &str, hint: Option<u64>) -> bool {
    let of_code = [
        "insufficient_quota",
        "insufficient_balance",
        "insufficient_credits",
        "insufficient_funds",
        "exceeded_current_quota",
        "billing",
    ];
    let of_words = [
        "insufficient_quota",
        "insufficient quota",
        "insufficient balance",
        "insufficient credit",
        "insufficient funds",
        "insufficient account balance",
        "credit balance is too low",
        "billing hard limit",
    ];
    // Some say this of a minute's limit as well; they name the wait then.
    let of_words_without_hint = ["exceeded your current quota", "billing details"];
    let has = |list: &[&str], text: &str| list.iter().any(|w| text.contains(w));
    let refused = status < 500;
    status == 402
        || has(&of_code, code)
        || refused && has(&of_words, words)
        || status == 429 && hint.is_none() && has(&of_words_without_hint, words)
}

fn speaks_of_context(words: &str) -> bool {
    [
        "context_length_exceeded",
        "exceed_context_size",
        "context size",
        "maximum context length",
        "context window",
        "prompt is too long",
        "input is too long",
        // What a template says when the front of the prompt was cut off (A20).
        "no user query found",
    ]
    .iter()
    .any(|w| words.contains(w))
}

static KEYS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?i)\b(?:sk|pk|rk|key|gsk|xai)-[A-Za-z0-9_*-]{6,}|bearer\s+[^\s,;\x22\\]+").ok()
});

/// Takes the key out of what a server said and cuts it to size (I12): providers quote keys in their errors.
pub(super) fn redact(detail: &str, key: &str) -> String {
    super::tolerant::cut(&clean(detail, key), DETAIL_BYTES_MAX).to_owned()
}

/// Shortest key that is a secret: `x` or `none` is what servers without keys are given, and stands in every text.
const SECRET_BYTES_MIN: usize = 8;

/// Takes the key, and whatever looks like one, out of a text. Not for JSON: see [`clean_values`].
pub(super) fn clean(text: &str, key: &str) -> String {
    let mut clean = text.to_owned();
    if key.len() >= SECRET_BYTES_MIN {
        clean = clean.replace(key, "[redacted]");
        // As it stands in JSON inside the text: arguments of calls, errors that quote a request.
        let quoted = Value::from(key).to_string();
        let inside = quoted.strip_prefix('"').and_then(|q| q.strip_suffix('"')).unwrap_or(&quoted);
        if inside != key {
            clean = clean.replace(inside, "[redacted]");
        }
    }
    match KEYS.as_ref() {
        Some(keys) => keys.replace_all(&clean, "[redacted]").into_owned(),
        None => clean,
    }
}

/// The same for every string of a JSON value; names of fields stay, or nobody could read it.
pub(super) fn clean_values(value: &Value, key: &str) -> Value {
    match value {
        Value::String(text) => Value::String(clean(text, key)),
        Value::Array(items) => items.iter().map(|v| clean_values(v, key)).collect(),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(name, v)| (name.clone(), clean_values(v, key))).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}
