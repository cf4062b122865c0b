//! `muster cancel`: stops a goal or a ticket. What was accepted stays.

use super::answer::acknowledged;
use super::client::segment;
use super::context::Context;
use super::error::{CliError, Exit};
use super::ids::{self, Target};
use super::out::text;
use super::types::Words;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  muster cancel last\n  muster cancel 0193f0a0/measure")]
pub(crate) struct Args {
    /// A goal (first digits of its id, or `last`) or a ticket (GOAL/KEY).
    what: String,
}

pub(crate) async fn run(ctx: &Context, args: &Args) -> Result<Exit, CliError> {
    let client = ctx.client().await?;
    let path = match ids::any(&client, &args.what).await? {
        Target::Goal(goal) => format!("/v1/goals/{}/cancel", segment(&goal)),
        Target::Ticket(ticket) => format!("/v1/tickets/{}/cancel", segment(text(&ticket, "task_id"))),
    };
    let body = Words { request_id: super::request_id(), ..Words::default() };
    acknowledged(ctx, &client.post_once(&path, &body).await?)
}
