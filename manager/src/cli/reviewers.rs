//! `muster reviewers`: how good those are who check the work, and what a person does about it.

use super::answer::acknowledged;
use super::client::{Client, segment};
use super::context::Context;
use super::error::{CliError, Exit};
use super::out::{dollars, items, now_ms, number, span, table, text};
use serde_json::{Value, json};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  muster reviewers list\n  muster reviewers show judge:4f1c        # what it said to known deliverables\n  \
    muster reviewers probe judge:4f1c --count 8   # canaries and controls in turn, now\n  \
    muster reviewers lift judge:4f1c        # it claims reviews again"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Each model and prompt that reviews: how many planted defects it finds, whether it is suspended.
    List,
    /// One of them, with its answers to known deliverables, newest first.
    Show {
        /// The beginning of its word, or of its model's name.
        reviewer: String,
    },
    /// Put known deliverables before it, canaries and controls in turn.
    Probe {
        reviewer: String,
        #[arg(long, default_value_t = 8, value_name = "N")]
        count: u64,
    },
    /// A suspended one claims reviews again; its rates begin anew.
    Lift { reviewer: String },
}

pub(crate) async fn run(ctx: &Context, args: &Args) -> Result<Exit, CliError> {
    let client = ctx.client().await?;
    match &args.what {
        What::List => {
            let reply = client.get("/v1/reviewers").await?;
            ctx.out.show(&reply, || drawn(items(&reply, "reviewers"), now_ms()))?;
            Ok(Exit::Done)
        }
        What::Show { reviewer } => {
            let path = format!("/v1/reviewers/{}", one(&client, reviewer).await?);
            let reply = client.get(&path).await?;
            ctx.out.show(&reply, || shown(&reply, now_ms()))?;
            Ok(Exit::Done)
        }
        What::Probe { reviewer, count } => {
            let path = format!("/v1/reviewers/{}/probe", one(&client, reviewer).await?);
            acknowledged(ctx, &client.post(&path, &json!({"count": count})).await?)
        }
        What::Lift { reviewer } => {
            let path = format!("/v1/reviewers/{}/lift", one(&client, reviewer).await?);
            acknowledged(ctx, &client.post(&path, &json!({})).await?)
        }
    }
}

/// The one that is meant, as a part of a path.
async fn one(client: &Client, named: &str) -> Result<String, CliError> {
    let reply = client.get("/v1/reviewers").await?;
    let all = items(&reply, "reviewers");
    let fitting: Vec<&str> = all
        .iter()
        .filter(|r| text(r, "actor").starts_with(named) || text(r, "model").starts_with(named))
        .map(|r| text(r, "actor"))
        .collect();
    match fitting.as_slice() {
        [one] => Ok(segment(one)),
        many if many.contains(&named) => Ok(segment(named)),
        many => Err(CliError::usage(
            format!("{} reviewers begin with `{named}`", many.len()),
            "`muster reviewers list` shows them",
        )),
    }
}

fn rate(reviewer: &Value, name: &str) -> String {
    reviewer.get(name).and_then(Value::as_u64).map_or_else(|| "-".to_owned(), |p| format!("{p} %"))
}

fn drawn(reviewers: &[Value], now: u64) -> String {
    let rows: Vec<Vec<String>> = reviewers
        .iter()
        .map(|r| {
            let state = if number(r, "suspended_at_ms") > 0 { "suspended" } else { "active" };
            vec![
                text(r, "actor").to_owned(),
                text(r, "model").to_owned(),
                state.to_owned(),
                number(r, "reviews").to_string(),
                format!("{} of {}", number(r, "canaries_found"), number(r, "canaries")),
                rate(r, "catch_percent"),
                format!("{} of {}", number(r, "controls_passed"), number(r, "controls")),
                rate(r, "pass_percent"),
                dollars(number(r, "microusd")),
                span(now.saturating_sub(number(r, "seen_at_ms"))),
            ]
        })
        .collect();
    table(
        &["REVIEWER", "MODEL", "STATE", "REVIEWS", "CAUGHT", "RATE", "PASSED", "RATE", "DOLLARS", "SEEN"],
        &rows,
    )
}

fn shown(reply: &Value, now: u64) -> String {
    let reviewer = reply.get("reviewer").cloned().unwrap_or_default();
    let mut drawn = drawn(std::slice::from_ref(&reviewer), now);
    if !text(&reviewer, "why").is_empty() {
        drawn.push_str(&format!("\nsuspended: {}\n", text(&reviewer, "why")));
    }
    for probe in items(reply, "probes") {
        let ago = span(now.saturating_sub(number(probe, "at_ms")));
        let (kind, name, outcome) = (text(probe, "kind"), text(probe, "name"), text(probe, "outcome"));
        drawn.push_str(&format!("\n{ago} ago  {kind} {name}: {outcome}\n"));
        match probe.get("detail") {
            Some(Value::Array(verdict)) => {
                for item in verdict {
                    let pass = item.get("pass").and_then(Value::as_bool) == Some(true);
                    let word = if pass { "pass" } else { "fail" };
                    drawn.push_str(&format!("  {word}  {}: {}\n", text(item, "item"), text(item, "reason")));
                }
            }
            Some(Value::String(why)) => drawn.push_str(&format!("  {why}\n")),
            Some(_) | None => {}
        }
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suspended_reviewer_and_what_it_said() {
        let reply = json!({
            "reviewer": {"actor": "judge:4f1c", "model": "tiny", "reviews": 40, "canaries": 4, "canaries_found": 0,
                "catch_percent": 0, "controls": 4, "controls_passed": 4, "pass_percent": 100, "microusd": 1200,
                "suspended_at_ms": 5, "why": "0 of the last 4 planted defects were found, the floor is 60 %",
                "seen_at_ms": 58_000},
            "probes": [
                {"at_ms": 50_000, "kind": "canary", "name": "wrong-total", "outcome": "missed",
                    "detail": [{"item": "The total is the sum", "pass": true, "reason": "as seen"}]},
                {"at_ms": 40_000, "kind": "control", "name": "right-total", "outcome": "unread", "detail": "no model"}],
        });
        let shown = shown(&reply, 60_000);
        let lines: Vec<String> =
            shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(lines[1], "judge:4f1c tiny suspended 40 0 of 4 0 % 4 of 4 100 % 0.0012 2s", "{shown}");
        assert!(
            lines
                .contains(&"suspended: 0 of the last 4 planted defects were found, the floor is 60 %".into())
        );
        assert!(lines.contains(&"10s ago canary wrong-total: missed".into()), "{shown}");
        assert!(lines.contains(&"pass The total is the sum: as seen".into()), "{shown}");
        assert!(shown.ends_with("control right-total: unread\n  no model\n"), "{shown}");
    }
}
