//! `muster down`: stops the fleet that runs here, as Ctrl-C in its terminal would.

use super::context::Context;
use super::error::{CliError, Exit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::{Duration, Instant};

/// Longest wait for the drain.
const WAIT: Duration = Duration::from_secs(90);

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  muster up --detach && muster run plan.toml && muster down")]
pub(crate) struct Args {}

pub(crate) async fn run(ctx: &Context, _: &Args) -> Result<Exit, CliError> {
    let pid =
        ctx.home.api().map(|api| api.pid).and_then(|pid| i32::try_from(pid).ok()).filter(|pid| *pid > 0);
    // The lock says whether its process lives; a pid alone may be somebody else's by now.
    let (Some(pid), true) = (pid, ctx.home.is_locked()) else {
        ctx.out.note(&format!("no fleet runs in {}", ctx.home.folder().display()));
        return Ok(Exit::Done);
    };
    kill(Pid::from_raw(pid), Signal::SIGTERM).map_err(|e| {
        CliError::failed(format!("process {pid}: {e}"), "is it another user's? Stop it in its own terminal")
    })?;
    let since = Instant::now();
    while ctx.home.is_locked() {
        if since.elapsed() > WAIT {
            return Err(CliError::failed(
                format!("process {pid} is still draining after {} s", WAIT.as_secs()),
                "look into .muster/logs, or press Ctrl-C twice in its terminal",
            ));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    ctx.out.note("stopped");
    Ok(Exit::Done)
}
