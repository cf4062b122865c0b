//! The think-act-observe loop without its I/O: what a reply means, what is asked next, when it ends.
//!
//! The driver ([`super::run`]) asks the model, runs tools and reads the folder; every decision is here, so that
//! it can be tested as plain code (I6).

use super::guard::{Guard, Verdict};
use super::history;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use shared::model::{ErrorClass, Finish, Message, ModelError, Reply, ToolCall};
use shared::prompt::{self, PromptError};
use shared::store::Permit;
use shared::ticket::{FailClass, Report, Ticket};
use shared::tool::{Effect, ToolDecl};
use std::collections::BTreeMap;

/// Steps before the last at which the model is told to come to an end.
const WRAP_UP: u32 = 3;
/// Replies cut off by their length, after which the attempt fails (A12).
const TRUNCATED_MAX: u32 = 3;
/// Characters of a text turn that become the report's summary.
const SUMMARY_CHARS_MAX: usize = 4_000;

/// How an attempt ends.
#[derive(Debug)]
pub(crate) enum End {
    Report(Box<Report>),
    Failed {
        class: FailClass,
        detail: String,
        delay_ms: Option<u64>,
    },
    /// The stop token came.
    Stopped,
    /// A person is asked about one exact call.
    Parked(Box<Permit>),
}

impl End {
    pub(crate) fn fault(detail: impl Into<String>) -> Self {
        Self::Failed { class: FailClass::Fault, detail: detail.into(), delay_ms: None }
    }

    pub(crate) fn not_retryable(detail: impl Into<String>) -> Self {
        Self::Failed { class: FailClass::NotRetryable, detail: detail.into(), delay_ms: None }
    }
}

impl From<PromptError> for End {
    fn from(error: PromptError) -> Self {
        // A template of ours: trying again renders the same.
        Self::not_retryable(error.to_string())
    }
}

/// One call of a turn; each is answered exactly once, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Act {
    /// Answered already: not run, and why.
    Answer(String),
    Tool {
        name: String,
        args: Map<String, Value>,
    },
    Progress(Map<String, Value>),
    Finish(Map<String, Value>),
}

/// A call that is still to be answered, as it is kept for whoever goes on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Todo {
    pub(crate) id: String,
    pub(crate) name: String,
    /// As the model wrote them, for the step log.
    pub(crate) args: String,
    pub(crate) act: Act,
}

impl Todo {
    /// The arguments that will run.
    pub(crate) fn arguments(&self) -> Value {
        match &self.act {
            Act::Tool { args, .. } | Act::Progress(args) | Act::Finish(args) => Value::Object(args.clone()),
            Act::Answer(_) => Value::Null,
        }
    }
}

/// What the loop remembers beside the messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct State {
    pub(crate) guard: Guard,
    pub(crate) step: u32,
    pub(crate) truncated: u32,
    /// Told once that no tool was run / that outputs are missing / to call finish.
    pub(crate) told: Told,
    pub(crate) tool_calls: BTreeMap<String, u32>,
    pub(crate) last_text: String,
    /// How often each call with an outside effect was made, by its digest.
    pub(crate) effects: BTreeMap<String, u32>,
}

/// What a reply is.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Tool calls by id, to be answered by [`Session::answer`].
    Calls(Vec<Todo>),
    /// Text alone: [`Session::text_turn`] decides, once it is known which outputs are missing.
    Text,
}

/// The state of one attempt's loop.
pub(crate) struct Session {
    pub(crate) messages: Vec<Message>,
    tools: Vec<ToolDecl>,
    state: State,
    steps_max: u32,
    needs_tools: bool,
    /// Compacted since the last good reply (B4: at most once between two turns).
    compacted: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Told {
    no_tools: bool,
    missing: bool,
    finish: bool,
}

impl Session {
    pub(crate) fn new(
        system: String,
        task: String,
        tools: Vec<ToolDecl>,
        steps_max: u32,
        ticket: &Ticket,
    ) -> Self {
        // With nothing but the loop's own tools a text is the answer: no nudge, no second call.
        let told = Told { finish: tools.iter().all(|t| t.bundle == "fleet"), ..Told::default() };
        Self {
            messages: vec![Message::System(system), Message::User(task)],
            tools,
            state: State { told, ..State::default() },
            steps_max,
            needs_tools: needs_tools(ticket),
            compacted: false,
        }
    }

