//! The budget of one answer: requests, time, records; and the only place that sends anything again (A25).

use super::account::Worst;
use super::dialect::content::Reading;
use super::dialect::{Dialect, Refused, Rung, Traits};
use super::error::{ErrorClass, Fault, ModelError, redact};
use super::exchange::{Bounds, Post, exchange};
use super::governor::{Clock, Governor};
use super::tolerant::{self, Thought};
use super::wire::{Draft, Format, Request};
use super::{
    Account, Ask, CallRecord, Finish, Inner, Message, Reply, Usage, arguments, history, size, transcript,
    wording,
};
use secrecy::ExposeSecret;
use std::borrow::Cow;
use std::time::Duration;
use tokio::time::Instant;

/// First wait before a request is sent again; doubled each time, with jitter.
const BACKOFF_MS: u64 = 250;
/// Longest wait in place. A longer one, as a `Retry-After` may ask for, is the caller's: it frees its slot meanwhile.
const WAIT_IN_PLACE_MS_MAX: u64 = 20_000;

pub(super) struct Session<'a> {
    inner: &'a Inner,
    ask: &'a Ask<'a>,
    account: Option<&'a Account>,
    model: &'a str,
    begun: Instant,
    clock: Clock,
    governor: Option<Governor<'a>>,
    /// Requests that the whole fleet's wait for the endpoint is to blame for: they do not count.
    free: u32,
    requests: u32,
    repairs: u32,
    /// The last request was made with these.
    used: Traits,
    pub(super) records: Vec<CallRecord>,
}

impl<'a> Session<'a> {
    pub(super) fn new(inner: &'a Inner, ask: &'a Ask<'a>, account: Option<&'a Account>) -> Self {
        let begun = Instant::now();
        Self {
            inner,
            ask,
            account,
            model: inner.config.name(ask.tier),
            begun,
            clock: Clock {
                deadline: begun + Duration::from_millis(inner.config.call_timeout_ms),
                patience: account.map_or(Duration::ZERO, |a| a.patience),
            },
            governor: account.map(|a| Governor::new(a, &inner.config, inner.config.name(ask.tier), ask.role)),
            free: 0,
            requests: 0,
            repairs: 0,
            used: Traits::default(),
            records: vec![],
        }
    }

    /// Whether every request allowed has been sent (I11).
    pub(super) fn is_spent(&self) -> bool {
        self.requests - self.free >= self.inner.config.calls_per_answer_max.max(1)
    }

    /// Ends the session with an error that carries its records.
    pub(super) fn fail(&mut self, class: ErrorClass, detail: &str) -> ModelError {
        let detail = redact(detail, self.inner.config.api_key.expose_secret());
        ModelError { class, detail, records: std::mem::take(&mut self.records) }
    }

    /// Notes on the last record that its answer had to be asked again.
    pub(super) fn refuse_answer(&mut self, problem: &str) {
        self.repairs += 1;
        let detail = redact(problem, self.inner.config.api_key.expose_secret());
        if let Some(record) = self.records.last_mut() {
            record.error = ErrorClass::Reply.as_str().into();
            record.detail = detail;
        }
    }

    /// A conversation's next turn.
    pub(super) async fn chat(mut self) -> Result<Reply, ModelError> {
        let mut messages = Cow::Borrowed(self.ask.messages);
        let mut unreadable = 0;
        loop {
            let mut draft = self.answer(&messages, None).await?;
            let dialect = self.used.dialect;
            let reading = match draft.calls.is_empty() {
                true => dialect.speech().read(&draft.text, self.ask.tools),
                false => Reading::Text,
            };
            match reading {
                Reading::Text => return Ok(self.reply(draft, true)),
                Reading::Answer(text) => {
                    draft.text = text;
                    return Ok(self.reply(draft, true));
                }
                Reading::Calls { before, calls, stray } => {
                    self.count_repairs(u32::from(stray));
                    draft.text = before;
                    draft.calls = calls;
                    return Ok(self.reply(draft, false));
                }
                // The length limit cut it: the caller hears that, and no markup (A12).
                Reading::Unreadable { before, .. } if draft.finish == Some(Finish::Length) => {
                    draft.text = before;
                    return Ok(self.reply(draft, true));
                }
                Reading::Unreadable { problem, .. } => {
                    // Markup is never delivered as an answer (A7).
                    self.refuse_answer(&problem);
                    unreadable += 1;
                    let down = unreadable > 1
                        && dialect != Dialect::Native
                        && self.inner.memory.learn(self.model, Refused::Form, self.used);
                    if down {
                        self.remember().await;
                    }
                    if self.is_spent() {
                        return Err(self.fail(ErrorClass::Reply, &format!("unreadable tool call: {problem}")));
                    }
                    if down {
                        // The next dialect begins without the words of this one.
                        messages = Cow::Borrowed(self.ask.messages);
                        continue;
                    }
                    let mut names: Vec<&str> = self.ask.tools.iter().map(|t| t.name.as_str()).collect();
                    names.sort_unstable();
                    let mut again = self.ask.messages.to_vec();
                    again.push(Message::Assistant {
                        text: draft.text,
                        reasoning: String::new(),
                        calls: vec![],
                    });
                    again.push(Message::User(wording::stray(&problem, &names)));
                    messages = Cow::Owned(again);
                }
            }
        }
    }

