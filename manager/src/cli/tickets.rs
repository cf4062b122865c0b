//! `muster tickets`: a goal's tickets in plan order.

use super::board::nickname;
use super::client::segment;
use super::context::Context;
use super::error::{CliError, Exit};
use super::ids;
use super::out::{items, number, one_line, table, text};
use serde_json::Value;
use shared::ticket::Status;
use std::collections::BTreeMap;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  muster tickets last\n  muster tickets 0193f0a0 --status needs_human")]
pub(crate) struct Args {
    /// The goal: first digits of its id, or `last`.
    goal: String,
    /// Only tickets in this status.
    #[arg(long, value_parser = status)]
    status: Option<Status>,
}

fn status(word: &str) -> Result<Status, String> {
    Status::parse(word).ok_or_else(|| format!("one of {}", Status::ALL.map(Status::as_str).join(", ")))
}

pub(crate) async fn run(ctx: &Context, args: &Args) -> Result<Exit, CliError> {
    let client = ctx.client().await?;
    let goal = ids::goal(&client, &args.goal).await?;
    let mut reply = client.get(&format!("/v1/goals/{}/tickets", segment(&goal))).await?;
    // Needs are ids; the keys of all tickets are wanted before some are left out.
    let keys = keys(items(&reply, "tickets"));
    if let (Some(status), Some(tickets)) =
        (args.status, reply.get_mut("tickets").and_then(Value::as_array_mut))
    {
        tickets.retain(|t| text(t, "status") == status.as_str());
    }
    let tickets = items(&reply, "tickets");
    if tickets.is_empty() && !ctx.out.json {
        ctx.out.note("no tickets");
        return Ok(Exit::Done);
    }
    ctx.out.show(&reply, || drawn(tickets, &keys))?;
    Ok(Exit::Done)
}

/// Key of each ticket id.
pub(crate) fn keys(tickets: &[Value]) -> BTreeMap<String, String> {
    tickets.iter().map(|t| (text(t, "task_id").to_owned(), text(t, "key").to_owned())).collect()
}

fn drawn(tickets: &[Value], keys: &BTreeMap<String, String>) -> String {
    let rows: Vec<Vec<String>> = tickets
        .iter()
        .map(|t| {
            let needs: Vec<&str> = items(t, "needs")
                .iter()
                .filter_map(Value::as_str)
                .map(|id| keys.get(id).map_or(id, String::as_str))
                .collect();
            vec![
                text(t, "key").to_owned(),
                text(t, "status").to_owned(),
                nickname(text(t, "assignee")).to_owned(),
                number(t, "attempts").to_string(),
                number(t, "reviews").to_string(),
                number(t, "spent_tokens").to_string(),
                needs.join(","),
                one_line(text(t, "description"), 50),
            ]
        })
        .collect();
    table(&["TICKET", "STATUS", "WHO", "TRIES", "REVIEWS", "TOKENS", "NEEDS", "WHAT"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tickets_are_a_table_with_their_needs_by_key() {
        let tickets = [
            json!({"task_id": "a1", "key": "measure", "status": "done", "assignee": "worker-1", "attempts": 2,
                   "reviews": 2, "spent_tokens": 0, "needs": [], "description": "Measure it"}),
            json!({"task_id": "b2", "key": "report", "status": "running", "assignee": "worker-2", "attempts": 1,
                   "reviews": 0, "spent_tokens": 77, "needs": ["a1", "gone"], "description": "Write it up"}),
        ];
        insta::assert_snapshot!(drawn(&tickets, &keys(&tickets)), @r#"
        TICKET   STATUS   WHO       TRIES  REVIEWS  TOKENS  NEEDS         WHAT
        measure  done     worker-1  2      2        0                     Measure it
        report   running  worker-2  1      0        77      measure,gone  Write it up
        "#);
    }
}
