//! `muster submit`: hands a goal in and says its id.

use super::context::Context;
use super::error::{CliError, Exit};
use super::out::text;
use super::{config, intake};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  muster submit plan.toml\n  \
    id=$(muster submit \"Summarise the minutes\" --input minutes.md) && muster watch $id")]
pub(crate) struct Args {
    #[command(flatten)]
    goal: intake::Goal,
}

pub(crate) async fn run(ctx: &Context, args: &Args) -> Result<Exit, CliError> {
    let ready = intake::ready(&args.goal, &config::load(ctx)?)?;
    let client = ctx.client().await?;
    let answer = intake::submit(&client, ready).await?;
    if answer.get("duplicate").and_then(serde_json::Value::as_bool) == Some(true) {
        ctx.out.note("this idempotency key is known: it is the same goal as before");
    }
    if let Some(warning) = intake::warning(&answer) {
        ctx.out.note(warning);
    }
    ctx.out.show(&answer, || text(&answer, "goal").to_owned())?;
    Ok(Exit::Done)
}
