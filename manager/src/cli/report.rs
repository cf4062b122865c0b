//! `muster report`: a goal as one HTML file to keep or send on.

use super::client::segment;
use super::context::Context;
use super::error::{CliError, Exit};
use super::ids;
use super::out::{short, size};
use serde_json::json;
use std::io::Write as _;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  muster report last\n  muster report 0193f0a0 report.html\n  muster report last - | less"
)]
pub(crate) struct Args {
    /// The goal: first digits of its id, or `last`.
    goal: String,
    /// Where to; `-` is stdout. [default: muster-<goal>.html]
    file: Option<PathBuf>,
}

pub(crate) async fn run(ctx: &Context, args: &Args) -> Result<Exit, CliError> {
    let client = ctx.client().await?;
    let goal = ids::goal(&client, &args.goal).await?;
    // Asked of the API, which refuses in words where a page would ask for a token.
    client.get(&format!("/v1/goals/{}", segment(&goal))).await?;
    let reply = client.open(&format!("/goals/{}/report", segment(&goal)), "text/html").await?;
    let html = reply.bytes().await.map_err(|e| client.unreachable(&e))?;
    if args.file.as_deref() == Some(Path::new("-")) {
        std::io::stdout().lock().write_all(&html).map_err(|_| CliError::BrokenPipe)?;
        return Ok(Exit::Done);
    }
    let file = args.file.clone().unwrap_or_else(|| PathBuf::from(format!("muster-{}.html", short(&goal))));
    tokio::fs::write(&file, &html).await.map_err(|e| {
        CliError::failed(format!("{}: {e}", file.display()), "name another file: muster report GOAL FILE")
    })?;
    let said = json!({"goal": goal, "file": file, "size_bytes": html.len()});
    ctx.out.show(&said, || file.display().to_string())?;
    ctx.out.note(&size(html.len() as u64));
    Ok(Exit::Done)
}
