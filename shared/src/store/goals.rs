//! Goals: submit, the manager's lease, plan, patch, finish.

use super::args::arg;
use super::{
    Finish, Finished, GoalClaim, Held, Patched, Result, Store, StoreError, Submitted, Written, fields, reply,
    scripts,
};
use crate::goal::{Goal, GoalState, NewGoal};
use crate::message::{InboxEvent, InboxKind};
use crate::ticket::patch::{NewTicket, PatchOp};
use redis::Value;
use serde_json::json;

/// Conclusions and notes that are read with a goal.
const LIST_MAX: usize = 500;

impl Store {
    /// Submits a goal: planning, event `plan` in its inbox. The same id again is `Duplicate`.
    ///
    /// # Errors
    /// [`StoreError`]; repeat with the same id after a retryable one. `OutOfMemory` when the server is full: nothing
    /// was stored, and a person has to make room.
    pub async fn submit_goal(&self, goal: &NewGoal, ready_max: usize) -> Result<Submitted> {
        let mut args = vec![arg(&goal.id), arg(ready_max), arg(goal.deadline_at_ms)];
        args.extend(fields::flat_list(fields::of_new_goal(goal)).into_iter().map(String::into_bytes));
        Ok(match reply::text(self.call(&scripts::SUBMIT_GOAL, &args).await?)?.as_str() {
            "OK" => Submitted::New,
            "DUP" => Submitted::Duplicate,
            _ => Submitted::Busy,
        })
    }

    /// Takes a goal that has events, if any waits. The inbox is read, not trimmed.
    ///
    /// # Errors
    /// [`StoreError`]; a claim whose reply was lost lapses and is swept.
    pub async fn manage_claim(
        &self,
        manager: &str,
        lease_id: &str,
        lease_ms: u64,
    ) -> Result<Option<GoalClaim>> {
        let args = [arg(manager), arg(lease_id), arg(lease_ms)];
        let mut parts = reply::array(self.call(&scripts::MANAGE_CLAIM, &args).await?)?.into_iter();
        let mut next = || parts.next().unwrap_or(Value::Nil);
        if reply::text(next())? != "OK" {
            return Ok(None);
        }
        let id = reply::text(next())?;
        let epoch = reply::number(next())?;
        let raw_events = reply::texts(next())?;
        let mut goal = fields::goal(&fields::Map::of(next())?)?;
        self.add_lists(&mut goal).await?;
        let events = raw_events
            .iter()
            .map(|raw| {
                serde_json::from_str(raw).unwrap_or_else(|_| InboxEvent {
                    v: 1,
                    kind: InboxKind::Unknown,
                    ticket: String::new(),
                    epoch: 0,
                    detail: raw.chars().take(200).collect(),
                    at_ms: 0,
                })
            })
            .collect();
        let held = Held { id, epoch, lease_id: lease_id.to_owned() };
        Ok(Some(GoalClaim { held, goal, events, read: raw_events.len() }))
    }

    /// Keeps the raw plan's blob before it is applied.
    ///
    /// # Errors
    /// [`StoreError`]; repeatable.
    pub async fn plan_store(&self, held: &Held, plan_ref: &str) -> Result<Written> {
        let args = [arg(&held.id), arg(held.epoch), arg(&held.lease_id), arg(plan_ref)];
        reply::written(&reply::text(self.call(&scripts::PLAN_STORE, &args).await?)?)
    }

    /// One page (at most 100) of the plan's tickets; repeated pages are DUP.
    ///
    /// # Errors
    /// [`StoreError`]; repeatable. `OutOfMemory` when the server is full: nothing of the page was stored.
    pub async fn submit_tickets(&self, held: &Held, page: &[NewTicket]) -> Result<Written> {
        let declared = self.declare(held, &page.iter().collect::<Vec<_>>()).await?;
        if declared != Written::Ok {
            return Ok(declared);
        }
        let mut args = vec![arg(&held.id), arg(held.epoch), arg(&held.lease_id)];
        for t in page {
            args.push(arg(&t.id));
            args.push(arg(t.need_ids.len()));
            args.extend(t.need_ids.iter().map(arg));
            let flat = fields::flat_list(fields::of_new_ticket(t));
            args.push(arg(flat.len()));
            args.extend(flat.into_iter().map(String::into_bytes));
        }
        reply::written(&reply::text(self.call(&scripts::TICKETS, &args).await?)?)
    }

