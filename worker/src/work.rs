//! The worker's handler: opens the attempt, does the ticket (agent or direct call), seals what came of it.

mod context;
mod direct;

use crate::agent::{self, Agent, End, Memory};
use crate::effects::{Effects, Gate};
use crate::factory::{self, Situation, knowledge};
use crate::tools::write_set::{self, WriteSet};
use crate::tools::{Catalogue, ToolBox, ToolError};
use context::Read;
use serde_json::Value;
use shared::blob::Blobs;
use shared::config::Config;
use shared::consumer::{Handler, Job, Outcome};
use shared::model::{Account, Model};
use shared::role::Library;
use shared::sandbox::Sandbox;
use shared::store::{Store, StoreError};
use shared::ticket::{FailClass, Report, Ticket};
use shared::workspace::{Attempt, Clash, WorkspaceError};
use std::sync::Arc;

/// A ticket waits this long when what we read it from does not answer.
const OURS_DELAY_MS: u64 = 5_000;

/// What an agent was told at its start: hash, and the blob of its parts.
struct Prompt {
    hash: String,
    parts: String,
}

/// What every ticket is done with.
pub(crate) struct Worker {
    pub(crate) store: Store,
    pub(crate) blobs: Blobs,
    /// `None`: direct calls only.
    pub(crate) model: Option<Model>,
    /// `None`: no code runs here.
    pub(crate) sandbox: Option<Sandbox>,
    pub(crate) roles: Library,
    pub(crate) tools: Arc<Catalogue>,
    pub(crate) config: Arc<Config>,
}

impl Handler for Worker {
    async fn handle(&self, job: Job) -> Outcome {
        match self.work(&job).await {
            Ok(outcome) => outcome,
            Err(End::Failed { class, detail, delay_ms }) => Outcome::Failed { class, detail, delay_ms },
            Err(End::Stopped) => Outcome::Released,
            Err(End::Parked(permit)) => {
                Outcome::Parked { permit: *permit, expiry_ms: self.config.lease.person_expiry_ms }
            }
            // An end with a report is sealed in `work`.
            Err(End::Report(_)) => Outcome::Released,
        }
    }
}

impl Worker {
    async fn work(&self, job: &Job) -> Result<Outcome, End> {
        let ticket = &job.claim.ticket;
        self.check_possible(ticket)?;
        // An agent waits in here for most of its life, thousands of them at once: what comes before and after is boxed, so
        // that its room is not taken meanwhile.
        let read = Box::pin(Read::of(&self.store, ticket)).await.map_err(|e| unavailable(&e))?;
        let approvals = self.config.tools.approvals;
        let effects = Box::pin(Effects::open(&self.store, &self.blobs, job, approvals)).await;
        let mut effects = effects.map_err(|gate| gate_closed(gate, "an earlier call"))?;
        let inline = self.config.worker.step_bytes_inline_max;
        let memory = Box::pin(Memory::open(&self.store, &self.blobs, job, inline)).await;
        let attempt = Box::pin(self.open(ticket, memory.overlay())).await?;
        job.pulse.beat();
        let clashes: Vec<String> = attempt.clashes().iter().map(Clash::describe).collect();
        let mut toolbox =
            ToolBox::new(attempt, self.sandbox.clone(), &self.config.worker, Arc::clone(&self.tools));
        toolbox.keep_to(WriteSet::of(&self.store, ticket));
        // Nobody reads a direct call's output as the continuation of an earlier session.
        if ticket.attempts > 1 && ticket.call.is_none() {
            toolbox.resumed();
        }
        let (actor, end, steps) = match &ticket.call {
            Some(call) => {
                let actor = format!("tool:{}", call.tool);
                let end = Box::pin(direct::run(job, &mut toolbox, call, &mut effects)).await;
                (actor, end, vec![])
            }
            None => Box::pin(self.agent(job, read, clashes, &mut toolbox, effects, memory)).await?,
        };
        match end {
            End::Report(report) => Box::pin(self.seal(ticket, *report, steps, &mut toolbox, actor)).await,
            End::Failed { .. } | End::Stopped | End::Parked(_) => Err(end),
        }
    }

