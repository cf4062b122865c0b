//! The command line: what may be typed, and which file does it. One file a command in `cli/`.
//!
//! Data goes to stdout, everything else to stderr; every command knows `--json`; every error has a hint;
//! a reader that goes away is no error. HTTP only, but for `up` (starts processes) and `doctor` (looks at Redis).

#[path = "cli/answer.rs"]
mod answer;
#[path = "cli/approve.rs"]
mod approve;
#[path = "cli/audit.rs"]
mod audit;
#[path = "cli/board.rs"]
mod board;
#[path = "cli/cancel.rs"]
mod cancel;
#[path = "cli/children.rs"]
mod children;
#[path = "cli/client.rs"]
mod client;
#[path = "cli/completions.rs"]
mod completions;
#[path = "cli/config.rs"]
mod config;
#[path = "cli/context.rs"]
mod context;
#[path = "cli/dead_letters.rs"]
mod dead_letters;
#[path = "cli/deliver.rs"]
mod deliver;
#[path = "cli/demo.rs"]
mod demo;
#[path = "cli/doctor.rs"]
mod doctor;
#[path = "cli/down.rs"]
mod down;
#[path = "cli/env.rs"]
mod env;
#[path = "cli/error.rs"]
mod error;
#[path = "cli/events.rs"]
mod events;
#[path = "cli/exec.rs"]
mod exec;
#[path = "cli/export.rs"]
mod export;
#[path = "cli/fleet.rs"]
mod fleet;
#[path = "cli/home.rs"]
mod home;
#[path = "cli/ids.rs"]
mod ids;
#[path = "cli/inbox.rs"]
mod inbox;
#[path = "cli/intake.rs"]
mod intake;
#[path = "cli/limits.rs"]
mod limits;
#[path = "cli/list.rs"]
mod list;
#[path = "cli/live.rs"]
mod live;
#[path = "cli/local.rs"]
mod local;
#[path = "cli/logs.rs"]
mod logs;
#[path = "cli/memory.rs"]
mod memory;
#[path = "cli/model.rs"]
mod model;
#[path = "cli/note.rs"]
mod note;
#[path = "cli/open.rs"]
mod open;
#[path = "cli/out.rs"]
mod out;
#[path = "cli/pause.rs"]
mod pause;
#[path = "cli/plan.rs"]
mod plan;
#[path = "cli/pull.rs"]
mod pull;
#[path = "cli/record.rs"]
mod record;
#[path = "cli/redis.rs"]
mod redis;
#[path = "rehearsal.rs"]
mod rehearsal;
#[path = "cli/reopen.rs"]
mod reopen;
#[path = "cli/replay.rs"]
mod replay;
#[path = "cli/report.rs"]
mod report;
#[path = "cli/retry.rs"]
mod retry;
#[path = "cli/reviewers.rs"]
mod reviewers;
#[path = "cli/run.rs"]
mod run;
#[path = "cli/show.rs"]
mod show;
#[path = "cli/signal.rs"]
mod signal;
#[path = "cli/standards.rs"]
mod standards;
#[path = "cli/standing.rs"]
mod standing;
#[path = "cli/stats.rs"]
mod stats;
#[path = "cli/submit.rs"]
mod submit;
#[path = "cli/tickets.rs"]
mod tickets;
#[path = "cli/token.rs"]
mod token;
#[path = "api/types.rs"]
mod types;
#[path = "cli/up.rs"]
mod up;
#[path = "cli/watch.rs"]
mod watch;
#[path = "cli/ways.rs"]
mod ways;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use context::Context;
use error::{CliError, Exit};
use out::Out;
use std::path::PathBuf;
use std::process::ExitCode;

