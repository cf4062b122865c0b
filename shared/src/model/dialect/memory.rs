//! What was learnt of each model: by this process, and by the fleet before it.

use super::{Dialect, Refused, Traits};
use crate::config;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// What was learnt, by model name.
pub(in crate::model) struct Memory {
    known: Mutex<HashMap<String, Traits>>,
    /// The configured dialect: then nothing steps down.
    forced: Option<Dialect>,
    /// As configured; `None`: found out.
    takes_images: Option<bool>,
}

impl Memory {
    pub(in crate::model) fn new(configured: config::Dialect, images: config::Images) -> Self {
        let takes_images = match images {
            config::Images::Auto => None,
            config::Images::Yes => Some(true),
            config::Images::No => Some(false),
        };
        Self { known: Mutex::default(), forced: Dialect::forced(configured), takes_images }
    }

    /// Whether images are sent as they are.
    pub(in crate::model) fn takes_images(&self, traits: Traits) -> bool {
        self.takes_images.unwrap_or(!traits.no_images)
    }

    /// Whether that is to be found out.
    pub(in crate::model) fn asks_for_images(&self) -> bool {
        self.takes_images.is_none()
    }

    /// It saw nothing in an image that it was shown.
    pub(in crate::model) fn sees_none(&self, model: &str) {
        let used = self.of(model);
        self.learn(model, Refused::Images, used);
    }

    /// What a model is hoped to do before anything is known.
    pub(in crate::model) fn hopes(&self) -> Traits {
        self.first()
    }

    /// One dialect down without a refusal: the tools were dropped without a word. False: it is forced.
    pub(in crate::model) fn step_down(&self, model: &str) -> bool {
        let used = self.of(model);
        self.learn(model, Refused::Tools, used)
    }

    /// Back to native calls, when the step down was none for the better.
    pub(in crate::model) fn step_up(&self, model: &str) {
        self.replace(model, Traits { dialect: Dialect::Native, ..self.of(model) });
    }

    fn first(&self) -> Traits {
        Traits { dialect: self.forced.unwrap_or_default(), ..Traits::default() }
    }

    pub(in crate::model) fn of(&self, model: &str) -> Traits {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(model).copied().unwrap_or_else(|| self.first())
    }

    /// Whether the model was tried out, or nobody will do so.
    pub(in crate::model) fn is_known(&self, model: &str) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(model).is_some_and(|traits| traits.probed)
    }

    /// Takes in what the fleet knows; what is unreadable is nothing. True when that is all there will be: it comes
    /// from a probe, or `as_is` says that none is made.
    pub(in crate::model) fn adopt(&self, model: &str, text: Option<&str>, as_is: bool) -> bool {
        let told = text.and_then(|text| serde_json::from_str::<Traits>(text).ok());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none() && !as_is {
            return false;
        }
        let told = told.unwrap_or_default();
        let traits = Traits { dialect: self.forced.unwrap_or(told.dialect), ..told };
        let traits = known.entry(model.to_owned()).or_insert(traits);
        traits.probed |= told.probed || as_is;
        traits.probed
    }

    /// The probe of the model has come to its end.
    pub(in crate::model) fn note_probe(&self, model: &str) {
        self.replace(model, Traits { probed: true, ..self.of(model) });
    }

    /// What was known before a probe that failed.
    pub(in crate::model) fn restore(&self, model: &str, before: Traits) {
        self.replace(model, before);
    }

    /// What a probe found, in place of all that was known.
    pub(in crate::model) fn replace(&self, model: &str, found: Traits) {
        let traits = Traits { dialect: self.forced.unwrap_or(found.dialect), ..found };
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(model.to_owned(), traits);
    }

    /// For the fleet.
    pub(in crate::model) fn text(&self, model: &str) -> String {
        serde_json::to_string(&self.of(model)).unwrap_or_default()
    }

    /// The endpoint read so many tokens of a longer prompt (A20).
    pub(in crate::model) fn narrow(&self, model: &str, tokens: u64) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let traits = known.entry(model.to_owned()).or_insert_with(|| self.first());
        traits.window = Some(traits.window.map_or(tokens, |w| w.max(tokens)));
        tracing::warn!(
            model,
            tokens,
            "the endpoint cuts prompts without a word; its window is taken as this"
        );
    }

    /// Takes a refusal in. True when there is another way than the one that was used: only then is it worth
    /// asking again.
    pub(in crate::model) fn learn(&self, model: &str, refused: Refused, used: Traits) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let traits = known.entry(model.to_owned()).or_insert_with(|| self.first());
        match refused {
            Refused::JsonMode if self.forced.is_some() => traits.no_json_mode = true,
            Refused::Tools | Refused::Form if self.forced.is_some() => {}
            // Here too another call may have gone down already.
            Refused::Tools | Refused::JsonMode | Refused::Form => {
                traits.dialect = traits.dialect.max(used.dialect.down());
            }
            // Another call may have gone down already: never below the rung after the one that was used.
            Refused::Format => traits.rung = traits.rung.max(used.rung.down()),
            Refused::MaxTokens => traits.max_completion_tokens = true,
            Refused::Temperature => traits.no_temperature = true,
            Refused::StreamOptions => traits.no_stream_options = true,
            Refused::MissingReasoning => traits.echo_reasoning = true,
            Refused::Images => traits.no_images = true,
            Refused::CacheControl => traits.no_cache_control = true,
        }
        let learnt = *traits != used;
        if learnt {
            let dialect = traits.dialect.speech().word();
            tracing::info!(model, ?refused, dialect, "a way of asking was refused; remembered");
        }
        learnt
    }
}
