//! A step over a sealed plan with news: one structured answer gives the whole patch and what is next.

use super::{Looked, Step, Stop};
use crate::replan::change::Change;
use crate::replan::{self, News};
use serde_json::Value;
use shared::config::Wake;
use shared::goal::GoalState;
use shared::message::InboxEvent;
use shared::store::Patched;
use shared::telemetry::metrics::{self, Replan};
use shared::ticket::Ticket;

/// Times that one answer is read anew because a ticket moved while it was written down.
const MOVED_MAX: u32 = 5;

/// How writing an answer down ended.
enum Wrote {
    Yes,
    /// A ticket or the plan is not as it was read.
    Moved,
    /// The goal has had all its looks.
    Capped,
    Refused(String),
}

impl Step<'_> {
    /// Looks at the plan again if there is news that asks for it. `decided`: an escalation was decided in this step,
    /// which is answer enough to a stall.
    pub(super) async fn replan(
        &mut self,
        tickets: Vec<Ticket>,
        events: &[InboxEvent],
        decided: bool,
    ) -> Result<Looked, Stop> {
        let mut news = replan::news(events, &tickets, &self.manager.config.manager.replan_on);
        if decided {
            news.retain(|n| n.wake != Wake::Stall);
        }
        // While a person is asked only a person's words are news.
        if self.goal.state == GoalState::NeedsHuman {
            news.retain(|n| n.wake == Wake::Note);
        }
        let stands = |tickets| Ok(Looked::At { tickets, changed: false });
        if news.is_empty() || self.manager.model.is_none() {
            return stands(tickets);
        }
        let cap = self.manager.config.limits.replans_max;
        if self.goal.replans >= cap {
            return Ok(self.capped(tickets, &news));
        }
        let model = match self.may_ask("") {
            Ok(model) => model,
            // Asked already: asking again would only move the expiry.
            Err(Stop::Person { cause, .. }) if self.waits_for(&cause) => return stands(tickets),
            Err(other) => return Err(other),
        };
        let beat = || self.pulse.beat();
        let (config, goal) = (&self.manager.config, &self.goal);
        let asked = replan::ask(&model, config, goal, &tickets, &news, &self.cut, &beat).await;
        self.book("", &asked.records).await;
        match asked.outcome {
            Ok(answer) => self.change(&answer.raw, answer.change, tickets, &news).await,
            Err(failure) if failure.is_cancelled() || failure.cause() == "budget" => {
                Err(Stop::of_failure(&failure))
            }
            Err(failure) => {
                // The plan that stands is worth going on with; the log says that nobody looked at it.
                tracing::warn!(goal = self.goal.id, cause = failure.cause(), "no answer about the plan");
                let why =
                    format!("{}: nobody could say whether the plan still fits ({failure})", words(&news));
                self.write(&[], &why).await?;
                metrics::replan(Replan::Failed);
                self.after_failure(tickets, &news, failure.cause())
            }
        }
    }

    /// Writes the answer down; what moved meanwhile is read again and the same answer held against it.
    async fn change(
        &mut self,
        raw: &Value,
        mut change: Change,
        mut tickets: Vec<Ticket>,
        news: &[News],
    ) -> Result<Looked, Stop> {
        for _ in 0..MOVED_MAX {
            let why = format!("{}: {}", words(news), change.reason);
            match self.write(&change.ops, &why).await? {
                Wrote::Yes => return self.changed(&change, news).await,
                Wrote::Capped => return Ok(self.capped(tickets, news)),
                Wrote::Refused(reason) => {
                    tracing::warn!(goal = self.goal.id, reason, "a change of the plan was refused");
                    break;
                }
                Wrote::Moved => {}
            }
            tickets = self.tickets().await?;
            match replan::again(raw, &self.manager.config, &self.goal, &tickets, news) {
                Ok(again) => change = again,
                Err(problems) => {
                    tracing::info!(goal = self.goal.id, ?problems, "the answer came too late");
                    break;
                }
            }
        }
        self.write(&[], &format!("{}: the plan moved while it was looked at; it stands", words(news)))
            .await?;
        metrics::replan(Replan::Failed);
        Ok(Looked::At { tickets, changed: false })
    }

    async fn changed(&mut self, change: &Change, news: &[News]) -> Result<Looked, Stop> {
        if let Some(question) = &change.question {
            metrics::replan(Replan::Asked);
            return Ok(Looked::AskPerson(self.to_person("planner_asks".into(), question.clone())));
        }
        let changed = !change.ops.is_empty();
        metrics::replan(if changed { Replan::Changed } else { Replan::Unchanged });
        // Facts looked at, plan looked at: what is left is a person.
        if !changed && news.iter().any(|n| n.wake == Wake::Stall) {
            let detail = format!("nothing gets accepted and the plan stands: {}", change.reason);
            return Ok(Looked::AskPerson(self.to_person("stalled".into(), detail)));
        }
        // An answer without changes is still a step that decided something.
        Ok(Looked::At { tickets: self.tickets().await?, changed: true })
    }

    fn after_failure(&self, tickets: Vec<Ticket>, news: &[News], cause: &str) -> Result<Looked, Stop> {
        if news.iter().any(|n| n.wake == Wake::Stall) {
            let detail = format!("nothing gets accepted, and no model could look at the plan ({cause})");
            return Ok(Looked::AskPerson(self.to_person("stalled".into(), detail)));
        }
        Ok(Looked::At { tickets, changed: false })
    }

    /// I11: the plan stands from now on, unless nothing works: then a person decides.
    fn capped(&self, tickets: Vec<Ticket>, news: &[News]) -> Looked {
        metrics::replan(Replan::Capped);
        let max = self.manager.config.limits.replans_max;
        tracing::warn!(goal = self.goal.id, max, "the plan was looked at as often as it may be");
        if news.iter().any(|n| n.wake == Wake::Stall) {
            let detail = format!("nothing gets accepted, and the plan was looked at {max} times already");
            return Looked::AskPerson(self.to_person("stalled".into(), detail));
        }
        Looked::At { tickets, changed: false }
    }

    async fn write(&mut self, ops: &[shared::ticket::patch::PatchOp], why: &str) -> Result<Wrote, Stop> {
        self.patches += 1;
        let step_id = format!("{}:{}", self.held.lease_id, self.patches);
        let max = self.manager.config.limits.replans_max;
        let ops = &self.hold_added(ops).await?;
        let patched = self
            .patiently(|| self.manager.store.replan(&self.held, &step_id, self.plan_version, ops, why, max))
            .await?;
        self.pulse.beat();
        Ok(match patched {
            Patched::Ok { version } | Patched::Dup { version } => {
                self.plan_version = version;
                tracing::info!(goal = self.goal.id, ops = ops.len(), "plan looked at");
                Wrote::Yes
            }
            Patched::Stale => Wrote::Moved,
            Patched::Fenced | Patched::Gone => return Err(Stop::Dropped),
            Patched::Refused { reason, .. } if reason.starts_with("replans cap") => Wrote::Capped,
            Patched::Refused { reason, .. } => Wrote::Refused(reason),
        })
    }
}

/// Why the plan was looked at, for the goal's log.
fn words(news: &[News]) -> String {
    let mut kinds: Vec<&str> = news.iter().map(|n| n.wake.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds.join(", ")
}
