//! What happens to a ticket that comes back: rules first, then at most one structured model answer, else a person.
//!
//! Pure but for [`ask`]. The store counts the interventions and refuses the one too many (I11).

use crate::calls::{Asked, Call, Failure};
use crate::planner::apply::{ticket_id, with_ids};
use crate::planner::{newest, reply, roles};
use serde_json::{Value, json};
use shared::config::Config;
use shared::goal::Goal;
use shared::model::{Message, Model};
use shared::prompt;
use shared::ticket::graph::outputs::overlaps;
use shared::ticket::graph::{self, Known, PROBLEMS_MAX};
use shared::ticket::patch::{Edit, PatchOp};
use shared::ticket::{Cause, Check, ReviewPolicy, Status, Ticket, TicketSpec, Tier};
use std::collections::{BTreeSet, HashMap};
use tokio_util::sync::CancellationToken;

/// Tickets that one may be split into.
const SPLIT_MAX: usize = 10;
/// Characters of a reason that a person reads; the store keeps 4 KiB.
const REASON_CHARS_MAX: usize = 1_000;
/// Other tickets that a prompt lists.
const OTHERS_SHOWN: usize = 60;

/// What the rules say, before any model is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The work stands, another reviewer looks at it.
    ReviewAgain,
    /// A person, and why.
    HandOver(String),
    /// Rules do not decide it.
    AskModel,
}

/// The rules (I6).
pub(crate) fn rule(ticket: &Ticket, interventions_max: u32) -> Rule {
    let cause = Cause::parse(&ticket.cause);
    let edits = ticket.counters.interventions;
    if ticket.work_actor.starts_with("person:") && matches!(cause, Some(Cause::Faults | Cause::Conflicts)) {
        let why = if cause == Some(Cause::Faults) { &ticket.review_comment } else { &ticket.failure };
        return Rule::HandOver(format!(
            "the files that {} delivered were not accepted: {why}",
            ticket.work_by
        ));
    }
    if edits >= interventions_max {
        return Rule::HandOver(format!(
            "the manager has changed it {edits} times already (cap {interventions_max}) and it still ends with {}",
            ticket.cause
        ));
    }
    if cause.is_some_and(Cause::is_review) && cause != Some(Cause::NoReviewer) {
        return if edits == 0 {
            Rule::ReviewAgain
        } else {
            Rule::HandOver(format!("its work is finished, but reviews of it keep failing ({})", ticket.cause))
        };
    }
    let words = match cause {
        Some(Cause::Losses) => "whoever works on it is lost: it may be what kills the worker",
        Some(Cause::Releases) => "it was given back by leaving workers too often",
        Some(Cause::Waits) => "its model was over quota or overloaded too often",
        Some(Cause::Asks) => "it asked a person for permission too often",
        Some(Cause::NoReviewer) => "nobody who may review it is there",
        Some(Cause::HandedOver) => "it was handed over",
        Some(Cause::Conflicts) if ticket.call.is_some() => {
            return Rule::HandOver(format!(
                "it conflicts with accepted work of another ticket: {}",
                ticket.failure
            ));
        }
        Some(Cause::Faults | Cause::Conflicts | Cause::NotRetryable)
        | Some(Cause::ReviewFaults | Cause::ReviewLosses | Cause::ReviewReleases)
        | None => {
            return if ticket.call.is_some() {
                Rule::HandOver(
                    "a direct tool call fails the same way each time; its plan needs a change".into(),
                )
            } else {
                Rule::AskModel
            };
        }
    };
    Rule::HandOver(words.into())
}

/// The operation that hands the ticket to a person: who, why, until when.
pub(crate) fn hand_over(ticket: &Ticket, reason: &str, expiry_ms: u64) -> PatchOp {
    PatchOp::HandOver {
        id: ticket.task_id.clone(),
        epoch: ticket.epoch,
        reason: format!("handed over by the manager: {}", prompt::clip(reason, REASON_CHARS_MAX)),
        expiry_ms,
    }
}

/// The operation that asks for another review.
pub(crate) fn review_again(ticket: &Ticket) -> PatchOp {
    PatchOp::ReviewAgain { id: ticket.task_id.clone(), epoch: ticket.epoch }
}

/// Asks the model what to do; the answer comes back as operations that passed the validator.
pub(crate) async fn ask(
    model: &Model,
    config: &Config,
    goal: &Goal,
    ticket: &Ticket,
    all: &[Ticket],
    stop: &CancellationToken,
    on_bytes: &(dyn Fn() + Send + Sync),
) -> Asked<Vec<PatchOp>> {
    let known = roles::known(&config.worker.roles_folder);
    let messages = match words(goal, ticket, all, &known) {
        Ok(messages) => messages,
        Err(error) => return Asked::failed(Failure::Ours(error.to_string())),
    };
    let names = roles::names(&known);
    let schema = schema(&names, config);
    let call = Call { model, tier: config.manager.tier, messages: &messages, stop, on_bytes };
    call.structured("escalation", &schema, |value| {
        operations(value, &Context { config, ticket, all, roles: &names })
    })
    .await
}

