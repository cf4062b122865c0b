//! What may come of a look at the plan: the validator of the model's answer, which becomes one patch or reasons that go
//! back to the model (I6). Pure.
//!
//! A plan that is sound stays sound: no circle, no need on a ticket that will never be done, no file with two
//! writers, and the integrating ticket waits for everything mandatory.

use super::News;
use crate::escalation;
use crate::planner::apply::{ticket_id, with_ids};
use crate::planner::reply;
use serde_json::{Value, json};
use shared::config::Config;
use shared::goal::Goal;
use shared::prompt;
use shared::ticket::graph::outputs::overlaps;
use shared::ticket::graph::{self, Graph, Known, PROBLEMS_MAX};
use shared::ticket::patch::{OPS_MAX, PatchOp};
use shared::ticket::{Status, Ticket, TicketSpec};
use std::collections::{BTreeMap, BTreeSet};

/// Tickets that one look at the plan may add (D2).
pub(crate) const ADDED_MAX: usize = 10;
/// Characters of a reason or question; the store keeps 4 KiB.
const REASON_CHARS_MAX: usize = 1_000;

/// What an answer is held against.
pub(crate) struct Plan<'a> {
    pub(crate) config: &'a Config,
    pub(crate) goal: &'a Goal,
    pub(crate) all: &'a [Ticket],
    pub(crate) roles: &'a [String],
    pub(crate) news: &'a [News],
    /// The answer was given over an older state: what it says of tickets that have ended since is left out.
    pub(crate) moved: bool,
}

/// A sound answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change {
    /// Empty: the plan stands.
    pub(crate) ops: Vec<PatchOp>,
    pub(crate) reason: String,
    /// What a person is asked.
    pub(crate) question: Option<String>,
}

/// How a ticket is closed, and why.
#[derive(Clone)]
enum Closing {
    Cancel(String),
    Skip(String),
}

