//! `muster watch`: follows a goal to its end, or until only a person can go on. Also what `run` waits with.

use super::client::{Client, segment};
use super::context::Context;
use super::error::{CliError, Exit};
use super::events::{self, Happening};
use super::ids;
use super::live::{Live, Style};
use super::out::{items, number, one_line, short, text};
use super::standing::{count, waits_for_a_person};
use serde_json::Value;
use shared::goal::GoalState;
use shared::ticket::Status;
use std::time::{Duration, Instant};

/// How often the goal itself is looked at: events tell what happened, not what nobody waits for.
const LOOK: Duration = Duration::from_millis(1_000);
/// The clocks of the picture.
const TICK: Duration = Duration::from_millis(250);
/// After the end, the rest of the events is waited for this long.
const REST: Duration = Duration::from_secs(2);
/// After this many looks without anything at work, it is asked whether anybody serves the lanes.
const IDLE_LOOKS: u32 = 5;
/// This many looks in a row must find that only a person can go on.
const WAITING_LOOKS: u32 = 2;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  muster watch last\n  muster watch 0193f0a0 --json | jq .event")]
pub(crate) struct Args {
    /// The goal: first digits of its id, or `last`.
    goal: String,
}

pub(crate) async fn run(ctx: &Context, args: &Args) -> Result<Exit, CliError> {
    let client = ctx.client().await?;
    let goal = ids::goal(&client, &args.goal).await?;
    let style = if ctx.out.live { Style::Live } else { Style::Data };
    let ended = to_end(ctx, &client, &goal, style).await?;
    ended.say(ctx, &client).await;
    Ok(ended.exit)
}

/// Where the goal stood when watching ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) goal: Value,
    pub(crate) exit: Exit,
}

impl Ended {
    /// One sentence on stderr, with the way on.
    pub(crate) async fn say(&self, ctx: &Context, client: &Client) {
        let id = short(text(&self.goal, "id"));
        let cause = match (text(&self.goal, "cause"), text(&self.goal, "cause_detail")) {
            ("", "") => String::new(),
            (cause, "") => format!(": {cause}"),
            (cause, detail) => format!(": {cause}: {}", one_line(detail, 400)),
        };
        match self.exit {
            Exit::Done => ctx.out.note(&format!("goal {id} is done")),
            Exit::NeedsPerson => {
                ctx.out.note(&format!("goal {id} needs a person{cause}"));
                // Of a ticket's question the goal itself says nothing.
                let inbox = client.get("/v1/inbox").await.unwrap_or_default();
                let asked = items(&inbox, "decisions");
                for d in asked
                    .iter()
                    .filter(|d| text(d, "goal") == text(&self.goal, "id") && !text(d, "key").is_empty())
                {
                    let why = one_line(text(d, "detail"), 300);
                    ctx.out.note(&format!("  {id}/{}: {}: {why}", text(d, "key"), text(d, "cause")));
                }
                ctx.out.note("  hint: `muster inbox` says what is asked, `muster answer` decides it");
            }
            Exit::Cancelled => ctx.out.note(&format!("goal {id} was cancelled{cause}")),
            Exit::Failed | Exit::Usage | Exit::Unreachable | Exit::Interrupted => {
                ctx.out.note(&format!("goal {id} failed{cause}"));
                ctx.out.note(&format!(
                    "  hint: `muster tickets {id}` shows where, `muster reopen {id}` goes on"
                ));
            }
        }
    }
}

