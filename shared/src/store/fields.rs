//! Hash fields and types: how a ticket and a goal are written flat and read back by name (never by position).

use super::{Result, StoreError};
use crate::goal::{Goal, GoalState, Intake, NewGoal};
use crate::ticket::patch::{Edit, NewTicket};
use crate::ticket::{Caps, Counters, NeedsPolicy, ReviewPolicy, Status, Ticket, Tier};
use redis::Value;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, HashMap};

/// Version of the hash's fields. 1 had every field of `spec` as a field of its own; [`Map`] reads both.
const SCHEMA: &str = "2";

/// What a claim answers of a fresh ticket after its first five parts, in this order (claim.lua).
const FRESH: [&str; 18] = [
    "parent_id",
    "description",
    "input_context",
    "expected_output",
    "spec",
    "needs_policy",
    "traceparent",
    "created_at",
    "goal",
    "key",
    "pool",
    "review",
    "priority",
    "mandatory",
    "ready_at",
    "base_root",
    "started_at",
    "updated_at",
];

pub(super) type Flat = Vec<(&'static str, String)>;

fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn flag(b: bool) -> String {
    if b { "1".into() } else { "0".into() }
}

/// The fields that a new ticket's hash begins with; status, epoch, times and trace are the script's.
pub(super) fn of_new_ticket(new: &NewTicket) -> Flat {
    let s = &new.spec;
    // Only what no script looks at: one field costs the server a fraction of ten.
    let rest: BTreeMap<&str, String> = [
        ("role", s.role.clone()),
        ("persona", s.persona.clone()),
        ("tier", s.tier.as_str().into()),
        ("tools", json(&s.tools)),
        ("call", s.call.as_ref().map(json).unwrap_or_default()),
        ("outputs", json(&s.outputs)),
        ("checklist", json(&s.checklist)),
        ("needs", json(&new.need_ids)),
        ("integrates", flag(s.integrates)),
        ("depth", s.depth.to_string()),
    ]
    .into_iter()
    .filter(|(_, value)| !value.is_empty())
    .collect();
    vec![
        ("task_id", new.id.clone()),
        ("parent_id", new.parent_id.clone()),
        ("description", s.description.clone()),
        ("input_context", json(&s.input_context)),
        ("expected_output", s.expected_output.clone()),
        ("spec", json(&rest)),
        ("key", s.key.clone()),
        ("pool", s.pool.clone()),
        ("review", s.review.as_str().into()),
        ("needs_policy", s.needs_policy.as_str().into()),
        ("priority", s.priority.min(2).to_string()),
        ("mandatory", flag(s.mandatory)),
        ("schema", SCHEMA.into()),
    ]
}

/// The fields that an edit replaces.
pub(super) fn of_edit(e: &Edit) -> Flat {
    let mut out: Flat = vec![];
    if let Some(v) = &e.description {
        out.push(("description", v.clone()));
    }
    if let Some(v) = &e.expected_output {
        out.push(("expected_output", v.clone()));
    }
    if let Some(v) = &e.input_context {
        out.push(("input_context", json(v)));
    }
    if let Some(v) = &e.role {
        out.push(("role", v.clone()));
    }
    if let Some(v) = &e.persona {
        out.push(("persona", v.clone()));
    }
    if let Some(v) = e.tier {
        out.push(("tier", v.as_str().into()));
    }
    if let Some(v) = &e.tools {
        out.push(("tools", json(v)));
    }
    if let Some(v) = &e.checklist {
        out.push(("checklist", json(v)));
    }
    if let Some(v) = &e.call {
        out.push(("call", json(v)));
    }
    if let Some(v) = e.needs_policy {
        out.push(("needs_policy", v.as_str().into()));
    }
    out
}

/// As one list `[field, value, …]` for a script that decodes JSON.
pub(super) fn flat_list(fields: Flat) -> Vec<String> {
    fields.into_iter().flat_map(|(f, v)| [f.to_owned(), v]).collect()
}

/// The fields that a goal's hash begins with.
pub(super) fn of_new_goal(g: &NewGoal) -> Flat {
    vec![
        ("goal", g.id.clone()),
        ("tenant", g.tenant.clone()),
        ("text", g.text.clone()),
        ("constraints", json(&g.constraints)),
        ("root", g.root.clone()),
        ("given_plan_ref", g.given_plan_ref.clone()),
        ("intake", g.intake.as_str().into()),
        ("approve_plan", flag(g.approve_plan)),
        ("review", g.review.as_str().into()),
        ("budget_tokens", g.budget_tokens.to_string()),
        ("budget_microusd", g.budget_microusd.to_string()),
        ("deadline_at_ms", g.deadline_at_ms.to_string()),
        ("deadline_policy", json(&g.deadline_policy)),
        ("in_flight_max", g.in_flight_max.to_string()),
        ("caps", json(&g.caps)),
        ("traceparent", g.traceparent.clone()),
        ("language", g.language.clone()),
    ]
}

/// A hash as read.
pub(super) struct Map(HashMap<String, String>);

impl Map {
    pub(super) fn of(value: Value) -> Result<Self> {
        let map: HashMap<String, Vec<u8>> = redis::from_redis_value(value)
            .map_err(|e| StoreError::Broken(format!("a hash does not read: {e}")))?;
        Ok(Self::unfolded(
            map.into_iter().map(|(k, v)| (k, String::from_utf8_lossy(&v).into_owned())).collect(),
        ))
    }

    /// The hash of a fresh ticket as its claim answered it; `more` is what the claimer knows itself.
    pub(super) fn fresh(values: impl Iterator<Item = String>, more: Flat) -> Self {
        let named = FRESH.into_iter().zip(values).map(|(k, v)| (k.to_owned(), v));
        Self::unfolded(named.chain(more.into_iter().map(|(k, v)| (k.to_owned(), v))).collect())
    }

    /// A field of its own (an edit, or an older version) stands above the same one in `spec`.
    fn unfolded(mut map: HashMap<String, String>) -> Self {
        let spec: HashMap<String, String> =
            map.get("spec").and_then(|s| serde_json::from_str(s).ok()).unwrap_or_default();
        for (field, value) in spec {
            map.entry(field).or_insert(value);
        }
        Self(map)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(field, value)| (field.as_str(), value.as_str()))
    }

    pub(super) fn text(&self, field: &str) -> String {
        self.0.get(field).cloned().unwrap_or_default()
    }

    pub(super) fn number<N: std::str::FromStr + Default>(&self, field: &str) -> N {
        self.0.get(field).and_then(|v| v.parse().ok()).unwrap_or_default()
    }

    fn flag(&self, field: &str) -> bool {
        self.0.get(field).is_some_and(|v| v == "1")
    }

    /// JSON, or the default when the field is empty or a newer version wrote something else.
    pub(super) fn json<T: DeserializeOwned + Default>(&self, field: &str) -> T {
        self.0.get(field).and_then(|v| serde_json::from_str(v).ok()).unwrap_or_default()
    }

    fn word<T: DeserializeOwned + Default>(&self, field: &str) -> T {
        self.0
            .get(field)
            .and_then(|v| serde_json::from_value(serde_json::Value::String(v.clone())).ok())
            .unwrap_or_default()
    }
}

