//! The budget of one answer: requests, time, records; and the only place that sends anything again (A25).

mod request;

use super::chain::Leg;
use super::dialect::content::Reading;
use super::dialect::{Dialect, Refused, Traits};
use super::error::{ErrorClass, ModelError, redact};
use super::governor::{Clock, Governor};
use super::wire::{Draft, Format};
use super::{Account, Ask, CallRecord, Finish, Inner, Message, Reply, Usage, arguments, history, wording};
use secrecy::ExposeSecret;
use std::borrow::Cow;
use std::time::Duration;
use tokio::time::Instant;

/// First wait before a request is sent again; doubled each time, with jitter.
const BACKOFF_MS: u64 = 250;
/// Longest wait in place. A longer one, as a `Retry-After` may ask for, is the caller's: it frees its slot meanwhile.
const WAIT_IN_PLACE_MS_MAX: u64 = 20_000;

/// Requests to a model that another one stands behind.
const REQUESTS_BEFORE_NEXT: u32 = 2;

pub(super) struct Session<'a> {
    inner: &'a Inner,
    ask: &'a Ask<'a>,
    account: Option<&'a Account>,
    model: &'a str,
    /// Where in the chain of models this is.
    leg: Leg,
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
    pub(super) fn new(inner: &'a Inner, ask: &'a Ask<'a>, account: Option<&'a Account>, leg: Leg) -> Self {
        let (config, is_last) = (&inner.config, leg.is_last);
        let model = config.name(ask.tier);
        Self {
            inner,
            ask,
            account,
            model,
            clock: Clock::new(leg.begun + Duration::from_millis(config.call_timeout_ms), account),
            governor: account.map(|a| Governor::new(a, config, model, ask.role, is_last)),
            leg,
            free: 0,
            requests: 0,
            repairs: 0,
            used: Traits::default(),
            records: vec![],
        }
    }

    /// Whether every request allowed has been sent (I11).
    pub(super) fn is_spent(&self) -> bool {
        let max = self.inner.config.calls_per_answer_max.max(1);
        // Another model waits for its turn: this one is not asked to the end.
        let max = if self.leg.is_last { max } else { max.min(REQUESTS_BEFORE_NEXT) };
        self.requests - self.free >= max
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
                        Box::pin(self.remember()).await;
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
            usage.add(record);
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
            duration_ms: millis(self.leg.begun.elapsed()),
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
            let shows_images = super::image::images(messages) > 0 && self.inner.memory.takes_images(traits);
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
                Refused::Images => shows_images && self.inner.memory.asks_for_images(),
                Refused::JsonMode
                | Refused::Form
                | Refused::MaxTokens
                | Refused::Temperature
                | Refused::StreamOptions
                | Refused::MissingReasoning
                | Refused::CacheControl => true,
            });
            let learnt = refused.is_some_and(|r| self.inner.memory.learn(self.model, r, traits));
            if learnt {
                Box::pin(self.remember()).await;
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
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
