//! What people do: answers, cancels, pauses, notes, reopening.

use super::args::arg;
use super::{Answered, OpenDecision, PersonDecision, Result, Store, StoreError, fields, reply, scripts};
use crate::goal::{Goal, PLAN_APPROVAL};
use crate::ticket::{Status, Ticket};
use crate::tool;

fn answered(parts: &[String]) -> Result<Answered> {
    Ok(match parts.first().map_or("", String::as_str) {
        "OK" => Answered::Ok,
        "DUP" => Answered::Dup,
        "STALE" => Answered::Stale,
        "NONE" => Answered::NotFound,
        "REFUSED" => Answered::Refused(parts.get(1).cloned().unwrap_or_default()),
        other => return Err(StoreError::Broken(format!("answer answered {other:?}"))),
    })
}

fn cause(t: &Ticket) -> String {
    if t.status != Status::AwaitingApproval {
        t.cause.clone()
    } else if t.permit["doubt"].is_string() {
        "in_doubt".into()
    } else {
        "confirmation".into()
    }
}

/// What a person is asked, in lines: the exact call, and the digest under which it is confirmed.
fn confirmation(permit: &serde_json::Value) -> String {
    let text = |key: &str| permit[key].as_str().unwrap_or_default();
    let asked = if text("doubt").is_empty() {
        "wants to call"
    } else {
        "has begun this call and its outcome is not known; it may have happened:"
    };
    format!("{asked} {} {}\ndigest {}", text("tool"), permit["args"], text("digest"))
}

/// What a person may do about a goal that asks.
fn of_goal(g: &Goal) -> &'static [&'static str] {
    match (g.cause.as_str(), g.given_plan_ref.as_str()) {
        (PLAN_APPROVAL, "") => {
            &["approve: the plan runs", "deny: it is planned anew with your words", "expiry: the goal fails"]
        }
        (PLAN_APPROVAL, _) => {
            &["approve: the plan runs", "deny: the goal is cancelled", "expiry: the goal fails"]
        }
        _ => {
            &["answer: the manager goes on with your text", "cancel: the goal ends", "expiry: the goal fails"]
        }
    }
}

impl Store {
    /// A person's decision on a ticket or goal. `expected_epoch` 0: whatever it is now. The same `request_id`
    /// again is `Dup`.
    ///
    /// # Errors
    /// [`StoreError`]; repeatable.
    pub async fn answer(
        &self,
        id: &str,
        expected_epoch: u64,
        request_id: &str,
        who: &str,
        decision: &PersonDecision,
    ) -> Result<Answered> {
        let (mut edit, mut overlay, mut args_json) = ("[]".to_owned(), String::new(), String::new());
        let (mut budget, mut money) = (String::new(), String::new());
        let mut digest = None;
        let (word, note) = match decision {
            PersonDecision::Retry { note, edit: e } => {
                let flat = fields::flat_list(fields::of_edit(e));
                edit = serde_json::Value::from(flat).to_string();
                ("retry", note.clone())
            }
            PersonDecision::Deliver { overlay_ref } => {
                overlay.clone_from(overlay_ref);
                ("deliver", String::new())
            }
            PersonDecision::Skip { reason } => ("skip", reason.clone()),
            PersonDecision::Fail { reason } => ("fail", reason.clone()),
            PersonDecision::Approve { args } => {
                if let Some(args) = args {
                    digest = self
                        .ticket(id)
                        .await?
                        .map(|t| tool::digest(t.permit["tool"].as_str().unwrap_or_default(), args));
                }
                args_json = args.as_ref().map(ToString::to_string).unwrap_or_default();
                ("approve", String::new())
            }
            PersonDecision::Deny { reason } => ("deny", reason.clone()),
            PersonDecision::Reopen { note } => ("reopen", note.clone()),
            PersonDecision::ApprovePlan { note } => ("approve_plan", note.clone()),
            PersonDecision::DenyPlan { reason } => ("deny_plan", reason.clone()),
            PersonDecision::Answer { text, budget_tokens, budget_microusd } => {
                let number = |budget: &Option<u64>| budget.map(|b| b.to_string()).unwrap_or_default();
                (budget, money) = (number(budget_tokens), number(budget_microusd));
                ("answer", text.clone())
            }
        };
        let args = [
            arg(id),
            arg(expected_epoch),
            arg(request_id),
            arg(who),
            arg(word),
            arg(note),
            arg(edit),
            arg(overlay),
            arg(args_json),
            arg(budget),
            arg(digest.unwrap_or_default()),
            arg(money),
        ];
        answered(&reply::texts(self.call(&scripts::ANSWER, &args).await?)?)
    }