    async fn agent<'a>(
        &'a self,
        job: &'a Job,
        read: Read,
        clashes: Vec<String>,
        toolbox: &'a mut ToolBox,
        effects: Effects<'a>,
        memory: Memory<'a>,
    ) -> Result<(String, End, Vec<u8>), End> {
        let ticket = &job.claim.ticket;
        let Some(model) = &self.model else {
            return Err(End::not_retryable("this worker has no model: set model.url and model.standard"));
        };
        // I7: each call is reserved on the goal's budget before it is sent.
        let model = &model.on_account(
            Account::new(&self.store, &ticket.goal, &ticket.task_id, &self.config.lease).keeping(&self.blobs),
        );
        let roles = self.roles.now();
        let Some(role) = roles.find(&ticket.role) else {
            return Err(End::not_retryable(format!("there is no role `{}` here", ticket.role)));
        };
        toolbox.show_images(self.config.model.images_max, self.config.model.image_bytes_max);
        let skills = knowledge::chosen(&self.config.worker.knowledge_folder, ticket);
        for (path, bytes) in knowledge::laid(&skills) {
            let written = toolbox.attempt().write(&path, bytes).await;
            written.map_err(|e| agent::broken("the attempt's folder", &e.to_string()))?;
        }
        let files = context::files(toolbox.attempt());
        let todo = if role.reads_todo {
            Box::pin(read.todo(&self.store, toolbox.attempt().base())).await.map_err(|e| unavailable(&e))?
        } else {
            String::new()
        };
        let lessons = context::lessons(&self.store, &self.config.memory, &read.goal, ticket)
            .await
            .map_err(|e| unavailable(&e))?;
        let situation = Situation {
            goal: &read.goal,
            needs: &read.needs,
            files: &files,
            todo: &todo,
            clashes: &clashes,
            knowledge: &knowledge::words_for_prompt(&skills),
            lessons: &lessons,
            effects: &effects.done(),
            date: &context::date(),
            steps_max: self.config.worker.steps_max,
        };
        let bundles = factory::bundles(role, ticket);
        Box::pin(toolbox.connect(&bundles)).await.map_err(|why| agent::broken("a tool server", &why))?;
        let offered = toolbox.declarations(&bundles);
        let mut actor =
            factory::actor(role, ticket, &situation, offered, |tier| model.name(tier).to_owned())?;
        // A fleet that demands another model for the review compares models, not prompts.
        let other_model = self.config.reviewer.other_model;
        let own = model.name(actor.tier).to_owned();
        let name = if other_model { own.clone() } else { actor.name.clone() };
        tracing::info!(
            role = role.name,
            actor = name,
            tier = actor.tier.as_str(),
            prompt = actor.prompt_hash,
            "agent begins"
        );
        // Kept, and not held while it waits: all of it stands in the prompt by now.
        let parts = self.keep(ticket, &std::mem::take(&mut actor.prompt_parts)).await;
        let prompt = Prompt { hash: actor.prompt_hash.clone(), parts };
        drop((read, files, todo, clashes, bundles, skills, lessons));
        let mut agent =
            Agent { model, store: &self.store, job, toolbox, effects, memory, answered_by: String::new() };
        let (end, steps) = Box::pin(agent::run(&mut agent, actor)).await;
        // Whoever gave the last answer did the work: the one behind a model that was out must not review it either.
        let name = match std::mem::take(&mut agent.answered_by) {
            by if by.is_empty() || by == own => name,
            by if other_model => by,
            by => {
                let offered = agent.toolbox.declarations(&factory::bundles(role, ticket));
                factory::name_with(role, ticket, &offered, &by)
            }
        };
        let end = match end {
            End::Report(mut report) => {
                (report.prompt_hash, report.prompt_ref) = (prompt.hash, prompt.parts);
                End::Report(report)
            }
            other @ (End::Failed { .. } | End::Stopped | End::Parked(_)) => other,
        };
        Ok((name, end, steps))
    }

    /// The parts of a prompt as a blob; empty when it could not be kept, which is no reason not to work.
    async fn keep(&self, ticket: &Ticket, parts: &Value) -> String {
        match self.blobs.put_soon(&ticket.goal, parts.to_string()).await {
            Ok(reference) => reference,
            Err(error) => {
                tracing::warn!(%error, "parts of the prompt not kept");
                String::new()
            }
        }
    }

    /// I7: what cannot run here is refused with its reason before anything is spent.
    fn check_possible(&self, ticket: &Ticket) -> Result<(), End> {
        let sandboxed = |name: &str| self.tools.find(name).is_some_and(|t| t.sandboxed);
        let runs_code = match &ticket.call {
            Some(call) => sandboxed(&call.tool),
            None => self.tools.decls().iter().any(|t| t.sandboxed && ticket.tools.contains(&t.bundle)),
        };
        if runs_code && self.sandbox.is_none() {
            return Err(End::not_retryable("the ticket runs code and this worker has no sandbox"));
        }
        Ok(())
    }

    async fn open(&self, ticket: &Ticket, overlay: &str) -> Result<Attempt, End> {
        let opened = Attempt::open(
            &self.blobs,
            &ticket.goal,
            &ticket.base_root,
            overlay,
            &self.config.worker.scratch_folder,
            &self.config.limits,
            &ticket.key,
        );
        opened.await.map_err(|e| of_workspace(&e))
    }

    /// Keeps files and step log as blobs; nothing is published by this (I5).
    async fn seal(
        &self,
        ticket: &Ticket,
        mut report: Report,
        steps: Vec<u8>,
        toolbox: &mut ToolBox,
        actor: String,
    ) -> Result<Outcome, End> {
        // I5: also what no tool of this attempt wrote, such as an earlier worker's overlay.
        toolbox.attempt_mut().scan().await.map_err(|e| of_workspace(&e))?;
        match toolbox.undo_foreign().await {
            Ok(undone) if undone.is_empty() => {}
            Ok(undone) => return Err(End::fault(foreign(&undone))),
            Err(ToolError::Broken(why)) => return Err(agent::broken("the attempt's folder", &why)),
            Err(error) => return Err(End::fault(error.to_string())),
        }
        let overlay_ref = toolbox.attempt_mut().seal().await.map_err(|e| of_workspace(&e))?;
        if !steps.is_empty() {
            match self.blobs.put(&ticket.goal, steps).await {
                Ok(reference) => report.steps_ref = reference,
                Err(error) => tracing::warn!(%error, "step log not kept"),
            }
        }
        fit(&mut report, self.config.limits.result_bytes_max);
        Ok(Outcome::Completed { report, overlay_ref, actor })
    }
}

