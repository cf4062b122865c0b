//! The agent: think, act, observe until the report. This file does the I/O; decisions are in [`session`].
//!
//! Guards are pure code (B1), every call of a turn is answered once (A10), a reply cut by length is never run
//! (A12), every model call is booked whatever it came to (I10).

mod guard;
mod history;
mod ledger;
mod memory;
mod session;
mod steps;

pub(crate) use ledger::book;
pub(crate) use memory::Memory;
pub(crate) use session::End;

use crate::effects::{Decision, Effects, Gate};
use crate::factory::Actor;
use crate::tools::{ToolBox, ToolError, arguments};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use serde_json::{Map, Value};
use session::{Act, Session, Todo, Turn};
use shared::consumer::Job;
use shared::model::{Ask, Message, Model};
use shared::store::{Store, Written};
use shared::telemetry::genai;
use shared::telemetry::metrics::{self, Call as CallOutcome, Role};
use shared::ticket::FailClass;
use shared::tool::{self, Effect};
use std::time::{Duration, Instant};
use steps::{Call, Step, StepLog};
use tracing::Instrument as _;

/// Calls of one turn that are made at the same time.
const TOGETHER_MAX: usize = 8;
/// A broken sandbox or disk may be whole again, or the ticket goes to another worker.
const BROKEN_DELAY_MS: u64 = 10_000;

/// What an attempt works with.
pub(crate) struct Agent<'a> {
    pub(crate) model: &'a Model,
    pub(crate) store: &'a Store,
    pub(crate) job: &'a Job,
    pub(crate) toolbox: &'a mut ToolBox,
    pub(crate) effects: Effects<'a>,
    pub(crate) memory: Memory<'a>,
    /// The model that gave the last answer; empty: none did.
    pub(crate) answered_by: String,
}

