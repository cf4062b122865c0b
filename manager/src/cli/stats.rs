//! `muster stats`: how much waits, runs and is served, lane by lane.

use super::context::Context;
use super::error::{CliError, Exit};
use super::out::{number, size, span, table, text};
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
