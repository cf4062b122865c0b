//! From a goal to sealed tickets: a given plan, or one structured model call whose answer is validated here.
//!
//! The model proposes, [`shared::ticket::graph`] disposes (I6). The raw plan is a blob before it is applied, so
//! that a manager that dies does not pay for it twice.

pub(crate) mod apply;
pub(crate) mod drawn;
pub(crate) mod estimate;
pub(crate) mod reply;
pub(crate) mod roles;
pub(crate) mod route;

use crate::calls::{Asked, Failure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use shared::config::Config;
use shared::goal::Goal;
use shared::lesson;
use shared::model::Model;
use shared::planfile::PlanFile;
use shared::prompt;
use shared::role::Role;
use shared::store::{Store, StoreError};
use shared::ticket::graph::{self, Known, Problem};
use shared::ticket::{ReviewPolicy, TicketSpec};
use std::collections::{BTreeMap, BTreeSet};
use tokio_util::sync::CancellationToken;

/// Input files that a prompt lists.
const FILES_SHOWN: usize = 100;
/// Conclusions and notes that a prompt carries, newest.
pub(crate) const FACTS_SHOWN: usize = 50;
/// Tickets of a plan that a model makes; a given one may have `limits.tickets_max`.
const MODEL_TICKETS_MAX: usize = 50;
/// Version of [`Stored`].
const STORED_VERSION: u32 = 1;

/// A plan as its blob holds it: what came in, unchanged, and the tickets that are made of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stored {
    pub(crate) v: u32,
    /// `given` or `model`.
    pub(crate) source: String,
    pub(crate) raw: Value,
    pub(crate) tickets: Vec<TicketSpec>,
}

impl Stored {
    pub(crate) fn new(source: &str, raw: Value, tickets: Vec<TicketSpec>) -> Self {
        Self { v: STORED_VERSION, source: source.into(), raw, tickets }
    }
}

/// An input file as the planner's prompt lists it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Input {
    pub(crate) path: String,
    pub(crate) size_bytes: u64,
    pub(crate) mime: String,
}

impl Input {
    /// One of which nothing but its place is known yet.
    pub(crate) fn named(path: &str) -> Self {
        Self { path: path.into(), size_bytes: 0, mime: "uploaded".into() }
    }
}

/// A model's plan that passed the validator.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Proposal {
    pub(crate) raw: Value,
    pub(crate) specs: Vec<TicketSpec>,
}

/// What is wrong with a plan file under this configuration.
pub(crate) fn problems_of_file(plan: &PlanFile, review: ReviewPolicy, config: &Config) -> Vec<Problem> {
    let roles = roles::names(&roles::known(&config.worker.roles_folder));
    let tools = config.tools.planned();
    let known = Known { roles: &roles, tools: &tools, existing: &BTreeSet::new() };
    plan.problems(review, &known, &config.limits)
}

/// A given plan's tickets, or what is wrong with it. Checked again: roles and limits may differ from those of the
/// manager that took it in.
///
/// # Errors
/// The problems, one a line.
pub(crate) fn given(raw: &Value, goal: &Goal, config: &Config) -> Result<Vec<TicketSpec>, Vec<String>> {
    let plan = PlanFile::from_json(raw.clone()).map_err(|e| vec![e.to_string()])?;
    let problems = problems_of_file(&plan, goal.review, config);
    if problems.is_empty() {
        return Ok(plan.specs(goal.review));
    }
    Err(problems.iter().map(ToString::to_string).collect())
}

/// Asks the model for a plan; at most `model.calls_per_answer_max` requests, the validator's reasons quoted back.
/// Cancellation: `stop` ends it with class cancelled.
pub(crate) async fn ask(
    model: &Model,
    config: &Config,
    goal: &Goal,
    files: Vec<Input>,
    lessons: &[String],
    stop: &CancellationToken,
    on_bytes: &(dyn Fn() + Send + Sync),
) -> Asked<Proposal> {
    let roles = roles::known(&config.worker.roles_folder);
    let messages = match words(goal, &roles, &files, lessons, config) {
        Ok(messages) => messages,
        Err(error) => return Asked::failed(Failure::Ours(error.to_string())),
    };
    let names = roles::names(&roles);
    let bundles = bundles(config);
    let schema = reply::plan_schema(&names, &bundles.keys().cloned().collect::<Vec<_>>());
    let call = crate::calls::Call { model, tier: config.manager.tier, messages: &messages, stop, on_bytes };
    call.structured("plan", &schema, |value| check(value, goal, &names, config)).await
}

