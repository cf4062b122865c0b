//! What a model's plan looks like, and its reading into tickets. Tolerant in form (empty or null fields of
//! other kinds of checks), strict in meaning: what cannot be read is a problem that goes back to the model.

use serde_json::{Map, Value, json};
use shared::ticket::{Check, ReviewPolicy, TicketSpec, Tier};
use std::collections::BTreeSet;

/// Item that every judged plan's last ticket is held against (I9).
pub(crate) const ORIGINAL_GOAL: &str =
    "The deliverable answers the original goal and keeps every one of its constraints.";

/// Schema of one ticket in a model's reply.
pub(crate) fn ticket_schema(roles: &[String], bundles: &[String]) -> Value {
    json!({
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "short word, letters, digits, - and _"},
            "needs": {"type": "array", "items": {"type": "string"}, "description": "ids of tickets whose outputs it needs"},
            "description": {"type": "string"},
            "expected_output": {"type": "string"},
            "role": {"type": "string", "enum": roles},
            "persona": {"type": "string", "description": "only where no role fits: who does it instead, and how"},
            "tools": {"type": "array", "items": {"type": "string", "enum": bundles}},
            "outputs": {"type": "array", "items": {"type": "string"}, "description": "paths such as outputs/report.md"},
            "checks": {"type": "array", "items": check_schema()},
        },
        "required": ["id", "needs", "description", "expected_output", "role", "outputs", "checks"],
    })
}

fn check_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "kind": {"type": "string", "enum": Check::KINDS},
            "path": {"type": "string"},
            "pattern": {"type": "string"},
            "min": {"type": "integer"},
            "columns": {"type": "array", "items": {"type": "string"}},
            "schema": {"type": "object", "description": "for kind json_schema: the JSON Schema of the file"},
            "command": {"type": "string"},
            "text": {"type": "string", "description": "for kind judged: what must hold"},
        },
        "required": ["kind"],
    })
}

/// Schema of a whole plan.
pub(crate) fn plan_schema(roles: &[String], bundles: &[String]) -> Value {
    json!({
        "type": "object",
        "properties": {
            "tickets": {"type": "array", "minItems": 1, "items": ticket_schema(roles, bundles)},
            "next": {"type": "array", "items": {"type": "string"}, "description": "ids of the tickets that can start now"},
        },
        "required": ["tickets"],
    })
}

/// Reads the tickets of a reply; every ticket that cannot be read is a problem by its place and field.
///
/// # Errors
/// The problems, worded for the model.
pub(crate) fn read(reply: &Value, review: ReviewPolicy) -> Result<Vec<TicketSpec>, Vec<String>> {
    let Some(items) = reply.get("tickets").and_then(Value::as_array) else {
        return Err(vec!["tickets: there is no list of tickets".into()]);
    };
    let mut specs = vec![];
    let mut problems = vec![];
    for (i, item) in items.iter().enumerate() {
        match item.as_object() {
            Some(fields) => specs.push(ticket(i, fields, review, &mut problems)),
            None => problems.push(format!("tickets[{i}] is not an object")),
        }
    }
    if problems.is_empty() { Ok(specs) } else { Err(problems) }
}

