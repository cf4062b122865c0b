//! `muster approve` and `muster deny`: the two answers to a confirmation or a plan, as `muster answer` gives them too.

use super::answer;
use super::context::Context;
use super::error::{CliError, Exit};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  muster approve 0193f0a0/refund\n  \
    muster approve 0193f0a0/refund --args '{\"order\":\"A1\",\"amount\":5}'")]
pub(crate) struct Approve {
    /// The ticket: GOAL/KEY, as `muster inbox` shows it; or the goal whose plan waits.
    ticket: String,
    /// Other arguments for the call, as JSON; it gets a digest of its own.
    #[arg(long, value_name = "JSON")]
    args: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  muster deny 0193f0a0/refund \"the order was delivered\"")]
pub(crate) struct Deny {
    /// The ticket: GOAL/KEY, as `muster inbox` shows it; or the goal whose plan waits.
    ticket: String,
    /// Why; the agent, or the planner, reads it.
    reason: Option<String>,
}

pub(crate) async fn approve(ctx: &Context, args: &Approve) -> Result<Exit, CliError> {
    answer::run(ctx, &answer::Args::approval(&args.ticket, args.args.as_deref())).await
}

pub(crate) async fn deny(ctx: &Context, args: &Deny) -> Result<Exit, CliError> {
    answer::run(ctx, &answer::Args::denial(&args.ticket, args.reason.as_deref())).await
}