fn schema(roles: &[String], config: &Config) -> Value {
    let bundles: BTreeSet<String> =
        config.tools.planned().into_iter().map(|t| t.bundle).filter(|b| b != "fleet").collect();
    let bundles: Vec<String> = bundles.into_iter().collect();
    let ticket = reply::ticket_schema(roles, &bundles);
    let checks = ticket["properties"]["checks"].clone();
    json!({
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": ["rewrite", "reassign", "split", "skip", "hand_over"]},
            "reason": {"type": "string", "minLength": 1},
            "description": {"type": "string"},
            "expected_output": {"type": "string"},
            "role": {"type": "string"},
            "tier": {"type": "string"},
            "checks": checks,
            "tickets": {"type": "array", "items": ticket},
        },
        "required": ["action", "reason"],
    })
}

/// What the validator looks at.
pub(crate) struct Context<'a> {
    pub(crate) config: &'a Config,
    pub(crate) ticket: &'a Ticket,
    pub(crate) all: &'a [Ticket],
    pub(crate) roles: &'a [String],
}

/// The validator: an answer becomes operations, or reasons that go back to the model.
fn operations(value: &Value, at: &Context<'_>) -> Result<Vec<PatchOp>, Vec<String>> {
    let ticket = at.ticket;
    let (id, epoch) = (ticket.task_id.clone(), ticket.epoch);
    let reason = text(value, "reason").unwrap_or_default();
    match text(value, "action").as_deref() {
        Some("rewrite") => {
            let edit = edit(value, at)?;
            if edit.is_empty() {
                return Err(vec!["rewrite: nothing differs from the ticket as it is; change something or choose another action".into()]);
            }
            Ok(vec![PatchOp::Rewrite { id, epoch, edit: Box::new(edit) }])
        }
        Some("reassign") => {
            let whole = edit(value, at)?;
            let edit = Edit { role: whole.role, tier: whole.tier, ..Edit::default() };
            if edit.is_empty() {
                return Err(vec!["reassign: neither another role nor another tier is named".into()]);
            }
            Ok(vec![PatchOp::Rewrite { id, epoch, edit: Box::new(edit) }])
        }
        Some("split") => split(value, at),
        Some("skip") if ticket.mandatory || ticket.integrates => {
            Err(vec!["skip: the ticket is mandatory; choose hand_over if it cannot be done".into()])
        }
        Some("skip") => Ok(vec![PatchOp::Skip { id, epoch, reason }]),
        Some("hand_over") => Ok(vec![hand_over(ticket, &reason, at.config.lease.person_expiry_ms)]),
        Some(other) => Err(vec![format!("action: there is no {other}")]),
        None => Err(vec!["action: is missing".into()]),
    }
}

fn text(value: &Value, field: &str) -> Option<String> {
    value.get(field).and_then(Value::as_str).map(str::trim).filter(|t| !t.is_empty()).map(str::to_owned)
}

