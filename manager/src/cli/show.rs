//! `muster show`: one goal or one ticket, everything that a person asks about it.

use super::client::segment;
use super::context::Context;
use super::error::{CliError, Exit};
use super::ids::{self, Target};
use super::out::{dollars, items, now_ms, number, span, text};
use super::standing;
use serde_json::Value;
use shared::ticket::Check;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  muster show last\n  muster show last --call 0193f0a0c1\n  muster show 0193f0a0/report --json | jq .result"
)]
pub(crate) struct Args {
    /// A goal (first digits of its id, or `last`) or a ticket (GOAL/KEY, or first digits of its id).
    what: String,
    /// One model call of the goal, by the first digits of its id: the record, the prompt, the answer.
    #[arg(long, value_name = "ID")]
    call: Option<String>,
}

pub(crate) async fn run(ctx: &Context, args: &Args) -> Result<Exit, CliError> {
    let client = ctx.client().await?;
    if let Some(call) = &args.call {
        let goal = match ids::any(&client, &args.what).await? {
            Target::Goal(goal) => goal,
            Target::Ticket(ticket) => text(&ticket, "goal").to_owned(),
        };
        let shown = client.get(&format!("/v1/goals/{}/calls/{}", segment(&goal), segment(call))).await?;
        ctx.out.show(&shown, || format!("{shown:#}\n"))?;
        return Ok(Exit::Done);
    }
    match ids::any(&client, &args.what).await? {
        Target::Goal(id) => {
            let goal = client.get(&format!("/v1/goals/{}", segment(&id))).await?;
            ctx.out.show(&goal, || of_goal(&goal, now_ms()))?;
        }
        Target::Ticket(ticket) => ctx.out.show(&ticket, || of_ticket(&ticket, now_ms()))?,
    }
    Ok(Exit::Done)
}

/// Lines of `name  value`, empty values left out.
#[derive(Default)]
struct Facts(String);

impl Facts {
    fn add(&mut self, name: &str, value: impl AsRef<str>) {
        let value = value.as_ref().trim();
        if value.is_empty() {
            return;
        }
        let indented = value.replace('\n', &format!("\n{:16}", ""));
        self.0.push_str(&format!("{name:<16}{indented}\n"));
    }

    fn list(&mut self, name: &str, values: impl IntoIterator<Item = String>) {
        let text: Vec<String> = values.into_iter().collect();
        self.add(name, text.join("\n"));
    }
}

