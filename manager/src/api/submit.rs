//! Intake: a goal is checked whole before anything of it is kept, then handed to the store in one step.

use super::Api;
use super::auth::{Caller, Submitter};
use super::error::{Answer, ApiError, Body};
use super::files::check_inputs;
use super::types::{Estimate, GoalSubmitted, PlanReply, SubmitGoal};
use crate::planner::{self, estimate::estimate};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use shared::goal::{Goal, Intake, NewGoal};
use shared::planfile::{GoalSection, PlanFile};
use shared::store::{Confirmation, Confirming, Submitted};
use shared::ticket::graph::Problem;
use shared::ticket::{ReviewPolicy, TicketSpec};
use std::time::Duration;
use tracing::Instrument as _;

const KEY_BYTES_MAX: usize = 256;
/// A deadline further away than this is a mistake of units.
const DEADLINE_S_MAX: u64 = 366 * 86_400;

/// A request that may be submitted.
struct Checked {
    section: GoalSection,
    intake: Intake,
    review: ReviewPolicy,
    plan: Option<PlanFile>,
}

pub(super) async fn submit(
    State(api): State<Api>,
    Submitter(caller): Submitter,
    headers: HeaderMap,
    Body(wanted): Body<SubmitGoal>,
) -> Result<(StatusCode, Json<GoalSubmitted>), ApiError> {
    let given = headers.get("traceparent").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let span = tracing::debug_span!("submit", otel.kind = "producer", goal = tracing::field::Empty);
    shared::telemetry::propagate::set_parent(&span, given);
    submit_in_span(&api, &caller, &wanted, given).instrument(span).await
}

async fn submit_in_span(
    api: &Api,
    caller: &Caller,
    wanted: &SubmitGoal,
    given: &str,
) -> Result<(StatusCode, Json<GoalSubmitted>), ApiError> {
    let (checked, problems) = prepare(api, wanted)?;
    refuse(&problems, checked.plan.is_some())?;
    let tenant = caller.tenant_for(wanted.tenant.as_deref())?;
    let id = match wanted.idempotency_key.as_deref().filter(|k| !k.is_empty()) {
        None => shared::ticket::new_id(),
        Some(key) if key.len() > KEY_BYTES_MAX => {
            return Err(ApiError::bad("idempotency_key", format!("a key has at most {KEY_BYTES_MAX} bytes")));
        }
        Some(key) => {
            let id = goal_id(&tenant, key);
            // Found before its inputs are copied once more.
            if let Some(there) = api.store.goal(&id).await? {
                let mut answer = same_goal(&there, &checked)?;
                answer.confirmed = confirmed(api.store.confirm_goal(&id, confirming(api)).await);
                return Ok((StatusCode::OK, Json(answer)));
            }
            id
        }
    };
    let mut goal = new_goal(api, wanted, &checked, id, tenant).await?;
    tracing::Span::current().record("goal", &goal.id);
    goal.traceparent = shared::telemetry::propagate::current_or(given);
    let ready_max = api.config.limits.ready_max;
    let (submitted, confirmation) =
        api.store.submit_goal_confirmed(&goal, ready_max, confirming(api)).await?;
    let confirmed = confirmed(confirmation);
    match submitted {
        Submitted::New => {
            shared::telemetry::metrics::submitted();
            tracing::info!(goal = goal.id, tenant = goal.tenant, who = caller.who, "goal submitted");
            let answer =
                GoalSubmitted { goal: goal.id, state: "planning".into(), duplicate: false, confirmed };
            Ok((StatusCode::CREATED, Json(answer)))
        }
        Submitted::Duplicate => {
            let there =
                api.store.goal(&goal.id).await?.ok_or_else(|| ApiError::not_found("goal", &goal.id))?;
            Ok((StatusCode::OK, Json(GoalSubmitted { confirmed, ..same_goal(&there, &checked)? })))
        }
        Submitted::Busy => Err(ApiError::busy()),
    }
}

fn confirming(api: &Api) -> Confirming {
    let redis = &api.config.redis;
    Confirming { replicas: redis.confirm_replicas, timeout: Duration::from_millis(redis.confirm_timeout_ms) }
}

