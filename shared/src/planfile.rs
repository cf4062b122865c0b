//! The plan file (TOML or JSON): reading it, and the same thing as JSON for the HTTP API. Pure.
//!
//! It is written by people, so errors name file, line and field and what was probably meant. Whether the
//! tickets are a sound plan is the validator's part (`ticket::graph`).

use crate::config::Limits;
use crate::ticket::graph::{Known, Problem, problems};
use crate::ticket::{Check, DirectCall, NeedsPolicy, ReviewPolicy, TicketSpec, Tier};
use serde::{Deserialize, Serialize};
use serde_json::Value;

mod error;
pub use error::PlanFileError;

/// Longest constraint, bytes.
pub const CONSTRAINT_BYTES_MAX: usize = 4 * 1024;

/// A plan file as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanFile {
    pub goal: GoalSection,
    /// Left out for a goal that a model plans. There but empty is refused: nobody means to pay for a plan so.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "at_least_one")]
    pub tickets: Vec<PlanTicket>,
}

fn at_least_one<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<PlanTicket>, D::Error> {
    let tickets = Vec::<PlanTicket>::deserialize(from)?;
    if tickets.is_empty() {
        return Err(serde::de::Error::custom(
            "`tickets` is empty: give at least one, or leave it out to have the goal planned by a model",
        ));
    }
    Ok(tickets)
}

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GoalSection {
    pub text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<String>,
    /// Files, relative to the plan file's folder; copied into the workspace under `data/`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<String>,
    /// Review policy of tickets that say none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<ReviewPolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_tokens: Option<u64>,
    /// Millionths of a dollar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_microusd: Option<u64>,
    /// Seconds from the submit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_s: Option<u64>,
    /// `en` or `zh`: language of TODO.md.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// Priority of tickets that say none: 0 urgent, 1 normal, 2 bulk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// A person approves the plan before anything of it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approve_plan: Option<bool>,
}

/// A ticket as a plan file writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanTicket {
    pub id: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<String>,
    pub description: String,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub input_context: Value,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub expected_output: String,
    /// A role for an agent, or `tool` with `args` for a direct call.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub role: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub persona: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<ReviewPolicy>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs_policy: Option<NeedsPolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mandatory: Option<bool>,
    /// The last ticket, which puts the deliverable together.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub integrates: bool,
}

impl PlanFile {
    /// Reads a plan file: JSON when its first sign is `{`, TOML otherwise. `name` is the file's, for errors.
    ///
    /// # Errors
    /// [`PlanFileError`] names the line or field and the way out.
    pub fn parse(name: &str, text: &str, limits: &Limits) -> Result<Self, PlanFileError> {
        if text.len() > limits.plan_bytes_max {
            return Err(PlanFileError::TooLarge {
                file: name.into(),
                bytes: text.len(),
                max: limits.plan_bytes_max,
            });
        }
        let mut plan: Self = if text.trim_start().starts_with('{') {
            let mut json = serde_json::Deserializer::from_str(text);
            let plan = serde_path_to_error::deserialize(&mut json)
                .map_err(|e| error::of_json(name, &e.path().to_string(), e.inner()))?;
            json.end().map_err(|e| error::of_json(name, "", &e))?;
            plan
        } else {
            let toml = toml::Deserializer::parse(text).map_err(|e| error::of_toml(name, "", &e, text))?;
            serde_path_to_error::deserialize(toml)
                .map_err(|e| error::of_toml(name, &e.path().to_string(), e.inner(), text))?
        };
        plan.finish();
        Ok(plan)
    }

    /// Reads the `plan` of an HTTP request.
    ///
    /// # Errors
    /// [`PlanFileError`] names the field and the way out.
    pub fn from_json(value: Value) -> Result<Self, PlanFileError> {
        let mut plan: Self = serde_path_to_error::deserialize(value)
            .map_err(|e| error::of_json("plan", &e.path().to_string(), e.inner()))?;
        plan.finish();
        Ok(plan)
    }

