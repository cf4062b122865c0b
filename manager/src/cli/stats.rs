//! `muster stats`: how much waits, runs and is served, lane by lane.

use super::context::Context;
use super::error::{CliError, Exit};
use super::out::{dollars, items, number, size, span, table, text};
use serde_json::Value;
use std::collections::BTreeSet;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  muster stats\n  muster stats --json | jq .gauges.demand")]
pub(crate) struct Args {}

pub(crate) async fn run(ctx: &Context, _: &Args) -> Result<Exit, CliError> {
    let reply = ctx.client().await?.get("/v1/stats").await?;
    ctx.out.show(&reply, || drawn(&reply))?;
    Ok(Exit::Done)
}

fn drawn(stats: &Value) -> String {
    let empty = Value::Null;
    let gauges = stats.get("gauges").unwrap_or(&empty);
    let map = |name: &str| gauges.get(name).and_then(Value::as_object).cloned().unwrap_or_default();
    let (demand, consumers) = (map("demand"), map("consumers"));
    let lanes: BTreeSet<&String> = demand.keys().chain(consumers.keys()).collect();
    let count =
        |of: &serde_json::Map<String, Value>, lane: &str| of.get(lane).and_then(Value::as_u64).unwrap_or(0);
    let rows: Vec<Vec<String>> = lanes
        .iter()
        .map(|lane| {
            let (waiting, serving) = (count(&demand, lane), count(&consumers, lane));
            let note = if waiting > 0 && serving == 0 { "nobody serves it" } else { "" };
            vec![(*lane).clone(), waiting.to_string(), serving.to_string(), note.to_owned()]
        })
        .collect();
    let mut drawn = table(&["LANE", "READY+LEASED", "CONSUMERS", ""], &rows);
    drawn.push_str(&format!(
        "\ngoals live {}   leased {}   delayed {}   for people {}   dead letters {}   redis {}\n",
        number(gauges, "goals_live"),
        number(gauges, "leased"),
        number(gauges, "delayed"),
        number(gauges, "people"),
        number(gauges, "dead_letters"),
        size(number(gauges, "used_memory_bytes")),
    ));
    drawn.push_str(&models(stats));
    let overdue = number(gauges, "oldest_lease_overdue_ms");
    if overdue > 0 {
        drawn.push_str(&format!("the oldest lease is overdue by {}\n", span(overdue)));
    }
    if !text(stats, "version").is_empty() {
        let model = if stats.get("model").and_then(Value::as_bool) == Some(true) {
            "with a model"
        } else {
            "no model"
        };
        drawn.push_str(&format!("manager {} ({model})\n", text(stats, "version")));
    }
    drawn
}

/// How much of the work passed its first review: `7 of 9 (77 %)`; nothing where none was reviewed.
fn first_pass(used: &Value) -> String {
    let (judged, passed) = (number(used, "judged"), number(used, "first_pass"));
    match (passed * 100).checked_div(judged) {
        None => String::new(),
        Some(share) => format!("{passed} of {judged} ({share} %)"),
    }
}

/// Calls by role, tier and model, and how the endpoints stand; nothing where no model was called yet.
fn models(stats: &Value) -> String {
    let mut drawn = String::new();
    let used: Vec<Vec<String>> = items(stats, "usage")
        .iter()
        .map(|u| {
            let count = |name: &str| number(u, name).to_string();
            vec![
                text(u, "role").to_owned(),
                text(u, "tier").to_owned(),
                text(u, "model").to_owned(),
                count("calls"),
                count("failed"),
                format!("{} ({} cached)", number(u, "input_tokens"), number(u, "cached_tokens")),
                count("output_tokens"),
                dollars(number(u, "microusd")),
                first_pass(u),
            ]
        })
        .collect();
    if !used.is_empty() {
        drawn.push('\n');
        drawn.push_str(&table(
            &["ROLE", "TIER", "MODEL", "CALLS", "FAILED", "INPUT", "OUTPUT", "COST", "1ST PASS"],
            &used,
        ));
    }
    for e in items(stats, "endpoints") {
        let waiting: u64 =
            ["managers_waiting", "reviewers_waiting", "workers_waiting"].iter().map(|f| number(e, f)).sum();
        drawn.push_str(&format!(
            "{}: {} in flight, {waiting} waiting",
            text(e, "name"),
            number(e, "in_flight")
        ));
        if number(e, "held") > 0 {
            drawn.push_str(&format!(", {} held back by limits of their tenants", number(e, "held")));
        }
        let rate = e.get("rate").and_then(Value::as_f64).unwrap_or(0.0);
        if rate > 0.0 {
            drawn.push_str(&format!(", pace {rate:.2} a second"));
        }
        for (field, word) in [("cool_down_ms", "cools down for"), ("closed_for_ms", "not called for")] {
            if number(e, field) > 0 {
                drawn.push_str(&format!(", {word} {}", span(number(e, field))));
            }
        }
        drawn.push('\n');
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_unserved_lane_is_called_by_its_name() {
        let stats = json!({"version": "0.1.0", "model": false, "gauges": {
            "demand": {"work.default": 2, "work.gpu": 3}, "consumers": {"work.default": 2, "review": 1},
            "leased": 2, "delayed": 0, "people": 1, "dead_letters": 0, "goals_live": 1,
            "oldest_lease_overdue_ms": 2_000, "used_memory_bytes": 3_500_000}});
        insta::assert_snapshot!(drawn(&stats), @r#"
        LANE          READY+LEASED  CONSUMERS
        review        0             1
        work.default  2             2
        work.gpu      3             0          nobody serves it

        goals live 1   leased 2   delayed 0   for people 1   dead letters 0   redis 3.3 MiB
        the oldest lease is overdue by 2s
        manager 0.1.0 (no model)
        "#);
    }
}