/// As the answer says it.
fn confirmed(confirmation: Confirmation) -> Option<bool> {
    match confirmation {
        Confirmation::NotAsked => None,
        Confirmation::Confirmed => Some(true),
        Confirmation::Missing { have, want } => {
            tracing::warn!(have, want, "a goal is not confirmed by replicas");
            Some(false)
        }
    }
}

/// First 16 bytes of sha256 over tenant and key: the same key finds the same goal, another tenant never does.
fn goal_id(tenant: &str, key: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(tenant.as_bytes());
    // A tenant is a word: the separator stands in none.
    hash.update([0]);
    hash.update(key.as_bytes());
    super::auth::hex(&hash.finalize()[..16])
}

/// The reference under which the plan is kept.
fn plan_ref(plan: &PlanFile) -> String {
    shared::blob::reference(plan.to_json().to_string().as_bytes())
}

/// A repeated key with another goal is a mistake that must not pass as success.
fn same_goal(there: &Goal, checked: &Checked) -> Result<GoalSubmitted, ApiError> {
    let plan_ref = checked.plan.as_ref().map_or_else(String::new, plan_ref);
    if there.text != checked.section.text
        || there.constraints != checked.section.constraints
        || there.given_plan_ref != plan_ref
        || there.intake != checked.intake
    {
        return Err(ApiError::conflict(
            "this key was used for a goal with another text, constraints, plan or intake",
        )
        .at("idempotency_key")
        .hint("use a new key for a new goal"));
    }
    Ok(GoalSubmitted {
        goal: there.id.clone(),
        state: there.state.as_str().into(),
        duplicate: true,
        confirmed: None,
    })
}

async fn new_goal(
    api: &Api,
    wanted: &SubmitGoal,
    checked: &Checked,
    id: String,
    tenant: String,
) -> Result<NewGoal, ApiError> {
    let root = api.take_inputs(&id, &wanted.inputs).await?;
    // Stored and synced before a script refers to it.
    let given_plan_ref = match &checked.plan {
        None => String::new(),
        Some(plan) => api.blobs.put(&id, plan.to_json().to_string()).await?,
    };
    let deadline_at_ms = match checked.section.deadline_s {
        None | Some(0) => 0,
        Some(s) => api.store.now_ms().await?.saturating_add(s.saturating_mul(1000)),
    };
    let limits = &api.config.limits;
    Ok(NewGoal {
        id,
        tenant,
        text: checked.section.text.clone(),
        constraints: checked.section.constraints.clone(),
        root,
        given_plan_ref,
        intake: checked.intake,
        approve_plan: checked.section.approve_plan.unwrap_or(false),
        review: checked.review,
        budget_tokens: checked.section.budget_tokens.unwrap_or(0),
        budget_microusd: checked.section.budget_microusd.unwrap_or(0),
        deadline_at_ms,
        deadline_policy: wanted.deadline_policy.unwrap_or_default(),
        in_flight_max: wanted.in_flight_max.unwrap_or(limits.in_flight_max),
        caps: api.config.caps,
        traceparent: String::new(),
        language: checked
            .section
            .language
            .clone()
            .unwrap_or_else(|| language_of(&checked.section.text).into()),
    })
}

/// Chinese when the text is mostly written so; English otherwise.
fn language_of(text: &str) -> &'static str {
    let han = text.chars().filter(|c| ('\u{4e00}'..='\u{9fff}').contains(c)).count();
    let latin = text.chars().filter(char::is_ascii_alphabetic).count();
    if han * 3 > latin && han > 0 { "zh" } else { "en" }
}