/// Reads and checks an answer.
///
/// # Errors
/// Every reason against it, worded for the model.
pub(crate) fn of(value: &Value, plan: &Plan<'_>) -> Result<Change, Vec<String>> {
    let mut problems = vec![];
    let closing = plan.closing(value, &mut problems);
    let added = plan.added(value, &mut problems);
    let edits = plan.edits(value, &closing, &mut problems);
    let wanted = plan.wanted(value, &closing, &added, &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    let linked = plan.linked(&closing, &added, &wanted)?;
    let added: Vec<TicketSpec> =
        linked.iter().filter(|s| added.iter().any(|a| a.key == s.key)).cloned().collect();
    let mut ops = plan.adds(&added);
    ops.extend(edits);
    ops.extend(plan.relinks(&linked));
    ops.extend(plan.closes(&closing));
    if ops.len() > OPS_MAX {
        return Err(vec![format!("{} changes at once are too many, at most {OPS_MAX}", ops.len())]);
    }
    let reason = text(value, "reason").unwrap_or_else(|| "no reason given".into());
    let question = match value.get("next").and_then(Value::as_str) {
        Some("ask_person") => match text(value, "question") {
            Some(question) => Some(prompt::clip(&question, REASON_CHARS_MAX)),
            None => return Err(vec!["question: is missing; ask_person needs one".into()]),
        },
        _ => None,
    };
    Ok(Change { ops, reason: prompt::clip(&reason, REASON_CHARS_MAX), question })
}

fn text(value: &Value, field: &str) -> Option<String> {
    value.get(field).and_then(Value::as_str).map(str::trim).filter(|t| !t.is_empty()).map(str::to_owned)
}

fn items<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

impl Plan<'_> {
    fn ticket(&self, key: &str) -> Option<&Ticket> {
        self.all.iter().find(|t| t.key == key)
    }

    fn key_of(&self, id: &str) -> Option<&str> {
        self.all.iter().find(|t| t.task_id == id).map(|t| t.key.as_str())
    }

    /// The open ticket that an item of `field` names. `None`: it is a problem, or has ended since.
    fn open(&self, item: &Value, field: &str, problems: &mut Vec<String>) -> Option<&Ticket> {
        let key = text(item, "id").unwrap_or_default();
        match self.ticket(&key) {
            None => problems.push(format!("{field}: there is no ticket `{key}`")),
            Some(t) if t.status.is_terminal() && self.moved => {}
            Some(t) if t.status.is_terminal() => {
                problems.push(format!("{field}: `{key}` is {} and cannot change", t.status.as_str()));
            }
            Some(t) => return Some(t),
        }
        None
    }

    fn closing(&self, value: &Value, problems: &mut Vec<String>) -> BTreeMap<String, Closing> {
        let mut closing = BTreeMap::new();
        for field in ["cancel", "skip"] {
            for item in items(value, field) {
                let Some(t) = self.open(item, field, problems) else { continue };
                if t.integrates {
                    problems.push(format!("{field}: `{}` puts the deliverable together and stays", t.key));
                    continue;
                }
                let reason = text(item, "reason").or_else(|| text(value, "reason")).unwrap_or_default();
                let reason = prompt::clip(&reason, REASON_CHARS_MAX);
                let how = if field == "cancel" { Closing::Cancel(reason) } else { Closing::Skip(reason) };
                if closing.insert(t.key.clone(), how).is_some() {
                    problems.push(format!("{field}: `{}` is closed twice", t.key));
                }
            }
        }
        closing
    }

    /// New tickets, each with its place below its parent (D2: depth, number and total are capped).
    fn added(&self, value: &Value, problems: &mut Vec<String>) -> Vec<TicketSpec> {
        let raw = items(value, "add");
        if raw.is_empty() {
            return vec![];
        }
        let limits = &self.config.limits;
        if raw.len() > ADDED_MAX {
            problems.push(format!("add: {} tickets at once are too many, at most {ADDED_MAX}", raw.len()));
            return vec![];
        }
        if self.all.len() + raw.len() > limits.tickets_max {
            problems.push(format!("add: the goal would have more than {} tickets", limits.tickets_max));
            return vec![];
        }
        let mut specs = match reply::read(&json!({"tickets": raw}), self.goal.review) {
            Ok(specs) => specs,
            Err(found) => {
                problems.extend(found);
                return vec![];
            }
        };
        // Whoever brought the news is what a ticket without a parent comes from: chains of additions have an end.
        let from: Vec<&Ticket> =
            self.news.iter().filter_map(|n| self.all.iter().find(|t| t.task_id == n.ticket)).collect();
        for (spec, item) in specs.iter_mut().zip(raw) {
            let named = text(item, "parent");
            let parent = named.as_deref().and_then(|key| self.ticket(key));
            if let (Some(key), None) = (&named, parent) {
                problems.push(format!("ticket {}, parent: there is no ticket `{key}`", spec.key));
            }
            spec.parent_key = parent.map(|t| t.key.clone()).unwrap_or_default();
            let above = parent.map(|t| t.depth).or_else(|| from.iter().map(|t| t.depth).max());
            spec.depth = above.map_or(0, |depth| depth + 1);
            spec.integrates = false;
        }
        let existing: BTreeSet<String> = self.all.iter().map(|t| t.key.clone()).collect();
        let tools = self.config.tools.planned();
        let known = Known { roles: self.roles, tools: &tools, existing: &existing };
        problems.extend(graph::problems(&specs, &known, limits).iter().map(ToString::to_string));
        specs
    }

    fn edits(
        &self,
        value: &Value,
        closing: &BTreeMap<String, Closing>,
        problems: &mut Vec<String>,
    ) -> Vec<PatchOp> {
        let mut ops: Vec<PatchOp> = vec![];
        for item in items(value, "modify") {
            let Some(t) = self.open(item, "modify", problems) else { continue };
            if closing.contains_key(&t.key) || ops.iter().any(|op| op.ticket_id() == t.task_id) {
                problems.push(format!("modify: there are two changes of `{}`", t.key));
                continue;
            }
            if t.status == Status::Escalated {
                // Its own decision, with its own cap.
                problems.push(format!("modify: `{}` is escalated and decided by itself", t.key));
                continue;
            }
            let at = escalation::Context { config: self.config, ticket: t, all: self.all, roles: self.roles };
            match escalation::edit(item, &at) {
                Ok(edit) if edit.is_empty() => {
                    problems.push(format!("modify: nothing changes in `{}`", t.key))
                }
                Ok(edit) => {
                    ops.push(PatchOp::Modify { id: t.task_id.clone(), epoch: t.epoch, edit: Box::new(edit) })
                }
                Err(found) => problems.extend(found.iter().map(|p| format!("modify `{}`: {p}", t.key))),
            }
        }
        ops
    }

    /// Needs as the answer names them, by the ticket that gets them.
    fn wanted(
        &self,
        value: &Value,
        closing: &BTreeMap<String, Closing>,
        added: &[TicketSpec],
        problems: &mut Vec<String>,
    ) -> BTreeMap<String, Vec<String>> {
        let mut wanted = BTreeMap::new();
        for item in items(value, "relink") {
            let Some(t) = self.open(item, "relink", problems) else { continue };
            let needs = items(item, "needs").iter().filter_map(Value::as_str).map(str::to_owned).collect();
            wanted.insert(t.key.clone(), needs);
        }
        let new = added.iter().map(|s| (s.key.as_str(), s.needs.as_slice()));
        let old = wanted.iter().map(|(key, needs): (&String, &Vec<String>)| (key.as_str(), needs.as_slice()));
        for (key, needs) in new.chain(old) {
            for need in needs {
                let is_new = added.iter().any(|s| s.key == *need);
                let holds = match self.ticket(need) {
                    _ if is_new => true,
                    // A new ticket's unknown need is the plan validator's to name.
                    None => added.iter().any(|s| s.key == key),
                    Some(t) => t.status == Status::Done || !t.status.is_terminal(),
                };
                if !holds || closing.contains_key(need) {
                    problems.push(format!("`{key}` would need `{need}`, which will not be done"));
                }
            }
        }
        wanted
    }

    /// The plan as it would be: done and open tickets that stay, and the new ones.
    fn linked(
        &self,
        closing: &BTreeMap<String, Closing>,
        added: &[TicketSpec],
        wanted: &BTreeMap<String, Vec<String>>,
    ) -> Result<Vec<TicketSpec>, Vec<String>> {
        let mut specs = vec![];
        for t in self.all {
            let open = !t.status.is_terminal();
            if (!open && t.status != Status::Done) || closing.contains_key(&t.key) {
                continue;
            }
            let mut spec = TicketSpec::new(&t.key, "", "");
            spec.needs = match wanted.get(&t.key) {
                Some(needs) => needs.clone(),
                None => t.needs.iter().filter_map(|id| self.key_of(id)).map(str::to_owned).collect(),
            };
            spec.needs.retain(|need| !closing.contains_key(need));
            spec.outputs.clone_from(&t.outputs);
            spec.mandatory = t.mandatory && open;
            spec.integrates = t.integrates;
            specs.push(spec);
        }
        specs.extend(added.iter().cloned());
        graph::link_integrating(&mut specs);
        let mut problems = vec![];
        if let Err(cycle) = Graph::of(&specs).order() {
            problems.push(cycle.to_string());
        }
        if let Some(last) = graph::integrating(&specs).filter(|i| !i.after.is_empty()) {
            problems.push(format!(
                "{} would come after the ticket that puts the deliverable together",
                last.after.join(", ")
            ));
        }
        // What was so before is not this answer's fault; a need that it takes away may be.
        let before = self.unordered_writers();
        for overlap in overlaps(&specs, PROBLEMS_MAX) {
            let (first, second) = (&specs[overlap.first].key, &specs[overlap.second].key);
            let pair = BTreeSet::from([first.clone(), second.clone()]);
            if !before.contains(&(pair, overlap.path.to_owned())) {
                problems.push(format!(
                    "outputs: `{first}` and `{second}` both deliver `{}`, and neither needs the other; add \"{first}\" to \
                     the needs of `{second}`",
                    overlap.path
                ));
            }
        }
        if problems.is_empty() { Ok(specs) } else { Err(problems) }
    }

    /// Tickets of the plan as it stands that write one path in no order.
    fn unordered_writers(&self) -> BTreeSet<(BTreeSet<String>, String)> {
        let spec = |t: &Ticket| {
            let mut spec = TicketSpec::new(&t.key, "", "");
            spec.needs = t.needs.iter().filter_map(|id| self.key_of(id)).map(str::to_owned).collect();
            spec.outputs.clone_from(&t.outputs);
            spec
        };
        let is_part = |t: &&Ticket| t.status == Status::Done || !t.status.is_terminal();
        let specs: Vec<TicketSpec> = self.all.iter().filter(is_part).map(spec).collect();
        let pair = |a: usize, b: usize| BTreeSet::from([specs[a].key.clone(), specs[b].key.clone()]);
        let found = overlaps(&specs, usize::MAX).into_iter();
        found.map(|o| (pair(o.first, o.second), o.path.to_owned())).collect()
    }

    fn adds(&self, added: &[TicketSpec]) -> Vec<PatchOp> {
        let mut ops = vec![];
        for mut new in with_ids(&self.goal.id, &self.goal.id, added) {
            if !new.spec.parent_key.is_empty() {
                new.parent_id = ticket_id(&self.goal.id, &new.spec.parent_key);
            }
            ops.push(PatchOp::Add { ticket: Box::new(new) });
        }
        ops
    }

    /// Every ticket that stays and needs something else than before.
    fn relinks(&self, linked: &[TicketSpec]) -> Vec<PatchOp> {
        let mut ops = vec![];
        for spec in linked {
            let Some(t) = self.ticket(&spec.key) else { continue };
            let needs: BTreeSet<String> = spec.needs.iter().map(|key| self.id_of(key)).collect();
            let add: Vec<String> = needs.iter().filter(|id| !t.needs.contains(id)).cloned().collect();
            // A need that was split is met by its parts, whatever stands in the list.
            let stays = |id: &String| {
                needs.contains(id)
                    || self.all.iter().any(|o| o.task_id == *id && o.status == Status::Superseded)
                    || self.key_of(id).is_none()
            };
            let (kept, drop): (Vec<String>, Vec<String>) = t.needs.iter().cloned().partition(stays);
            if add.is_empty() && drop.is_empty() {
                continue;
            }
            let needs = kept.into_iter().chain(add.iter().cloned()).collect();
            ops.push(PatchOp::Relink { id: t.task_id.clone(), epoch: t.epoch, needs, add, drop });
        }
        ops
    }

    fn id_of(&self, key: &str) -> String {
        self.ticket(key).map_or_else(|| ticket_id(&self.goal.id, key), |t| t.task_id.clone())
    }

    fn closes(&self, closing: &BTreeMap<String, Closing>) -> Vec<PatchOp> {
        let close = |(key, how): (&String, &Closing)| {
            let t = self.ticket(key)?;
            let (id, epoch) = (t.task_id.clone(), t.epoch);
            Some(match how.clone() {
                Closing::Cancel(reason) => PatchOp::Cancel { id, epoch, reason },
                Closing::Skip(reason) => PatchOp::Skip { id, epoch, reason },
            })
        };
        closing.iter().filter_map(close).collect()
    }
}