/// What the tenant's finished goals taught the planner, as far as it has to do with this one.
///
/// # Errors
/// [`StoreError`] when Redis does not answer.
pub(crate) async fn lessons(
    store: &Store,
    config: &Config,
    tenant: &str,
    text: &str,
) -> Result<Vec<String>, StoreError> {
    if config.memory.shown_max == 0 {
        return Ok(vec![]);
    }
    let lessons = store.lessons(tenant, lesson::PLAN).await?;
    Ok(lesson::fitting(&lessons, text, config.memory.shown_max).into_iter().map(lesson::shown).collect())
}

/// The validator of a model's plan: reading, the integrating ticket, soundness.
fn check(value: &Value, goal: &Goal, roles: &[String], config: &Config) -> Result<Proposal, Vec<String>> {
    let mut specs = reply::read(value, goal.review)?;
    // Before anything is done with them: an answer of 500 tickets is refused for its length (C9).
    let max = config.limits.tickets_max.min(MODEL_TICKETS_MAX);
    if specs.len() > max {
        return Err(vec![format!(
            "tickets: {} are too many, at most {max}; split by deliverable, not by step",
            specs.len()
        )]);
    }
    if !roles.is_empty() {
        let integrator =
            if roles.iter().any(|r| r == roles::INTEGRATOR) { roles::INTEGRATOR } else { roles[0].as_str() };
        reply::integrate(&mut specs, goal.review, integrator);
    }
    let problems = problems(&specs, roles, config);
    if problems.is_empty() { Ok(Proposal { raw: value.clone(), specs }) } else { Err(problems) }
}

/// What the validator has against a first plan.
pub(crate) fn problems(specs: &[TicketSpec], roles: &[String], config: &Config) -> Vec<String> {
    let tools = config.tools.planned();
    let known = Known { roles, tools: &tools, existing: &BTreeSet::new() };
    graph::problems(specs, &known, &config.limits).iter().map(ToString::to_string).collect()
}

/// Bundles that a plan may name, with their tools. `fleet` is always there and never named.
fn bundles(config: &Config) -> BTreeMap<String, Vec<String>> {
    let mut bundles: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for tool in config.tools.planned().into_iter().filter(|t| t.bundle != "fleet") {
        bundles.entry(tool.bundle).or_default().push(tool.name);
    }
    bundles
}

/// System and task. Goal and constraints stand in it verbatim (I9).
fn words(
    goal: &Goal,
    roles: &[Role],
    files: &[Input],
    lessons: &[String],
    config: &Config,
) -> Result<Vec<shared::model::Message>, prompt::PromptError> {
    let bundles: Vec<Value> =
        bundles(config).into_iter().map(|(name, tools)| json!({"name": name, "tools": tools})).collect();
    let roles: Vec<Value> =
        roles.iter().map(|r| json!({"name": r.name, "description": r.description})).collect();
    let system = prompt::render(
        "planner.j2",
        &json!({
            "tickets_max": config.limits.tickets_max.min(MODEL_TICKETS_MAX),
            "roles": roles,
            "bundles": bundles,
        }),
    )?;
    let task = prompt::render(
        "planner_task.j2",
        &json!({
            "goal": goal.text,
            "constraints": goal.constraints,
            "files": &files[..files.len().min(FILES_SHOWN)],
            "files_more": files.len().saturating_sub(FILES_SHOWN),
            "lessons": lessons,
            "conclusions": newest(&goal.conclusions),
            "notes": newest(&goal.notes),
        }),
    )?;
    Ok(vec![shared::model::Message::System(system), shared::model::Message::User(task)])
}