/// What was typed.
#[derive(Debug, Parser)]
#[command(
    name = "muster",
    version,
    about = "A fleet of LLM agents on Redis: hand it a goal, get the deliverable.",
    propagate_version = true,
    max_term_width = 110
)]
struct Cli {
    /// Address of the manager. [default: that of the fleet running here]
    #[arg(long, global = true, env = env::URL, hide_env_values = true, value_name = "URL")]
    url: Option<String>,
    /// Folder of the fleet on this machine.
    #[arg(long, global = true, env = env::HOME, hide_env_values = true, default_value = ".muster", value_name = "DIR")]
    home: PathBuf,
    /// Configuration of what runs here (`up`, `run`, `doctor`). [default: muster.toml, if there is one]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Data as JSON; errors as JSON on stderr.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Everything on this machine: Redis, manager, workers, reviewer.
    Up(up::Args),
    /// Stop the fleet that runs here.
    Down(down::Args),
    /// Submit a goal and watch it to its end.
    Run(run::Args),
    /// Submit a goal and say its id.
    Submit(submit::Args),
    /// Show the plan that would run.
    Plan(plan::Args),
    /// Follow a goal to its end.
    Watch(watch::Args),
    /// The goals.
    List(list::Args),
    /// One goal or ticket in full.
    Show(show::Args),
    /// The tickets of a goal.
    Tickets(tickets::Args),
    /// The events of a goal.
    Logs(logs::Args),
    /// What waits for a person.
    Inbox(inbox::Args),
    /// Decide something of the inbox.
    Answer(answer::Args),
    /// One exact call may run, once.
    Approve(approve::Approve),
    /// One exact call may not run.
    Deny(approve::Deny),
    /// Your own files in a ticket's place.
    Deliver(deliver::Args),
    /// A word to a goal's manager.
    Note(note::Args),
    /// Stop a goal or ticket.
    Cancel(cancel::Args),
    /// No new claims of a goal, or of the fleet.
    Pause(pause::Args),
    /// Claims again.
    Resume(pause::Args),
    /// Try a ticket again.
    Retry(retry::Args),
    /// Do a finished goal or ticket again.
    Reopen(reopen::Args),
    /// The files of a goal into a folder.
    Pull(pull::Args),
    /// Where the dashboard shows a goal or ticket.
    Open(open::Args),
    /// A goal as one HTML file: plan, timeline, verdicts, costs, files.
    Report(report::Args),
    /// A goal as one JSON document.
    Export(export::Args),
    /// What a goal's models were asked and answered, into one file.
    Record(record::Args),
    /// A recorded goal once more, without a model: the same, or the first difference.
    Replay(replay::Args),
    /// What is wrong here, and the way out.
    Doctor(doctor::Args),
    /// How much waits and runs.
    Stats(stats::Args),
    /// Tokens of the API.
    Token(token::Args),
    /// Who works here.
    Fleet(fleet::Args),
    /// What finished goals taught.
    Memory(memory::Args),
    /// Checklist items that reviews suggest.
    Standards(standards::Args),
    /// How good those are who check the work.
    Reviewers(reviewers::Args),
    /// What could not be read.
    DeadLetters(dead_letters::Args),
    /// Whether the store's rules hold.
    Audit(audit::Args),
    /// What a shell needs to complete commands.
    Completions(completions::Args),
    /// Serve a scripted model, for demos and tests.
    #[command(
        after_help = "Example:\n  muster rehearsal --listen 127.0.0.1:8099 --script deploy/examples/demo.rehearsal.toml"
    )]
    Rehearsal(rehearsal::Args),
    #[command(name = "__exec", hide = true)]
    Exec(exec::Args),
}

/// Parses, runs, and ends with the exit code.
pub(crate) fn main() -> ExitCode {
    let cli = match parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(e) => {
            // Help and version are data; a mistake is a usage error.
            if e.use_stderr() && std::env::args_os().any(|word| word == "--json") {
                Out::new(true).error(&usage(&e));
            } else {
                let _ = e.print();
            }
            return if e.use_stderr() { Exit::Usage.code().into() } else { ExitCode::SUCCESS };
        }
    };
    let out = Out::new(cli.json);
    // Before any thread is started: the process becomes another one.
    if let Command::Exec(args) = &cli.command {
        return exec::run(args).into();
    }
    let command = cli.command;
    let ended = home::Home::new(&cli.home).and_then(|home| {
        let ctx = Context { out, url: cli.url.filter(|u| !u.trim().is_empty()), home, config: cli.config };
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(
                |e| CliError::failed(format!("cannot start: {e}"), "raise the limits of this shell (ulimit)"),
            )?;
        let ended = runtime.block_on(dispatch(&ctx, &command));
        // A read of stdin or a name lookup must not hold up the end.
        runtime.shutdown_background();
        ended
    });
    match ended {
        Ok(exit) => exit.code().into(),
        Err(e) => {
            if !matches!(e, CliError::BrokenPipe) {
                out.error(&e);
            }
            e.exit().code().into()
        }
    }
}

