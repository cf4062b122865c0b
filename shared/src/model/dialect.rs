//! How a model is asked: what it turned out to refuse, and the next way down. Remembered for each model.
//!
//! A way of asking for tools or structure that needs words of its own is a file below this one.

pub(super) mod content;
mod json;
mod memory;
mod native;
mod prompted;
mod text;
mod xml;

use super::Message;
use crate::config;
use crate::tool::ToolDecl;
use content::Reading;
pub(super) use memory::Memory;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A way of calling tools: how a conversation is written for the model, and how its answer is read.
pub(super) trait Speech: Sync {
    /// For records and logs.
    fn word(&self) -> &'static str;

    /// The conversation in this dialect's own form. Deterministic: equal conversations are equal bytes.
    fn dress<'a>(&self, messages: &'a [Message], tools: &'a [ToolDecl]) -> Dressed<'a>;

    /// Reads an answer's text. Calls that the wire format carried are not in it.
    fn read(&self, text: &str, tools: &[ToolDecl]) -> Reading;
}

/// What goes into the request.
pub(super) struct Dressed<'a> {
    pub(super) messages: Cow<'a, [Message]>,
    /// Declared natively.
    pub(super) tools: &'a [ToolDecl],
    /// The server is to hold the model to one JSON object.
    pub(super) json_mode: bool,
}

/// The ladder of tool calls, best first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Dialect {
    #[default]
    Native,
    Json,
    Xml,
    Text,
}

/// Every dialect, from the top.
#[cfg(test)]
pub(super) const LADDER: [Dialect; 4] = [Dialect::Native, Dialect::Json, Dialect::Xml, Dialect::Text];

impl Dialect {
    pub(super) fn speech(self) -> &'static dyn Speech {
        match self {
            Self::Native => &native::Native,
            Self::Json => &json::Json,
            Self::Xml => &xml::Xml,
            Self::Text => &text::Text,
        }
    }

    fn down(self) -> Self {
        match self {
            Self::Native => Self::Json,
            Self::Json => Self::Xml,
            Self::Xml | Self::Text => Self::Text,
        }
    }

    /// What the configuration forces; `None`: the ladder.
    fn forced(configured: config::Dialect) -> Option<Self> {
        match configured {
            config::Dialect::Auto => None,
            config::Dialect::Native => Some(Self::Native),
            config::Dialect::Json => Some(Self::Json),
            config::Dialect::Xml => Some(Self::Xml),
            config::Dialect::Text => Some(Self::Text),
        }
    }
}

/// The ladder of structured output (A17).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Rung {
    #[default]
    JsonSchema,
    JsonObject,
    Plain,
}

impl Rung {
    fn down(self) -> Self {
        match self {
            Self::JsonSchema => Self::JsonObject,
            Self::JsonObject | Self::Plain => Self::Plain,
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::JsonSchema => "json_schema",
            Self::JsonObject => "json_object",
            Self::Plain => "plain",
        }
    }
}

/// What holds for one model. The defaults are hopes; a probe or a refusal corrects them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Traits {
    pub(super) rung: Rung,
    /// How tools are called (A16).
    pub(super) dialect: Dialect,
    /// JSON mode is refused, but the dialect is forced: the prompt alone asks for JSON.
    pub(super) no_json_mode: bool,
    pub(super) max_completion_tokens: bool,
    pub(super) no_temperature: bool,
    pub(super) no_stream_options: bool,
    /// Marks of what is to be cached are refused.
    pub(super) no_cache_control: bool,
    /// It takes no images: they are named in words.
    pub(super) no_images: bool,
    /// All of this was found by a probe, not only learnt from refusals.
    pub(super) probed: bool,
    /// Reasoning must be sent back with the turn that it belongs to (A15).
    pub(super) echo_reasoning: bool,
    /// Tokens of a prompt that the endpoint really reads, where it was seen to read fewer than it got (A20).
    pub(super) window: Option<u64>,
}

/// One thing that a server refused, with another way to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Tools,
    /// The format of a structured answer.
    Format,
    /// The same words about a conversation in the dialect `json` (A17).
    JsonMode,
    /// Not the server but the model: it does not keep to the dialect's form.
    Form,
    MaxTokens,
    Temperature,
    StreamOptions,
    MissingReasoning,
    CacheControl,
    Images,
}

impl Refused {
    /// Reads the refusal out of an error's words, which must be in lower case.
    pub(super) fn read(words: &str) -> Option<Self> {
        let any = |list: &[&str]| list.iter().any(|w| words.contains(w));
        if any(&["reasoning_content"]) && any(&["passed back", "missing", "required"]) {
            Some(Self::MissingReasoning)
        } else if any(&["max_completion_tokens"]) {
            Some(Self::MaxTokens)
        } else if any(&["stream_options"]) {
            Some(Self::StreamOptions)
        } else if any(&["cache_control", "cache control"]) {
            Some(Self::CacheControl)
        } else if any(&["temperature"]) && any(&["support", "deprecated"]) {
            Some(Self::Temperature)
        } else if any(&[
            "support tool",
            "tool use is not supported",
            "tool-call-parser",
            "tools is not supported",
        ]) {
            Some(Self::Tools)
        } else if any(&[
            "response_format",
            "json_schema",
            "json schema",
            "json_object",
            "json mode",
            "structured output",
            "grammar",
            "tool_choice",
        ]) {
            Some(Self::Format)
        } else if any(&["image", " vision", "multimodal", "multi-modal", "mmproj"]) {
            Some(Self::Images)
        } else {
            None
        }
    }
}