/// Everything that the request says, in one piece, and what is wrong with goal and plan.
fn prepare(api: &Api, wanted: &SubmitGoal) -> Result<(Checked, Vec<Problem>), ApiError> {
    let limits = &api.config.limits;
    check_inputs(&wanted.inputs, limits.input_files_max)?;
    let mut plan = match &wanted.plan {
        None | Some(Value::Null) => None,
        Some(plan) => {
            let bytes = plan.to_string().len();
            if bytes > limits.plan_bytes_max {
                return Err(ApiError::too_large(
                    "plan",
                    "limits.plan_bytes_max",
                    limits.plan_bytes_max as u64,
                ));
            }
            Some(PlanFile::from_json(plan.clone()).map_err(|e| ApiError::bad("plan", e.to_string()))?)
        }
    };
    let section = merge(wanted, plan.as_ref().map(|p| &p.goal));
    if !section.inputs.is_empty() && wanted.inputs.is_empty() {
        return Err(ApiError::bad("plan.goal.inputs", "the plan names input files, but none was uploaded")
            .hint("`muster run FILE` uploads them; over HTTP use PUT /v1/uploads and `inputs`"));
    }
    if section.deadline_s.is_some_and(|s| s > DEADLINE_S_MAX) {
        return Err(ApiError::bad(
            "deadline_s",
            format!("a deadline is at most {DEADLINE_S_MAX} seconds away"),
        ));
    }
    let intake = wanted.intake.unwrap_or_default();
    if intake == Intake::Route {
        let wrong = |problem: &str, hint: &str| Err(ApiError::bad("intake", problem).hint(hint));
        if plan.is_some() {
            return wrong("a plan file is not routed", "leave out the plan, or intake");
        }
        if api.config.intake.intents.is_empty() {
            return wrong(
                "this fleet knows no intents",
                "add [[intake.intents]] to the manager's configuration",
            );
        }
    }
    let review = section.review.unwrap_or(api.config.manager.review);
    let problems = match &mut plan {
        None => section.problems(limits),
        Some(plan) => {
            plan.goal = section.clone();
            planner::problems_of_file(plan, review, &api.config)
        }
    };
    Ok((Checked { section, intake, review, plan }, problems))
}

/// What the request says goes before what the plan file says.
fn merge(wanted: &SubmitGoal, file: Option<&GoalSection>) -> GoalSection {
    let mut section = file.cloned().unwrap_or_default();
    if !wanted.text.trim().is_empty() || file.is_none() {
        section.text.clone_from(&wanted.text);
    }
    if !wanted.constraints.is_empty() {
        section.constraints.clone_from(&wanted.constraints);
    }
    section.review = wanted.review.or(section.review);
    section.budget_tokens = wanted.budget_tokens.or(section.budget_tokens);
    section.budget_microusd = wanted.budget_microusd.or(section.budget_microusd);
    section.deadline_s = wanted.deadline_s.or(section.deadline_s);
    section.language = wanted.language.clone().or(section.language);
    section.approve_plan = wanted.approve_plan.or(section.approve_plan);
    section
}

/// All problems at once, under the field of the first.
fn refuse(problems: &[Problem], planned: bool) -> Result<(), ApiError> {
    let Some(first) = problems.first() else { return Ok(()) };
    let field = match (first.ticket.as_str(), planned) {
        ("", false) => first.field.trim_start_matches("goal.").to_owned(),
        ("", true) => format!("plan.{}", first.field),
        (ticket, _) => format!("plan.tickets[{ticket}].{}", first.field),
    };
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let message = if lines.len() == 1 {
        lines[0].clone()
    } else {
        format!("{} problems:\n{}", lines.len(), lines.join("\n"))
    };
    Err(ApiError::bad(field, message).hint(first.hint.clone()))
}

/// `POST /v1/plans`: the plan that would run and what it would take; submits nothing. A goal without a plan file
/// costs one planning call here, which is booked on nothing and said in the log.
pub(super) async fn plan(
    State(api): State<Api>,
    Submitter(caller): Submitter,
    Body(wanted): Body<SubmitGoal>,
) -> Answer<PlanReply> {
    let tenant = caller.tenant_for(wanted.tenant.as_deref())?;
    let (checked, problems) = prepare(&api, &wanted)?;
    if !problems.is_empty() && checked.plan.is_some() {
        // A given plan's problems are what was asked for here.
        let problems = problems.iter().map(ToString::to_string).collect();
        return Ok(Json(PlanReply { plan: Value::Null, problems, estimate: Estimate::default() }));
    }
    refuse(&problems, false)?;
    let specs = match &checked.plan {
        Some(plan) => plan.specs(checked.review),
        None => match propose(&api, &caller, &wanted, &checked, tenant).await? {
            Ok(specs) => specs,
            Err(problems) => {
                return Ok(Json(PlanReply { plan: Value::Null, problems, estimate: Estimate::default() }));
            }
        },
    };
    let estimate = estimate(&specs, &api.config.model);
    Ok(Json(PlanReply { plan: json!({"tickets": specs}), problems: vec![], estimate }))
}

