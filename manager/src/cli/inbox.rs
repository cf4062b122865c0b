//! `muster inbox`: what waits for a person, soonest expiry first.

use super::context::Context;
use super::error::{CliError, Exit};
use super::out::{items, now_ms, number, short, span, text};
use serde_json::Value;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  muster inbox\n  muster inbox --json | jq '.decisions[] | {goal, key, cause}'"
)]
pub(crate) struct Args {}

pub(crate) async fn run(ctx: &Context, _: &Args) -> Result<Exit, CliError> {
    let client = ctx.client().await?;
    let reply = client.get("/v1/inbox").await?;
    let decisions = items(&reply, "decisions");
    if decisions.is_empty() && !ctx.out.json {
        ctx.out.note("nothing waits for a person");
        return Ok(Exit::Done);
    }
    ctx.out.show(&reply, || drawn(decisions, now_ms()))?;
    Ok(Exit::Done)
}

/// How a person names it to `muster answer`.
fn name(decision: &Value) -> String {
    if text(decision, "kind") == shared::store::REVIEWER_DECISION {
        return text(decision, "id").to_owned();
    }
    let goal = short(text(decision, "goal"));
    match text(decision, "key") {
        "" => goal.to_owned(),
        key => format!("{goal}/{key}"),
    }
}

fn drawn(decisions: &[Value], now: u64) -> String {
    let mut drawn = String::new();
    for d in decisions {
        let left = match number(d, "expires_at_ms") {
            0 => "does not expire".to_owned(),
            at if at <= now => "expires now".to_owned(),
            at => format!("expires in {}", span(at - now)),
        };
        drawn.push_str(&format!("{}  {}  {}  {left}\n", name(d), text(d, "kind"), text(d, "cause")));
        for line in text(d, "detail").lines() {
            drawn.push_str(&format!("    {line}\n"));
        }
        for choice in items(d, "choices").iter().filter_map(Value::as_str) {
            drawn.push_str(&format!("  - {choice}\n"));
        }
        let how = match text(d, "kind") {
            "goal" if text(d, "cause") == shared::goal::PLAN_APPROVAL => {
                format!("muster approve {0}   or   muster deny {0} \"…\"", name(d))
            }
            shared::store::REVIEWER_DECISION => {
                format!("muster reviewers show {0}   or   muster reviewers lift {0}", text(d, "id"))
            }
            "goal" => format!("muster answer {} \"…\"", name(d)),
            "awaiting_approval" => {
                format!("muster approve {0} [--args JSON]   or   muster deny {0} [REASON]", name(d))
            }
            _ => format!(
                "muster answer {0} --retry [--note \"…\"] | --skip | --fail   or   muster deliver {0} FILE…",
                name(d)
            ),
        };
        drawn.push_str(&format!("  {how}\n\n"));
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_decision_says_what_why_until_when_and_how() {
        let decisions = [json!({
            "id": "t", "goal": "0193f0a0b1c2d3e4f5060718293a4b5c", "key": "measure", "epoch": 9, "kind": "needs_human",
            "cause": "faults", "detail": "rejected 3 times:\n- rows: 2 of 3", "expires_at_ms": 86_400_000,
            "choices": ["retry: another try, counters reset", "expiry: the ticket fails"],
        })];
        insta::assert_snapshot!(drawn(&decisions, 0), @r#"
        0193f0a0b1c2/measure  needs_human  faults  expires in 1d 0h
            rejected 3 times:
            - rows: 2 of 3
          - retry: another try, counters reset
          - expiry: the ticket fails
          muster answer 0193f0a0b1c2/measure --retry [--note "…"] | --skip | --fail   or   muster deliver 0193f0a0b1c2/measure FILE…
        "#);
    }
}
