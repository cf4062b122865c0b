//! role + ticket + context → actor: model tier, toolkit, prompt, limits. Pure: the same input gives the same bytes.
//!
//! The system prompt holds only what is the role's and the toolkit's, so that prefix caches hit (B7); everything
//! of the ticket stands in the first user message, the date at its very end.

pub(crate) mod knowledge;

use serde::Serialize;
use serde_json::{Value, json};
use shared::goal::Goal;
use shared::prompt::{self, PromptError};
use shared::role::Role;
use shared::ticket::{Report, Ticket, Tier};
use shared::tool::ToolDecl;

/// Files of the workspace that are listed in the prompt.
const FILES_MAX: usize = 100;
/// Confirmed facts shown, newest ones.
const FACTS_MAX: usize = 50;
/// Characters kept of a need's summary.
const SUMMARY_CHARS_MAX: usize = 2_000;

/// Who does the ticket.
pub(crate) struct Actor {
    pub(crate) tier: Tier,
    /// Sorted by name.
    pub(crate) tools: Vec<ToolDecl>,
    pub(crate) system: String,
    pub(crate) task: String,
    pub(crate) steps_max: u32,
    /// Hash of model, persona and toolkit: who it is on any machine, for "never reviewed by the actor that did
    /// the work".
    pub(crate) name: String,
    /// Hash of all that it is told at its start, and the parts of that, for whoever looks into it later.
    pub(crate) prompt_hash: String,
    pub(crate) prompt_parts: Value,
}

/// What the actor is told beside role and ticket. All of it was read before; nothing is read here.
pub(crate) struct Situation<'a> {
    pub(crate) goal: &'a Goal,
    /// Accepted outputs of its needs.
    pub(crate) needs: &'a [Ticket],
    /// Path and size of what stands in the attempt's folder.
    pub(crate) files: &'a [(String, u64)],
    /// TODO.md as it stands now; empty when the role does not read it.
    pub(crate) todo: &'a str,
    /// Paths whose accepted version moved while an earlier attempt changed them.
    pub(crate) clashes: &'a [String],
    /// Knowledge texts chosen for it.
    pub(crate) knowledge: &'a str,
    /// What earlier work of its kind taught, best first.
    pub(crate) lessons: &'a [String],
    /// Calls with an effect outside that earlier attempts made, with what they answered.
    pub(crate) effects: &'a [String],
    /// `2026-01-31`.
    pub(crate) date: &'a str,
    pub(crate) steps_max: u32,
}

/// The tool bundles of a ticket: its own, or its role's.
pub(crate) fn bundles(role: &Role, ticket: &Ticket) -> Vec<String> {
    if ticket.tools.is_empty() { role.tools.clone() } else { ticket.tools.clone() }
}

#[derive(Serialize)]
struct SystemPart<'a> {
    persona: &'a str,
    tools: Vec<ToolPart<'a>>,
    knowledge: &'a str,
    code: bool,
}

#[derive(Serialize)]
struct ToolPart<'a> {
    name: &'a str,
    description: &'a str,
}

#[derive(Serialize)]
struct TaskPart<'a> {
    goal: &'a str,
    constraints: &'a [String],
    ticket: TicketPart<'a>,
    checklist: Vec<String>,
    lessons: &'a [String],
    todo: &'a str,
    conclusions: &'a [String],
    needs: Vec<NeedPart>,
    files: Vec<FilePart<'a>>,
    files_more: usize,
    last: Vec<LastPart>,
    effects: &'a [String],
    notes: Vec<&'a str>,
    date: &'a str,
}

#[derive(Serialize)]
struct TicketPart<'a> {
    key: &'a str,
    description: &'a str,
    input: String,
    expected_output: &'a str,
    outputs: &'a [String],
}

#[derive(Serialize)]
struct NeedPart {
    key: String,
    summary: String,
    outputs: Vec<String>,
}

#[derive(Serialize)]
struct FilePart<'a> {
    path: &'a str,
    size_bytes: u64,
}

#[derive(Serialize)]
struct LastPart {
    what: &'static str,
    text: String,
}

/// Makes the actor from what the worker can offer of [`bundles`].
///
/// # Errors
/// [`PromptError`] is a fault of ours: a template and its context do not fit.
pub(crate) fn actor(
    role: &Role,
    ticket: &Ticket,
    situation: &Situation<'_>,
    mut tools: Vec<ToolDecl>,
    model_name: impl Fn(Tier) -> String,
) -> Result<Actor, PromptError> {
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    let tier = tier(role, ticket);
    let persona = persona(role, ticket);
    let system = prompt::render(
        "worker.j2",
        &SystemPart {
            persona,
            tools: tools.iter().map(|t| ToolPart { name: &t.name, description: &t.description }).collect(),
            knowledge: situation.knowledge,
            code: tools.iter().any(|t| t.sandboxed),
        },
    )?;
    let task = task(role, ticket, situation)?;
    let name = name(persona, &tools, &model_name(tier));
    let prompt_hash = prompt::hash(&[&system, &task]);
    let names: Vec<&str> = tools.iter().map(|t| t.name.as_str()).collect();
    let prompt_parts = json!({
        "v": 1, "hash": prompt_hash, "actor": name, "role": role.name, "tier": tier.as_str(), "persona": persona,
        "tools": names, "knowledge": situation.knowledge, "system": system, "task": task,
    });
    let steps_max = role.max_steps.unwrap_or(situation.steps_max).min(situation.steps_max).max(1);
    Ok(Actor { tier, tools, system, task, steps_max, name, prompt_hash, prompt_parts })
}

