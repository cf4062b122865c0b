//! How a model is asked: what it turned out to refuse, and the next way down. Remembered for each model, for the
//! life of the process.
//!
//! A way of asking for tools or structure that needs words of its own is a file below this one.

pub(super) mod content;
pub(super) mod prompted;

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The ladder of structured output (A17).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
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

/// What holds for one model. The defaults are hopes; a refusal corrects them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Traits {
    pub(super) rung: Rung,
    /// Native tools are refused: they are described in the prompt and read from the text (A16).
    pub(super) prompted_tools: bool,
    pub(super) max_completion_tokens: bool,
    pub(super) no_temperature: bool,
    pub(super) no_stream_options: bool,
    /// Reasoning must be sent back with the turn that it belongs to (A15).
    pub(super) echo_reasoning: bool,
}

/// One thing that a server refused, with another way to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Tools,
    Format,
    MaxTokens,
    Temperature,
    StreamOptions,
    MissingReasoning,
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
        ]) {
            Some(Self::Format)
        } else {
            None
        }
    }
}

/// What was learnt, by model name.
#[derive(Default)]
pub(super) struct Memory {
    known: Mutex<HashMap<String, Traits>>,
}

impl Memory {
    pub(super) fn of(&self, model: &str) -> Traits {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(model).copied().unwrap_or_default()
    }

    /// Takes a refusal in. True when there is another way than the one that was used: only then is it worth
    /// asking again.
    pub(super) fn learn(&self, model: &str, refused: Refused, used: Traits) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let traits = known.entry(model.to_owned()).or_default();
        match refused {
            Refused::Tools => traits.prompted_tools = true,
            // Another call may have gone down already: never below the rung after the one that was used.
            Refused::Format => traits.rung = traits.rung.max(used.rung.down()),
            Refused::MaxTokens => traits.max_completion_tokens = true,
            Refused::Temperature => traits.no_temperature = true,
            Refused::StreamOptions => traits.no_stream_options = true,
            Refused::MissingReasoning => traits.echo_reasoning = true,
        }
        let learnt = *traits != used;
        if learnt {
            tracing::info!(model, ?refused, "the server refused a way of asking; remembered");
        }
        learnt
    }
}