/// The last few: prompts are bounded.
pub(crate) fn newest(lines: &[String]) -> &[String] {
    &lines[lines.len().saturating_sub(FACTS_SHOWN)..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goal() -> Goal {
        Goal {
            text: "Explain {{ braces }} to \"laymen\"".into(),
            constraints: vec!["≤300 words, for non-technical readers".into()],
            review: ReviewPolicy::Judged,
            ..Goal::default()
        }
    }

    fn ticket(id: &str, needs: &[&str]) -> Value {
        json!({"id": id, "needs": needs, "description": "do", "expected_output": "it", "role": "summarizer",
               "outputs": [format!("outputs/{id}.md")], "checks": [{"kind": "file_exists", "path": format!("outputs/{id}.md")}]})
    }

    fn checked(tickets: Vec<Value>) -> Result<Proposal, Vec<String>> {
        let names = roles::names(&roles::known(std::path::Path::new("")));
        check(&json!({"tickets": tickets}), &goal(), &names, &Config::default())
    }

    #[test]
    fn c9_model_plans_with_cycles_dangling_double_or_too_many_tickets_are_refused_with_reasons() {
        let cycle = checked(vec![ticket("a", &["b"]), ticket("b", &["a"])]).unwrap_err();
        assert!(cycle.iter().any(|p| p.contains("wait for each other")), "{cycle:?}");
        let dangling = checked(vec![ticket("a", &["t99"])]).unwrap_err();
        assert!(dangling.iter().any(|p| p.contains("t99")), "{dangling:?}");
        let double = checked(vec![ticket("t1", &[]), ticket("t1", &[])]).unwrap_err();
        assert!(double.iter().any(|p| p.contains("t1")), "{double:?}");
        let many = checked((0..500).map(|i| ticket(&format!("t{i}"), &[])).collect()).unwrap_err();
        assert!(many[0].contains("500") && many[0].contains("at most 50"), "{many:?}");
        assert!(checked(vec![]).is_err());
    }

    #[test]
    fn a_sound_plan_gets_its_integrating_last_ticket() {
        let plan = checked(vec![ticket("a", &[]), ticket("b", &[]), ticket("c", &["a", "b"])]).unwrap();
        let last: Vec<_> = plan.specs.iter().filter(|s| s.integrates).collect();
        assert_eq!(last.len(), 1);
        assert_eq!(last[0].key, "c");
        assert!(last[0].checklist.iter().any(|c| c.describe() == reply::ORIGINAL_GOAL));
    }

    #[test]
    fn b5_i9_goal_and_constraints_stand_verbatim_in_the_planners_prompt() {
        let goal = goal();
        let roles = roles::known(std::path::Path::new(""));
        let messages = words(&goal, &roles, &[Input::named("data/a.csv")], &[], &Config::default()).unwrap();
        let shared::model::Message::User(task) = &messages[1] else { panic!("no task") };
        assert!(
            task.contains(&goal.text) && task.contains(&goal.constraints[0]) && task.contains("data/a.csv")
        );
        let shared::model::Message::System(system) = &messages[0] else { panic!("no system") };
        assert!(!system.contains(&goal.text), "the part before the goal's own is the same for every goal");
        assert!(system.contains("- summarizer: ") && system.contains("- files: "));
    }

    #[test]
    fn a_given_plan_is_checked_again_by_the_manager_that_applies_it() {
        let raw = json!({"goal": {"text": "x"}, "tickets": [
            {"id": "a", "description": "d", "tool": "code_interpreter", "args": {"code": "1"}, "outputs": ["data/a.csv"]}]});
        let specs = given(&raw, &goal(), &Config::default()).unwrap();
        assert_eq!(specs[0].review, ReviewPolicy::Code);
        let wrong =
            json!({"goal": {"text": "x"}, "tickets": [{"id": "a", "description": "d", "role": "wizard"}]});
        let problems = given(&wrong, &goal(), &Config::default()).unwrap_err();
        assert!(problems.iter().any(|p| p.contains("wizard")), "{problems:?}");
    }
}
