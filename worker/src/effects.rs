//! Calls that a person confirms and calls that change the world outside: permits, and the journal of effects.
//!
//! A call that needs a confirmation runs with an approved permit for exactly this call, or not at all (I7). A call with
//! an outside effect writes its intent before and its outcome after; an intent without outcome is in doubt, and a person
//! says what holds. The key of an effect is the same in every attempt, so what was done is never done again.

mod journal;
mod permit;

use crate::tools::{ToolBox, ToolError};
use journal::Journal;
use permit::Answered;
use serde_json::Value;
use shared::blob::Blobs;
use shared::consumer::Job;
use shared::store::{Begun, Effect, EffectState, Permit, Store};
use shared::tool::{self, ToolDecl};

/// How a guarded call went on.
#[derive(Debug)]
pub(crate) enum Gate {
    /// The model hears this.
    Answer { text: String, ok: bool },
    /// A person does not want it.
    Denied(String),
    /// A person is asked; the ticket waits.
    Park(Box<Permit>),
    /// The ticket is another's by now.
    Stopped,
    /// Nobody's fault but ours or the machine's.
    Broken(String),
}

/// What a call may do next.
#[derive(Debug)]
pub(crate) enum Decision {
    Ended(Gate),
    /// It may run with these arguments; `permit` is used up by its begin.
    Run {
        args: Value,
        permit: bool,
    },
}

/// Permit and journal of one attempt.
pub(crate) struct Effects<'a> {
    store: &'a Store,
    job: &'a Job,
    /// Somebody reads the inbox.
    approvals: bool,
    permit: Option<Answered>,
    journal: Journal<'a>,
}

impl<'a> Effects<'a> {
    /// Reads what earlier attempts did, and applies a person's answer about an effect in doubt.
    ///
    /// # Errors
    /// [`Gate`]: the attempt cannot begin. An effect that is in doubt is put to a person first.
    pub(crate) async fn open(
        store: &'a Store,
        blobs: &'a Blobs,
        job: &'a Job,
        approvals: bool,
    ) -> Result<Self, Gate> {
        let ticket = &job.claim.ticket;
        let permit = Answered::of(ticket);
        let journal = Journal::open(store, blobs, job).await?;
        let mut effects = Self { store, job, approvals, permit, journal };
        for (key, effect) in effects.journal.doubts() {
            effects.settle(&key, effect).await?;
        }
        Ok(effects)
    }

    /// What stands outside already, for the prompt of this attempt.
    pub(crate) fn done(&self) -> Vec<String> {
        self.journal.done()
    }

    async fn settle(&mut self, key: &str, mut effect: Effect) -> Result<(), Gate> {
        match self.permit.as_ref().filter(|p| p.permit.doubt == key) {
            Some(answered) if answered.approved => self.journal.retract(key, &effect).await,
            Some(answered) => {
                effect.state = EffectState::Settled;
                effect.answer = format!(
                    "Whether it happened was not known, and a person decided that it is not run again. {}",
                    answered.permit.note
                );
                self.journal.end(key, effect).await
            }
            None => Err(self.doubt(key, &effect)),
        }
    }

    /// Puts an effect in doubt to a person; it is never run again by itself.
    fn doubt(&self, key: &str, effect: &Effect) -> Gate {
        if !self.approvals {
            return Gate::Denied(format!(
                "whether {} {} happened is not known, and nobody can be asked (tools.approvals)",
                effect.tool, effect.args
            ));
        }
        let permit = permit::asked(&self.job.claim.ticket, &effect.tool, &effect.args);
        Gate::Park(Box::new(Permit { doubt: key.into(), ..permit }))
    }