/// What the answer changes; what it repeats unchanged is no change.
pub(crate) fn edit(value: &Value, at: &Context<'_>) -> Result<Edit, Vec<String>> {
    let ticket = at.ticket;
    let mut problems = vec![];
    let mut edit = Edit {
        description: text(value, "description").filter(|t| *t != ticket.description),
        expected_output: text(value, "expected_output").filter(|t| *t != ticket.expected_output),
        role: text(value, "role").filter(|r| *r != ticket.role),
        ..Edit::default()
    };
    if let Some(role) = &edit.role
        && !at.roles.contains(role)
    {
        problems.push(format!("role: there is no role {role}; there are {}", at.roles.join(", ")));
    }
    match text(value, "tier").as_deref() {
        None => {}
        Some("cheap") => edit.tier = Some(Tier::Cheap),
        Some("standard") => edit.tier = Some(Tier::Standard),
        Some("strong") => edit.tier = Some(Tier::Strong),
        Some(other) => {
            problems.push(format!("tier: there is no tier {other}; there are cheap, standard, strong"))
        }
    }
    edit.tier = edit.tier.filter(|t| *t != ticket.tier);
    let items = value.get("checks").and_then(Value::as_array).filter(|c| !c.is_empty());
    if let Some(items) = items {
        let mut checks = vec![];
        for (i, item) in items.iter().enumerate() {
            match reply::check(item) {
                Ok(check) => checks.push(check),
                Err(problem) => problems.push(format!("checks[{i}]: {problem}")),
            }
        }
        // The original goal stays an item, whatever the model leaves out (I9).
        if ticket.integrates && ticket.review == ReviewPolicy::Judged {
            let original = Check::Judged { text: reply::ORIGINAL_GOAL.into() };
            if !checks.contains(&original) {
                checks.push(original);
            }
        }
        edit.checklist = Some(checks).filter(|c| *c != ticket.checklist);
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    // Sizes, patterns and review policy are the plan validator's part.
    let spec = edited(ticket, &edit);
    let found = sound(&[spec], &BTreeSet::new(), at);
    if found.is_empty() { Ok(edit) } else { Err(found) }
}

fn edited(ticket: &Ticket, edit: &Edit) -> TicketSpec {
    let mut spec = TicketSpec::new(&ticket.key, &ticket.description, &ticket.expected_output);
    spec.role.clone_from(&ticket.role);
    spec.persona.clone_from(&ticket.persona);
    spec.call.clone_from(&ticket.call);
    spec.outputs.clone_from(&ticket.outputs);
    spec.review = ticket.review;
    spec.checklist = edit.checklist.clone().unwrap_or_else(|| ticket.checklist.clone());
    if let Some(description) = &edit.description {
        spec.description.clone_from(description);
    }
    if let Some(expected) = &edit.expected_output {
        spec.expected_output.clone_from(expected);
    }
    if let Some(role) = &edit.role {
        spec.role.clone_from(role);
    }
    spec
}

fn split(value: &Value, at: &Context<'_>) -> Result<Vec<PatchOp>, Vec<String>> {
    let ticket = at.ticket;
    let limits = &at.config.limits;
    if ticket.integrates {
        return Err(vec![
            "split: the ticket that puts the deliverable together cannot be split; rewrite it".into(),
        ]);
    }
    // D2: depth, number of parts and the goal's total are capped.
    if ticket.depth >= limits.depth_max {
        return Err(vec![format!(
            "split: it was split {} times deep already, at most {}",
            ticket.depth, limits.depth_max
        )]);
    }
    let mut specs = reply::read(value, ticket.review)?;
    if !(2..=SPLIT_MAX).contains(&specs.len()) {
        return Err(vec![format!("tickets: a split gives 2 to {SPLIT_MAX} tickets, not {}", specs.len())]);
    }
    if at.all.len() + specs.len() > limits.tickets_max {
        return Err(vec![format!("tickets: the goal would have more than {} tickets", limits.tickets_max)]);
    }
    for spec in &mut specs {
        spec.pool.clone_from(&ticket.pool);
        spec.priority = ticket.priority;
        spec.mandatory = ticket.mandatory;
        spec.needs_policy = ticket.needs_policy;
        spec.tier = ticket.tier;
        spec.integrates = false;
        spec.depth = ticket.depth + 1;
        spec.parent_key.clone_from(&ticket.key);
    }
    let existing: BTreeSet<String> = at.all.iter().map(|t| t.key.clone()).collect();
    let mut problems = sound(&specs, &existing, at);
    problems.extend(written_by_others(&specs, at));
    // What was promised is still delivered by somebody.
    let delivered: BTreeSet<&String> = specs.iter().flat_map(|s| &s.outputs).collect();
    let missing: Vec<&str> =
        ticket.outputs.iter().filter(|o| !delivered.contains(o)).map(String::as_str).collect();
    if !missing.is_empty() {
        problems.push(format!("tickets: nobody delivers {}, which the ticket had to", missing.join(", ")));
    }
    let own: BTreeSet<&str> = specs.iter().map(|s| s.key.as_str()).collect();
    for spec in &specs {
        for need in &spec.needs {
            // A need on what waits for the split ticket would close a circle.
            if !own.contains(need.as_str()) && !ticket_needs(ticket, at.all).contains(need.as_str()) {
                problems.push(format!(
                    "ticket {}, needs: `{need}` is neither of the new tickets nor a need of the old one",
                    spec.key
                ));
            }
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut parts = with_ids(&ticket.goal, &ticket.task_id, &specs);
    // The first parts see what the ticket saw. A need that ended without being done would never be met again.
    let is_done = |id: &String| at.all.iter().any(|t| t.task_id == *id && t.status == Status::Done);
    let new: BTreeSet<String> = parts.iter().map(|p| p.id.clone()).collect();
    for part in &mut parts {
        part.need_ids.retain(|id| new.contains(id) || is_done(id));
        if !part.need_ids.iter().any(|id| new.contains(id)) {
            for need in ticket.needs.iter().filter(|id| is_done(id)) {
                if !part.need_ids.contains(need) {
                    part.need_ids.push(need.clone());
                }
            }
        }
    }
    let into = specs.iter().map(|s| ticket_id(&ticket.goal, &s.key)).collect();
    let mut ops: Vec<PatchOp> =
        parts.into_iter().map(|part| PatchOp::Add { ticket: Box::new(part) }).collect();
    ops.push(PatchOp::Split { id: ticket.task_id.clone(), epoch: ticket.epoch, into });
    Ok(ops)
}

/// Outputs of the parts that a ticket outside of the split delivers as well, without a path of needs between them.
fn written_by_others(parts: &[TicketSpec], at: &Context<'_>) -> Vec<String> {
    let key_of: HashMap<&str, &str> = at.all.iter().map(|t| (t.task_id.as_str(), t.key.as_str())).collect();
    let keys = |ids: &[String]| -> Vec<String> {
        ids.iter().filter_map(|id| key_of.get(id.as_str())).map(|key| (*key).to_owned()).collect()
    };
    let own: BTreeSet<&str> = parts.iter().map(|p| p.key.as_str()).collect();
    let mut specs: Vec<TicketSpec> = parts.to_vec();
    for spec in &mut specs {
        if !spec.needs.iter().any(|need| own.contains(need.as_str())) {
            spec.needs.extend(keys(&at.ticket.needs));
        }
    }
    for other in at.all {
        let mut spec = TicketSpec::new(&other.key, "", "");
        spec.needs = keys(&other.needs);
        if other.task_id == at.ticket.task_id {
            // Who needs it will need its parts.
            spec.needs.extend(own.iter().map(|key| (*key).to_owned()));
        } else if other.status == Status::Superseded {
            let into = at.all.iter().filter(|t| t.parent_id == other.task_id);
            spec.needs.extend(into.map(|t| t.key.clone()));
        } else if other.status == Status::Done || !other.status.is_terminal() {
            spec.outputs.clone_from(&other.outputs);
        }
        specs.push(spec);
    }
    let told = overlaps(&specs, PROBLEMS_MAX).into_iter().filter_map(|o| {
        // Of the parts among themselves the plan's validator speaks.
        let (part, other) = match (o.first < parts.len(), o.second < parts.len()) {
            (true, false) => (o.first, o.second),
            (false, true) => (o.second, o.first),
            (true, true) | (false, false) => return None,
        };
        let (part, other, path) = (&specs[part].key, &specs[other].key, o.path);
        Some(format!("ticket {part}, outputs: `{path}` is what `{other}` delivers; name another file"))
    });
    told.collect()
}

fn ticket_needs<'a>(ticket: &Ticket, all: &'a [Ticket]) -> BTreeSet<&'a str> {
    all.iter().filter(|t| ticket.needs.contains(&t.task_id)).map(|t| t.key.as_str()).collect()
}

fn sound(specs: &[TicketSpec], existing: &BTreeSet<String>, at: &Context<'_>) -> Vec<String> {
    let tools = at.config.tools.planned();
    let known = Known { roles: at.roles, tools: &tools, existing };
    graph::problems(specs, &known, &at.config.limits).iter().map(ToString::to_string).collect()
}

/// System and task. Goal, constraints and checklist stand in it verbatim (I9).
fn words(
    goal: &Goal,
    ticket: &Ticket,
    all: &[Ticket],
    roles: &[shared::role::Role],
) -> Result<Vec<Message>, prompt::PromptError> {
    let roles: Vec<Value> =
        roles.iter().map(|r| json!({"name": r.name, "description": r.description})).collect();
    let checklist: Vec<String> = ticket.checklist.iter().map(Check::describe).collect();
    let others: Vec<Value> = all
        .iter()
        .filter(|t| t.task_id != ticket.task_id && t.status != Status::Superseded)
        .take(OTHERS_SHOWN)
        .map(|t| json!({"key": t.key, "status": t.status.as_str()}))
        .collect();
    let system = prompt::render("escalation.j2", &json!({"roles": roles}))?;
    let task = prompt::render(
        "escalation_task.j2",
        &json!({
            "goal": goal.text,
            "constraints": goal.constraints,
            "ticket": {
                "key": ticket.key, "description": ticket.description, "expected_output": ticket.expected_output,
                "role": ticket.role, "tier": ticket.tier.as_str(), "mandatory": ticket.mandatory,
                "integrates": ticket.integrates, "outputs": ticket.outputs, "attempts": ticket.attempts,
            },
            "checklist": checklist,
            "cause": ticket.cause,
            "detail": if ticket.failure.is_empty() { &ticket.cause_detail } else { &ticket.failure },
            "comment": ticket.review_comment,
            "others": others,
            "conclusions": newest(&goal.conclusions),
            "notes": newest(&goal.notes),
        }),
    )?;
    Ok(vec![Message::System(system), Message::User(task)])
}

#[cfg(test)]
#[path = "escalation/tests.rs"]
mod tests;
