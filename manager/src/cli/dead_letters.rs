//! `muster dead-letters`: what stood in a list and could not be read, unchanged, with the reason.

use super::context::Context;
use super::error::{CliError, Exit};
use super::out::{items, now_ms, number, one_line, span, table, text};
use super::types::Requeue;
use serde_json::Value;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  muster dead-letters list\n  muster dead-letters requeue --limit 10")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// All of them, newest first.
    List,
    /// Take them off; tickets that they named get a fresh delivery from their hash.
    Requeue {
        #[arg(long, default_value_t = 100, value_name = "N")]
        limit: usize,
    },
}

pub(crate) async fn run(ctx: &Context, args: &Args) -> Result<Exit, CliError> {
    let client = ctx.client().await?;
    match &args.what {
        What::List => {
            let reply = client.get("/v1/dead-letters").await?;
            let letters = items(&reply, "letters");
            if letters.is_empty() && !ctx.out.json {
                ctx.out.note("no dead letters");
                return Ok(Exit::Done);
            }
            ctx.out.show(&reply, || drawn(letters, now_ms()))?;
        }
        What::Requeue { limit } => {
            let reply = client.post("/v1/dead-letters/requeue", &Requeue { limit: *limit }).await?;
            ctx.out.show(&reply, || format!("{} requeued", number(&reply, "requeued")))?;
        }
    }
    Ok(Exit::Done)
}

fn drawn(letters: &[Value], now: u64) -> String {
    let rows: Vec<Vec<String>> = letters
        .iter()
        .map(|l| {
            vec![
                span(now.saturating_sub(number(l, "at_ms"))),
                text(l, "lane").to_owned(),
                one_line(text(l, "reason"), 80),
                one_line(text(l, "raw"), 40),
            ]
        })
        .collect();
    table(&["AGE", "LANE", "REASON", "BASE64"], &rows)
}
