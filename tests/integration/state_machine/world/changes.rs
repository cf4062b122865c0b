//! What a manager's patch and a person do to a ticket, on both sides.

use super::{LONG_MS, TICKETS_MAX, World, lease, spec};
use anyhow::{Result, bail, ensure};
use shared::config;
use shared::store::*;
use shared::ticket::patch::{Edit, NewTicket, PatchOp};
use shared::ticket::{Event, Life, ReviewPolicy, Status, new_id};
use std::collections::BTreeSet;

impl World {
    pub(super) async fn patch(&mut self, i: usize, event: Event, other: usize) -> Result<()> {
        let (id, epoch) = (self.ids[i].clone(), self.lives[i].epoch);
        let edit = Box::new(Edit { description: Some(format!("again {}", self.steps)), ..Edit::default() });
        let reason = "because".to_owned();
        let mut ops = vec![];
        let mut model_event = Some(event);
        let mut link = None;
        match event {
            Event::Rewritten => ops.push(PatchOp::Rewrite { id, epoch, edit }),
            Event::ReviewAgain => ops.push(PatchOp::ReviewAgain { id, epoch }),
            Event::Modified => ops.push(PatchOp::Modify { id, epoch, edit }),
            Event::Skipped => ops.push(PatchOp::Skip { id, epoch, reason }),
            Event::FailedForGood => ops.push(PatchOp::Fail { id, epoch, reason }),
            Event::HandedOver => ops.push(PatchOp::HandOver { id, epoch, reason, expiry_ms: LONG_MS }),
            Event::Split => {
                if self.ids.len() >= TICKETS_MAX {
                    return Ok(());
                }
                let ticket = NewTicket {
                    id: new_id(),
                    parent_id: id.clone(),
                    need_ids: vec![],
                    spec: spec("part", ReviewPolicy::Code),
                };
                link = Some(ticket.id.clone());
                ops.push(PatchOp::Add { ticket: Box::new(ticket.clone()) });
                ops.push(PatchOp::Split { id, epoch, into: vec![ticket.id] });
            }
            Event::NeedAdded => {
                let need = other % self.ids.len();
                if self.reaches(need, i) {
                    return Ok(());
                }
                ops.push(PatchOp::Link { id, epoch, need: self.ids[need].clone() });
                if self.lives[need].status == Status::Done {
                    model_event = None;
                }
                if !self.lives[i].status.is_terminal() || self.lives[i].status == Status::Done {
                    self.needs[i].insert(need);
                    if self.lives[need].status != Status::Done {
                        self.open[i].insert(need);
                    }
                }
            }
            other => bail!("{other:?} is not a patch"),
        }
        self.steps += 1;
        let step = format!("step{}", self.steps);
        // A stale version and a zombie manager are refused before anything happens.
        let stale = self.store.patch(&self.manager, &format!("{step}s"), self.version + 7, 0, &ops).await?;
        let zombie = Held { lease_id: "other".into(), ..self.manager.clone() };
        let fenced = self.store.patch(&zombie, &format!("{step}z"), self.version, 0, &ops).await?;
        ensure!(stale == Patched::Stale && fenced == Patched::Fenced);
        let answer = self.store.patch(&self.manager, &step, self.version, 0, &ops).await?;
        for a in [&stale, &fenced, &answer] {
            self.code(a);
        }
        let legal = match model_event {
            Some(e) => self.apply(i, e)?.is_ok(),
            None => !self.lives[i].status.is_terminal() || self.lives[i].status == Status::Done,
        };
        match &answer {
            Patched::Ok { version } => {
                ensure!(legal, "{event:?} in {:?} was applied", self.lives[i].status);
                self.version = *version;
                let again = self.store.patch(&self.manager, &step, self.version, 0, &ops).await?;
                ensure!(again == Patched::Dup { version: self.version }, "repeat answered {again:?}");
                self.code(again);
                if let Some(part) = link {
                    self.ids.push(part);
                    let n = self.ids.len() - 1;
                    self.lives.push(Life::new(ReviewPolicy::Code, false));
                    self.needs.push(BTreeSet::new());
                    self.open.push(BTreeSet::new());
                    self.held.push(None);
                    self.accepted.push([None, None]);
                    for d in self.dependents(i) {
                        if self.open[d].remove(&i) {
                            self.open[d].insert(n);
                            self.needs[d].insert(n);
                        }
                    }
                    ensure!(self.apply(n, Event::NeedsMet)?.is_ok());
                }
            }
            Patched::Refused { .. } => {
                ensure!(
                    !legal,
                    "{event:?} was refused: {answer:?}, the table allows it: {:?}",
                    self.lives[i]
                );
            }
            other => bail!("patch answered {other:?}"),
        }
        Ok(())
    }

