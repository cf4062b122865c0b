//! `muster plan`: shows the plan that would run and what it would take, and runs nothing.

use super::context::Context;
use super::error::{CliError, Exit};
use super::out::{dollars, items, number, one_line, span, table, text};
use super::{config, intake};
use serde_json::Value;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  muster plan --dry-run \"Compare the three offers\" --input offers/\n  \
    muster plan plan.toml --json | jq .problems")]
pub(crate) struct Args {
    #[command(flatten)]
    goal: intake::Goal,
    /// Run nothing. Planning never does; the flag says so aloud.
    #[arg(long)]
    dry_run: bool,
}

pub(crate) async fn run(ctx: &Context, args: &Args) -> Result<Exit, CliError> {
    let _ = args.dry_run;
    let ready = intake::ready(&args.goal, &config::load(ctx)?)?;
    let client = ctx.client().await?;
    if ready.asks_model.is_some() && !ctx.out.json {
        ctx.out.note("planning…");
    }
    let body = ready.send(&client).await?;
    let reply = client.post_slow("/v1/plans", &body).await?;
    ctx.out.show(&reply, || drawn(&reply))?;
    let problems = items(&reply, "problems");
    for problem in problems {
        ctx.out.note(&format!("problem: {}", problem.as_str().unwrap_or_default()));
    }
    Ok(if problems.is_empty() { Exit::Done } else { Exit::Failed })
}

fn drawn(reply: &Value) -> String {
    let tickets = reply.get("plan").map_or(&[][..], |plan| items(plan, "tickets"));
    let rows: Vec<Vec<String>> = tickets
        .iter()
        .map(|t| {
            let needs: Vec<&str> = items(t, "needs").iter().filter_map(Value::as_str).collect();
            let by = match t.get("call").and_then(|c| c.get("tool")).and_then(Value::as_str) {
                Some(tool) => format!("tool {tool}"),
                None => text(t, "role").to_owned(),
            };
            vec![
                text(t, "key").to_owned(),
                by,
                text(t, "review").to_owned(),
                needs.join(","),
                one_line(text(t, "description"), 60),
            ]
        })
        .collect();
    let mut drawn = table(&["TICKET", "BY", "REVIEW", "NEEDS", "WHAT"], &rows);
    if let Some(e) = reply.get("estimate") {
        drawn.push_str(&format!(
            "\n{} tickets, {} without a model; {} at once, {} in a row; about {} model calls, {} tokens, ${}, {}\n",
            number(e, "tickets"),
            number(e, "direct"),
            number(e, "width"),
            number(e, "critical_path"),
            number(e, "model_calls"),
            number(e, "input_tokens") + number(e, "output_tokens"),
            dollars(number(e, "microusd")),
            span(number(e, "seconds") * 1_000),
        ));
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_plan_is_a_table_and_an_estimate() {
        let reply = json!({
            "plan": {"tickets": [
                {"key": "measure", "needs": [], "review": "code", "description": "Measure\nit",
                 "call": {"tool": "code_interpreter", "args": {}}},
                {"key": "report", "needs": ["measure"], "review": "judged", "description": "Write it", "role": "writer"},
            ]},
            "problems": [],
            "estimate": {"tickets": 2, "direct": 1, "width": 1, "critical_path": 2, "model_calls": 3,
                         "input_tokens": 900, "output_tokens": 100, "microusd": 1500, "seconds": 75},
        });
        insta::assert_snapshot!(drawn(&reply), @r#"
        TICKET   BY                     REVIEW  NEEDS    WHAT
        measure  tool code_interpreter  code             Measure it
        report   writer                 judged  measure  Write it

        2 tickets, 1 without a model; 1 at once, 2 in a row; about 3 model calls, 1000 tokens, $0.0015, 1m 15s
        "#);
    }
}