/// Who the actor was, when this model answered in the place of the one that it was made for.
pub(crate) fn name_with(role: &Role, ticket: &Ticket, tools: &[ToolDecl], model: &str) -> String {
    name(persona(role, ticket), tools, model)
}

/// `tools` are sorted by name.
fn name(persona: &str, tools: &[ToolDecl], model: &str) -> String {
    let names: Vec<&str> = tools.iter().map(|t| t.name.as_str()).collect();
    format!("agent:{}", prompt::hash(&[model, persona, &names.join(",")]))
}

fn persona<'a>(role: &'a Role, ticket: &'a Ticket) -> &'a str {
    if ticket.persona.trim().is_empty() { &role.persona } else { &ticket.persona }.trim()
}

/// The ticket's tier, or the role's where the ticket names none; one step up once it was sent back.
fn tier(role: &Role, ticket: &Ticket) -> Tier {
    let base = if ticket.tier == Tier::default() { role.tier } else { ticket.tier };
    if ticket.counters.faults > 0 { base.up() } else { base }
}

/// I9: goal, constraints and checklist verbatim.
fn task(role: &Role, ticket: &Ticket, situation: &Situation<'_>) -> Result<String, PromptError> {
    let goal = situation.goal;
    let facts = &goal.conclusions[goal.conclusions.len().saturating_sub(FACTS_MAX)..];
    let input = &ticket.input_context;
    let input = match input.as_str() {
        Some(text) => text.to_owned(),
        None if input.is_null() => String::new(),
        None => serde_json::to_string_pretty(input).unwrap_or_default(),
    };
    let files = situation.files;
    let shown = files.iter().take(FILES_MAX);
    let part = TaskPart {
        goal: &goal.text,
        constraints: &goal.constraints,
        ticket: TicketPart {
            key: &ticket.key,
            description: &ticket.description,
            input,
            expected_output: &ticket.expected_output,
            outputs: &ticket.outputs,
        },
        checklist: checklist(ticket),
        lessons: situation.lessons,
        todo: if role.reads_todo { situation.todo } else { "" },
        conclusions: facts,
        needs: situation.needs.iter().map(need).collect(),
        files: shown.map(|(path, size_bytes)| FilePart { path, size_bytes: *size_bytes }).collect(),
        files_more: files.len().saturating_sub(FILES_MAX),
        last: last(ticket, situation.clashes),
        effects: situation.effects,
        notes: [ticket.note.as_str()].into_iter().filter(|n| !n.trim().is_empty()).collect(),
        date: situation.date,
    };
    prompt::render("worker_task.j2", &part)
}

/// What is checked, the goal's constraints always among it.
fn checklist(ticket: &Ticket) -> Vec<String> {
    let mut items: Vec<String> = ticket.checklist.iter().map(shared::ticket::Check::describe).collect();
    items.push("It is still within the original goal and its constraints.".into());
    items
}

fn need(ticket: &Ticket) -> NeedPart {
    let report: Report = serde_json::from_value(ticket.result.clone()).unwrap_or_default();
    let mut outputs = ticket.outputs.clone();
    outputs.extend(report.outputs.into_iter().filter(|path| !ticket.outputs.contains(path)));
    let summary = if ticket.status == shared::ticket::Status::Done {
        prompt::clip(&report.summary, SUMMARY_CHARS_MAX)
    } else {
        format!("not delivered ({}); go on without it", ticket.status.as_str())
    };
    NeedPart { key: ticket.key.clone(), summary, outputs }
}

/// The last rejection and the last failure: what must be different this time.
fn last(ticket: &Ticket, clashes: &[String]) -> Vec<LastPart> {
    let mut last = vec![];
    if !ticket.review_comment.trim().is_empty() {
        last.push(LastPart {
            what: "The reviewer sent it back. These items failed:",
            text: ticket.review_comment.clone(),
        });
    }
    if !ticket.failure.trim().is_empty() {
        last.push(LastPart { what: "The last attempt failed:", text: ticket.failure.clone() });
    }
    if !clashes.is_empty() {
        last.push(LastPart {
            what: "These files were changed by another ticket meanwhile. Redo your change on the accepted version \
                   and keep what the other ticket wrote:",
            text: clashes.join("\n"),
        });
    }
    last
}

#[cfg(test)]
mod tests;