fn parse(argv: impl IntoIterator<Item = std::ffi::OsString>) -> Result<Cli, clap::Error> {
    let command = Cli::command().after_help(error::EXIT_CODES).after_long_help(format!(
        "{}\n{}\nExamples:\n  muster up --demo\n  muster run \"Compare the three offers\" --input offers/\n  \
             muster run deploy/examples/parallel.toml\n  muster inbox",
        error::EXIT_CODES,
        env::help()
    ));
    let matches = command.try_get_matches_from(argv)?;
    Cli::from_arg_matches(&matches)
}

/// A mistake in the arguments as an error like all others.
fn usage(e: &clap::Error) -> CliError {
    let text = e.render().to_string();
    let (what, more) = text.split_once("\n\n").unwrap_or((&text, ""));
    let tip = more.lines().find_map(|line| line.trim().strip_prefix("tip: "));
    let usage = more.lines().find_map(|line| line.strip_prefix("Usage: "));
    let hint = match (tip, usage) {
        (Some(tip), _) => tip.to_owned(),
        (None, Some(usage)) => format!("usage: {usage}"),
        (None, None) => "see `muster --help`".to_owned(),
    };
    CliError::usage(out::one_line(what.trim_start_matches("error: "), 500), hint)
}

async fn dispatch(ctx: &Context, command: &Command) -> Result<Exit, CliError> {
    match command {
        Command::Up(args) => up::run(ctx, args).await,
        Command::Down(args) => down::run(ctx, args).await,
        Command::Run(args) => run::run(ctx, args).await,
        Command::Submit(args) => submit::run(ctx, args).await,
        Command::Plan(args) => plan::run(ctx, args).await,
        Command::Watch(args) => watch::run(ctx, args).await,
        Command::List(args) => list::run(ctx, args).await,
        Command::Show(args) => show::run(ctx, args).await,
        Command::Tickets(args) => tickets::run(ctx, args).await,
        Command::Logs(args) => logs::run(ctx, args).await,
        Command::Inbox(args) => inbox::run(ctx, args).await,
        Command::Answer(args) => answer::run(ctx, args).await,
        Command::Approve(args) => approve::approve(ctx, args).await,
        Command::Deny(args) => approve::deny(ctx, args).await,
        Command::Deliver(args) => deliver::run(ctx, args).await,
        Command::Note(args) => note::run(ctx, args).await,
        Command::Cancel(args) => cancel::run(ctx, args).await,
        Command::Pause(args) => pause::run(ctx, args, "pause").await,
        Command::Resume(args) => pause::run(ctx, args, "resume").await,
        Command::Retry(args) => retry::run(ctx, args).await,
        Command::Reopen(args) => reopen::run(ctx, args).await,
        Command::Pull(args) => pull::run(ctx, args).await,
        Command::Open(args) => open::run(ctx, args).await,
        Command::Report(args) => report::run(ctx, args).await,
        Command::Completions(args) => completions::run(ctx, args),
        Command::Export(args) => export::run(ctx, args).await,
        Command::Record(args) => record::run(ctx, args).await,
        Command::Replay(args) => replay::run(ctx, args).await,
        Command::Doctor(args) => doctor::run(ctx, args).await,
        Command::Stats(args) => stats::run(ctx, args).await,
        Command::Token(args) => token::run(ctx, args).await,
        Command::Fleet(args) => fleet::run(ctx, args).await,
        Command::Memory(args) => memory::run(ctx, args).await,
        Command::Standards(args) => standards::run(ctx, args).await,
        Command::Reviewers(args) => reviewers::run(ctx, args).await,
        Command::DeadLetters(args) => dead_letters::run(ctx, args).await,
        Command::Audit(args) => audit::run(ctx, args).await,
        Command::Rehearsal(args) => match rehearsal::run(args).await {
            Ok(_) => Ok(Exit::Done),
            Err(e) => {
                Err(CliError::usage(e.to_string(), "the format is in deploy/examples/demo.rehearsal.toml"))
            }
        },
        Command::Exec(_) => Ok(Exit::Done),
    }
}

/// A fresh id for a write that may have to be repeated.
fn request_id() -> String {
    uuid::Uuid::now_v7().simple().to_string()
}

#[cfg(test)]
#[path = "cli/tests.rs"]
mod tests;
