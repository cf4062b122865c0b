//! `muster open`: where the dashboard shows a goal or ticket.

use super::client::segment;
use super::context::Context;
use super::error::{CliError, Exit};
use super::ids::{self, Target};
use super::out::text;
use serde_json::json;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  muster open last\n  xdg-open \"$(muster open last/draft)\"")]
pub(crate) struct Args {
    /// First digits of a goal's or ticket's id, `GOAL/key`, or `last`.
    target: String,
}

/// The link, to stdout. The token is not in it: the page asks for it once.
pub(crate) async fn run(ctx: &Context, args: &Args) -> Result<Exit, CliError> {
    let client = ctx.client().await?;
    let path = match ids::any(&client, &args.target).await? {
        Target::Goal(id) => format!("/goals/{}", segment(&id)),
        Target::Ticket(ticket) => format!("/tickets/{}", segment(text(&ticket, "task_id"))),
    };
    let link = format!("{}{path}", client.base());
    ctx.out.show(&json!({"url": link}), || link.clone())?;
    Ok(Exit::Done)
}