    /// Open decisions, soonest expiry first.
    ///
    /// # Errors
    /// [`StoreError`] when Redis does not answer.
    pub async fn open_decisions(&self, limit: usize) -> Result<Vec<OpenDecision>> {
        let last = limit.saturating_sub(1).to_string();
        let ids = reply::texts(self.command("ZRANGE", &[&self.keys.at("ask"), "0", &last]).await?)?;
        let mut out = vec![];
        for id in ids {
            if let Some(goal) = id.strip_prefix("g:") {
                if let Some(g) = self.goal(goal).await? {
                    let choices = of_goal(&g);
                    out.push(OpenDecision {
                        id: g.id.clone(),
                        goal: g.id,
                        key: String::new(),
                        epoch: g.epoch,
                        kind: "goal".into(),
                        cause: g.cause,
                        detail: g.cause_detail,
                        expires_at_ms: g.due_at_ms,
                        choices: choices.iter().map(|c| (*c).to_owned()).collect(),
                    });
                }
                continue;
            }
            let Some(t) = self.ticket(&id).await? else { continue };
            let asked = t.status == Status::AwaitingApproval;
            let choices: &[&str] = if asked {
                match t.permit["doubt"].as_str() {
                    Some(_) => &[
                        "approve: it did not happen, this very call runs again, once",
                        "deny: it is not run again, the agent is told",
                        "expiry: denied",
                    ],
                    None => {
                        &["approve: this very call runs once", "deny: the agent hears it", "expiry: denied"]
                    }
                }
            } else {
                &[
                    "retry: tried again, with your note or edit",
                    "deliver: your files are reviewed",
                    "skip: goes on without it, as its dependents' policy says",
                    "fail: ends failed",
                    "expiry: ends failed",
                ]
            };
            let detail = if asked {
                confirmation(&t.permit)
            } else {
                let last = if t.review_comment.is_empty() { &t.failure } else { &t.review_comment };
                format!("{} {last}", t.cause_detail).trim().to_owned()
            };
            let cause = cause(&t);
            out.push(OpenDecision {
                id,
                goal: t.goal,
                key: t.key,
                epoch: t.epoch,
                kind: t.status.as_str().into(),
                cause,
                detail,
                expires_at_ms: t.due_at_ms,
                choices: choices.iter().map(|c| (*c).to_owned()).collect(),
            });
        }
        Ok(out)
    }

    async fn steer(&self, what: &str, id: &str, who: &str, text: &str, grace_ms: u64) -> Result<Answered> {
        let args = [arg(what), arg(id), arg(who), arg(text), arg(grace_ms)];
        answered(&reply::texts(self.call(&scripts::STEER, &args).await?)?)
    }

    /// Cancels a goal at once; its tickets follow in pages (sweeper).
    ///
    /// # Errors
    /// [`StoreError`]; repeatable.
    pub async fn cancel_goal(&self, goal: &str, who: &str) -> Result<Answered> {
        self.steer("cancel_goal", goal, who, "", 0).await
    }

    /// Cancels one ticket; an owner is told at its next renewal and fenced after `grace_ms`.
    ///
    /// # Errors
    /// [`StoreError`]; repeatable.
    pub async fn cancel_ticket(&self, id: &str, who: &str, grace_ms: u64) -> Result<Answered> {
        self.steer("cancel_ticket", id, who, "", grace_ms).await
    }

    /// Stops (or resumes) new claims of a goal.
    ///
    /// # Errors
    /// [`StoreError`]; repeatable.
    pub async fn pause_goal(&self, goal: &str, paused: bool, who: &str) -> Result<Answered> {
        self.steer(if paused { "pause" } else { "resume" }, goal, who, "", 0).await
    }

    /// Stops (or resumes) new claims of the whole fleet.
    ///
    /// # Errors
    /// [`StoreError`]; repeatable.
    pub async fn pause_fleet(&self, paused: bool) -> Result<()> {
        self.command("HSET", &[&self.keys.ctl(), "paused", if paused { "1" } else { "" }]).await?;
        Ok(())
    }

    /// Whether new claims of the fleet are stopped.
    ///
    /// # Errors
    /// [`StoreError`] when Redis does not answer.
    pub async fn fleet_paused(&self) -> Result<bool> {
        Ok(reply::text(self.command("HGET", &[&self.keys.ctl(), "paused"]).await?)? == "1")
    }

    /// A note to the goal's manager.
    ///
    /// # Errors
    /// [`StoreError`]; a repeat is a second note.
    pub async fn note(&self, goal: &str, who: &str, text: &str) -> Result<Answered> {
        self.steer("note", goal, who, text, 0).await
    }

    /// Reopens a finished goal: running again, the manager hears `answered` with the note.
    ///
    /// # Errors
    /// [`StoreError`]; repeatable.
    pub async fn reopen_goal(&self, goal: &str, who: &str, note: &str) -> Result<Answered> {
        self.steer("reopen_goal", goal, who, note, 0).await
    }
}
