//! `muster logs`: a goal's event log, one line an event.

use super::board::plain;
use super::client::segment;
use super::context::Context;
use super::error::{CliError, Exit};
use super::events::{self, Happening};
use super::ids::{self, Target};
use super::out::{items, text};
use serde_json::Value;
use shared::store::LogEvent;

/// Events asked for at once.
const PAGE: usize = 500;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  muster logs last\n  muster logs last/report --follow\n  muster logs last --json | jq 'select(.to==\"rejected\")'"
)]
pub(crate) struct Args {
    /// A goal, or one of its tickets (GOAL/KEY).
    what: String,
    /// Go on until the goal ends.
    #[arg(long, short)]
    follow: bool,
}

pub(crate) async fn run(ctx: &Context, args: &Args) -> Result<Exit, CliError> {
    let client = ctx.client().await?;
    let (goal, ticket) = match ids::any(&client, &args.what).await? {
        Target::Goal(goal) => (goal, None),
        Target::Ticket(ticket) => {
            (text(&ticket, "goal").to_owned(), Some(text(&ticket, "task_id").to_owned()))
        }
    };
    let wanted = |event: &LogEvent| ticket.as_ref().is_none_or(|id| &event.ticket == id);
    if args.follow {
        let (to, mut happenings) = tokio::sync::mpsc::channel(64);
        tokio::spawn(events::follow(client, goal, "0".into(), to));
        loop {
            let happening = tokio::select! {
                happening = happenings.recv() => happening,
                () = super::signal::interrupted() => return Err(CliError::Interrupted { hint: String::new() }),
            };
            match happening {
                Some(Happening::Event(event)) if wanted(&event) => say(ctx, &event)?,
                Some(Happening::Event(_)) => {}
                Some(Happening::Lost(e)) => return Err(e),
                Some(Happening::End) | None => return Ok(Exit::Done),
            }
        }
    }
    let mut after = "0".to_owned();
    loop {
        let path = format!("/v1/goals/{}/events?after={}&limit={PAGE}", segment(&goal), segment(&after));
        let page = client.get(&path).await?;
        let mut last = None;
        for value in items(&page, "events") {
            let Ok(event) = serde_json::from_value::<LogEvent>(value.clone()) else { continue };
            if wanted(&event) {
                say(ctx, &event)?;
            }
            last = Some(event.id);
        }
        let over = page.get("end").and_then(Value::as_bool) == Some(true);
        match last {
            Some(id) if !over && id != after => after = id,
            Some(_) | None => return Ok(Exit::Done),
        }
    }
}

fn say(ctx: &Context, event: &LogEvent) -> Result<(), CliError> {
    if ctx.out.json {
        ctx.out.line(&serde_json::json!(event).to_string())
    } else {
        ctx.out.line(&plain(event))
    }
}