    /// The same plan as JSON; [`PlanFile::from_json`] reads it back.
    #[must_use]
    pub fn to_json(&self) -> Value {
        // Plain data with string keys always serialises.
        serde_json::to_value(self).unwrap_or_default()
    }

    /// TOML's dates arrive as a marked map: back to the text that was written.
    fn finish(&mut self) {
        for ticket in &mut self.tickets {
            dates_to_text(&mut ticket.input_context);
            ticket.args.iter_mut().for_each(dates_to_text);
        }
    }

    /// The tickets as the manager plans them. A ticket that says no review policy has the goal's, or
    /// `default`; but a direct call without judged checks is checked by code, so that it needs no model.
    #[must_use]
    pub fn specs(&self, default: ReviewPolicy) -> Vec<TicketSpec> {
        self.tickets.iter().map(|t| t.spec(&self.goal, default)).collect()
    }

    /// A plan file that says the same as these tickets.
    #[must_use]
    pub fn of(goal: GoalSection, specs: &[TicketSpec]) -> Self {
        Self { goal, tickets: specs.iter().map(PlanTicket::of).collect() }
    }

    /// Everything that is wrong with goal and tickets; empty: it may be submitted.
    #[must_use]
    pub fn problems(&self, default: ReviewPolicy, known: &Known<'_>, limits: &Limits) -> Vec<Problem> {
        let mut found = self.goal.problems(limits);
        for ticket in &self.tickets {
            if found.len() >= crate::ticket::graph::PROBLEMS_MAX {
                return found;
            }
            if ticket.tool.is_some() && !ticket.role.is_empty() {
                found.push(Problem {
                    ticket: ticket.id.clone(),
                    field: "tool".into(),
                    problem: "both a role and a tool are named".into(),
                    hint: "`tool` with `args` for a direct call without a model, or `role` for an agent"
                        .into(),
                });
            }
            if ticket.tool.is_none() && ticket.args.is_some() {
                found.push(Problem {
                    ticket: ticket.id.clone(),
                    field: "args".into(),
                    problem: "arguments without a tool".into(),
                    hint: "name the `tool`; what an agent should know goes into `input_context`".into(),
                });
            }
        }
        found.extend(problems(&self.specs(default), known, limits));
        found.truncate(crate::ticket::graph::PROBLEMS_MAX);
        found
    }

    /// Keys of the tickets that ask a model, for their work or for their review. Empty: the goal runs without one.
    #[must_use]
    pub fn asks_model(&self, default: ReviewPolicy) -> Vec<String> {
        let specs = self.specs(default);
        let asks = |s: &&TicketSpec| s.call.is_none() || s.review == ReviewPolicy::Judged;
        specs.iter().filter(asks).map(|s| s.key.clone()).collect()
    }
}

impl GoalSection {
    /// What is wrong with the goal itself.
    #[must_use]
    pub fn problems(&self, limits: &Limits) -> Vec<Problem> {
        let mut found = vec![];
        let mut add = |field: &str, problem: String, hint: &str| {
            found.push(Problem {
                ticket: String::new(),
                field: format!("goal.{field}"),
                problem,
                hint: hint.into(),
            });
        };
        if self.text.trim().is_empty() {
            add("text", "the goal is empty".into(), "say what is to be achieved");
        }
        if self.text.len() > limits.goal_text_bytes_max {
            let problem =
                format!("{} bytes, at most {} are allowed", self.text.len(), limits.goal_text_bytes_max);
            add("text", problem, "put long texts into an input file, or raise limits.goal_text_bytes_max");
        }
        if self.constraints.len() > limits.constraints_max {
            let problem = format!(
                "{} constraints, at most {} are allowed",
                self.constraints.len(),
                limits.constraints_max
            );
            add("constraints", problem, "join some, or raise limits.constraints_max");
        }
        if let Some(i) =
            self.constraints.iter().position(|c| c.trim().is_empty() || c.len() > CONSTRAINT_BYTES_MAX)
        {
            let problem = format!("is empty or longer than {CONSTRAINT_BYTES_MAX} bytes");
            add(&format!("constraints[{i}]"), problem, "one sentence each");
        }
        if self.inputs.len() > limits.input_files_max {
            let problem =
                format!("{} files, at most {} are allowed", self.inputs.len(), limits.input_files_max);
            add("inputs", problem, "pack some, or raise limits.input_files_max");
        }
        if let Some(i) = self.inputs.iter().position(|p| p.trim().is_empty() || p.len() > 4096) {
            add(&format!("inputs[{i}]"), "is no path".into(), "a path relative to the plan file");
        }
        if let Some(language) = &self.language
            && !["en", "zh"].contains(&language.as_str())
        {
            add(
                "language",
                format!("`{}` is not shipped", language.chars().take(20).collect::<String>()),
                "en or zh",
            );
        }
        if self.deadline_s == Some(0) {
            add("deadline_s", "is 0: it would be over at once".into(), "leave it out for none");
        }
        if self.priority.is_some_and(|p| p > 2) {
            add("priority", "is above 2".into(), "0 urgent, 1 normal, 2 bulk");
        }
        found
    }
}

