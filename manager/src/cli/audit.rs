//! `muster audit`: whether the store's rules hold, for one goal or for everything live.

use super::client::segment;
use super::context::Context;
use super::error::{CliError, Exit};
use super::ids;
use super::out::{items, short, table, text};
use serde_json::Value;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  muster audit          # everything live\n  muster audit last")]
pub(crate) struct Args {
    /// The goal: first digits of its id, or `last`. Without one: everything live.
    goal: Option<String>,
}

pub(crate) async fn run(ctx: &Context, args: &Args) -> Result<Exit, CliError> {
    let client = ctx.client().await?;
    let path = match &args.goal {
        Some(goal) => format!("/v1/goals/{}/audit", segment(&ids::goal(&client, goal).await?)),
        None => "/v1/audit".to_owned(),
    };
    let reply = client.get(&path).await?;
    let violations = items(&reply, "violations");
    if violations.is_empty() && !ctx.out.json {
        ctx.out.note("every rule holds");
        return Ok(Exit::Done);
    }
    ctx.out.show(&reply, || {
        let row = |v: &Value| {
            vec![text(v, "rule").to_owned(), short(text(v, "id")).to_owned(), text(v, "detail").to_owned()]
        };
        table(&["RULE", "ID", "WHAT"], &violations.iter().map(row).collect::<Vec<_>>())
    })?;
    if violations.is_empty() {
        return Ok(Exit::Done);
    }
    ctx.out.note("  hint: the sweepers repair what they can within [lease] audit_ms; what stays is a bug worth reporting");
    Ok(Exit::Failed)
}
