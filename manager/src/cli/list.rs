//! `muster list`: the goals, newest first.

use super::client::segment;
use super::context::Context;
use super::error::{CliError, Exit};
use super::out::{items, now_ms, number, one_line, short, span, table, text};
use super::standing;
use serde_json::Value;
use shared::goal::GoalState;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  muster list\n  muster list --state needs_human --json | jq -r '.goals[].id'"
)]
pub(crate) struct Args {
    /// Only goals in this state.
    #[arg(long, value_parser = state)]
    state: Option<GoalState>,
    #[arg(long, default_value_t = 20, value_name = "N")]
    limit: usize,
    #[arg(long, default_value_t = 0, value_name = "N")]
    offset: usize,
}

fn state(word: &str) -> Result<GoalState, String> {
    GoalState::parse(word)
        .ok_or_else(|| format!("one of {}", GoalState::ALL.map(GoalState::as_str).join(", ")))
}

pub(crate) async fn run(ctx: &Context, args: &Args) -> Result<Exit, CliError> {
    let client = ctx.client().await?;
    let mut path = format!("/v1/goals?offset={}&limit={}", args.offset, args.limit);
    if let Some(state) = args.state {
        path.push_str(&format!("&state={}", segment(state.as_str())));
    }
    let reply = client.get(&path).await?;
    let goals = items(&reply, "goals");
    if goals.is_empty() && !ctx.out.json {
        ctx.out.note("no goals");
        return Ok(Exit::Done);
    }
    ctx.out.show(&reply, || drawn(goals, now_ms()))?;
    Ok(Exit::Done)
}

fn drawn(goals: &[Value], now: u64) -> String {
    let rows: Vec<Vec<String>> = goals
        .iter()
        .map(|g| {
            let done = g.get("counts").map_or(0, |c| number(c, "done"));
            vec![
                short(text(g, "id")).to_owned(),
                standing::state(g),
                format!("{done}/{}", number(g, "tickets")),
                number(g, "spent_tokens").to_string(),
                span(now.saturating_sub(number(g, "created_at_ms"))),
                one_line(text(g, "text"), 60),
            ]
        })
        .collect();
    table(&["GOAL", "STATE", "DONE", "TOKENS", "AGE", "WHAT"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn goals_are_a_table() {
        let goals = [
            json!({"id": "0193f0a0b1c2d3e4f5060718293a4b5c", "state": "running", "paused": true, "tickets": 5,
                   "counts": {"done": 3}, "spent_tokens": 1234, "created_at_ms": 1_000, "text": "Report on\nthis"}),
            json!({"id": "1193f0a0b1c2d3e4f5060718293a4b5c", "state": "done", "tickets": 1, "counts": {"done": 1},
                   "created_at_ms": 0, "text": "x".repeat(100)}),
        ];
        insta::assert_snapshot!(drawn(&goals, 3_661_000), @r#"
        GOAL          STATE            DONE  TOKENS  AGE    WHAT
        0193f0a0b1c2  running, paused  3/5   1234    1h 1m  Report on this
        1193f0a0b1c2  done             1/1   0       1h 1m  xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…
        "#);
    }
}