pub(super) fn counters(m: &Map) -> Counters {
    Counters {
        faults: m.number("faults"),
        losses: m.number("losses"),
        waits: m.number("waits"),
        releases: m.number("releases"),
        conflicts: m.number("conflicts"),
        asks: m.number("asks"),
        review_faults: m.number("review_faults"),
        review_losses: m.number("review_losses"),
        review_releases: m.number("review_releases"),
        interventions: m.number("interventions"),
    }
}

pub(super) fn ticket(m: &Map) -> Result<Ticket> {
    let word = m.text("status");
    let status = Status::parse(&word)
        .ok_or_else(|| StoreError::Broken(format!("ticket {} has the status {word:?}", m.text("task_id"))))?;
    let call = m.text("call");
    Ok(Ticket {
        task_id: m.text("task_id"),
        parent_id: m.text("parent_id"),
        description: m.text("description"),
        input_context: m.json("input_context"),
        expected_output: m.text("expected_output"),
        status,
        assignee: m.text("assignee"),
        result: m.json("result"),
        review_comment: m.text("review_comment"),
        created_at_ms: m.number("created_at"),
        updated_at_ms: m.number("updated_at"),
        goal: m.text("goal"),
        key: m.text("key"),
        epoch: m.number("epoch"),
        lease_id: m.text("lease_id"),
        role: m.text("role"),
        persona: m.text("persona"),
        tier: m.word::<Tier>("tier"),
        tools: m.json("tools"),
        pool: m.text("pool"),
        call: serde_json::from_str(&call).ok(),
        outputs: m.json("outputs"),
        checklist: m.json("checklist"),
        review: m.word::<ReviewPolicy>("review"),
        needs_policy: m.word::<NeedsPolicy>("needs_policy"),
        needs: m.json("needs"),
        priority: m.number("priority"),
        mandatory: m.flag("mandatory"),
        integrates: m.flag("integrates"),
        depth: m.number("depth"),
        counters: counters(m),
        attempts: m.number("attempts"),
        reviews: m.number("reviews"),
        revision: m.number("revision"),
        generation: m.number("generation"),
        started_at_ms: m.number("started_at"),
        ready_at_ms: m.number("ready_at"),
        base_root: m.text("base_root"),
        overlay_ref: m.text("overlay_ref"),
        work_actor: m.text("work_actor"),
        work_by: m.text("work_by"),
        failure: m.text("failure"),
        note: m.text("note"),
        verdict: m.json("verdict"),
        cause: m.text("cause"),
        cause_detail: m.text("cause_detail"),
        due_at_ms: m.number("due_at"),
        permit: permit(m),
        cancel_asked: m.flag("cancel_asked"),
        traceparent: m.text("traceparent"),
        spent_tokens: m.number("spent_tokens"),
        spent_microusd: m.number("spent_microusd"),
    })
}