/// Runs the actor to its end. The second part is the step log, to be kept as a blob.
///
/// Cancellation: ends soon after `job.stop`, with [`End::Stopped`].
pub(crate) async fn run(agent: &mut Agent<'_>, actor: Actor) -> (End, Vec<u8>) {
    let ticket = &agent.job.claim.ticket;
    let mut session = Session::new(actor.system, actor.task, actor.tools, actor.steps_max, ticket);
    let mut log = StepLog::default();
    let began = Instant::now();
    // What an earlier owner of this ticket had still to do in its last step.
    let mut todos = agent.memory.restore(&mut session, &mut log);
    loop {
        if agent.job.stop.is_cancelled() {
            return (End::Stopped, log.into_bytes());
        }
        let number = session.step() + u32::from(todos.is_empty());
        let span = tracing::debug_span!("step", step = number);
        let mut step = Step {
            v: 1,
            step: number,
            at_ms: ms(began.elapsed()),
            text: String::new(),
            calls: vec![],
            input_tokens: 0,
            output_tokens: 0,
        };
        let ended = if todos.is_empty() {
            agent.step(&mut session, actor.tier, &mut step).instrument(span).await
        } else {
            let todos = std::mem::take(&mut todos);
            Box::pin(agent.calls(&mut session, todos, &mut step)).instrument(span).await
        };
        let line = log.add(step);
        if let Err(end) = ended {
            return (end, log.into_bytes());
        }
        if let Err(end) = Box::pin(agent.memory.keep(&session, agent.toolbox, &line)).await {
            return (end, log.into_bytes());
        }
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Agent<'_> {
    /// One model call and the tool calls that it asks for.
    async fn step(
        &mut self,
        session: &mut Session,
        tier: shared::ticket::Tier,
        step: &mut Step,
    ) -> Result<(), End> {
        session.begin_step()?;
        let pulse = self.job.pulse.clone();
        let on_bytes = || pulse.beat();
        let on_wait = |begins: bool| if begins { pulse.wait_begin() } else { pulse.wait_end() };
        let ask = Ask {
            role: "worker",
            tier,
            messages: &session.messages,
            tools: session.tools(),
            output_tokens_max: 0,
            stop: &self.job.stop,
            on_bytes: &on_bytes,
            on_wait: &on_wait,
        };
        let began = Instant::now();
        let answered = self.model.chat(&ask).await;
        self.job.pulse.beat();
        let reply = match answered {
            Ok(reply) => {
                let (input, output) = (reply.usage.input_tokens, reply.usage.output_tokens);
                metrics::model_call(
                    Role::Worker,
                    tier.as_str(),
                    CallOutcome::Ok,
                    began.elapsed(),
                    input,
                    output,
                );
                (step.input_tokens, step.output_tokens) = (input, output);
                step.text.clone_from(&reply.text);
                self.answered_by.clone_from(&reply.model);
                Box::pin(book(self.store, self.job, &reply.records)).await;
                reply
            }
            Err(error) => {
                let outcome = ledger::outcome(error.class);
                metrics::model_call(Role::Worker, tier.as_str(), outcome, began.elapsed(), 0, 0);
                Box::pin(book(self.store, self.job, &error.records)).await;
                tracing::warn!(class = error.class.as_str(), detail = error.detail, "model call failed");
                return session.model_failed(&error);
            }
        };
        match session.reply(&reply)? {
            Turn::Text => {
                let (missing, changed) = Box::pin(self.outputs()).await?;
                session.text_turn(&missing, changed)
            }
            // Boxed: while the model is waited for, the tools take no room.
            Turn::Calls(todos) => Box::pin(self.calls(session, todos, step)).await,
        }
    }

    /// Answers the calls of a turn, each once and in order. Neighbours that only read are made at the same time.
    async fn calls(
        &mut self,
        session: &mut Session,
        mut todos: Vec<Todo>,
        step: &mut Step,
    ) -> Result<(), End> {
        while !todos.is_empty() {
            let reads = todos.iter().take_while(|todo| self.only_reads(todo)).count();
            if reads > 1 {
                self.look(session, todos.drain(..reads).collect(), step).await?;
                continue;
            }
            let began = Instant::now();
            let todo = todos[0].clone();
            let (text, ok) = match todo.act {
                Act::Answer(text) => (text, false),
                Act::Progress(args) => self.progress(&args).await?,
                Act::Finish(args) => match self.finish(session, &args).await {
                    Ok(said) => (said, false),
                    Err(end) => {
                        step.calls.push(Call::new("finish", &args_of(&args), "", true, ms(began.elapsed())));
                        return Err(end);
                    }
                },
                Act::Tool { name, args } => self.tool(session, &name, args, &mut todos).await?,
            };
            step.calls.push(Call::new(&todo.name, &todo.args, &text, ok, ms(began.elapsed())));
            session.answer(todo.id, text);
            todos.remove(0);
            self.job.pulse.beat();
        }
        // Behind the answers: every call has its own, and only the user's side shows images.
        session.messages.extend(self.toolbox.take_images().into_iter().map(Message::Image));
        Ok(())
    }

    /// Whether the call changes nothing, here or outside, and nobody has to be asked.
    fn only_reads(&self, todo: &Todo) -> bool {
        let Act::Tool { name, .. } = &todo.act else { return false };
        self.toolbox.decl(name).is_some_and(|t| t.effect == Effect::Reads && !t.requires_confirmation)
    }

    /// Makes calls that only read, several at once; they are answered in the order of the turn.
    async fn look(&mut self, session: &mut Session, todos: Vec<Todo>, step: &mut Step) -> Result<(), End> {
        let (toolbox, pulse) = (&*self.toolbox, &self.job.pulse);
        let mut calls: Vec<BoxFuture<'_, _>> = vec![];
        for todo in &todos {
            let span = genai::tool(&todo.name, &todo.id);
            calls.push(Box::pin(async move {
                let began = Instant::now();
                let looked = toolbox.look(&todo.name, &todo.arguments()).instrument(span).await;
                pulse.beat();
                (looked, ms(began.elapsed()))
            }));
        }
        let together = futures::stream::iter(calls).buffered(TOGETHER_MAX).collect::<Vec<_>>();
        let looked = tokio::select! {
            looked = together => looked,
            () = self.job.stop.cancelled() => return Err(End::Stopped),
        };
        for (todo, (looked, took)) in todos.into_iter().zip(looked) {
            session.ran(&todo.name);
            let is_ok = matches!(looked, Ok((_, false)));
            metrics::tool_call(self.toolbox.kind(&todo.name), is_ok);
            let (text, ok) = match looked {
                Ok(said) => (self.toolbox.said(&todo.name, said).await.text, is_ok),
                // What goes wrong is an observation, not a failure.
                Err(ToolError::Tell(text) | ToolError::NotDone(text) | ToolError::Unknown(text)) => {
                    (text, false)
                }
                Err(ToolError::Broken(text)) => return Err(broken(&todo.name, &text)),
            };
            step.calls.push(Call::new(&todo.name, &todo.args, &text, ok, took));
            session.answer(todo.id, text);
        }
        Ok(())
    }

    /// `todos` begins with this call: kept before anything that cannot be taken back, so that whoever goes on makes
    /// this very call and does not ask the model again.
    async fn tool(
        &mut self,
        session: &mut Session,
        name: &str,
        args: Map<String, Value>,
        todos: &mut [Todo],
    ) -> Result<(String, bool), End> {
        let span = genai::tool(name, todos.first().map_or("", |todo| &todo.id));
        let Some(decl) = self.toolbox.decl(name).cloned() else {
            return Ok((format!("there is no tool `{name}` here"), false));
        };
        let is_world = decl.effect == Effect::World;
        let args = Value::Object(args);
        let gate = if is_world || decl.requires_confirmation {
            let ordinal = session.ordinal(&tool::digest(name, &args));
            match self.effects.decide(self.toolbox, &decl, args, ordinal).await {
                Decision::Run { args, permit } => {
                    let digest = tool::digest(name, &args);
                    if let Value::Object(args) = &args {
                        todos[0].act = Act::Tool { name: name.into(), args: args.clone() };
                    }
                    self.memory.must_keep(session, self.toolbox, todos).await?;
                    let ordinal = session.ordinal(&digest);
                    let run = self.effects.run(self.toolbox, &decl, args, permit, ordinal);
                    let gate = run.instrument(span).await;
                    if is_world && matches!(gate, Gate::Answer { .. }) {
                        session.count_effect(digest);
                    }
                    gate
                }
                Decision::Ended(gate) => {
                    if is_world && matches!(gate, Gate::Answer { ok: true, .. }) {
                        session.count_effect(tool::digest(name, &todos[0].arguments()));
                    }
                    gate
                }
            }
        } else {
            self.effects.run(self.toolbox, &decl, args, false, 0).instrument(span).await
        };
        session.ran(name);
        metrics::tool_call(self.toolbox.kind(name), matches!(gate, Gate::Answer { ok: true, .. }));
        match gate {
            // What goes wrong is an observation, not a failure.
            Gate::Answer { text, ok } => Ok((text, ok)),
            Gate::Denied(why) => Ok((session::denied(name, &why)?, false)),
            Gate::Park(permit) => {
                self.memory.must_keep(session, self.toolbox, todos).await?;
                Err(End::Parked(permit))
            }
            Gate::Stopped => Err(End::Stopped),
            Gate::Broken(text) => Err(broken(name, &text)),
        }
    }

    async fn progress(&self, args: &Map<String, Value>) -> Result<(String, bool), End> {
        let args = match arguments::check("update_progress", &Value::Object(args.clone())) {
            Ok(args) => args,
            Err(problem) => return Ok((problem, false)),
        };
        let text = |key: &str| args.get(key).and_then(Value::as_str).unwrap_or_default();
        let fact = Some(text("conclusion")).filter(|fact| !fact.trim().is_empty());
        let held = &self.job.claim.held;
        match self.store.progress(held, text("status"), text("message"), fact).await {
            Ok(Written::Fenced | Written::Gone) => Err(End::Stopped),
            Ok(_) => Ok(("noted".into(), true)),
            Err(error) => {
                // A word to the manager is not worth an attempt.
                tracing::warn!(%error, "progress not noted");
                Ok(("noted".into(), true))
            }
        }
    }

    async fn finish(&mut self, session: &mut Session, args: &Map<String, Value>) -> Result<String, End> {
        let args = match arguments::check("finish", &Value::Object(args.clone())) {
            Ok(args) => args,
            Err(problem) => return Ok(problem),
        };
        let empty = Map::new();
        let (missing, changed) = self.outputs().await?;
        session.finish(args.as_object().unwrap_or(&empty), &missing, changed)
    }

    /// Declared outputs that are not there, and what the attempt made.
    async fn outputs(&mut self) -> Result<(Vec<String>, Vec<String>), End> {
        outputs(self.toolbox, &self.job.claim.ticket.outputs).await
    }
}

fn args_of(args: &Map<String, Value>) -> String {
    serde_json::to_string(args).unwrap_or_default()
}

/// Nobody's fault but the machine's: another worker may do it.
pub(crate) fn broken(tool: &str, text: &str) -> End {
    End::Failed {
        class: FailClass::Wait,
        detail: format!("{tool} is broken here: {text}"),
        delay_ms: Some(BROKEN_DELAY_MS),
    }
}

/// Declared outputs that do not stand in the attempt's folder, and the paths that the attempt made or changed.
pub(crate) async fn outputs(
    toolbox: &mut ToolBox,
    declared: &[String],
) -> Result<(Vec<String>, Vec<String>), End> {
    let attempt = toolbox.attempt_mut();
    if let Err(error) = attempt.scan().await {
        return Err(if error.is_of_the_work() {
            End::fault(error.to_string())
        } else {
            broken("the attempt's folder", &error.to_string())
        });
    }
    let there: std::collections::BTreeSet<&str> = attempt.paths().collect();
    let missing = declared.iter().filter(|path| !there.contains(path.as_str())).cloned().collect();
    let changed = attempt.changes().filter(|(_, stands)| *stands).map(|(path, _)| path.to_owned()).collect();
    Ok((missing, changed))
}