    pub(super) async fn person(&mut self, i: usize, event: Event, arg: u8) -> Result<()> {
        self.steps += 1;
        let request = format!("r{}", self.steps);
        let id = self.ids[i].clone();
        let decision = match event {
            Event::PersonRetry => PersonDecision::Retry { note: "try so".into(), edit: Box::default() },
            Event::PersonDelivers => PersonDecision::Deliver { overlay_ref: "o".into() },
            Event::Reopened => PersonDecision::Reopen { note: "again".into() },
            Event::Skipped => PersonDecision::Skip { reason: "no".into() },
            Event::FailedForGood => PersonDecision::Fail { reason: "no".into() },
            Event::PermitAnswered if arg.is_multiple_of(2) => PersonDecision::Approve { args: None },
            Event::PermitAnswered => PersonDecision::Deny { reason: "no".into() },
            other => bail!("{other:?} is not a person's"),
        };
        let epoch = self.lives[i].epoch;
        let stale = self.store.answer(&id, epoch + 9, &format!("{request}s"), "ann", &decision).await?;
        let answer = self.store.answer(&id, epoch, &request, "ann", &decision).await?;
        let again = self.store.answer(&id, 0, &request, "ann", &decision).await?;
        ensure!(stale == Answered::Stale, "{stale:?}");
        for a in [&stale, &answer, &again] {
            self.code(a);
        }
        let legal = self.apply(i, event)?.is_ok();
        match answer {
            Answered::Ok => ensure!(legal && again == Answered::Dup, "{event:?} was done, {again:?}"),
            Answered::Refused(why) => ensure!(!legal, "{event:?} was refused: {why}"),
            other => bail!("answer answered {other:?}"),
        }
        if event == Event::PermitAnswered && legal {
            let t = self.store.ticket(&id).await?.expect("ticket");
            ensure!(
                t.permit["args"] == serde_json::json!({"empty": []}),
                "the stored call changed: {}",
                t.permit
            );
        }
        Ok(())
    }

    pub(super) async fn cancel(&mut self, i: usize) -> Result<()> {
        let owned = self.lives[i].owned;
        let asked = self.lives[i].cancel_asked;
        let answer = self.store.cancel_ticket(&self.ids[i], "ann", LONG_MS).await?;
        self.code(&answer);
        let legal = self.apply(i, if owned { Event::CancelAsked } else { Event::Cancelled })?.is_ok();
        ensure!((answer == Answered::Ok) == (legal && !asked), "{answer:?}");
        Ok(())
    }

    pub(super) async fn no_reviewer(&mut self, i: usize) -> Result<()> {
        // Every finished ticket that waits is old when the wait is nothing.
        for j in 0..self.ids.len() {
            let legal = self.apply(j, Event::NoReviewer)?.is_ok();
            ensure!(!legal || self.lives[j].status == Status::NeedsHuman);
        }
        let _ = i;
        loop {
            self.store.sweep(&config::Lease { person_expiry_ms: LONG_MS, ..lease(0) }).await?;
            let waiting = self.store.all_tickets(&self.manager.id).await?;
            if !waiting.iter().any(|t| t.status == Status::Reviewing && t.lease_id.is_empty()) {
                return Ok(());
            }
        }
    }
}
