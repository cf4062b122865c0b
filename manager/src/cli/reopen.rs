//! `muster reopen`: a finished goal or ticket again, with a note. What depends on it runs again too.

use super::answer::acknowledged;
use super::client::segment;
use super::context::Context;
use super::error::{CliError, Exit};
use super::ids::{self, Target};
use super::out::{number, text};
use super::types::Words;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  muster reopen last --note \"add a table of costs\"\n  muster reopen 0193f0a0/report"
)]
pub(crate) struct Args {
    /// A goal (first digits of its id, or `last`) or a ticket (GOAL/KEY).
    what: String,
    /// What should be different this time.
    #[arg(long, default_value = "")]
    note: String,
}

pub(crate) async fn run(ctx: &Context, args: &Args) -> Result<Exit, CliError> {
    let client = ctx.client().await?;
    let mut body = Words { text: args.note.clone(), request_id: super::request_id(), ..Words::default() };
    let path = match ids::any(&client, &args.what).await? {
        Target::Goal(goal) => format!("/v1/goals/{}/reopen", segment(&goal)),
        Target::Ticket(ticket) => {
            body.expected_epoch = number(&ticket, "epoch");
            format!("/v1/tickets/{}/reopen", segment(text(&ticket, "task_id")))
        }
    };
    acknowledged(ctx, &client.post_once(&path, &body).await?)
}