    pub(crate) fn step(&self) -> u32 {
        self.state.step
    }

    pub(crate) fn tools(&self) -> &[ToolDecl] {
        &self.tools
    }

    /// Before each call of the model: counts the step, warns near the end, ends it past the end (D3, I11).
    pub(crate) fn begin_step(&mut self) -> Result<(), End> {
        self.state.step += 1;
        if self.state.step > self.steps_max {
            let summary = format!(
                "Stopped at the limit of {} steps before finish was called. Last words: {}",
                self.steps_max,
                if self.state.last_text.is_empty() { "none" } else { &self.state.last_text }
            );
            return Err(if self.ran_any() || !self.needs_tools {
                End::Report(Box::new(self.report("partial", &summary, vec![], vec![])))
            } else {
                End::fault(summary)
            });
        }
        if self.state.step > 1 && self.state.step + WRAP_UP == self.steps_max + 1 {
            let left = WRAP_UP.min(self.steps_max);
            let nudge = nudge("wrap_up", &[("left", left.into())])?;
            self.messages.push(Message::User(nudge));
        }
        Ok(())
    }

    /// Takes a reply into the history and says what it is.
    pub(crate) fn reply(&mut self, reply: &Reply) -> Result<Turn, End> {
        self.compacted = false;
        if !reply.text.trim().is_empty() {
            self.state.last_text = prompt::clip(reply.text.trim(), 500);
        }
        match reply.finish {
            Finish::Filter => return Err(End::fault("the provider's content filter withheld the reply")),
            // A12: nothing of a cut reply is run.
            Finish::Length => self.count_truncated()?,
            Finish::Stop | Finish::ToolCalls => {}
        }
        if reply.calls.is_empty() && reply.text.trim().is_empty() && reply.finish != Finish::Length {
            if std::mem::replace(&mut self.state.told.finish, true) {
                return Err(End::fault("the model's replies are empty"));
            }
            let empty = nudge("empty", &[])?;
            self.messages.push(Message::User(empty));
            return Ok(Turn::Calls(vec![]));
        }
        self.messages.push(Message::Assistant {
            text: reply.text.clone(),
            reasoning: reply.reasoning.clone(),
            calls: reply.calls.clone(),
        });
        if reply.calls.is_empty() {
            if reply.finish == Finish::Length {
                let cut = nudge("truncated", &[])?;
                self.messages.push(Message::User(cut));
                return Ok(Turn::Calls(vec![]));
            }
            return Ok(Turn::Text);
        }
        let mut acts = vec![];
        for call in &reply.calls {
            let args = match &call.args {
                Ok(args) => serde_json::to_string(args).unwrap_or_default(),
                Err(bad) => bad.raw.clone(),
            };
            acts.push(Todo { id: call.id.clone(), name: call.name.clone(), args, act: self.act(call)? });
        }
        Ok(Turn::Calls(acts))
    }

    fn act(&mut self, call: &ToolCall) -> Result<Act, End> {
        let Some(tool) = self.tools.iter().find(|t| t.name == call.name) else {
            if let Verdict::Stop(why) = self.state.guard.unknown() {
                return Err(End::fault(format!("{} (last: {})", why.describe(), call.name)));
            }
            let names: Vec<&str> = self.tools.iter().map(|t| t.name.as_str()).collect();
            return Ok(Act::Answer(nudge(
                "unknown_tool",
                &[("name", call.name.as_str().into()), ("tools", names.into())],
            )?));
        };
        let reads = tool.effect == Effect::Reads;
        let args = match &call.args {
            Ok(args) => args.clone(),
            Err(bad) if bad.truncated => {
                self.count_truncated()?;
                return Ok(Act::Answer(nudge("truncated", &[])?));
            }
            Err(bad) => {
                let mut raw = Map::new();
                raw.insert("raw".into(), bad.raw.as_str().into());
                // B1 counts broken arguments too: the same broken call again and again is a loop.
                if let Verdict::Stop(why) = self.state.guard.call(&call.name, &raw, false) {
                    return Err(self.looped(why.describe(), &call.name));
                }
                return Ok(Act::Answer(format!("Not run: {}", bad.problem)));
            }
        };
        match call.name.as_str() {
            "finish" => return Ok(Act::Finish(args)),
            "update_progress" => {
                return match self.state.guard.call(&call.name, &args, reads) {
                    Verdict::Run => Ok(Act::Progress(args)),
                    Verdict::Nudge => Ok(Act::Answer(nudge("same_call", &[])?)),
                    Verdict::Stop(why) => Err(self.looped(why.describe(), &call.name)),
                };
            }
            _ => {}
        }
        match self.state.guard.call(&call.name, &args, reads) {
            Verdict::Run => Ok(Act::Tool { name: call.name.clone(), args }),
            Verdict::Nudge => Ok(Act::Answer(nudge("same_call", &[])?)),
            Verdict::Stop(why) => Err(self.looped(why.describe(), &call.name)),
        }
    }

