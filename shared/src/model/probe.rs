//! Trying out how a model wants to be asked: a few short calls, whose refusals are learnt on the way down.
//!
//! What they find is kept for the fleet, so that no ticket pays for it again.

use super::chain::Leg;
use super::dialect::{Dialect, content};
use super::error::{ErrorClass, ModelError};
use super::session::Session;
use super::wire::{Draft, Format};
use super::{Ask, CallRecord, Image, Message, Model, arguments, ignore_wait, tolerant};
use crate::store::Store;
use crate::ticket::Tier;
use crate::tool::{Effect, ToolDecl};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Tokens of one answer: reasoning models think before the shortest word.
const TOKENS_MAX: u32 = 1_024;
/// A list of models is there within this time, or it is done without.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);
const WORD: &str = "PINEAPPLE";
/// A red square of 64 by 64 points.
const RED: &[u8] = include_bytes!("probe/red.png");

/// What a probe found, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Findings {
    pub model: String,
    /// How tools will be called: `native`, `json`, `xml` or `text`.
    pub dialect: String,
    /// How structured answers will be asked: `json_schema`, `json_object` or `plain`.
    pub structured: String,
    /// A tool was called when it was asked for.
    pub calls_tools: bool,
    /// Two calls came in one answer.
    pub parallel_calls: bool,
    /// A conversation with a tool's result goes on.
    pub takes_results: bool,
    /// The structured answer was valid.
    pub valid_json: bool,
    pub obeys_system: bool,
    /// It named the colour of an image; or the configuration says that it takes them.
    pub sees_images: bool,
    /// Reasoning came, apart from the answer or before it.
    pub reasons: bool,
    /// It must be sent back.
    pub echo_reasoning: bool,
    /// Without a usage tokens are estimated.
    pub names_usage: bool,
    /// As the server lists it, in tokens.
    pub context_window: Option<u64>,
    pub requests: u32,
}

impl Model {
    /// Asks the model of a tier a few short questions. With a store, what they find is kept there for the fleet.
    ///
    /// Cancellation safe.
    ///
    /// # Errors
    /// The endpoint cannot be used at all: not reachable, no key, no such model, no answer that could be read. Nothing
    /// is kept then.
    pub async fn probe(
        &self,
        tier: Tier,
        store: Option<&Store>,
        stop: &CancellationToken,
    ) -> Result<Findings, ModelError> {
        let before = self.inner.memory.of(self.name(tier));
        let found = self.try_out(tier, store, stop, Leg::only()).await;
        if found.is_err() {
            // What was learnt on other ways is not lost to a probe that failed.
            self.inner.memory.restore(self.name(tier), before);
        }
        found
    }

    async fn try_out(
        &self,
        tier: Tier,
        store: Option<&Store>,
        stop: &CancellationToken,
        leg: Leg,
    ) -> Result<Findings, ModelError> {
        let name = self.name(tier).to_owned();
        // Hopes again: what was refused a week ago may be there now.
        self.inner.memory.replace(&name, self.inner.memory.hopes());
        let mut probe = Probe {
            model: self,
            tier,
            stop,
            leg,
            read: 0,
            unread: String::new(),
            found: Findings::default(),
        };
        probe.found.model.clone_from(&name);
        probe.system().await?;
        probe.tools().await?;
        probe.structured().await?;
        probe.images().await?;
        let Probe { mut found, read, unread, .. } = probe;
        if read == 0 {
            // Hopes that nothing spoke against are no findings.
            return Err(ModelError::new(ErrorClass::Reply, format!("no answer could be read: {unread}")));
        }
        self.inner.memory.note_probe(&name);
        let traits = self.inner.memory.of(&name);
        found.dialect = traits.dialect.speech().word().into();
        found.structured = traits.rung.as_str().into();
        found.echo_reasoning = traits.echo_reasoning;
        found.sees_images = self.inner.memory.takes_images(traits);
        found.context_window = self.listed_window(&name).await;
        if let Some(store) = store {
            let (endpoint, expiry_s) = (self.inner.endpoint(&name), self.inner.config.probe_expiry_s);
            if let Err(error) =
                store.keep_model_traits(&endpoint, &self.inner.memory.text(&name), expiry_s).await
            {
                tracing::warn!(%error, "what the probe found could not be kept");
            }
        }
        tracing::info!(found = %serde_json::to_string(&found).unwrap_or_default(), "the model was tried out");
        Ok(found)
    }