    /// Whether the call may run. Arguments are those of the model, valid for the tool.
    pub(crate) async fn decide(
        &mut self,
        toolbox: &ToolBox,
        decl: &ToolDecl,
        args: Value,
        ordinal: u32,
    ) -> Decision {
        let args = match toolbox.check(&decl.name, &args) {
            Ok(args) => args,
            Err(problem) => return Decision::Ended(Gate::Answer { text: problem, ok: false }),
        };
        // What is done already needs no permit.
        let digest = tool::digest(&decl.name, &args);
        if decl.effect == tool::Effect::World
            && let Some((key, effect)) = self.journal.known(&digest, ordinal)
        {
            return Decision::Ended(self.heard(&key, &effect));
        }
        if !decl.requires_confirmation {
            return Decision::Run { args, permit: false };
        }
        if !self.approvals {
            let text = format!("{} needs a person's confirmation, and nobody can be asked", decl.name);
            return Decision::Ended(Gate::Denied(text));
        }
        let Some(answered) = self.permit.take_if(|p| p.is_for(&digest)) else {
            let permit = permit::asked(&self.job.claim.ticket, &decl.name, &args);
            return Decision::Ended(Gate::Park(Box::new(permit)));
        };
        if answered.approved {
            // A person may edit the arguments; they are held against the tool as the model's are.
            return match toolbox.check(&decl.name, &answered.permit.args) {
                Ok(args) => Decision::Run { args, permit: true },
                Err(problem) => Decision::Ended(Gate::Answer { text: problem, ok: false }),
            };
        }
        // Single use, a no as well: the same call later is asked again.
        match self.store.permit_use(&self.job.claim.held).await {
            Ok(true) => Decision::Ended(Gate::Denied(answered.permit.note)),
            Ok(false) => Decision::Ended(Gate::Stopped),
            Err(error) => Decision::Ended(Gate::Broken(error.to_string())),
        }
    }

    /// Runs it. Not cut by the stop token once its effect is begun: half an effect is worse than a late one.
    pub(crate) async fn run(
        &mut self,
        toolbox: &mut ToolBox,
        decl: &ToolDecl,
        args: Value,
        permit: bool,
        ordinal: u32,
    ) -> Gate {
        let held = &self.job.claim.held;
        if decl.effect != tool::Effect::World {
            if permit {
                match self.store.permit_use(held).await {
                    Ok(true) => {}
                    Ok(false) => return Gate::Stopped,
                    Err(error) => return Gate::Broken(error.to_string()),
                }
            }
            let stop = self.job.stop.clone();
            return tokio::select! {
                done = toolbox.call(&decl.name, &args) => match done {
                    Ok(result) => Gate::Answer { text: result.text, ok: !result.failed },
                    Err(ToolError::Tell(text) | ToolError::NotDone(text) | ToolError::Unknown(text)) => Gate::Answer { text, ok: false },
                    Err(ToolError::Broken(text)) => Gate::Broken(text),
                },
                () = stop.cancelled() => Gate::Stopped,
            };
        }
        let mut effect = Effect {
            v: Effect::VERSION,
            state: EffectState::Intent,
            tool: decl.name.clone(),
            digest: tool::digest(&decl.name, &args),
            args: args.clone(),
            epoch: held.epoch,
            answer: String::new(),
            ok: false,
        };
        let key = self.journal.key(&effect.digest, ordinal);
        match self.journal.begin(&key, &effect, permit).await {
            Ok(Begun::Run) => {}
            Ok(Begun::Known(known)) => return self.heard(&key, &known),
            Ok(Begun::Denied) => {
                let permit = permit::asked(&self.job.claim.ticket, &decl.name, &args);
                return Gate::Park(Box::new(permit));
            }
            Ok(Begun::Fenced) => return Gate::Stopped,
            Ok(Begun::Full) => {
                let text = "this ticket has made so many calls outside that no more are allowed";
                return Gate::Answer { text: text.into(), ok: false };
            }
            Err(gate) => return gate,
        }
        // I3: another may own the ticket by now.
        if self.job.suspect.is_suspect() {
            let _ = self.journal.retract(&key, &effect).await;
            return Gate::Stopped;
        }
        toolbox.effect_key(&key);
        let done = toolbox.call(&decl.name, &args).await;
        let (text, ok) = match done {
            Ok(result) => (result.text, !result.failed),
            Err(ToolError::Tell(text) | ToolError::NotDone(text)) => {
                // It did not happen: the same call may be tried again.
                return match self.journal.retract(&key, &effect).await {
                    Ok(()) => Gate::Answer { text, ok: false },
                    Err(gate) => gate,
                };
            }
            Err(ToolError::Unknown(why) | ToolError::Broken(why)) => {
                tracing::warn!(tool = decl.name, why, "an effect is in doubt");
                return self.doubt(&key, &effect);
            }
        };
        effect.state = EffectState::Done;
        effect.answer.clone_from(&text);
        effect.ok = ok;
        match self.journal.end(&key, effect).await {
            Ok(()) => Gate::Answer { text, ok },
            Err(gate) => gate,
        }
    }

    fn heard(&self, key: &str, effect: &Effect) -> Gate {
        match effect.state {
            EffectState::Done | EffectState::Settled => Gate::Answer {
                text: format!(
                    "Not run again: this very call was made in an earlier attempt. It answered:\n{}",
                    effect.answer
                ),
                ok: effect.ok,
            },
            EffectState::Intent | EffectState::Retracted => self.doubt(key, effect),
        }
    }
}
