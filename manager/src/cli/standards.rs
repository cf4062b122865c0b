//! `muster standards`: checklist items that reviews suggest, for a person to promote or drop.

use super::client::{Client, segment};
use super::context::Context;
use super::error::{CliError, Exit};
use super::out::{items, now_ms, number, one_line, short, span, table, text};
use serde_json::{Value, json};
use shared::standard::State;

/// Characters of an item in the list.
const LINE_CHARS: usize = 80;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  muster standards list --state shadow\n  muster standards show 3f2a91\n  \
    muster standards promote 3f2a91 --text \"Every figure has its currency.\"\n  muster standards drop 3f2a91"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
    /// Whose standards. [default: the token's tenant]
    #[arg(long, global = true, default_value = "")]
    tenant: String,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// All of them by kind of ticket, with their tallies.
    List {
        /// Only those of this role.
        #[arg(long, default_value = "")]
        kind: String,
        /// Only those in this state.
        #[arg(long, value_parser = State::ALL.map(State::as_str))]
        state: Option<String>,
    },
    /// One standard in full.
    Show {
        /// The beginning of its id.
        standard: String,
    },
    /// New tickets of its kind are held to it from now on.
    Promote {
        standard: String,
        /// Your own words for it.
        #[arg(long)]
        text: Option<String>,
    },
    /// It is asked no more and not proposed again; tickets that have it keep it.
    Drop { standard: String },
}

pub(crate) async fn run(ctx: &Context, args: &Args) -> Result<Exit, CliError> {
    let client = ctx.client().await?;
    let of = format!("?tenant={}", segment(&args.tenant));
    let (named, word) = match &args.what {
        What::List { kind, state } => {
            let state = state.as_ref().map_or(String::new(), |state| format!("&state={state}"));
            let reply = client.get(&format!("/v1/standards{of}&kind={}{state}", segment(kind))).await?;
            ctx.out.show(&reply, || drawn(items(&reply, "standards"), now_ms()))?;
            return Ok(Exit::Done);
        }
        What::Show { standard } => (standard, None),
        What::Promote { standard, text } => (standard, Some(("promote", text.as_deref()))),
        What::Drop { standard } => (standard, Some(("drop", None))),
    };
    let path = format!("/v1/standards/{}{of}", one(&client, &of, named).await?);
    let reply = match word {
        None => client.get(&path).await?,
        Some((word, None)) => client.post(&path, &json!({"decision": word})).await?,
        Some((word, Some(text))) => client.post(&path, &json!({"decision": word, "text": text})).await?,
    };
    ctx.out.show(&reply, || shown(&reply))?;
    Ok(Exit::Done)
}

/// The id that begins so.
async fn one(client: &Client, of: &str, named: &str) -> Result<String, CliError> {
    client.id(&format!("/v1/standards{of}"), "standards", "muster standards list", named).await
}

fn drawn(standards: &[Value], now: u64) -> String {
    let rows: Vec<Vec<String>> = standards
        .iter()
        .map(|s| {
            vec![
                text(s, "id").chars().take(12).collect(),
                text(s, "kind").to_owned(),
                text(s, "state").to_owned(),
                number(s, "seen").to_string(),
                number(s, "asked").to_string(),
                number(s, "failed").to_string(),
                number(s, "flips").to_string(),
                one_line(text(s, "text"), LINE_CHARS),
                span(now.saturating_sub(number(s, "changed_at_ms"))),
            ]
        })
        .collect();
    table(&["STANDARD", "KIND", "STATE", "SEEN", "ASKED", "FAILED", "FLIPS", "ITEM", "SINCE"], &rows)
}

fn shown(standard: &Value) -> String {
    let of = |name: &str| text(standard, name).to_owned();
    let by = if of("decided_by").is_empty() { String::new() } else { format!(" by {}", of("decided_by")) };
    let n = |name: &str| number(standard, name);
    format!(
        "{}  {}, {}{by}\n{}\n\nfirst seen in {}/{}: {}\n{} tickets were sent back for it. In shadow: asked in {} reviews, \
         failed in {}, alone would have sent back {}\n",
        of("id"),
        of("kind"),
        of("state"),
        of("text"),
        short(&of("goal")),
        of("key"),
        of("reason"),
        n("seen"),
        n("asked"),
        n("failed"),
        n("flips"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standard_says_where_it_comes_from_and_what_it_would_have_done() {
        let standard = json!({"id": "3f2a91", "kind": "data_analyst", "state": "promoted", "text": "Has units",
            "reason": "no unit", "goal": "0193f0a0b1c2d3e4", "key": "chart", "seen": 3, "asked": 5, "failed": 2,
            "flips": 1, "decided_by": "ana"});
        assert_eq!(
            shown(&standard),
            "3f2a91  data_analyst, promoted by ana\nHas units\n\nfirst seen in 0193f0a0b1c2/chart: no unit\n\
             3 tickets were sent back for it. In shadow: asked in 5 reviews, failed in 2, alone would have sent back 1\n"
        );
    }
}