    /// At the first call: what the fleet knows of the model, or a probe if nobody knows anything. A failing probe
    /// is no failing call: that one finds out by itself.
    pub(super) async fn know(&self, ask: &Ask<'_>, leg: &Leg) {
        let Some(account) = &self.account else { return };
        let name = self.inner.config.name(ask.tier);
        if self.inner.memory.is_known(name) {
            return;
        }
        let (store, endpoint) = (account.store(), self.inner.endpoint(name));
        match store.model_traits(&endpoint).await {
            Ok(known) if self.inner.memory.adopt(name, known.as_deref(), !self.inner.config.probe) => {}
            // Whoever is not first begins with hopes and reads what was found at its next call. A probe that failed is
            // made again when its mark has expired, by whoever calls then.
            Ok(_) => match store.claim_probe(&endpoint).await {
                Ok(true) => {
                    let before = self.inner.memory.of(name);
                    if let Err(error) = self.try_out(ask.tier, Some(store), ask.stop, leg.again()).await {
                        self.inner.memory.restore(name, before);
                        tracing::warn!(%error, "the model could not be tried out");
                    }
                }
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "the model is not tried out now"),
            },
            Err(error) => tracing::warn!(%error, "what the fleet knows of the model could not be read"),
        }
    }

    /// The context window that the list of models names.
    async fn listed_window(&self, name: &str) -> Option<u64> {
        let request = self.inner.wire.get(
            &self.inner.http,
            &self.inner.config.url,
            "models",
            &self.inner.config.api_key,
        );
        let reply = request.timeout(LIST_TIMEOUT).send().await.ok()?;
        let list: Value = reply.json().await.ok()?;
        let entry = list["data"].as_array()?.iter().find(|m| m["id"] == name)?;
        [
            "/context_length",
            "/max_model_len",
            "/context_window",
            "/max_context_length",
            "/meta/n_ctx",
            "/meta/n_ctx_train",
        ]
        .iter()
        .find_map(|place| entry.pointer(place).and_then(Value::as_u64))
    }
}

struct Probe<'a> {
    model: &'a Model,
    tier: Tier,
    stop: &'a CancellationToken,
    leg: Leg,
    /// Answers that could be read.
    read: u32,
    /// Why the last one could not.
    unread: String,
    found: Findings,
}

