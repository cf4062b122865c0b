//! `muster retry`: a ticket that failed, was skipped or waits for a person is tried again.

use super::answer::acknowledged;
use super::client::segment;
use super::context::Context;
use super::error::{CliError, Exit};
use super::ids;
use super::out::{number, text};
use super::types::Words;

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  muster retry 0193f0a0/measure --note \"the source is back\"")]
pub(crate) struct Args {
    /// The ticket: GOAL/KEY, or first digits of its id.
    ticket: String,
    /// What the next try should know.
    #[arg(long, default_value = "")]
    note: String,
}

pub(crate) async fn run(ctx: &Context, args: &Args) -> Result<Exit, CliError> {
    let client = ctx.client().await?;
    let ticket = ids::ticket(&client, &args.ticket).await?;
    let body = Words {
        text: args.note.clone(),
        request_id: super::request_id(),
        expected_epoch: number(&ticket, "epoch"),
        ..Words::default()
    };
    let path = format!("/v1/tickets/{}/retry", segment(text(&ticket, "task_id")));
    acknowledged(ctx, &client.post_once(&path, &body).await?)
}
