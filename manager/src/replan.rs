//! The plan looked at again: which news is worth it (rules, I6), and the one question to a model that gives the
//! whole patch and what is next. What may come of an answer is in [`change`].
//!
//! The model reads goal, plan and bounded conclusions, never what was said between an agent and its model.

pub(crate) mod change;

use crate::calls::{Asked, Call, Failure};
use crate::planner::{newest, reply, roles};
use change::{ADDED_MAX, Change, Plan};
use serde_json::{Value, json};
use shared::config::{Config, Wake};
use shared::goal::Goal;
use shared::message::{InboxEvent, InboxKind};
use shared::model::{Message, Model};
use shared::prompt;
use shared::ticket::{Check, Status, Ticket};
use std::collections::{BTreeSet, HashMap};
use tokio_util::sync::CancellationToken;

/// Open, and closed, tickets that a prompt lists.
const TICKETS_SHOWN: usize = 60;
/// News of one step that a prompt lists, newest.
const NEWS_SHOWN: usize = 20;

/// One thing that came up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct News {
    pub(crate) wake: Wake,
    /// Id of the ticket that it comes from, or empty.
    pub(crate) ticket: String,
    pub(crate) text: String,
}

/// The news of these events on which the plan is looked at again, oldest first; empty: it stands.
pub(crate) fn news(events: &[InboxEvent], tickets: &[Ticket], on: &[Wake]) -> Vec<News> {
    let status: HashMap<&str, Status> = tickets.iter().map(|t| (t.task_id.as_str(), t.status)).collect();
    let open = |except: &str| tickets.iter().any(|t| !t.status.is_terminal() && t.task_id != except);
    let found = events.iter().filter_map(|event| {
        let wake = wake(event)?;
        let holds = on.contains(&wake)
            && match wake {
                // A person may always want more.
                Wake::Note => !event.detail.trim().is_empty(),
                Wake::Stall => open(""),
                // Work that was taken back meanwhile says nothing, and without another ticket there is no plan to change.
                Wake::Report => {
                    open(&event.ticket) && status.get(event.ticket.as_str()) == Some(&Status::Done)
                }
                Wake::Obstacle | Wake::Milestone => {
                    open(&event.ticket) && status.get(event.ticket.as_str()).is_some_and(|s| !s.is_terminal())
                }
            };
        holds.then(|| News { wake, ticket: event.ticket.clone(), text: event.detail.clone() })
    });
    let found: Vec<News> = found.collect();
    found[found.len().saturating_sub(NEWS_SHOWN)..].to_vec()
}

fn wake(event: &InboxEvent) -> Option<Wake> {
    match event.kind {
        InboxKind::Report => Some(Wake::Report),
        InboxKind::Obstacle => Some(Wake::Obstacle),
        InboxKind::Milestone => Some(Wake::Milestone),
        InboxKind::Note | InboxKind::Answered => Some(Wake::Note),
        InboxKind::Stall => Some(Wake::Stall),
        InboxKind::Plan
        | InboxKind::Escalated
        | InboxKind::EndedNotDone
        | InboxKind::DeadNeed
        | InboxKind::AllClosed
        | InboxKind::Deadline
        | InboxKind::Idle
        | InboxKind::Unknown => None,
    }
}

/// An answer that passed the validator, and itself: when tickets have moved meanwhile it is read again, not asked again.
pub(crate) struct Answer {
    pub(crate) raw: Value,
    pub(crate) change: Change,
}

/// Asks the model, at most `model.calls_per_answer_max` requests; the validator's reasons go back to it.
pub(crate) async fn ask(
    model: &Model,
    config: &Config,
    goal: &Goal,
    tickets: &[Ticket],
    news: &[News],
    stop: &CancellationToken,
    on_bytes: &(dyn Fn() + Send + Sync),
) -> Asked<Answer> {
    let known = roles::known(&config.worker.roles_folder);
    let messages = match words(config, goal, tickets, news, &known) {
        Ok(messages) => messages,
        Err(error) => return Asked::failed(Failure::Ours(error.to_string())),
    };
    let names = roles::names(&known);
    let schema = schema(&names, config);
    let call = Call { model, tier: config.manager.tier, messages: &messages, stop, on_bytes };
    call.structured("replan", &schema, |value| {
        let plan = Plan { config, goal, all: tickets, roles: &names, news, moved: false };
        change::of(value, &plan).map(|change| Answer { raw: value.clone(), change })
    })
    .await
}

/// The same answer over the tickets as they are now.
///
/// # Errors
/// What no longer fits.
pub(crate) fn again(
    raw: &Value,
    config: &Config,
    goal: &Goal,
    tickets: &[Ticket],
    news: &[News],
) -> Result<Change, Vec<String>> {
    let names = roles::names(&roles::known(&config.worker.roles_folder));
    change::of(raw, &Plan { config, goal, all: tickets, roles: &names, news, moved: true })
}

