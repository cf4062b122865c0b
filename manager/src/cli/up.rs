//! `muster up`: everything on this machine, until Ctrl-C.

use super::context::Context;
use super::error::{CliError, Exit};
use super::home::write_private;
use super::local::{Fleet, Options};
use super::model::Wish;
use super::{client, config, demo, run};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Longest wait for a detached fleet to say that it is there.
const DETACH_WAIT: Duration = Duration::from_secs(90);

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  muster up\n  muster up --demo --once\n  muster up --demo \"Compare the offers\" --input offers/\n  \
    muster up --detach && muster run plan.toml && muster down"
)]
pub(crate) struct Args {
    /// Run the demo goal, or the given one, as soon as the fleet is there.
    #[arg(long)]
    demo: bool,
    /// With --demo: stop everything when the goal has ended; its end is the exit code.
    #[arg(long, requires = "demo")]
    once: bool,
    /// With --demo: a goal of your own instead, or a plan file.
    #[arg(requires = "demo", value_name = "GOAL|PLAN")]
    goal: Option<String>,
    /// With --demo: a file or folder to work on. May be given often.
    #[arg(long, requires = "demo", value_name = "FILE")]
    input: Vec<PathBuf>,
    /// With --demo: folder for the deliverables. [default: .muster/out/<goal>]
    #[arg(long, requires = "demo", value_name = "DIR")]
    out: Option<PathBuf>,
    /// Worker processes.
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,
    /// Which model plays.
    #[arg(long, value_enum, default_value_t)]
    model: Wish,
    /// Come back as soon as the fleet is there; it runs on until `muster down`.
    #[arg(long, conflicts_with = "demo")]
    detach: bool,
}

pub(crate) async fn run(ctx: &Context, args: &Args) -> Result<Exit, CliError> {
    if args.detach {
        return detach(ctx, args).await;
    }
    let settings = config::load(ctx)?;
    let prepared = match (args.demo, &args.goal) {
        (false, _) => None,
        (true, None) => Some(demo::shipped(&args.input, &settings)?),
        (true, Some(goal)) => Some(demo::own(goal, &args.input, &settings)?),
    };
    let options = Options {
        workers: usize::from(args.workers),
        model: args.model,
        demo: prepared.as_ref().is_some_and(|p| p.script.is_some()),
        needs_model: prepared.as_ref().and_then(|p| p.ready.asks_model.clone()),
        script: prepared.as_ref().and_then(|p| p.script.clone()),
        recorded: None,
    };
    let mut fleet = Fleet::start(ctx, settings, options).await?;
    let mut ended = Ok(Exit::Done);
    if let Some(prepared) = prepared {
        let client = fleet.client()?;
        ended = run::submit_and_watch(ctx, &client, prepared.ready, args.out.clone()).await;
        if args.once || matches!(ended, Err(CliError::Interrupted { .. } | CliError::BrokenPipe)) {
            let stopped = fleet.stop().await;
            return ended.and_then(|exit| stopped.map(|()| exit));
        }
        if let Err(e) = &ended {
            ctx.out.error(e);
        }
    }
    ctx.out.note(&format!("API: {}  (token: {})", fleet.url, ctx.home.path("token").display()));
    ctx.out.note("up until Ctrl-C; another terminal: `muster run \"…\"`, `muster list`, `muster inbox`");
    let broken = tokio::select! {
        () = super::signal::interrupted() => None,
        e = fleet.broken() => Some(e),
    };
    ctx.out.note("stopping");
    fleet.stop().await?;
    match broken {
        Some(e) => Err(e),
        None => Ok(ended.unwrap_or(Exit::Failed)),
    }
}

/// Starts another one of us in the background and waits until it can be asked.
async fn detach(ctx: &Context, args: &Args) -> Result<Exit, CliError> {
    ctx.home.make()?;
    // Refused here already when one is running, not only in the log.
    drop(ctx.home.lock()?);
    let log = ctx.home.path("logs/up.log");
    write_private(&log, "")?;
    let trouble = |e: std::io::Error| {
        CliError::failed(format!("cannot start in the background: {e}"), "try without --detach")
    };
    let to = std::fs::OpenOptions::new().append(true).mode(0o600).open(&log).map_err(trouble)?;
    let mut command = tokio::process::Command::new(std::env::current_exe().map_err(trouble)?);
    command.arg("up").arg("--home").arg(ctx.home.folder()).arg(format!("--workers={}", args.workers));
    if let Some(model) = clap::ValueEnum::to_possible_value(&args.model) {
        command.arg(format!("--model={}", model.get_name()));
    }
    if let Some(config) = &ctx.config {
        command.arg("--config").arg(config);
    }
    command
        .stdin(std::process::Stdio::null())
        .stdout(to.try_clone().map_err(trouble)?)
        .stderr(to)
        .process_group(0);
    let mut child = command.spawn().map_err(trouble)?;
    let since = Instant::now();
    loop {
        if let Ok(client::Found::Local { url, .. }) = client::find(None, &ctx.home).await {
            ctx.out.note(&format!(
                "up in the background (process {}); `muster down` stops it",
                child.id().unwrap_or(0)
            ));
            ctx.out.show(&serde_json::json!({"url": url, "token_file": ctx.home.path("token")}), || {
                url.clone()
            })?;
            return Ok(Exit::Done);
        }
        let ended = child.try_wait().ok().flatten();
        if ended.is_some() || since.elapsed() > DETACH_WAIT {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            return Err(CliError::failed(
                format!("the fleet did not come up:\n{}", said.trim_end()),
                format!("the logs are in {}", ctx.home.path("logs").display()),
            ));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