    fn count_repairs(&mut self, n: u32) {
        self.repairs += n;
        if let Some(record) = self.records.last_mut() {
            record.repairs += n;
        }
    }

    fn reply(mut self, draft: Draft, with_ids: bool) -> Reply {
        let (calls, repairs) =
            arguments::read(draft.calls, with_ids, draft.finish, self.ask.tools, self.ask.messages);
        self.count_repairs(repairs);
        // Servers say `stop` with calls in it, and nothing at all when the connection ends early.
        let finish = match draft.finish {
            Some(Finish::Length) => Finish::Length,
            Some(Finish::Filter) => Finish::Filter,
            Some(Finish::Stop | Finish::ToolCalls) | None if calls.is_empty() => Finish::Stop,
            Some(Finish::Stop | Finish::ToolCalls) | None => Finish::ToolCalls,
        };
        let mut usage = Usage::default();
        for record in &self.records {
            usage.input_tokens += record.input_tokens;
            usage.output_tokens += record.output_tokens;
            usage.cached_tokens += record.cached_tokens;
            usage.estimated |= record.estimated;
        }
        Reply {
            text: draft.text,
            reasoning: draft.reasoning,
            calls,
            finish,
            usage,
            requests: self.requests,
            repairs: self.repairs,
            model: self.model.to_owned(),
            duration_ms: millis(self.begun.elapsed()),
            records: self.records,
        }
    }

