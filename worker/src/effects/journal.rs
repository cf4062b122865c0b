//! The journal of a ticket's effects: in Redis, fenced by the lease, and beside the goal's objects, on disk, so that a
//! Redis that lost its last second does not make a payment twice.

use super::Gate;
use shared::blob::Blobs;
use shared::consumer::Job;
use shared::store::{Begun, Effect, EffectState, Store, StoreError};
use shared::{prompt, tool};
use std::time::Duration;

/// Bytes of an answer that are kept.
const ANSWER_CHARS_MAX: usize = 4_000;
/// Bytes of a record beside the objects.
const RECORD_BYTES_MAX: usize = 512 * 1024;
/// Effects named in a prompt, the newest attempts' last.
const SHOWN_MAX: usize = 50;
/// Tries to write an outcome while the store does not answer: it is worth more than the attempt.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(250);

pub(super) struct Journal<'a> {
    store: &'a Store,
    blobs: &'a Blobs,
    job: &'a Job,
    /// Of earlier attempts, by key.
    earlier: Vec<(String, Effect)>,
}

fn broken(error: impl std::fmt::Display) -> Gate {
    Gate::Broken(error.to_string())
}

impl<'a> Journal<'a> {
    pub(super) async fn open(store: &'a Store, blobs: &'a Blobs, job: &'a Job) -> Result<Self, Gate> {
        let ticket = &job.claim.ticket;
        // A ticket's first attempt has no earlier ones.
        let earlier =
            if ticket.attempts > 1 { store.effects(&ticket.task_id).await.map_err(broken)? } else { vec![] };
        Ok(Self { store, blobs, job, earlier })
    }

    /// The same in every attempt: goal, ticket, call, and how often this very call was made in the attempt before.
    pub(super) fn key(&self, digest: &str, ordinal: u32) -> String {
        let ticket = &self.job.claim.ticket;
        tool::key(&[&ticket.goal, &ticket.task_id, digest, &ordinal.to_string()])
    }

    /// Intents of attempts that are over.
    pub(super) fn doubts(&self) -> Vec<(String, Effect)> {
        self.earlier.iter().filter(|(_, e)| e.state == EffectState::Intent).cloned().collect()
    }

    pub(super) fn known(&self, digest: &str, ordinal: u32) -> Option<(String, Effect)> {
        let key = self.key(digest, ordinal);
        self.earlier.iter().find(|(known, _)| *known == key).cloned()
    }

    pub(super) fn done(&self) -> Vec<String> {
        let mut done: Vec<&Effect> = self
            .earlier
            .iter()
            .map(|(_, effect)| effect)
            .filter(|e| matches!(e.state, EffectState::Done | EffectState::Settled))
            .collect();
        done.sort_by_key(|e| e.epoch);
        let from = done.len().saturating_sub(SHOWN_MAX);
        done[from..].iter().map(|e| format!("{} {}: {}", e.tool, e.args, e.answer)).collect()
    }

    /// The intent, fenced and with its permit in Redis, then on disk. [`Begun::Run`]: act now.
    pub(super) async fn begin(&self, key: &str, effect: &Effect, permit: bool) -> Result<Begun, Gate> {
        let held = &self.job.claim.held;
        let begun = self.store.effect_begin(held, key, effect, permit).await.map_err(broken)?;
        let begun = match begun {
            // Our own, whose answer was lost: an attempt begins each key once.
            Begun::Known(known) if known.epoch == held.epoch && known.state == EffectState::Intent => {
                Begun::Run
            }
            other @ (Begun::Run | Begun::Known(_) | Begun::Denied | Begun::Fenced | Begun::Full) => other,
        };
        if begun != Begun::Run {
            return Ok(begun);
        }
        let goal = &self.job.claim.ticket.goal;
        let kept = self.blobs.read_record(goal, key).await.map_err(broken)?;
        let kept = kept.map(|bytes| serde_json::from_slice::<Effect>(&bytes).unwrap_or_default());
        match kept.filter(|k| k.state != EffectState::Retracted && k.epoch != held.epoch) {
            // Redis lost what the disk kept.
            Some(kept) => {
                self.write(key, &kept).await?;
                Ok(Begun::Known(Box::new(kept)))
            }
            None => {
                self.record(key, effect).await?;
                Ok(Begun::Run)
            }
        }
    }

    /// The outcome, on disk and in Redis.
    pub(super) async fn end(&mut self, key: &str, mut effect: Effect) -> Result<(), Gate> {
        effect.answer = prompt::clip(&effect.answer, ANSWER_CHARS_MAX);
        self.record(key, &effect).await?;
        self.write(key, &effect).await?;
        for (known, earlier) in &mut self.earlier {
            if known == key {
                *earlier = effect.clone();
            }
        }
        Ok(())
    }

    /// It did not happen.
    pub(super) async fn retract(&mut self, key: &str, effect: &Effect) -> Result<(), Gate> {
        let gone = Effect { state: EffectState::Retracted, ..effect.clone() };
        self.record(key, &gone).await?;
        if !self.store.effect_retract(&self.job.claim.held, key).await.map_err(broken)? {
            return Err(Gate::Stopped);
        }
        self.earlier.retain(|(known, _)| known != key);
        Ok(())
    }

    async fn record(&self, key: &str, effect: &Effect) -> Result<(), Gate> {
        let bytes = serde_json::to_vec(effect).map_err(broken)?;
        if bytes.len() > RECORD_BYTES_MAX {
            return Err(Gate::Broken(format!(
                "the call is too long to be journalled: {} bytes",
                bytes.len()
            )));
        }
        self.blobs.write_record(&self.job.claim.ticket.goal, key, bytes).await.map_err(broken)
    }

    async fn write(&self, key: &str, effect: &Effect) -> Result<(), Gate> {
        let mut tries = 0;
        loop {
            match self.store.effect_end(&self.job.claim.held, key, effect).await {
                Ok(_) => return Ok(()),
                Err(StoreError::Unavailable(_) | StoreError::OutOfMemory) if tries < TRIES => {
                    tries += 1;
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Err(broken(error)),
            }
        }
    }
}