fn strings(value: &Value, key: &str) -> Vec<String> {
    items_of(value, key).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn items_of<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn due(value: &Value, now: u64) -> String {
    match number(value, "due_at_ms") {
        0 => String::new(),
        at => standing::until(at, now, "now"),
    }
}

fn spent(value: &Value) -> String {
    let tokens = number(value, "spent_tokens");
    let budget = match number(value, "budget_tokens") {
        0 => String::new(),
        budget => format!(" of {budget}"),
    };
    let money = match number(value, "budget_microusd") {
        0 => String::new(),
        budget => format!(" of ${}", dollars(budget)),
    };
    format!("{tokens}{budget} tokens, ${}{money}", dollars(number(value, "spent_microusd")))
}

fn of_goal(goal: &Value, now: u64) -> String {
    let mut facts = Facts::default();
    facts.add("goal", text(goal, "id"));
    facts.add("state", standing::state(goal));
    facts.add("cause", text(goal, "cause"));
    facts.add("detail", text(goal, "cause_detail"));
    facts.add("decide", due(goal, now));
    facts.add("tenant", text(goal, "tenant"));
    facts.add("what", text(goal, "text"));
    facts.list("constraints", strings(goal, "constraints"));
    let counts = goal.get("counts").and_then(Value::as_object).map_or(String::new(), |counts| {
        let parts: Vec<String> = counts
            .iter()
            .filter(|(_, n)| n.as_u64() != Some(0))
            .map(|(status, n)| format!("{n} {status}"))
            .collect();
        format!(" ({})", parts.join(", "))
    });
    facts.add("tickets", format!("{}{counts}", number(goal, "tickets")));
    facts.add("plan", format!("version {}", number(goal, "plan_version")));
    facts.add("spent", spent(goal));
    facts.add("age", span(now.saturating_sub(number(goal, "created_at_ms"))));
    if number(goal, "deadline_at_ms") > 0 {
        facts.add("deadline", standing::until(number(goal, "deadline_at_ms"), now, "passed"));
    }
    facts.list("conclusions", strings(goal, "conclusions"));
    facts.list("notes", strings(goal, "notes"));
    facts.0
}

fn of_ticket(ticket: &Value, now: u64) -> String {
    let mut facts = Facts::default();
    facts.add("ticket", format!("{}  {}", text(ticket, "key"), text(ticket, "task_id")));
    facts.add("goal", text(ticket, "goal"));
    facts.add("status", text(ticket, "status"));
    facts.add("cause", text(ticket, "cause"));
    facts.add("detail", text(ticket, "cause_detail"));
    facts.add("due", due(ticket, now));
    facts.add("who", text(ticket, "assignee"));
    facts.add("what", text(ticket, "description"));
    facts.add("expected", text(ticket, "expected_output"));
    facts.list("outputs", strings(ticket, "outputs"));
    let call = ticket.get("call").and_then(|c| c.get("tool")).and_then(Value::as_str);
    facts.add("by", call.map_or_else(|| text(ticket, "role").to_owned(), |tool| format!("tool {tool}")));
    facts.add("review", text(ticket, "review"));
    let told = ticket.get("result").and_then(|r| r.get("prompt_hash")).and_then(Value::as_str);
    facts.add("prompt", told.unwrap_or_default());
    let checks = items_of(ticket, "checklist");
    facts.list(
        "checks",
        checks.iter().map(|c| {
            serde_json::from_value::<Check>(c.clone())
                .map_or_else(|_| c.to_string(), |check| check.describe())
        }),
    );
    facts.add(
        "tries",
        format!(
            "{} attempts, {} reviews, epoch {}",
            number(ticket, "attempts"),
            number(ticket, "reviews"),
            number(ticket, "epoch")
        ),
    );
    let counters = ticket.get("counters").and_then(Value::as_object).map_or(String::new(), |counters| {
        let parts: Vec<String> = counters
            .iter()
            .filter(|(_, n)| n.as_u64().is_some_and(|n| n > 0))
            .map(|(name, n)| format!("{n} {name}"))
            .collect();
        parts.join(", ")
    });
    facts.add("counted", counters);
    facts.add("comment", text(ticket, "review_comment"));
    if let Some(result) = ticket.get("result").filter(|r| r.is_object()) {
        facts.add("summary", text(result, "summary"));
        facts.list("conclusions", strings(result, "conclusions"));
        let verdict = result.get("verdict").unwrap_or(&Value::Null);
        facts.list(
            "verdict",
            items(verdict, "items").iter().map(|i| {
                let mark = if i.get("pass").and_then(Value::as_bool) == Some(true) { "pass" } else { "FAIL" };
                format!("{mark}  {}  {}", text(i, "item"), text(i, "reason"))
            }),
        );
    }
    facts.add("spent", spent(ticket));
    facts.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_goal_is_shown_with_its_cause() {
        let goal = json!({
            "id": "0193f0a0b1c2d3e4f5060718293a4b5c", "state": "needs_human", "paused": false, "text": "Line one\nline two",
            "constraints": ["short", "plain"], "cause": "no_plan", "cause_detail": "the model is down",
            "due_at_ms": 90_000, "tickets": 3, "counts": {"done": 1, "running": 2, "failed": 0}, "plan_version": 4,
            "spent_tokens": 12, "spent_microusd": 0, "budget_tokens": 100, "created_at_ms": 10_000, "tenant": "",
        });
        insta::assert_snapshot!(of_goal(&goal, 70_000), @r#"
        goal            0193f0a0b1c2d3e4f5060718293a4b5c
        state           needs_human
        cause           no_plan
        detail          the model is down
        decide          in 20s
        what            Line one
                        line two
        constraints     short
                        plain
        tickets         3 (1 done, 2 running)
        plan            version 4
        spent           12 of 100 tokens, $0.0000
        age             1m 0s
        "#);
    }

    #[test]
    fn a_ticket_is_shown_with_its_checks_and_comment() {
        let ticket = json!({
            "task_id": "aa93f0a0b1c2d3e4f5060718293a4b5c", "goal": "0193f0a0b1c2d3e4f5060718293a4b5c", "key": "measure",
            "status": "rejected", "description": "Measure", "expected_output": "data/m.csv", "outputs": ["data/m.csv"],
            "call": {"tool": "code_interpreter", "args": {}}, "review": "code",
            "checklist": [{"kind": "csv_rows", "path": "data/m.csv", "min": 3}], "attempts": 1, "reviews": 1, "epoch": 4,
            "counters": {"faults": 1, "losses": 0}, "review_comment": "- rows: 2 of 3",
            "result": {"summary": "measured", "conclusions": []}, "spent_tokens": 0, "spent_microusd": 0,
        });
        insta::assert_snapshot!(of_ticket(&ticket, 0), @r#"
        ticket          measure  aa93f0a0b1c2d3e4f5060718293a4b5c
        goal            0193f0a0b1c2d3e4f5060718293a4b5c
        status          rejected
        what            Measure
        expected        data/m.csv
        outputs         data/m.csv
        by              tool code_interpreter
        review          code
        checks          data/m.csv is CSV with at least 3 rows
        tries           1 attempts, 1 reviews, epoch 4
        counted         1 faults
        comment         - rows: 2 of 3
        summary         measured
        spent           0 tokens, $0.0000
        "#);
    }
}
