//! `muster pause` and `muster resume`: no new claims of a goal, or of the whole fleet. What runs goes on.

use super::answer::acknowledged;
use super::client::segment;
use super::context::Context;
use super::error::{CliError, Exit};
use super::ids;
use super::types::Words;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  muster pause last      muster resume last\n  muster pause --all     muster resume --all"
)]
pub(crate) struct Args {
    /// The goal: first digits of its id, or `last`.
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    goal: Option<String>,
    /// The whole fleet.
    #[arg(long)]
    all: bool,
}

/// `verb` is `pause` or `resume`.
pub(crate) async fn run(ctx: &Context, args: &Args, verb: &str) -> Result<Exit, CliError> {
    let client = ctx.client().await?;
    let path = match &args.goal {
        Some(goal) => format!("/v1/goals/{}/{verb}", segment(&ids::goal(&client, goal).await?)),
        None => format!("/v1/fleet/{verb}"),
    };
    let body = Words { request_id: super::request_id(), ..Words::default() };
    acknowledged(ctx, &client.post_once(&path, &body).await?)
}
