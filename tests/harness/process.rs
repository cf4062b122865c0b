//! Child processes that die with the test, free ports, signals.

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::RngExt;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

/// A free port on loopback, below the range that outgoing connections take theirs from: a server that is killed
/// and restarted finds its port again, and a client that reconnects meanwhile cannot end up talking to itself.
///
/// # Errors
/// When 200 random ports are all taken.
pub fn free_port() -> Result<u16> {
    for _ in 0..200 {
        let port = rand::rng().random_range(12_000..32_000);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port found between 12000 and 32000")
}

/// Starts the command; the kernel kills it when the test's thread ends, however it ends.
///
/// # Errors
/// When the program cannot be started; names it.
pub fn spawn(command: &mut Command) -> Result<Child> {
    #[expect(
        unsafe_code,
        reason = "the only way to ask for a signal at the parent's death; prctl alone runs between fork and exec"
    )]
    // SAFETY: prctl is async-signal-safe and allocates nothing.
    unsafe {
        command.pre_exec(|| nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(std::io::Error::from));
    }
    command.spawn().with_context(|| format!("cannot start {}", command.get_program().display()))
}

/// Sends a signal; a process that is gone already is not an error.
pub fn signal(child: &Child, signal: Signal) {
    if let Ok(pid) = i32::try_from(child.id()) {
        let _ = kill(Pid::from_raw(pid), signal);
    }
}

/// Kills it and waits until it is gone.
pub fn kill_now(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Waits for its end.
///
/// # Errors
/// When it still runs after the deadline.
pub async fn ended(child: &mut Child, deadline: Duration) -> Result<ExitStatus> {
    crate::wait::until("the process ends", deadline, async || Ok(child.try_wait()?)).await
}
