//! `muster export`: a goal with its tickets, events and list of files as one JSON document.

use super::client::segment;
use super::context::Context;
use super::error::{CliError, Exit};
use super::ids;
use super::out::{items, text};
use serde_json::{Value, json};

/// Events asked for at once.
const PAGE: usize = 1_000;

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  muster export last > goal.json")]
pub(crate) struct Args {
    /// The goal: first digits of its id, or `last`.
    goal: String,
}

pub(crate) async fn run(ctx: &Context, args: &Args) -> Result<Exit, CliError> {
    let client = ctx.client().await?;
    let id = ids::goal(&client, &args.goal).await?;
    let goal = client.get(&format!("/v1/goals/{}", segment(&id))).await?;
    let tickets = client.get(&format!("/v1/goals/{}/tickets", segment(&id))).await?;
    let files = client.get(&format!("/v1/goals/{}/files", segment(&id))).await?;
    let mut events: Vec<Value> = Vec::new();
    loop {
        let after = events.last().map_or("0", |e| text(e, "id")).to_owned();
        let path = format!("/v1/goals/{}/events?after={}&limit={PAGE}", segment(&id), segment(&after));
        let page = client.get(&path).await?;
        let some = items(&page, "events");
        let over = some.is_empty() || page.get("end").and_then(Value::as_bool) == Some(true);
        events.extend(some.iter().cloned());
        if over {
            break;
        }
    }
    ctx.out.document(&json!({
        "v": 1, "goal": goal, "tickets": items(&tickets, "tickets"), "files": items(&files, "files"), "events": events,
    }))?;
    Ok(Exit::Done)
}