    /// Seals the plan (`total` tickets) and releases its roots, page by page, to the end.
    ///
    /// # Errors
    /// [`StoreError`]; repeatable: the sweeper finishes what a dead manager began. `Broken` when the pages in
    /// the store are not `total` tickets.
    pub async fn seal(&self, held: &Held, total: usize) -> Result<Written> {
        loop {
            let args = [arg(&held.id), arg(held.epoch), arg(&held.lease_id), arg(total)];
            let mut parts = reply::texts(self.call(&scripts::SEAL, &args).await?)?.into_iter();
            let word = parts.next().unwrap_or_default();
            if word == "COUNT" {
                return Err(StoreError::Broken(format!("the plan of {total} tickets is not wholly stored")));
            }
            let written = reply::written(&word)?;
            if written != Written::Ok || parts.next().as_deref() != Some("1") {
                return Ok(written);
            }
        }
    }

    /// Applies all operations or none, against the plan version and the epochs as read; trims `read` inbox events.
    ///
    /// # Errors
    /// [`StoreError`]; a repeat with the same step id answers `Dup`.
    pub async fn patch(
        &self,
        held: &Held,
        step_id: &str,
        plan_version: u64,
        read: usize,
        ops: &[PatchOp],
    ) -> Result<Patched> {
        self.patched(&[], held, step_id, plan_version, read, ops).await
    }

    /// As [`Store::patch`], of a manager that looked at the whole plan: it is counted and logged with its reason also
    /// when `ops` is empty, and refused beyond `replans_max` of a goal (I11).
    ///
    /// # Errors
    /// As [`Store::patch`].
    pub async fn replan(
        &self,
        held: &Held,
        step_id: &str,
        plan_version: u64,
        ops: &[PatchOp],
        why: &str,
        replans_max: u32,
    ) -> Result<Patched> {
        self.patched(&[arg(why), arg(replans_max)], held, step_id, plan_version, 0, ops).await
    }

    async fn patched(
        &self,
        more: &[Vec<u8>],
        held: &Held,
        step_id: &str,
        plan_version: u64,
        read: usize,
        ops: &[PatchOp],
    ) -> Result<Patched> {
        let added: Vec<&NewTicket> = ops
            .iter()
            .filter_map(|op| if let PatchOp::Add { ticket } = op { Some(&**ticket) } else { None })
            .collect();
        match self.declare(held, &added).await? {
            Written::Fenced => return Ok(Patched::Fenced),
            Written::Gone => return Ok(Patched::Gone),
            Written::Ok | Written::Dup | Written::Moved | Written::Escalated | Written::Cancelled => {}
        }
        let ops: Vec<serde_json::Value> = ops.iter().map(flat_op).collect();
        let mut args = vec![
            arg(&held.id),
            arg(held.epoch),
            arg(&held.lease_id),
            arg(step_id),
            arg(plan_version),
            arg(read),
            arg(serde_json::Value::from(ops)),
        ];
        args.extend(more.iter().cloned());
        let parts = reply::texts(self.call(&scripts::PATCH, &args).await?)?;
        let part = |i: usize| parts.get(i).map_or("", String::as_str);
        Ok(match part(0) {
            "OK" => Patched::Ok { version: part(1).parse().unwrap_or(0) },
            "DUP" => Patched::Dup { version: part(1).parse().unwrap_or(0) },
            "STALE" => Patched::Stale,
            "FENCED" => Patched::Fenced,
            "GONE" => Patched::Gone,
            "REFUSED" => Patched::Refused { op: part(1).parse().unwrap_or(0), reason: part(2).into() },
            other => return Err(StoreError::Broken(format!("patch answered {other:?}"))),
        })
    }

