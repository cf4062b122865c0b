//! One HTTP request of a session: what is sent, what may be spent on it, its record.

use super::Session;
use super::millis;
use crate::model::account::Worst;
use crate::model::dialect::{Dialect, Rung, Traits};
use crate::model::error::{ErrorClass, Fault, redact};
use crate::model::exchange::{Bounds, Post, exchange};
use crate::model::tolerant::{self, Thought};
use crate::model::wire::{Draft, Format, Request};
use crate::model::{CallRecord, Finish, Message, Usage, history, image, size, transcript, wording};
use bytes::Bytes;
use secrecy::ExposeSecret;
use serde_json::Value;
use std::borrow::Cow;
use std::time::Duration;
use tokio::time::Instant;

/// A request as it goes out.
struct Composed {
    bytes: Bytes,
    prompt_hash: String,
    /// As they count in tokens.
    prompt_bytes: usize,
    messages: u32,
}

impl Session<'_> {
    /// One HTTP request and its record (I10).
    pub(super) async fn request(
        &mut self,
        messages: &[Message],
        format: Option<&Format<'_>>,
        traits: Traits,
    ) -> Result<Draft, Fault> {
        let config = &self.inner.config;
        let output_tokens_max = match self.ask.output_tokens_max {
            0 => config.output_tokens_max,
            n => n,
        };
        self.used = traits;
        if let Some(window) = traits.window
            && size::is_beyond(messages, window)
        {
            return Err(Fault::new(
                ErrorClass::Context,
                format!("the prompt does not fit the {window} tokens that this endpoint was seen to read"),
            ));
        }
        let composed = self.compose(messages, format, traits, output_tokens_max);
        let prompt_bytes = composed.prompt_bytes;
        // I7: what it may cost at worst is set aside before it is sent.
        let worst = Worst::of(prompt_bytes, output_tokens_max, config.price(self.model));
        let entered = match (&self.governor, self.account) {
            (Some(governor), Some(account)) => {
                // Boxed, as all that is done with while the answer is waited for: thousands of calls wait at once.
                Box::pin(account.settle(&mut self.records)).await;
                Some(Box::pin(governor.admit(worst, &mut self.clock, self.ask)).await?)
            }
            (None | Some(_), None) | (None, Some(_)) => None,
        };
        self.requests += 1;
        let mut record = CallRecord {
            v: 1,
            call: entered.as_ref().map(|e| e.call.clone()).unwrap_or_default(),
            role: self.ask.role.into(),
            model: self.model.into(),
            tier: self.ask.tier.as_str().into(),
            dialect: match format {
                Some(_) => traits.rung.as_str(),
                None => traits.dialect.speech().word(),
            }
            .into(),
            prompt_hash: composed.prompt_hash,
            messages: composed.messages,
            tools: u32::try_from(self.ask.tools.len()).unwrap_or(u32::MAX),
            request: self.requests,
            endpoint: self.inner.host(),
            instead_of: self.leg.instead_of.clone(),
            started_at_ms: unix_ms(),
            ..CallRecord::default()
        };
        let begun = Instant::now();
        let bounds = Bounds {
            idle: Duration::from_millis(config.idle_timeout_ms.max(1)),
            deadline: self.clock.deadline,
            response_bytes_max: config.response_bytes_max,
            stop: self.ask.stop,
            on_bytes: self.ask.on_bytes,
        };
        let post = Post {
            http: &self.inner.http,
            wire: self.inner.wire,
            base: &config.url,
            key: &config.api_key,
            body: composed.bytes,
            format: format.map(|f| f.name),
        };
        let sent = exchange(post, &bounds);
        let outcome = match &self.governor {
            Some(governor) => governor.while_kept(&record.call, sent).await,
            None => sent.await,
        };
        record.duration_ms = millis(begun.elapsed());
        let usage = match &outcome {
            Ok(draft) => {
                let named = draft.usage.filter(|u| u.input_tokens + u.output_tokens > 0);
                named.unwrap_or_else(|| size::estimate(prompt_bytes, size::draft_bytes(draft)))
            }
            // A stream's frame is some 200 bytes around a token of text.
            Err(fault) if fault.output_bytes > 0 => size::estimate(prompt_bytes, fault.output_bytes / 50),
            Err(_) => Usage::default(),
        };
        record.spend(usage, config.price(self.model));
        if let (Some(governor), Some(account), Some(entered)) = (&self.governor, self.account, &entered) {
            let used = self.inner.wire.counted(usage);
            let waits = Box::pin(governor.heard(entered, worst, outcome.as_ref().err(), used)).await;
            self.free += u32::from(waits && !account.is_in_a_hurry());
        }
        let outcome = match outcome {
            Ok(draft) => {
                record.finish = draft.finish.map_or("none", Finish::as_str).into();
                if size::was_cut(messages, usage, traits.window) {
                    self.inner.memory.narrow(self.model, usage.input_tokens);
                    Box::pin(self.remember()).await;
                    Err(Fault::new(ErrorClass::Context, truncated(messages, usage)))
                } else {
                    self.usable(draft, &mut record)
                }
            }
            Err(fault) => Err(fault),
        };
        if let Err(fault) = &outcome {
            record.error = fault.class.as_str().into();
            record.detail = redact(&fault.detail, config.api_key.expose_secret());
            tracing::warn!(
                role = self.ask.role,
                model = self.model,
                class = record.error,
                request = record.request,
                detail = record.detail,
                "model request failed"
            );
        }
        if let Some(account) = self.account
            && config.record_bytes_max > 0
        {
            let key = config.api_key.expose_secret();
            record.body = account.keep_body(|| {
                // Made again from the same parts: kept, it would stand beside them as long as the answer takes.
                let body = self.body(messages, format, traits, output_tokens_max, |body, _| body);
                let body = image::without_images(&body);
                transcript::text(&body, outcome.as_ref(), key, config.record_bytes_max)
            });
        }
        self.records.push(record);
        outcome
    }

    fn compose(
        &self,
        messages: &[Message],
        format: Option<&Format<'_>>,
        traits: Traits,
        output_tokens_max: u32,
    ) -> Composed {
        self.body(messages, format, traits, output_tokens_max, |body, sent| {
            let bytes = Bytes::from(body.to_string());
            Composed {
                prompt_hash: history::prompt_hash(&body),
                prompt_bytes: image::weight(bytes.len(), sent),
                messages: u32::try_from(sent.len()).unwrap_or(u32::MAX),
                bytes,
            }
        })
    }

    /// The request in the words of this model, given on with the messages that it holds. The same input gives the same
    /// bytes (B7).
    fn body<T>(
        &self,
        messages: &[Message],
        format: Option<&Format<'_>>,
        traits: Traits,
        output_tokens_max: u32,
        then: impl FnOnce(Value, &[Message]) -> T,
    ) -> T {
        let has_calls =
            || messages.iter().any(|m| matches!(m, Message::Assistant { calls, .. } if !calls.is_empty()));
        let talks_of_tools = !self.ask.tools.is_empty() || has_calls();
        let speech = if talks_of_tools { traits.dialect } else { Dialect::Native }.speech();
        let shown = match self.inner.memory.takes_images(traits) {
            true => Cow::Borrowed(messages),
            false => image::in_words(messages),
        };
        let dressed = speech.dress(&shown, self.ask.tools);
        let mut sent = dressed.messages;
        if let Some(format) = format
            && traits.rung != Rung::JsonSchema
        {
            let words = wording::format(format.schema);
            match sent.to_mut().last_mut() {
                Some(Message::User(text)) => {
                    text.push_str("\n\n");
                    text.push_str(&words);
                }
                _ => sent.to_mut().push(Message::User(words)),
            }
        }
        let body = self.inner.wire.body(&Request {
            model: self.model,
            messages: &sent,
            tools: dressed.tools,
            format,
            json_mode: dressed.json_mode && !traits.no_json_mode,
            output_tokens_max,
            temperature: self.inner.config.temperature,
            traits,
        });
        then(body, &sent)
    }

    /// Sets reasoning apart and refuses an answer that is none (A1, A13).
    fn usable(&mut self, mut draft: Draft, record: &mut CallRecord) -> Result<Draft, Fault> {
        let (thought, answer) = match tolerant::thought(&draft.text) {
            Thought::None => (None, None),
            Thought::Apart { reasoning, answer } => (Some(reasoning.to_owned()), Some(answer.to_owned())),
            Thought::Unclosed { reasoning } => (Some(reasoning.to_owned()), Some(String::new())),
        };
        if let (Some(thought), Some(answer)) = (thought, answer) {
            if draft.reasoning.is_empty() {
                draft.reasoning = thought;
            }
            draft.text = answer;
        }
        if draft.finish.is_none() {
            tracing::warn!(
                model = self.model,
                "the stream ended without a finish reason; what came is taken"
            );
            self.repairs += 1;
            record.repairs += 1;
        }
        let cut = matches!(draft.finish, Some(Finish::Length | Finish::Filter));
        if draft.text.trim().is_empty() && draft.calls.is_empty() && !cut {
            return Err(Fault::new(ErrorClass::Reply, "the answer is empty"));
        }
        Ok(draft)
    }
}

fn truncated(messages: &[Message], usage: Usage) -> String {
    let (counted, bytes) = (usage.input_tokens, size::text_bytes(messages));
    format!(
        "the server counted {counted} tokens of a prompt of {bytes} bytes: it cut the prompt without a word; raise its \
         context window (Ollama: num_ctx)"
    )
}

/// For records only: no decision is taken by this clock.
fn unix_ms() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0)
}
