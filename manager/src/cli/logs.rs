//! `muster logs`: a goal's event log, one line an event.

use super::board::plain;
use super::client::segment;
use super::context::Context;
use super::error::{CliError, Exit};
use super::events::{self, Happening};
use super::ids::{self, Target};
use super::out::{clock, items, number, one_line, span, text};
use serde_json::Value;
use shared::store::LogEvent;

/// Events asked for at once.
const PAGE: usize = 500;
/// Characters of a call's id that tell it from all others.
const ID_CHARS: usize = 16;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  muster logs last\n  muster logs last/report --follow\n  muster logs last --calls\n  muster logs last --json | jq 'select(.to==\"rejected\")'"
)]
pub(crate) struct Args {
    /// A goal, or one of its tickets (GOAL/KEY).
    what: String,
    /// Go on until the goal ends.
    #[arg(long, short)]
    follow: bool,
    /// Only the model calls, one line each; `muster show GOAL --call ID` shows what was said in one.
    #[arg(long)]
    calls: bool,
}

pub(crate) async fn run(ctx: &Context, args: &Args) -> Result<Exit, CliError> {
    let client = ctx.client().await?;
    let (goal, ticket) = match ids::any(&client, &args.what).await? {
        Target::Goal(goal) => (goal, None),
        Target::Ticket(ticket) => {
            (text(&ticket, "goal").to_owned(), Some(text(&ticket, "task_id").to_owned()))
        }
    };
    let wanted = |event: &LogEvent| {
        ticket.as_ref().is_none_or(|id| &event.ticket == id) && (!args.calls || event.event == "model_call")
    };
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
        ctx.out.line(&if event.event == "model_call" { call(event) } else { plain(event) })
    }
}

/// One model call: whose, of which model, how it was asked, what it took, how it ended, under which id it is found.
fn call(event: &LogEvent) -> String {
    let Ok(record) = serde_json::from_str::<Value>(&event.detail) else { return plain(event) };
    let key = if event.key.is_empty() { "goal" } else { &event.key };
    let ended = match text(&record, "error") {
        "" => text(&record, "finish").to_owned(),
        error => format!("{error}: {}", one_line(text(&record, "detail"), 120)),
    };
    let id = text(&record, "call");
    let instead = match text(&record, "instead_of") {
        "" => String::new(),
        before => format!("  instead of {}", one_line(before, 120)),
    };
    format!(
        "{}  {key:<16} {:<8} {} {} {}+{} tokens {} {ended}  {}{instead}",
        clock(event.at_ms),
        text(&record, "role"),
        text(&record, "model"),
        text(&record, "dialect"),
        number(&record, "input_tokens"),
        number(&record, "output_tokens"),
        span(number(&record, "duration_ms")),
        &id[..id.len().min(ID_CHARS)],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_its_line() {
        let detail = serde_json::json!({"call": "0192f0c1a2b3c4d5e6f7", "role": "worker", "model": "m", "dialect": "native",
            "input_tokens": 120, "output_tokens": 30, "duration_ms": 1500, "finish": "stop", "error": ""});
        let event = LogEvent {
            event: "model_call".into(),
            key: "measure".into(),
            detail: detail.to_string(),
            ..event()
        };
        let line = call(&event);
        assert!(
            line.ends_with("measure          worker   m native 120+30 tokens 1s stop  0192f0c1a2b3c4d5"),
            "{line}"
        );
        let detail =
            detail.to_string().replace("\"error\"", "\"instead_of\":\"a at b (auth: no)\",\"error\"");
        let line = call(&LogEvent { detail, ..event });
        assert!(line.ends_with("  instead of a at b (auth: no)"), "{line}");
    }

    fn event() -> LogEvent {
        serde_json::from_value(
            serde_json::json!({"id": "1-0", "at_ms": 0, "event": "", "ticket": "", "key": "", "from": "",
            "to": "", "epoch": 0, "who": "", "detail": ""}),
        )
        .unwrap()
    }
}