/// The stored call with what was answered to it.
fn permit(m: &Map) -> serde_json::Value {
    let mut permit: serde_json::Value = m.json("permit");
    if let Some(o) = permit.as_object_mut() {
        o.insert("state".into(), m.text("permit_state").into());
        o.insert("note".into(), m.text("permit_note").into());
        if let Ok(edited) = serde_json::from_str::<serde_json::Value>(&m.text("permit_args")) {
            // The stored call stays byte for byte; what runs is the edited one, under a digest of its own.
            let asked = o.insert("digest".into(), m.text("permit_digest").into());
            o.insert("asked_digest".into(), asked.unwrap_or_default());
            o.insert("args".into(), edited);
        }
    }
    permit
}

/// Conclusions and notes stand in lists of their own and are added by the caller.
pub(super) fn goal(m: &Map) -> Result<Goal> {
    let word = m.text("state");
    let state = GoalState::parse(&word)
        .ok_or_else(|| StoreError::Broken(format!("goal {} has the state {word:?}", m.text("goal"))))?;
    let counts = Status::ALL
        .into_iter()
        .map(|s| (s.as_str().to_owned(), m.number::<u64>(&format!("n:{}", s.as_str()))))
        .filter(|(_, n)| *n > 0)
        .collect();
    Ok(Goal {
        id: m.text("goal"),
        tenant: m.text("tenant"),
        text: m.text("text"),
        constraints: m.json("constraints"),
        state,
        paused: m.flag("paused"),
        created_at_ms: m.number("created_at"),
        updated_at_ms: m.number("updated_at"),
        epoch: m.number("epoch"),
        lease_id: m.text("lease_id"),
        sealed: m.flag("sealed"),
        plan_version: m.number("plan_version"),
        plan_ref: m.text("plan_ref"),
        given_plan_ref: m.text("given_plan_ref"),
        intake: m.word::<Intake>("intake"),
        approve_plan: m.flag("approve_plan"),
        root: m.text("root"),
        review: m.word::<ReviewPolicy>("review"),
        language: m.text("language"),
        budget_tokens: m.number("budget_tokens"),
        budget_microusd: m.number("budget_microusd"),
        spent_tokens: m.number("spent_tokens"),
        reserved_tokens: m.number("reserved_tokens"),
        spent_microusd: m.number("spent_microusd"),
        reserved_microusd: m.number("reserved_microusd"),
        deadline_at_ms: m.number("deadline_at_ms"),
        deadline_policy: m.json("deadline_policy"),
        in_flight: m.number("in_flight"),
        in_flight_max: m.number("in_flight_max"),
        losses: m.number("losses"),
        stalls: m.number("stalls"),
        replans: m.number("replans"),
        counts,
        tickets: m.number("tickets"),
        open_mandatory: m.number("open_mandatory"),
        conclusions: vec![],
        cause: m.text("cause"),
        cause_detail: m.text("cause_detail"),
        due_at_ms: m.number("due_at"),
        traceparent: m.text("traceparent"),
        notes: vec![],
        caps: m.json::<Caps>("caps"),
    })
}