/// C8: what stands in the hash stays small. Conclusions go first, then paths (the manifest has them), then words.
fn fit(report: &mut Report, bytes_max: usize) {
    let size = |report: &Report| serde_json::to_vec(report).map_or(usize::MAX, |bytes| bytes.len());
    while size(report) > bytes_max {
        if report.conclusions.len() > 3 {
            report.conclusions.pop();
        } else if report.outputs.len() > 20 {
            report.outputs.truncate(20);
        } else if report.summary.len() > 400 {
            report.summary = shared::prompt::clip(&report.summary, report.summary.chars().count() / 2);
        } else if report.conclusions.pop().is_none() {
            report.outputs.clear();
            return;
        }
    }
}

/// What was written over other tickets' outputs, and the way out.
fn foreign(undone: &[(String, String)]) -> String {
    let named: Vec<String> = undone.iter().map(write_set::said).collect();
    format!(
        "outputs: {}. Write another file, or plan it: the path among this ticket's `outputs`, and the other ticket among its \
         `needs`",
        named.join("; ")
    )
}

/// How an attempt ends whose guarded call gives no answer.
fn gate_closed(gate: Gate, tool: &str) -> End {
    match gate {
        Gate::Park(permit) => End::Parked(permit),
        Gate::Stopped => End::Stopped,
        Gate::Denied(why) => End::not_retryable(format!("{tool} was not run: {why}")),
        Gate::Broken(text) => agent::broken(tool, &text),
        Gate::Answer { text, .. } => End::fault(format!("{tool}: {text}")),
    }
}

fn unavailable(error: &StoreError) -> End {
    End::Failed { class: FailClass::Wait, detail: error.to_string(), delay_ms: Some(OURS_DELAY_MS) }
}

fn of_workspace(error: &WorkspaceError) -> End {
    if error.is_of_the_work() {
        End::fault(error.to_string())
    } else if error.is_retryable() {
        End::Failed { class: FailClass::Wait, detail: error.to_string(), delay_ms: Some(OURS_DELAY_MS) }
    } else {
        End::not_retryable(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c8_a_long_report_is_cut_to_fit_the_hash() {
        let mut report = Report {
            status: "done".into(),
            summary: "s".repeat(4_000),
            conclusions: vec!["c".repeat(1_000); 20],
            outputs: (0..100).map(|n| format!("outputs/{}{n}", "p".repeat(400))).collect(),
            ..Report::default()
        };
        fit(&mut report, 8 * 1024);
        assert!(serde_json::to_vec(&report).unwrap().len() <= 8 * 1024);
        assert!(!report.summary.is_empty());
        let small = Report { summary: "ok".into(), ..Report::default() };
        let mut same = small.clone();
        fit(&mut same, 8 * 1024);
        assert_eq!(same, small);
    }
}