fn ticket(
    i: usize,
    fields: &Map<String, Value>,
    review: ReviewPolicy,
    problems: &mut Vec<String>,
) -> TicketSpec {
    let word = |names: &[&str]| {
        names
            .iter()
            .find_map(|n| fields.get(*n).and_then(Value::as_str))
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let key = word(&["id", "key"]);
    let at = if key.is_empty() { format!("tickets[{i}]") } else { format!("ticket {key}") };
    let mut spec = TicketSpec::new(&key, &word(&["description"]), &word(&["expected_output"]));
    spec.needs = words(fields, "needs");
    let mut seen = BTreeSet::new();
    spec.needs.retain(|need| seen.insert(need.clone()));
    spec.role = word(&["role"]);
    spec.persona = word(&["persona"]);
    spec.tools = words(fields, "tools");
    spec.outputs = words(fields, "outputs");
    spec.tier = match word(&["tier"]).as_str() {
        "cheap" => Tier::Cheap,
        "strong" => Tier::Strong,
        _ => Tier::Standard,
    };
    if let Some(context) = fields.get("input_context").filter(|v| !v.is_null()) {
        spec.input_context = context.clone();
    }
    spec.review = review;
    let items = ["checks", "checklist"].iter().find_map(|n| fields.get(*n)).and_then(Value::as_array);
    for (n, item) in items.into_iter().flatten().enumerate() {
        match check(item) {
            // A policy that asks no model, or nobody, has no use for the item.
            Ok(check)
                if review == ReviewPolicy::None || (review == ReviewPolicy::Code && !check.is_code()) => {}
            Ok(check) => spec.checklist.push(check),
            Err(problem) => problems.push(format!("{at}, checks[{n}]: {problem}")),
        }
    }
    spec
}

fn words(fields: &Map<String, Value>, name: &str) -> Vec<String> {
    let items = fields.get(name).and_then(Value::as_array);
    items
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(|w| w.trim().to_owned())
        .filter(|w| !w.is_empty())
        .collect()
}

/// A check out of the flat object that the schema asks for: only what belongs to its kind is looked at.
///
/// # Errors
/// What is missing or unknown.
pub(crate) fn check(item: &Value) -> Result<Check, String> {
    if let Some(text) = item.as_str() {
        return Ok(Check::Judged { text: text.to_owned() });
    }
    let kind = item.get("kind").and_then(Value::as_str).unwrap_or_default();
    let fields: &[&str] = match kind {
        "file_exists" => &["path"],
        "min_bytes" => &["path", "min"],
        "regex" | "not_regex" => &["path", "pattern"],
        "json_schema" => &["path", "schema"],
        "csv_rows" => &["path", "min", "columns"],
        "min_count" => &["path", "pattern", "min"],
        "command" => &["command"],
        "judged" => &["text"],
        other => {
            return Err(format!(
                "there is no kind of check `{other}`; there are {}",
                Check::KINDS.join(", ")
            ));
        }
    };
    let mut kept = Map::new();
    kept.insert("kind".into(), kind.into());
    for name in fields {
        let value = item.get(*name).filter(|v| !v.is_null() && v.as_str() != Some(""));
        // Some models name the threshold by a word of their own.
        let value = value.or_else(|| if *name == "min" { item.get("count") } else { None });
        if let Some(value) = value {
            kept.insert((*name).into(), value.clone());
        }
    }
    serde_json::from_value(Value::Object(kept)).map_err(|e| format!("a check of kind {kind}: {e}"))
}

/// Makes the plan's last ticket integrate: the marked one, the only sink, or one that is added. It then waits
/// for every mandatory ticket and is judged against the original goal (I9).
pub(crate) fn integrate(specs: &mut Vec<TicketSpec>, review: ReviewPolicy, role: &str) {
    if !specs.iter().any(|s| s.integrates) {
        let sinks = shared::ticket::graph::Graph::of(specs).sinks();
        match sinks.as_slice() {
            // A cycle: the validator names it.
            [] => return,
            [only] => specs[*only].integrates = true,
            _ => {
                let needs = sinks.iter().map(|&i| specs[i].key.clone()).collect();
                specs.push(last_ticket(specs, needs, review, role));
            }
        }
    }
    shared::ticket::graph::link_integrating(specs);
    if let Some(last) = specs.iter_mut().find(|s| s.integrates)
        && review == ReviewPolicy::Judged
        && !last.checklist.iter().any(|c| matches!(c, Check::Judged { text } if text == ORIGINAL_GOAL))
    {
        last.checklist.push(Check::Judged { text: ORIGINAL_GOAL.into() });
    }
}

fn last_ticket(specs: &[TicketSpec], needs: Vec<String>, review: ReviewPolicy, role: &str) -> TicketSpec {
    const OUTPUT: &str = "outputs/result.md";
    let taken = |key: &str| specs.iter().any(|s| s.key == key);
    let key =
        ["deliver", "deliver-goal", "deliver-all"].into_iter().find(|k| !taken(k)).unwrap_or("deliver-last");
    let mut spec = TicketSpec::new(
        key,
        "Put the goal's deliverable together from what the tickets before this one delivered. Read their files, \
         answer the original goal as a whole, keep every constraint, and point to the files that belong to it.",
        "One document that answers the original goal, with the paths of all files that belong to the deliverable.",
    );
    spec.needs = needs;
    spec.role = role.into();
    spec.outputs = vec![OUTPUT.into()];
    spec.integrates = true;
    spec.review = review;
    if review != ReviewPolicy::None {
        spec.checklist = vec![Check::FileExists { path: OUTPUT.into() }];
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(tickets: &Value) -> Value {
        json!({"tickets": tickets})
    }

    #[test]
    fn checks_keep_only_what_belongs_to_their_kind() {
        let flat = json!({"kind": "csv_rows", "path": "data/a.csv", "min": 3, "pattern": "", "text": null, "columns": ["a"]});
        assert_eq!(
            check(&flat),
            Ok(Check::CsvRows { path: "data/a.csv".into(), min: 3, columns: vec!["a".into()] })
        );
        assert!(check(&json!({"kind": "regex", "path": "a"})).is_err_and(|e| e.contains("pattern")));
        assert!(check(&json!({"kind": "vibes"})).is_err_and(|e| e.contains("vibes") && e.contains("judged")));
    }

    #[test]
    fn what_cannot_be_read_is_named_by_ticket_and_field() {
        let wrong = reply(&json!([{"id": "a", "checks": [{"kind": "command"}]}, 7]));
        let problems = read(&wrong, ReviewPolicy::Judged).unwrap_err();
        assert_eq!(problems.len(), 2);
        assert!(problems[0].starts_with("ticket a, checks[0]"), "{problems:?}");
        assert!(problems[1].starts_with("tickets[1]"), "{problems:?}");
        assert!(read(&json!({"plan": []}), ReviewPolicy::Judged).is_err());
    }

    #[test]
    fn a_need_named_twice_counts_once_wherever_it_stands() {
        let plan = reply(&json!([{"id": "a", "needs": ["x", "y", "x"]}]));
        assert_eq!(read(&plan, ReviewPolicy::Code).unwrap()[0].needs, ["x", "y"]);
    }

    #[test]
    fn every_field_that_a_check_is_read_from_stands_in_the_schema() {
        let schema = check_schema();
        for field in ["path", "pattern", "min", "columns", "schema", "command", "text"] {
            assert!(schema["properties"].get(field).is_some(), "{field}");
        }
    }

    #[test]
    fn the_goals_policy_drops_checks_that_nobody_would_run() {
        let plan = reply(
            &json!([{"id": "a", "checks": [{"kind": "judged", "text": "good"}, {"kind": "file_exists", "path": "x"}]}]),
        );
        let checks = |policy| read(&plan, policy).unwrap()[0].checklist.len();
        assert_eq!(
            (checks(ReviewPolicy::None), checks(ReviewPolicy::Code), checks(ReviewPolicy::Judged)),
            (0, 1, 2)
        );
    }

    #[test]
    fn several_sinks_get_a_last_ticket_that_waits_for_all() {
        let plan = reply(&json!([{"id": "a"}, {"id": "b"}, {"id": "c", "needs": ["a"]}]));
        let mut specs = read(&plan, ReviewPolicy::Judged).unwrap();
        integrate(&mut specs, ReviewPolicy::Judged, "summarizer");
        let last = specs.last().unwrap();
        assert!(last.integrates);
        assert_eq!(last.needs, ["b", "c"]);
        assert!(last.checklist.contains(&Check::Judged { text: ORIGINAL_GOAL.into() }));
    }

    #[test]
    fn the_only_sink_integrates_and_a_marked_one_is_linked_again() {
        let mut specs =
            read(&reply(&json!([{"id": "a"}, {"id": "b", "needs": ["a"]}])), ReviewPolicy::Judged).unwrap();
        integrate(&mut specs, ReviewPolicy::Judged, "x");
        assert_eq!((specs.len(), specs[1].integrates, specs[0].integrates), (2, true, false));

        let mut specs =
            read(&reply(&json!([{"id": "a"}, {"id": "b"}, {"id": "c"}])), ReviewPolicy::None).unwrap();
        specs[2].integrates = true;
        integrate(&mut specs, ReviewPolicy::None, "x");
        assert_eq!(specs[2].needs, ["a", "b"]);
        assert!(specs[2].checklist.is_empty());
    }
}
