//! `muster memory`: what finished goals taught, for a person to read, mend and forget.

use super::client::{Client, segment};
use super::context::Context;
use super::error::{CliError, Exit};
use super::out::{items, now_ms, number, one_line, short, span, table, text};
use serde_json::{Value, json};

/// Characters of a text in the list.
const LINE_CHARS: usize = 60;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  muster memory list --kind data_analyst\n  muster memory show 3f2a91\n  \
    muster memory edit 3f2a91 --text \"Amounts in euro, two decimals.\"\n  muster memory forget 3f2a91\n  \
    muster memory forget --all --tenant acme"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
    /// Whose lessons. [default: the token's tenant]
    #[arg(long, global = true, default_value = "")]
    tenant: String,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// The lessons, newest first.
    List {
        /// Only those of this role, or `plan`.
        #[arg(long, default_value = "")]
        kind: String,
    },
    /// One lesson in full.
    Show {
        /// The beginning of its id.
        lesson: String,
    },
    /// Your own words in its place; they are never overwritten.
    Edit {
        lesson: String,
        #[arg(long)]
        text: String,
    },
    /// No prompt has it any more, and it is not learnt again.
    Forget {
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        lesson: Option<String>,
        /// All lessons of the tenant.
        #[arg(long)]
        all: bool,
    },
}

pub(crate) async fn run(ctx: &Context, args: &Args) -> Result<Exit, CliError> {
    let client = ctx.client().await?;
    let of = format!("?tenant={}", segment(&args.tenant));
    match &args.what {
        What::List { kind } => {
            let reply = client.get(&format!("/v1/memory{of}&kind={}", segment(kind))).await?;
            ctx.out.show(&reply, || drawn(items(&reply, "lessons"), now_ms()))?;
        }
        What::Show { lesson } => {
            let id = one(&client, &of, lesson).await?;
            let reply = client.get(&format!("/v1/memory/{id}{of}")).await?;
            ctx.out.show(&reply, || shown(&reply))?;
        }
        What::Edit { lesson, text } => {
            let id = one(&client, &of, lesson).await?;
            let reply = client.post(&format!("/v1/memory/{id}{of}"), &json!({"text": text})).await?;
            ctx.out.show(&reply, || shown(&reply))?;
        }
        What::Forget { lesson, all: _ } => {
            let path = match lesson {
                Some(lesson) => format!("/v1/memory/{}{of}", one(&client, &of, lesson).await?),
                None => format!("/v1/memory{of}"),
            };
            let reply = client.delete(&path).await?;
            ctx.out.show(&reply, || format!("{} lessons forgotten", number(&reply, "lessons")))?;
        }
    }
    Ok(Exit::Done)
}

/// The id that begins so.
async fn one(client: &Client, of: &str, named: &str) -> Result<String, CliError> {
    client.id(&format!("/v1/memory{of}"), "lessons", "muster memory list", named).await
}

fn drawn(lessons: &[Value], now: u64) -> String {
    let rows: Vec<Vec<String>> = lessons
        .iter()
        .map(|l| {
            vec![
                text(l, "id").chars().take(12).collect(),
                text(l, "kind").to_owned(),
                short(text(l, "goal")).to_owned(),
                one_line(text(l, "about"), LINE_CHARS),
                one_line(text(l, "text"), LINE_CHARS),
                text(l, "edited_by").to_owned(),
                span(now.saturating_sub(number(l, "learnt_at_ms"))),
            ]
        })
        .collect();
    table(&["LESSON", "KIND", "GOAL", "ABOUT", "TEXT", "EDITED BY", "AGE"], &rows)
}

fn shown(lesson: &Value) -> String {
    let of = |name: &str| text(lesson, name).to_owned();
    let ticket = if of("key").is_empty() { String::new() } else { format!("/{}", of("key")) };
    let by =
        if of("edited_by").is_empty() { String::new() } else { format!(", edited by {}", of("edited_by")) };
    format!(
        "{}  {}, learnt from {}{ticket}{by}\nasked: {}\n\n{}\n",
        of("id"),
        of("kind"),
        short(&of("goal")),
        of("about"),
        of("text")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lesson_says_where_it_comes_from_and_who_wrote_it() {
        let lesson = json!({"id": "3f2a91", "kind": "data_analyst", "goal": "0193f0a0b1c2d3e4", "key": "chart",
            "about": "Chart the revenue", "text": "Sent back for no unit\nAccepted then: done", "edited_by": "ana"});
        assert_eq!(
            shown(&lesson),
            "3f2a91  data_analyst, learnt from 0193f0a0b1c2/chart, edited by ana\nasked: Chart the revenue\n\n\
             Sent back for no unit\nAccepted then: done\n"
        );
    }
}