fn schema(roles: &[String], config: &Config) -> Value {
    let bundles: BTreeSet<String> =
        config.tools.planned().into_iter().map(|t| t.bundle).filter(|b| b != "fleet").collect();
    let bundles: Vec<String> = bundles.into_iter().collect();
    let mut ticket = reply::ticket_schema(roles, &bundles);
    let checks = ticket["properties"]["checks"].clone();
    ticket["properties"]["parent"] = json!({"type": "string"});
    let closing = json!({"type": "array", "items": {"type": "object",
        "properties": {"id": {"type": "string"}, "reason": {"type": "string", "minLength": 1}}, "required": ["id", "reason"]}});
    let modify = json!({"type": "object", "required": ["id"], "properties": {
        "id": {"type": "string"}, "description": {"type": "string"}, "expected_output": {"type": "string"},
        "role": {"type": "string"}, "tier": {"type": "string"}, "checks": checks}});
    let relink = json!({"type": "object", "required": ["id", "needs"], "properties": {
        "id": {"type": "string"}, "needs": {"type": "array", "items": {"type": "string"}}}});
    json!({
        "type": "object",
        "properties": {
            "reason": {"type": "string", "minLength": 1},
            "cancel": closing,
            "skip": closing,
            "add": {"type": "array", "items": ticket},
            "modify": {"type": "array", "items": modify},
            "relink": {"type": "array", "items": relink},
            "next": {"type": "string", "enum": ["go_on", "ask_person"]},
            "question": {"type": "string"},
        },
        "required": ["reason", "next"],
    })
}

/// System and task. Goal and constraints stand in it verbatim (I9).
fn words(
    config: &Config,
    goal: &Goal,
    tickets: &[Ticket],
    news: &[News],
    roles: &[shared::role::Role],
) -> Result<Vec<Message>, prompt::PromptError> {
    let roles: Vec<Value> =
        roles.iter().map(|r| json!({"name": r.name, "description": r.description})).collect();
    let system = prompt::render(
        "replan.j2",
        &json!({"roles": roles, "added_max": ADDED_MAX, "checks": Check::KINDS}),
    )?;
    let key_of: HashMap<&str, &str> = tickets.iter().map(|t| (t.task_id.as_str(), t.key.as_str())).collect();
    let shown: Vec<&Ticket> = tickets.iter().filter(|t| t.status != Status::Superseded).collect();
    let (closed, open): (Vec<&Ticket>, Vec<&Ticket>) =
        shown.into_iter().partition(|t| t.status.is_terminal());
    let opened: Vec<Value> = open.iter().take(TICKETS_SHOWN).map(|t| open_ticket(t, &key_of)).collect();
    // The last ones closed say most.
    let first = closed.len().saturating_sub(TICKETS_SHOWN);
    let done: Vec<Value> = closed[first..].iter().map(|t| closed_ticket(t)).collect();
    let news: Vec<Value> = news.iter().map(|n| told(n, &key_of)).collect();
    let task = prompt::render(
        "replan_task.j2",
        &json!({
            "goal": goal.text,
            "constraints": goal.constraints,
            "news": news,
            "open": opened,
            "open_more": open.len().saturating_sub(TICKETS_SHOWN),
            "closed": done,
            "closed_more": first,
            "conclusions": newest(&goal.conclusions),
            "notes": newest(&goal.notes),
            "replans": goal.replans,
            "replans_max": config.limits.replans_max,
        }),
    )?;
    Ok(vec![Message::System(system), Message::User(task)])
}

fn open_ticket(t: &Ticket, key_of: &HashMap<&str, &str>) -> Value {
    let needs: Vec<&str> = t.needs.iter().filter_map(|id| key_of.get(id.as_str()).copied()).collect();
    let checks: Vec<String> = t.checklist.iter().map(Check::describe).collect();
    let trouble = if t.review_comment.is_empty() { &t.failure } else { &t.review_comment };
    json!({"key": t.key, "status": t.status.as_str(), "integrates": t.integrates, "mandatory": t.mandatory,
        "description": t.description, "role": t.role, "needs": needs, "outputs": t.outputs, "checks": checks,
        "trouble": trouble})
}

fn closed_ticket(t: &Ticket) -> Value {
    let summary =
        if t.status == Status::Done { t.result["summary"].as_str().unwrap_or_default() } else { "" };
    json!({"key": t.key, "status": t.status.as_str(), "outputs": t.outputs, "summary": summary})
}

fn told(news: &News, key_of: &HashMap<&str, &str>) -> Value {
    let key = key_of.get(news.ticket.as_str()).copied().unwrap_or_default();
    let (what, source) = match news.wake {
        Wake::Report => (format!("{key} is done, and its report says that the plan no longer fits:"), key),
        Wake::Obstacle => (format!("{key} met an obstacle:"), key),
        Wake::Milestone => (format!("{key} reached a milestone:"), key),
        // A person's words are an instruction, not data.
        Wake::Note => {
            return json!({"what": format!("A person says: {}", news.text), "text": "", "source": ""});
        }
        Wake::Stall => (format!("Nothing gets accepted: {}.", news.text), ""),
    };
    let text = if news.wake == Wake::Stall { "" } else { news.text.as_str() };
    json!({"what": what, "text": text, "source": format!("word of {source}")})
}

#[cfg(test)]
#[path = "replan/tests.rs"]
mod tests;