impl Probe<'_> {
    /// One answer; `None`: the model gave none that could be read, which is a finding and no failure.
    async fn ask(
        &mut self,
        messages: &[Message],
        tools: &[ToolDecl],
        format: Option<&Format<'_>>,
    ) -> Result<Option<Draft>, ModelError> {
        let ask = Ask {
            role: "probe",
            tier: self.tier,
            messages,
            tools,
            output_tokens_max: TOKENS_MAX,
            stop: self.stop,
            on_bytes: &|| {},
            on_wait: &ignore_wait,
        };
        let account = self.model.account.as_ref();
        let mut session = Session::new(&self.model.inner, &ask, account, self.leg.again());
        let outcome = session.answer(messages, format).await;
        let mut records: Vec<CallRecord> = match &outcome {
            Ok(_) => std::mem::take(&mut session.records),
            Err(error) => error.records.clone(),
        };
        self.found.requests += u32::try_from(records.len()).unwrap_or(u32::MAX);
        if let Some(account) = account {
            account.settle(&mut records).await;
        }
        match outcome {
            Ok(draft) => {
                self.read += 1;
                self.found.reasons |= !draft.reasoning.is_empty();
                self.found.names_usage |= records.last().is_some_and(|r| !r.estimated);
                Ok(Some(draft))
            }
            Err(error) if error.class == ErrorClass::Reply => {
                self.unread = error.detail;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn system(&mut self) -> Result<(), ModelError> {
        let messages = [
            Message::System(format!("Whatever you are asked, answer with the one word {WORD}.")),
            Message::User("What is the capital of France?".into()),
        ];
        let draft = self.ask(&messages, &[], None).await?;
        self.found.obeys_system = draft.is_some_and(|d| d.text.to_uppercase().contains(WORD));
        Ok(())
    }

    async fn tools(&mut self) -> Result<(), ModelError> {
        let tools = [ToolDecl {
            name: "get_weather".into(),
            bundle: "probe".into(),
            description: "The weather of one city, now.".into(),
            schema:
                json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
                "additionalProperties": false})
                .into(),
            effect: Effect::Reads,
            sandboxed: false,
            requires_confirmation: false,
        }];
        let mut messages = vec![
            Message::System("You use tools whenever they help. Never guess what a tool can tell.".into()),
            Message::User(
                "What is the weather in Paris and in Tokyo? Call get_weather for both, two calls in one reply.".into(),
            ),
        ];
        let memory = &self.model.inner.memory;
        let name = self.model.name(self.tier).to_owned();
        let mut stepped = false;
        // Twice at most: as hoped, and if a server dropped the tools without a word, in the next dialect.
        loop {
            let draft = self.ask(&messages, &tools, None).await?;
            let used = memory.of(&name);
            let Some(draft) = draft else { return Ok(()) };
            let (text, calls) = match used.dialect.speech().read(&draft.text, &tools) {
                content::Reading::Calls { before, calls, .. } if draft.calls.is_empty() => (before, calls),
                content::Reading::Calls { .. }
                | content::Reading::Text
                | content::Reading::Answer(_)
                | content::Reading::Unreadable { .. } => (draft.text, draft.calls),
            };
            if calls.is_empty() {
                if stepped {
                    // It did no better: the model does not call tools when asked, the server is not to blame.
                    memory.step_up(&name);
                    return Ok(());
                }
                stepped = used.dialect == Dialect::Native && memory.step_down(&name);
                if !stepped {
                    return Ok(());
                }
                continue;
            }
            self.found.calls_tools = true;
            self.found.parallel_calls = calls.len() > 1;
            let (calls, _) = arguments::read(calls, true, draft.finish, &tools, &messages);
            let results: Vec<Message> = calls
                .iter()
                .map(|c| Message::Tool { call_id: c.id.clone(), content: "sunny, 21 degrees".into() })
                .collect();
            messages.push(Message::Assistant { text, reasoning: draft.reasoning, calls });
            messages.extend(results);
            self.found.takes_results = self.ask(&messages, &tools, None).await?.is_some();
            return Ok(());
        }
    }

    async fn structured(&mut self) -> Result<(), ModelError> {
        let schema = json!({"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"],
            "additionalProperties": false});
        let format = Format { name: "sum", schema: &schema };
        let messages =
            [Message::User("What is 2 + 3? Answer as a JSON object with the key `answer`.".into())];
        let draft = self.ask(&messages, &[], Some(&format)).await?;
        let candidates = draft.map(|d| tolerant::candidates(&d.text)).unwrap_or_default();
        self.found.valid_json = candidates.iter().any(|v| v["answer"].is_i64());
        Ok(())
    }

    /// One that drops images without a word names no colour; one that cannot refuses, which is learnt on the way.
    async fn images(&mut self) -> Result<(), ModelError> {
        let memory = &self.model.inner.memory;
        if !memory.asks_for_images() {
            return Ok(());
        }
        let Some(image) = Image::of("square.png", RED) else { return Ok(()) };
        let name = self.model.name(self.tier).to_owned();
        let messages = [
            Message::User("Which colour has this square? Answer with the name of the colour alone.".into()),
            Message::Image(image),
        ];
        let draft = match self.ask(&messages, &[], None).await {
            Ok(draft) => draft,
            // What else a server may say to an image: it does not take it.
            Err(error) if matches!(error.class, ErrorClass::Ours | ErrorClass::Overload) => None,
            Err(error) => return Err(error),
        };
        if !draft.is_some_and(|d| d.text.to_lowercase().contains("red")) {
            memory.sees_none(&name);
        }
        Ok(())
    }
}
