//! `muster fleet`: who works here, and which of them should take no more work or leave; what tenants may use.

use super::answer::acknowledged;
use super::client::segment;
use super::context::Context;
use super::error::{CliError, Exit};
use super::limits;
use super::out::{items, now_ms, number, span, table, text};
use serde_json::{Value, json};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  muster fleet list\n  muster fleet cordon worker-7f3a     # takes no new work\n  \
    muster fleet drain worker-7f3a      # finishes or gives back, then leaves\n  muster fleet activate worker-7f3a\n  \
    muster fleet lift gpt-4.1           # the next call is made, whatever its cool-down\n  \
    muster fleet tenants\n  muster fleet budget acme --tokens 5000000 --dollars 20"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Consumers with their lanes, slots and state.
    List,
    /// It takes no new work.
    Cordon { consumer: String },
    /// It finishes or gives back what it has, and leaves.
    Drain { consumer: String },
    /// It takes work again.
    Activate { consumer: String },
    /// Ends the cool-down and closes the breaker of a model's endpoint: the next call is made.
    Lift {
        /// The beginning of its name or word, as `muster stats` shows them.
        endpoint: String,
    },
    /// What each tenant may use of the models, and has spent in its period.
    Tenants,
    /// What a tenant may spend until its period turns; its goals that wait for it go on.
    Budget(limits::Budget),
}

pub(crate) async fn run(ctx: &Context, args: &Args) -> Result<Exit, CliError> {
    let client = ctx.client().await?;
    let (verb, consumer) = match &args.what {
        What::List => {
            let reply = client.get("/v1/fleet").await?;
            if reply.get("paused").and_then(Value::as_bool) == Some(true) {
                ctx.out.note("the fleet is paused: `muster resume --all`");
            }
            ctx.out.show(&reply, || drawn(items(&reply, "consumers"), now_ms()))?;
            return Ok(Exit::Done);
        }
        What::Cordon { consumer } => ("cordon", consumer),
        What::Drain { consumer } => ("drain", consumer),
        What::Activate { consumer } => ("activate", consumer),
        What::Lift { endpoint } => return limits::lift(ctx, &client, endpoint).await,
        What::Tenants => return limits::tenants(ctx, &client).await,
        What::Budget(budget) => return limits::budget(ctx, &client, budget).await,
    };
    let reply = client.get("/v1/fleet").await?;
    let fitting: Vec<&str> = items(&reply, "consumers")
        .iter()
        .map(|c| text(c, "id"))
        .filter(|id| id.starts_with(consumer.as_str()))
        .collect();
    let one = match fitting.as_slice() {
        [one] => one,
        many if many.contains(&consumer.as_str()) => consumer.as_str(),
        many => {
            return Err(CliError::usage(
                format!("{} consumers begin with `{consumer}`", many.len()),
                "`muster fleet list` shows them",
            ));
        }
    };
    acknowledged(ctx, &client.post(&format!("/v1/fleet/{}/{verb}", segment(one)), &json!({})).await?)
}

fn drawn(consumers: &[Value], now: u64) -> String {
    let rows: Vec<Vec<String>> = consumers
        .iter()
        .map(|c| {
            let lanes: Vec<&str> = items(c, "lanes").iter().filter_map(Value::as_str).collect();
            let sandbox = c.get("sandbox").and_then(Value::as_bool) == Some(true);
            vec![
                text(c, "id").to_owned(),
                text(c, "role").to_owned(),
                text(c, "host").to_owned(),
                text(c, "state").to_owned(),
                format!("{}/{}", number(c, "busy"), number(c, "slots")),
                lanes.join(","),
                (if sandbox { "yes" } else { "no" }).to_owned(),
                span(number(c, "beat_age_ms")),
                span(now.saturating_sub(number(c, "started_at_ms"))),
            ]
        })
        .collect();
    table(&["CONSUMER", "ROLE", "HOST", "STATE", "BUSY", "LANES", "SANDBOX", "BEAT", "UP"], &rows)
}