    /// Ends the manager's step; trims `read` inbox events (0 after a patch of the same step).
    ///
    /// # Errors
    /// [`StoreError`]; a repeat with the same step id answers `Dup`.
    pub async fn manage_finish(
        &self,
        held: &Held,
        step_id: &str,
        plan_version: u64,
        read: usize,
        finish: &Finish,
        person_expiry_ms: u64,
    ) -> Result<Finished> {
        let (what, cause, detail, expiry, decided) = match finish {
            Finish::Continue { decided } => ("continue", "", "", person_expiry_ms, *decided),
            Finish::Done => ("done", "", "", person_expiry_ms, true),
            Finish::Failed { cause, detail } => {
                ("failed", cause.as_str(), detail.as_str(), person_expiry_ms, true)
            }
            Finish::NeedsHuman { cause, detail, expiry_ms } => {
                ("needs_human", cause.as_str(), detail.as_str(), *expiry_ms, true)
            }
        };
        let args = [
            arg(&held.id),
            arg(held.epoch),
            arg(&held.lease_id),
            arg(step_id),
            arg(plan_version),
            arg(read),
            arg(what),
            arg(cause),
            arg(detail),
            arg(expiry),
            arg(u8::from(decided)),
        ];
        let parts = reply::texts(self.call(&scripts::MANAGE_FINISH, &args).await?)?;
        Ok(match parts.first().map_or("", String::as_str) {
            "OK" => Finished::Ok,
            "AGAIN" => Finished::Again,
            "DUP" => Finished::Dup,
            "FENCED" => Finished::Fenced,
            "GONE" => Finished::Gone,
            "REFUSED" => Finished::Refused(parts.get(1).cloned().unwrap_or_default()),
            other => return Err(StoreError::Broken(format!("manage_finish answered {other:?}"))),
        })
    }

    /// A goal with its conclusions and notes, or `None`.
    ///
    /// # Errors
    /// [`StoreError`] when Redis does not answer or the hash does not read.
    pub async fn goal(&self, id: &str) -> Result<Option<Goal>> {
        let map = fields::Map::of(self.command("HGETALL", &[&self.keys.goal(id)]).await?)?;
        if map.is_empty() {
            return Ok(None);
        }
        let mut goal = fields::goal(&map)?;
        self.add_lists(&mut goal).await?;
        Ok(Some(goal))
    }

    async fn add_lists(&self, goal: &mut Goal) -> Result<()> {
        let first = format!("-{LIST_MAX}");
        let range = [first.as_str(), "-1"];
        let facts = self.keys.of_goal(&goal.id, "facts");
        let notes = self.keys.of_goal(&goal.id, "notes");
        goal.conclusions = reply::texts(self.command("LRANGE", &[&facts, range[0], range[1]]).await?)?;
        goal.notes = reply::texts(self.command("LRANGE", &[&notes, range[0], range[1]]).await?)?;
        Ok(())
    }

    /// Goals, newest first; with a state, only those in it.
    ///
    /// # Errors
    /// As [`Store::goal`].
    pub async fn goals(&self, state: Option<GoalState>, offset: usize, limit: usize) -> Result<Vec<Goal>> {
        const SCAN: usize = 100;
        let (mut out, mut skipped, mut at) = (vec![], 0, 0);
        while out.len() < limit {
            let (first, last) = (at.to_string(), (at + SCAN - 1).to_string());
            let ids =
                reply::texts(self.command("ZRANGE", &[&self.keys.at("goals"), &first, &last, "REV"]).await?)?;
            at += ids.len();
            for id in &ids {
                let Some(goal) = self.goal(id).await? else { continue };
                if state.is_some_and(|s| s != goal.state) {
                    continue;
                }
                if skipped < offset {
                    skipped += 1;
                } else if out.len() < limit {
                    out.push(goal);
                }
            }
            if ids.len() < SCAN {
                break;
            }
        }
        Ok(out)
    }
}

/// An operation as the script reads it: specs and edits flattened to field lists.
fn flat_op(op: &PatchOp) -> serde_json::Value {
    match op {
        PatchOp::Add { ticket } => json!({"op": "add", "id": ticket.id, "needs": ticket.need_ids,
            "set": fields::flat_list(fields::of_new_ticket(ticket))}),
        PatchOp::Modify { id, epoch, edit } => {
            json!({"op": "modify", "id": id, "epoch": epoch, "set": fields::flat_list(fields::of_edit(edit))})
        }
        PatchOp::Rewrite { id, epoch, edit } => {
            json!({"op": "rewrite", "id": id, "epoch": epoch, "set": fields::flat_list(fields::of_edit(edit))})
        }
        PatchOp::Relink { id, epoch, needs, add, drop } => json!({"op": "relink", "id": id, "epoch": epoch,
            "list": serde_json::Value::from(needs.as_slice()).to_string(), "add": add, "drop": drop}),
        PatchOp::ReviewAgain { .. }
        | PatchOp::Split { .. }
        | PatchOp::Skip { .. }
        | PatchOp::Fail { .. }
        | PatchOp::Cancel { .. }
        | PatchOp::HandOver { .. }
        | PatchOp::Link { .. } => serde_json::to_value(op).unwrap_or_default(),
    }
}