async fn propose(
    api: &Api,
    caller: &Caller,
    wanted: &SubmitGoal,
    checked: &Checked,
    tenant: String,
) -> Result<Result<Vec<TicketSpec>, Vec<String>>, ApiError> {
    let Some(model) = &api.model else {
        return Err(ApiError::conflict("no model is configured, so nobody can plan")
            .hint("set model.url and model.standard in the manager's configuration, or send a plan file"));
    };
    let goal = Goal {
        tenant,
        text: checked.section.text.clone(),
        constraints: checked.section.constraints.clone(),
        review: checked.review,
        ..Goal::default()
    };
    let files = wanted.inputs.iter().map(|i| planner::Input::named(&i.path)).collect();
    tracing::info!(who = caller.who, "a plan is made to be looked at");
    if checked.intake == Intake::Route {
        let asked = planner::route::ask(model, &api.config, &goal, &api.stop, &|| {}).await;
        return match asked.outcome {
            Ok((_, scored)) => {
                let chosen = planner::route::chosen(&scored, &api.config.intake);
                let nothing = chosen.is_empty();
                Ok(if nothing {
                    Err(vec![planner::route::clearer(&api.config.intake)])
                } else {
                    Ok(planner::route::specs(&chosen, &api.config.intake))
                })
            }
            Err(failure) => Err(ApiError::unavailable(format!("the model did not classify: {failure}"))),
        };
    }
    let lessons = planner::lessons(&api.store, &api.config, &goal.tenant, &goal.text).await?;
    let asked = planner::ask(model, &api.config, &goal, files, &lessons, &api.stop, &|| {}).await;
    match asked.outcome {
        Ok(proposal) => Ok(Ok(proposal.specs)),
        Err(failure) if failure.is_unusable() => Ok(Err(failure.problems())),
        Err(failure) => Err(ApiError::unavailable(format!("the model did not plan: {failure}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_key_of_the_same_tenant_is_the_same_goal() {
        assert_eq!(goal_id("acme", "k"), goal_id("acme", "k"));
        assert_ne!(goal_id("acme", "k"), goal_id("other", "k"));
        assert_ne!(goal_id("acme", "k"), goal_id("acmek", ""));
        assert!(super::super::goals::is_id(&goal_id("acme", "k")));
    }

    #[test]
    fn a_key_used_for_another_goal_is_a_conflict() {
        let there = Goal { text: "a".into(), ..Goal::default() };
        let section = |text: &str| GoalSection { text: text.into(), ..GoalSection::default() };
        let checked = |text| Checked {
            section: section(text),
            intake: Intake::Plan,
            review: ReviewPolicy::Code,
            plan: None,
        };
        assert!(same_goal(&there, &checked("a")).is_ok_and(|s| s.duplicate));
        let plan = |code: &str| {
            let ticket =
                json!({"id": "t", "description": "d", "tool": "code_interpreter", "args": {"code": code}});
            PlanFile::from_json(json!({"goal": {"text": "a"}, "tickets": [ticket]})).unwrap()
        };
        let planned = Goal { given_plan_ref: plan_ref(&plan("1")), ..there.clone() };
        let with = |code| Checked { plan: Some(plan(code)), ..checked("a") };
        assert!(same_goal(&planned, &with("1")).is_ok_and(|s| s.duplicate));
        assert!(same_goal(&planned, &with("2")).is_err(), "another plan is not run and must not pass as run");
        assert!(same_goal(&planned, &checked("a")).is_err() && same_goal(&there, &with("1")).is_err());
        let error = same_goal(&there, &checked("b")).err().unwrap();
        assert_eq!(
            (error.status(), error.detail().field.as_str()),
            (StatusCode::CONFLICT, "idempotency_key")
        );
    }

    #[test]
    fn the_request_goes_before_the_file() {
        let file = GoalSection { text: "file".into(), deadline_s: Some(5), ..GoalSection::default() };
        let wanted =
            SubmitGoal { constraints: vec!["short".into()], deadline_s: Some(9), ..SubmitGoal::default() };
        let merged = merge(&wanted, Some(&file));
        assert_eq!((merged.text.as_str(), merged.deadline_s), ("file", Some(9)));
        assert_eq!(merged.constraints, ["short"]);
        assert_eq!(merge(&SubmitGoal::default(), None).text, "");
    }

    #[test]
    fn languages_are_told_apart() {
        assert_eq!(language_of("总结这个文件的 API"), "zh");
        assert_eq!(language_of("Summarise this file"), "en");
    }
}