    /// B1: for the manager, with the trace; the same again would loop again.
    fn looped(&self, why: &str, last: &str) -> End {
        let calls: Vec<String> =
            self.state.tool_calls.iter().map(|(name, n)| format!("{name} ×{n}")).collect();
        End::not_retryable(format!("{why}. Last call: {last}. Calls so far: {}", calls.join(", ")))
    }

    fn count_truncated(&mut self) -> Result<(), End> {
        self.state.truncated += 1;
        if self.state.truncated >= TRUNCATED_MAX {
            return Err(End::fault(format!(
                "output_truncated: {TRUNCATED_MAX} replies were cut off by their length limit"
            )));
        }
        Ok(())
    }

    /// Answers one call of the turn.
    pub(crate) fn answer(&mut self, call_id: String, content: String) {
        self.messages.push(Message::Tool { call_id, content });
    }

    /// A tool really ran (whether or not it was happy): what claims are held against.
    pub(crate) fn ran(&mut self, tool: &str) {
        *self.state.tool_calls.entry(tool.into()).or_default() += 1;
    }

    /// How often this very call with its effect was made in this attempt so far.
    pub(crate) fn ordinal(&self, digest: &str) -> u32 {
        self.state.effects.get(digest).copied().unwrap_or(0)
    }

    /// It was made, or its earlier outcome was heard.
    pub(crate) fn count_effect(&mut self, digest: String) {
        *self.state.effects.entry(digest).or_default() += 1;
    }

    /// What is kept beside the messages.
    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// Goes on from where an earlier owner of the ticket stopped; the first two messages are this attempt's own.
    pub(crate) fn restore(&mut self, messages: Vec<Message>, state: State) {
        self.messages.truncate(2);
        self.messages.extend(messages);
        self.state = state;
    }

    fn ran_any(&self) -> bool {
        !self.state.tool_calls.is_empty()
    }

