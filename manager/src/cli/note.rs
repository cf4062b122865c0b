//! `muster note`: a word to a goal's manager, who hears it at its next step.

use super::answer::acknowledged;
use super::client::segment;
use super::context::Context;
use super::error::{CliError, Exit};
use super::ids;
use super::types::Words;

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  muster note last \"The deadline moved to Friday\"")]
pub(crate) struct Args {
    /// The goal: first digits of its id, or `last`.
    goal: String,
    /// What its manager should know.
    text: String,
}

pub(crate) async fn run(ctx: &Context, args: &Args) -> Result<Exit, CliError> {
    if args.text.trim().is_empty() {
        return Err(CliError::usage("the note is empty", "muster note GOAL \"…\""));
    }
    let client = ctx.client().await?;
    let goal = ids::goal(&client, &args.goal).await?;
    let body = Words { text: args.text.clone(), request_id: super::request_id(), ..Words::default() };
    acknowledged(ctx, &client.post_once(&format!("/v1/goals/{}/note", segment(&goal)), &body).await?)
}