    /// Sends until an answer is there, or nothing more may be sent.
    pub(super) async fn answer(
        &mut self,
        messages: &[Message],
        format: Option<&Format<'_>>,
    ) -> Result<Draft, ModelError> {
        if let Some(problem) = history::problem(messages) {
            return Err(self.fail(ErrorClass::Ours, &problem));
        }
        loop {
            let traits = self.inner.memory.of(self.model);
            let fault = match self.request(messages, format, traits).await {
                Ok(draft) => return Ok(draft),
                Err(fault) => fault,
            };
            let json_mode = format.is_none() && traits.dialect == Dialect::Json && !self.ask.tools.is_empty();
            let of_json_mode = json_mode && fault.refused == Some(Refused::Format);
            let refused = if of_json_mode { Some(Refused::JsonMode) } else { fault.refused };
            let refused = refused.filter(|refused| match refused {
                // Nobody asked for it: the words of the error only sound like that.
                Refused::Tools => !self.ask.tools.is_empty() && traits.dialect == Dialect::Native,
                Refused::Format => format.is_some(),
                Refused::JsonMode
                | Refused::Form
                | Refused::MaxTokens
                | Refused::Temperature
                | Refused::StreamOptions
                | Refused::MissingReasoning => true,
            });
            let learnt = refused.is_some_and(|r| self.inner.memory.learn(self.model, r, traits));
            if learnt {
                self.remember().await;
            }
            if refused == Some(Refused::Tools) && !learnt {
                // A16: said at once, not tried again and again.
                let detail =
                    format!("{}; `model.dialect` forbids another way than native tool calls", fault.detail);
                return Err(self.fail(ErrorClass::Ours, &detail));
            }
            if learnt && !self.is_spent() {
                continue;
            }
            // What was learnt makes the next call of this model another one: it is worth a new try.
            let class = if learnt { ErrorClass::Reply } else { fault.class };
            if !class.retryable() || self.is_spent() {
                return Err(self.fail(class, &fault.detail));
            }
            let mut wait = Duration::from_millis(self.wait_ms(class));
            if self.governor.is_some() {
                // The hint is kept by the fleet's governor, before the next request.
                wait = wait.min(Duration::from_millis(BACKOFF_MS * 4));
                if self.clock.patience < wait {
                    return Err(self.fail(class, &fault.detail));
                }
                self.clock.patience -= wait;
            }
            if wait > Duration::from_millis(WAIT_IN_PLACE_MS_MAX)
                || Instant::now() + wait >= self.clock.deadline
            {
                return Err(self.fail(class, &fault.detail));
            }
            tokio::select! {
                biased;
                () = self.ask.stop.cancelled() => return Err(self.fail(ErrorClass::Cancelled, "stopped by the caller")),
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Tells the fleet what was learnt, so that no other process finds it out again.
    async fn remember(&self) {
        let Some(account) = self.account else { return };
        let config = &self.inner.config;
        let text = self.inner.memory.text(self.model);
        let endpoint = self.inner.endpoint(self.model);
        if let Err(error) = account.store().keep_model_traits(&endpoint, &text, config.probe_expiry_s).await {
            tracing::warn!(%error, "what was learnt of the model could not be kept");
        }
    }

    /// Full hint or doubled backoff, with jitter above it: a fleet must not come back on one beat (A23).
    fn wait_ms(&self, class: ErrorClass) -> u64 {
        let backoff = BACKOFF_MS << self.requests.saturating_sub(1).min(6);
        let hint = match class {
            ErrorClass::Quota { retry_after_ms } => retry_after_ms.unwrap_or(0),
            ErrorClass::Ours
            | ErrorClass::Reply
            | ErrorClass::Overload
            | ErrorClass::Context
            | ErrorClass::Auth
            | ErrorClass::Network
            | ErrorClass::Budget
            | ErrorClass::Cancelled => 0,
        };
        hint.max(backoff / 2) + rand::random_range(0..=backoff / 2)
    }

    /// One HTTP request and its record (I10).
    async fn request(
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
        let has_calls =
            || messages.iter().any(|m| matches!(m, Message::Assistant { calls, .. } if !calls.is_empty()));
        let talks_of_tools = !self.ask.tools.is_empty() || has_calls();
        let speech = if talks_of_tools { traits.dialect } else { Dialect::Native }.speech();
        let dressed = speech.dress(messages, self.ask.tools);
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
            temperature: config.temperature,
            traits,
        });
        let bytes = body.to_string().into_bytes();
        let prompt_bytes = bytes.len();
        // I7: what it may cost at worst is set aside before it is sent.
        let entered = match (&self.governor, self.account) {
            (Some(governor), Some(account)) => {
                account.settle(&mut self.records).await;
                let worst = Worst::of(prompt_bytes, output_tokens_max, config);
                Some(governor.admit(worst, &mut self.clock, self.ask).await?)
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
            prompt_hash: history::prompt_hash(&body),
            messages: u32::try_from(sent.len()).unwrap_or(u32::MAX),
            tools: u32::try_from(self.ask.tools.len()).unwrap_or(u32::MAX),
            request: self.requests,
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
            body: bytes,
            format: format.map(|f| f.name),
        };
        let sent = exchange(post, &bounds);
        let outcome = match &self.governor {
            Some(governor) => governor.while_kept(&record.call, sent).await,
            None => sent.await,
        };
        record.duration_ms = millis(begun.elapsed());
        if let (Some(governor), Some(account), Some(entered)) = (&self.governor, self.account, &entered) {
            let waits = governor.heard(entered, outcome.as_ref().err()).await;
            self.free += u32::from(waits && !account.is_in_a_hurry());
        }
        let outcome = match outcome {
            Ok(draft) => {
                let usage = draft.usage.filter(|u| u.input_tokens + u.output_tokens > 0);
                let usage = usage.unwrap_or_else(|| size::estimate(prompt_bytes, size::draft_bytes(&draft)));
                record.spend(usage, config.input_microusd_per_mtok, config.output_microusd_per_mtok);
                record.finish = draft.finish.map_or("none", Finish::as_str).into();
                if size::was_cut(messages, usage, traits.window) {
                    self.inner.memory.narrow(self.model, usage.input_tokens);
                    self.remember().await;
                    Err(Fault::new(ErrorClass::Context, truncated(messages, usage)))
                } else {
                    self.usable(draft, &mut record)
                }
            }
            Err(fault) => {
                if fault.output_bytes > 0 {
                    // A stream's frame is some 200 bytes around a token of text.
                    let usage = size::estimate(prompt_bytes, fault.output_bytes / 50);
                    record.spend(usage, config.input_microusd_per_mtok, config.output_microusd_per_mtok);
                }
                Err(fault)
            }
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
            record.body =
                account.keep_body(|| transcript::text(&body, outcome.as_ref(), key, config.record_bytes_max));
        }
        self.records.push(record);
        outcome
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

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// For records only: no decision is taken by this clock.
fn unix_ms() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0)
}