    /// The model calls finish with valid arguments. `missing`: declared outputs that are not there; `changed`:
    /// what the attempt made. `Ok`: not yet, with the answer to the call.
    pub(crate) fn finish(
        &mut self,
        args: &Map<String, Value>,
        missing: &[String],
        changed: Vec<String>,
    ) -> Result<String, End> {
        let status = args.get("status").and_then(Value::as_str).unwrap_or("done");
        let summary = args.get("summary").and_then(Value::as_str).unwrap_or_default();
        if status == "failed" {
            return Err(End::fault(format!("the worker says that it cannot be done: {summary}")));
        }
        if let Some(say) = self.unfinished(missing)? {
            return Ok(say);
        }
        let strings = |key: &str| -> Vec<String> {
            let list = args.get(key).and_then(Value::as_array).into_iter().flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let status = if status == "partial" || !missing.is_empty() { "partial" } else { "done" };
        let mut report = self.report(status, summary, strings("conclusions"), changed);
        report.plan_change =
            args.get("plan_change").and_then(Value::as_str).unwrap_or_default().trim().into();
        Err(End::Report(Box::new(report)))
    }

    /// A turn of text without a call. `Ok`: the model was told something and the loop goes on.
    pub(crate) fn text_turn(&mut self, missing: &[String], changed: Vec<String>) -> Result<(), End> {
        let Some(Message::Assistant { text, .. }) = self.messages.last() else { return Ok(()) };
        let (own, invented) = without_invented(text);
        let own = own.to_owned();
        let say = if let Some(say) = self.unfinished(missing)? {
            say
        } else if invented && !std::mem::replace(&mut self.state.told.finish, true) {
            nudge("invented", &[])?
        } else if !self.needs_tools
            && !self.ran_any()
            && !std::mem::replace(&mut self.state.told.finish, true)
        {
            // Small models never call finish; one nudge first, then their text is the report.
            nudge("finish", &[])?
        } else {
            let status = if missing.is_empty() { "done" } else { "partial" };
            return Err(End::Report(Box::new(self.report(status, &own, vec![], changed))));
        };
        if invented && let Some(Message::Assistant { text, .. }) = self.messages.last_mut() {
            // B2: what follows a made-up observation is worth nothing, also as context.
            *text = own;
        }
        self.messages.push(Message::User(say));
        Ok(())
    }

    /// What stands against an end now, said once each. A second end without any tool run is refused (B2).
    fn unfinished(&mut self, missing: &[String]) -> Result<Option<String>, End> {
        if self.needs_tools && !self.ran_any() {
            if std::mem::replace(&mut self.state.told.no_tools, true) {
                return Err(End::fault("the work is said to be done, but no tool was run"));
            }
            return Ok(Some(nudge("no_tools", &[])?));
        }
        if !missing.is_empty() && !std::mem::replace(&mut self.state.told.missing, true) {
            return Ok(Some(nudge("missing", &[("paths", missing.to_vec().into())])?));
        }
        Ok(None)
    }

    fn report(&self, status: &str, summary: &str, conclusions: Vec<String>, outputs: Vec<String>) -> Report {
        Report {
            status: status.into(),
            summary: prompt::clip(summary.trim(), SUMMARY_CHARS_MAX),
            conclusions,
            outputs,
            tool_calls: self.state.tool_calls.clone(),
            ..Report::default()
        }
    }

    /// The model failed: go on (after a compaction), or end, by whose fault it is (I8).
    pub(crate) fn model_failed(&mut self, error: &ModelError) -> Result<(), End> {
        let detail = error.to_string();
        let wait = |delay_ms| End::Failed { class: FailClass::Wait, detail: detail.clone(), delay_ms };
        Err(match error.class {
            // Given back unharmed: the goal waits for a person who raises its budget.
            ErrorClass::Cancelled | ErrorClass::Budget => End::Stopped,
            ErrorClass::Quota { retry_after_ms } => wait(retry_after_ms.map(jittered)),
            ErrorClass::Overload | ErrorClass::Network => wait(None),
            ErrorClass::Auth | ErrorClass::Ours => End::not_retryable(detail),
            ErrorClass::Reply => End::fault(detail),
            ErrorClass::Context => {
                if !std::mem::replace(&mut self.compacted, true) && history::compact(&mut self.messages) {
                    self.state.step -= 1;
                    return Ok(());
                }
                End::fault(format!("context: the conversation does not fit the model. {detail}"))
            }
        })
    }
}

/// A hint is a lower bound; a hundred tickets must not come back at its very end.
fn jittered(hint_ms: u64) -> u64 {
    hint_ms.saturating_add(rand::random_range(0..=hint_ms / 4 + 250))
}

/// Tickets that deliver or are checked by files cannot be done by words.
fn needs_tools(ticket: &Ticket) -> bool {
    !ticket.outputs.is_empty() || ticket.checklist.iter().any(shared::ticket::Check::is_code)
}

/// The text before an observation that the model wrote itself, and whether there was one (B2).
fn without_invented(text: &str) -> (&str, bool) {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let word = line.trim_start_matches([' ', '*', '#', '>', '`']);
        if word.starts_with("Observation:") || word.starts_with("<tool_response>") {
            return (&text[..at], true);
        }
        // On one line too: "Action: read_file … Observation: 3 files … Final Answer: done".
        if word.starts_with("Action:")
            && let Some(found) = line.find("Observation:")
        {
            return (&text[..at + found], true);
        }
        at += line.len();
    }
    (text, false)
}

/// What the model hears when a person does not want its call.
pub(crate) fn denied(name: &str, why: &str) -> Result<String, PromptError> {
    nudge("denied", &[("name", name.into()), ("why", why.trim().into())])
}

/// Words to the model are in `worker_nudge.j2`.
fn nudge(kind: &str, fields: &[(&str, Value)]) -> Result<String, PromptError> {
    let mut context = Map::new();
    context.insert("kind".into(), kind.into());
    for (name, value) in fields {
        context.insert((*name).into(), value.clone());
    }
    Ok(prompt::render("worker_nudge.j2", &context)?.trim().to_owned())
}

#[cfg(test)]
mod tests;