impl PlanTicket {
    fn spec(&self, goal: &GoalSection, default: ReviewPolicy) -> TicketSpec {
        let judged = self.checks.iter().any(|c| !c.is_code());
        let unsaid = if self.tool.is_some() && !judged { ReviewPolicy::Code } else { default };
        let fresh = TicketSpec::new(&self.id, &self.description, &self.expected_output);
        TicketSpec {
            needs: self.needs.clone(),
            input_context: self.input_context.clone(),
            role: self.role.clone(),
            persona: self.persona.clone(),
            tier: self.tier.unwrap_or(fresh.tier),
            tools: self.tools.clone(),
            pool: self.pool.clone().unwrap_or_else(|| fresh.pool.clone()),
            call: self.tool.clone().map(|tool| DirectCall {
                tool,
                args: self.args.clone().unwrap_or_else(|| Value::Object(serde_json::Map::new())),
            }),
            outputs: self.outputs.clone(),
            checklist: self.checks.clone(),
            review: self.review.or(goal.review).unwrap_or(unsaid),
            needs_policy: self.needs_policy.unwrap_or(fresh.needs_policy),
            priority: self.priority.or(goal.priority).unwrap_or(fresh.priority),
            mandatory: self.mandatory.unwrap_or(fresh.mandatory),
            integrates: self.integrates,
            ..fresh
        }
    }

    fn of(spec: &TicketSpec) -> Self {
        let fresh = TicketSpec::new("", "", "");
        Self {
            id: spec.key.clone(),
            needs: spec.needs.clone(),
            description: spec.description.clone(),
            input_context: spec.input_context.clone(),
            expected_output: spec.expected_output.clone(),
            role: spec.role.clone(),
            persona: spec.persona.clone(),
            tier: (spec.tier != fresh.tier).then_some(spec.tier),
            tools: spec.tools.clone(),
            pool: (spec.pool != fresh.pool).then(|| spec.pool.clone()),
            tool: spec.call.as_ref().map(|c| c.tool.clone()),
            args: spec.call.as_ref().map(|c| c.args.clone()),
            outputs: spec.outputs.clone(),
            review: Some(spec.review),
            checks: spec.checklist.clone(),
            needs_policy: (spec.needs_policy != fresh.needs_policy).then_some(spec.needs_policy),
            priority: Some(spec.priority),
            mandatory: (spec.mandatory != fresh.mandatory).then_some(spec.mandatory),
            integrates: spec.integrates,
        }
    }
}

/// The marked map by which the toml crate hands dates to other formats.
const TOML_DATE: &str = "$__toml_private_datetime";

fn dates_to_text(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if map.len() == 1
                && let Some(Value::String(date)) = map.get_mut(TOML_DATE)
            {
                *value = Value::String(std::mem::take(date));
            } else {
                map.values_mut().for_each(dates_to_text);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(dates_to_text),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
#[path = "planfile/tests.rs"]
mod tests;
