//! The agent: think, act, observe until the report. This file does the I/O; decisions are in [`session`].
//!
//! Guards are pure code (B1), every call of a turn is answered once (A10), a reply cut by length is never run
//! (A12), every model call is booked whatever it came to (I10).

mod guard;
mod history;
mod ledger;
mod session;
mod steps;

pub(crate) use ledger::book;
pub(crate) use session::End;

use crate::factory::Actor;
use crate::tools::{ToolBox, ToolError, arguments};
use serde_json::{Map, Value};
use session::{Act, Session, Turn};
use shared::consumer::Job;
use shared::model::{Ask, Model};
use shared::store::{Store, Written};
use shared::telemetry::metrics::{self, Call as CallOutcome, Role};
use shared::ticket::FailClass;
use std::time::{Duration, Instant};
use steps::{Call, Step, StepLog};
use tracing::Instrument as _;

/// A broken sandbox or disk may be whole again, or the ticket goes to another worker.
const BROKEN_DELAY_MS: u64 = 10_000;

/// What an attempt works with.
pub(crate) struct Agent<'a> {
    pub(crate) model: &'a Model,
    pub(crate) store: &'a Store,
    pub(crate) job: &'a Job,
    pub(crate) toolbox: &'a mut ToolBox,
}

/// Runs the actor to its end. The second part is the step log, to be kept as a blob.
///
/// Cancellation: ends soon after `job.stop`, with [`End::Stopped`].
pub(crate) async fn run(agent: &mut Agent<'_>, actor: Actor) -> (End, Vec<u8>) {
    let ticket = &agent.job.claim.ticket;
    let mut session = Session::new(actor.system, actor.task, actor.tools, actor.steps_max, ticket);
    let mut log = StepLog::default();
    let began = Instant::now();
    loop {
        if agent.job.stop.is_cancelled() {
            return (End::Stopped, log.into_bytes());
        }
        let number = session.step() + 1;
        let span = tracing::info_span!("step", step = number);
        let mut step = Step {
            v: 1,
            step: number,
            at_ms: ms(began.elapsed()),
            text: String::new(),
            calls: vec![],
            input_tokens: 0,
            output_tokens: 0,
        };
        let ended = agent.step(&mut session, actor.tier, &mut step).instrument(span).await;
        log.add(step);
        if let Err(end) = ended {
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
        let answered = self
            .model
            .chat(&ask)
            .instrument(tracing::info_span!(
                "chat",
                gen_ai.operation.name = "chat",
                gen_ai.request.model = self.model.name(tier)
            ))
            .await;
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
                book(self.store, self.job, &reply.records).await;
                reply
            }
            Err(error) => {
                let outcome = ledger::outcome(error.class);
                metrics::model_call(Role::Worker, tier.as_str(), outcome, began.elapsed(), 0, 0);
                book(self.store, self.job, &error.records).await;
                tracing::warn!(class = error.class.as_str(), detail = error.detail, "model call failed");
                return session.model_failed(&error);
            }
        };
        match session.reply(&reply)? {
            Turn::Text => {
                let (missing, changed) = self.outputs().await?;
                session.text_turn(&missing, changed)
            }
            Turn::Calls(acts) => self.calls(session, acts, &reply.calls, step).await,
        }
    }

    async fn calls(
        &mut self,
        session: &mut Session,
        acts: Vec<(String, Act)>,
        calls: &[shared::model::ToolCall],
        step: &mut Step,
    ) -> Result<(), End> {
        for ((id, act), call) in acts.into_iter().zip(calls) {
            let began = Instant::now();
            let args = match &call.args {
                Ok(args) => serde_json::to_string(args).unwrap_or_default(),
                Err(bad) => bad.raw.clone(),
            };
            let (text, ok) = match act {
                Act::Answer(text) => (text, false),
                Act::Progress(args) => self.progress(&args).await?,
                Act::Finish(args) => match self.finish(session, &args).await {
                    Ok(said) => (said, false),
                    Err(end) => {
                        step.calls.push(Call::new("finish", &args_of(&args), "", true, ms(began.elapsed())));
                        return Err(end);
                    }
                },
                Act::Tool { name, args } => self.tool(session, &name, args).await?,
            };
            step.calls.push(Call::new(&call.name, &args, &text, ok, ms(began.elapsed())));
            session.answer(id, text);
            self.job.pulse.beat();
        }
        Ok(())
    }

    async fn tool(
        &mut self,
        session: &mut Session,
        name: &str,
        args: Map<String, Value>,
    ) -> Result<(String, bool), End> {
        let span = tracing::info_span!("execute_tool", gen_ai.tool.name = name);
        let stop = self.job.stop.clone();
        let args = Value::Object(args);
        let done = tokio::select! {
            done = self.toolbox.call(name, &args).instrument(span) => done,
            () = stop.cancelled() => return Err(End::Stopped),
        };
        session.ran(name);
        metrics::tool_call(done.is_ok());
        match done {
            Ok(result) => Ok((result.text, true)),
            // An observation, not a failure.
            Err(ToolError::Tell(text)) => Ok((text, false)),
            Err(ToolError::Broken(text)) => Err(broken(name, &text)),
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
