//! `muster run`: submits a goal and watches it to its end; the exit code tells how it ended.

use super::client::{self, Client, Found};
use super::context::Context;
use super::error::{CliError, Exit};
use super::intake::{self, Ready};
use super::live::Style;
use super::local::{Fleet, Options};
use super::out::{items, short, size, text};
use super::{config, pull, watch};
use serde_json::json;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  muster run deploy/examples/parallel.toml\n  \
    muster run \"Compare the three offers\" --input offers/ --constraint \"at most two pages\" --out report/\n\n\
    Without a manager (no --url, MUSTER_URL or running `muster up`) a private fleet runs for the time of the goal.")]
pub(crate) struct Args {
    #[command(flatten)]
    goal: intake::Goal,
    /// Folder for the deliverables. [default: .muster/out/<goal>]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Workers of the private fleet, if one is started.
    #[arg(long, default_value_t = 2, value_name = "N")]
    workers: usize,
}

pub(crate) async fn run(ctx: &Context, args: &Args) -> Result<Exit, CliError> {
    let settings = config::load(ctx)?;
    let ready = intake::ready(&args.goal, &settings)?;
    match client::find(ctx.url.as_deref(), &ctx.home).await? {
        Found::Named { url, token } | Found::Local { url, token } => {
            let client = Client::new(&url, token)?;
            submit_and_watch(ctx, &client, ready, args.out.clone()).await
        }
        Found::Nothing => {
            ctx.out.note("no manager is configured: a private fleet runs for the time of this goal");
            let options = Options {
                workers: args.workers,
                needs_model: ready.asks_model.clone(),
                ..Options::default()
            };
            let fleet = Fleet::start(ctx, settings, options).await?;
            let client = fleet.client()?;
            let ended = submit_and_watch(ctx, &client, ready, args.out.clone()).await;
            let left = fleet.stop().await;
            match (&ended, left) {
                (Ok(Exit::NeedsPerson), _) => {
                    ctx.out
                        .note("  the fleet has stopped and everything is kept: `muster up` brings it back");
                }
                (Err(CliError::Interrupted { .. }), _) => {
                    return Err(CliError::Interrupted {
                        hint: "the fleet has stopped and the goal is kept: `muster up` goes on with it"
                            .into(),
                    });
                }
                (_, Err(e)) if ended.is_ok() => return Err(e),
                _ => {}
            }
            ended
        }
    }
}

/// The middle of `run` and of the demo: submit, watch, deliver.
pub(crate) async fn submit_and_watch(
    ctx: &Context,
    client: &Client,
    ready: Ready,
    to: Option<PathBuf>,
) -> Result<Exit, CliError> {
    // The answer to a submit may be lost; the key in it makes a repeat harmless.
    let submitted = tokio::select! {
        submitted = intake::submit(client, ready) => submitted?,
        () = super::signal::interrupted() => {
            return Err(CliError::Interrupted { hint: "it may have been submitted: `muster list` shows it".into() });
        }
    };
    let goal = text(&submitted, "goal").to_owned();
    ctx.out.note(&format!("goal {}", short(&goal)));
    if let Some(warning) = intake::warning(&submitted) {
        ctx.out.note(warning);
    }
    let style = match (ctx.out.json, ctx.out.live) {
        (true, _) => Style::Quiet,
        (false, true) => Style::Live,
        (false, false) => Style::Plain,
    };
    let ended = watch::to_end(ctx, client, &goal, style).await?;
    let dir = to.unwrap_or_else(|| pull::default_dir(ctx, &goal));
    // What was accepted is worth having even when the whole has failed.
    let pulled = match pull::files(client, &goal, &dir).await {
        Ok(pulled) => pulled,
        Err(e) if ended.exit != Exit::Done => {
            ctx.out.note(&format!("files: {e}"));
            vec![]
        }
        Err(e) => return Err(e),
    };
    let answer = if text(&ended.goal, "intake") == "route" { answer_of(client, &goal).await } else { None };
    let mut made: Vec<&pull::File> = pulled.iter().filter(|f| f.is_deliverable()).collect();
    made.sort_by_key(|f| (!f.path.starts_with("outputs/"), f.path.clone()));
    if ctx.out.json {
        ctx.out.document(&json!({
            "goal": goal, "state": text(&ended.goal, "state"), "exit": ended.exit.code(),
            "cause": text(&ended.goal, "cause"), "cause_detail": text(&ended.goal, "cause_detail"),
            "answer": answer, "folder": dir, "deliverables": made.iter().map(|f| f.to_json()).collect::<Vec<_>>(),
        }))?;
    }
    ended.say(ctx, client).await;
    if !ctx.out.json {
        if let Some(answer) = &answer {
            ctx.out.line(answer)?;
        }
        if !made.is_empty() {
            ctx.out.note("deliverables:");
        }
        for file in made {
            ctx.out.line(&file.here.display().to_string())?;
        }
        let total: u64 = pulled.iter().map(|f| f.size_bytes).sum();
        ctx.out.note(&format!("{} files, {} in {}", pulled.len(), size(total), dir.display()));
    }
    Ok(ended.exit)
}

/// A routed request is answered in words: the report of its last ticket.
async fn answer_of(client: &Client, goal: &str) -> Option<String> {
    let page = client.get(&format!("/v1/goals/{}/tickets", client::segment(goal))).await.ok()?;
    let last =
        items(&page, "tickets").iter().find(|t| t["integrates"] == true && text(t, "status") == "done")?;
    Some(text(last.get("result")?, "summary").to_owned()).filter(|words| !words.is_empty())
}