/// Follows the goal until it ends or only a person can go on.
///
/// # Errors
/// Unreachable when no manager answers for a minute; interrupted on a signal. The goal goes on then.
pub(crate) async fn to_end(
    ctx: &Context,
    client: &Client,
    goal: &str,
    style: Style,
) -> Result<Ended, CliError> {
    let (to, mut happenings) = tokio::sync::mpsc::channel(256);
    tokio::spawn(events::follow(client.clone(), goal.to_owned(), "0".into(), to));
    let mut live = Live::new(ctx.out, style, goal);
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let mut interrupt = std::pin::pin!(super::signal::interrupted());
    let mut looked_at: Option<Instant> = None;
    let mut lost_since: Option<Instant> = None;
    let (mut waiting, mut idle) = (0, 0);
    let mut over: Option<(Ended, Instant)> = None;
    let mut stream_ended = false;
    let ended = loop {
        tokio::select! {
            happening = happenings.recv(), if !stream_ended => match happening {
                Some(Happening::Event(event)) => {
                    live.take(&event)?;
                    continue;
                }
                Some(Happening::Lost(e)) => return Err(e),
                Some(Happening::End) | None => {
                    stream_ended = true;
                    looked_at = None;
                }
            },
            _ = tick.tick() => live.tick(),
            () = &mut interrupt => {
                live.end();
                return Err(CliError::Interrupted {
                    hint: format!("the goal goes on: `muster watch {0}`, or stop it: `muster cancel {0}`", short(goal)),
                });
            }
        }
        if let Some((ended, since)) = over.take() {
            // The last events may still be on their way.
            if stream_ended || since.elapsed() > REST {
                break ended;
            }
            over = Some((ended, since));
            continue;
        }
        if looked_at.is_some_and(|at| at.elapsed() < LOOK) {
            continue;
        }
        looked_at = Some(Instant::now());
        let now = match client.get(&format!("/v1/goals/{}", segment(goal))).await {
            Ok(now) => now,
            Err(e) if e.is_passing() => {
                let since = *lost_since.get_or_insert_with(|| {
                    live.note("no manager answers; waiting for one");
                    Instant::now()
                });
                if since.elapsed() > events::OUTAGE_MAX {
                    return Err(e);
                }
                continue;
            }
            Err(e) => return Err(e),
        };
        lost_since = None;
        if live.lacks(number(&now, "tickets"))
            && let Ok(page) = client.get(&format!("/v1/goals/{}/tickets", segment(goal))).await
        {
            live.know(items(&page, "tickets"));
        }
        idle = if is_idle(&now) { idle + 1 } else { 0 };
        if idle == IDLE_LOOKS {
            for lane in unserved(&client.get("/v1/stats").await.unwrap_or_default()) {
                live.note(&format!("nobody serves the lane {lane}: `muster doctor` says the way out"));
            }
        }
        waiting = if waits_for_a_person(&now) { waiting + 1 } else { 0 };
        match GoalState::parse(text(&now, "state")).and_then(Exit::of_goal) {
            Some(Exit::NeedsPerson) | None if waiting >= WAITING_LOOKS => {
                break Ended { goal: now, exit: Exit::NeedsPerson };
            }
            Some(Exit::NeedsPerson) | None => {}
            Some(exit) if stream_ended => break Ended { goal: now, exit },
            Some(exit) => over = Some((Ended { goal: now, exit }, Instant::now())),
        }
    };
    live.end();
    Ok(ended)
}

/// Tickets are ready, and nobody has taken one.
fn is_idle(goal: &Value) -> bool {
    count(goal, Status::Running) == 0 && count(goal, Status::Pending) + count(goal, Status::Reviewing) > 0
}

/// Lanes in which something waits and that nobody serves.
fn unserved(stats: &Value) -> Vec<String> {
    let gauges = stats.get("gauges").unwrap_or(&Value::Null);
    let served = |lane: &str| gauges.get("consumers").is_some_and(|c| number(c, lane) > 0);
    let demand = gauges.get("demand").and_then(Value::as_object);
    let waiting = demand.into_iter().flatten().filter(|(_, n)| n.as_u64() > Some(0));
    waiting.map(|(lane, _)| lane.clone()).filter(|lane| !served(lane)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_unserved_lane_is_found_when_nothing_runs() {
        assert!(is_idle(&json!({"counts": {"pending": 1}})));
        assert!(!is_idle(&json!({"counts": {"pending": 1, "running": 1}})));
        let stats = json!({"gauges": {"demand": {"work.gpu": 1, "review": 2, "work.x": 0}, "consumers": {"review": 1}}});
        assert_eq!(unserved(&stats), ["work.gpu"]);
    }
}
