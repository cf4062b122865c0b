//! Programs that run for us: started with their output in a log, started again when they crash, and gone when
//! we are gone. They live in process groups of their own, so that Ctrl-C reaches us alone and we drain them.

use super::error::{CliError, Exit};
use super::home::Home;
use super::out::Out;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// First pause before a crashed program is started again; doubled each time.
const BACKOFF_MIN: Duration = Duration::from_millis(250);
const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// A program that lived this long has recovered.
const RECOVERED: Duration = Duration::from_secs(30);
/// A log larger than this is put aside: at the start, and while its program runs.
const LOG_BYTES_MAX: u64 = 10 * 1024 * 1024;
/// How often running programs' logs are looked at.
const LOG_LOOK: Duration = Duration::from_secs(10);
/// Lines of a log that are shown when its program does not start.
const LOG_LINES_SHOWN: usize = 8;

/// What to run.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// Such as `worker-1`: names its log.
    pub(crate) name: String,
    pub(crate) argv: Vec<OsString>,
    /// Beside our own environment.
    pub(crate) env: Vec<(String, String)>,
}

/// A program ended in a way that starting it again cannot mend.
#[derive(Clone, Debug)]
pub(crate) struct Fatal {
    pub(crate) name: String,
    pub(crate) log: PathBuf,
}

/// How long a program may take to stop, and the two ways of telling it.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    /// Asks it to drain (SIGTERM).
    pub(crate) drain: CancellationToken,
    /// Ends it at once (SIGKILL).
    pub(crate) now: CancellationToken,
    pub(crate) deadline: Duration,
}

/// Keeps one program running until it is told to stop. Returns when the process is gone.
pub(crate) async fn keep(out: Out, home: Home, program: Program, stop: Stop, fatal: mpsc::Sender<Fatal>) {
    let log = home.path("logs").join(format!("{}.log", program.name));
    let pid_file = home.path("run").join(format!("{}.pid", program.name));
    put_aside(&log);
    let mut backoff = BACKOFF_MIN;
    loop {
        let started = Instant::now();
        let mut child = match start(&program, &log) {
            Ok(child) => child,
            Err(e) => {
                out.note(&format!("{}: {e}", program.name));
                let _ = fatal.send(Fatal { name: program.name.clone(), log }).await;
                return;
            }
        };
        if let Some(pid) = child.id() {
            let _ = std::fs::write(&pid_file, pid.to_string());
        }
        let ended = tokio::select! {
            ended = child.wait() => ended,
            never = bound(&log, LOG_BYTES_MAX, LOG_LOOK) => match never {},
            () = stop.drain.cancelled() => {
                end(&mut child, &stop).await;
                let _ = std::fs::remove_file(&pid_file);
                return;
            }
        };
        let _ = std::fs::remove_file(&pid_file);
        let how = ended.map_or_else(|e| e.to_string(), |status| status.to_string());
        // A wrong configuration stays wrong; so does a missing program.
        if how.ends_with(&format!(": {}", Exit::Usage.code())) {
            let _ = fatal.send(Fatal { name: program.name.clone(), log }).await;
            return;
        }
        if started.elapsed() > RECOVERED {
            backoff = BACKOFF_MIN;
        }
        out.note(&format!(
            "{} ended ({how}); started again in {:.1} s, log: {}",
            program.name,
            backoff.as_secs_f64(),
            log.display()
        ));
        tokio::select! {
            () = tokio::time::sleep(backoff) => {}
            () = stop.drain.cancelled() => return,
        }
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
}

/// Starts it by way of `muster __exec`, so that it hears when we die.
fn start(program: &Program, log: &Path) -> std::io::Result<Child> {
    let log = std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(log)?;
    Command::new(std::env::current_exe()?)
        .arg("__exec")
        .arg(format!("--parent={}", std::process::id()))
        .arg("--")
        .args(&program.argv)
        .envs(program.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

async fn end(child: &mut Child, stop: &Stop) {
    if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
    tokio::select! {
        _ = child.wait() => return,
        () = tokio::time::sleep(stop.deadline) => {}
        () = stop.now.cancelled() => {}
    }
    let _ = child.kill().await;
}

/// Keeps the log of a running program within twice `bytes_max` and what it writes between two looks. The program
/// appends, so that its file can be emptied under it; what it writes between copying and emptying is lost. Never ends.
async fn bound(log: &Path, bytes_max: u64, look: Duration) -> std::convert::Infallible {
    loop {
        tokio::time::sleep(look).await;
        let log = log.to_owned();
        let _ = tokio::task::spawn_blocking(move || empty(&log, bytes_max)).await;
    }
}

fn empty(log: &Path, bytes_max: u64) -> std::io::Result<()> {
    if std::fs::metadata(log)?.len() > bytes_max {
        std::fs::copy(log, log.with_extension("log.1"))?;
        std::fs::OpenOptions::new().write(true).open(log)?.set_len(0)?;
    }
    Ok(())
}

fn put_aside(log: &Path) {
    if std::fs::metadata(log).is_ok_and(|m| m.len() > LOG_BYTES_MAX) {
        let _ = std::fs::rename(log, log.with_extension("log.1"));
    }
}

impl Fatal {
    /// The error with the last lines of its log.
    pub(crate) fn error(&self) -> CliError {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
        let last = lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n  ");
        CliError::usage(
            format!("{} does not start:\n  {last}", self.name),
            format!("its log is {}; `muster doctor` checks the rest", self.log.display()),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_of_a_running_program_does_not_grow_without_end() {
        use std::io::Write;
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("worker-1.log");
        let mut program = std::fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
        program.write_all(&[b'a'; 100]).unwrap();
        empty(&log, 100).unwrap();
        assert_eq!(std::fs::metadata(&log).unwrap().len(), 100);
        program.write_all(b"b").unwrap();
        empty(&log, 100).unwrap();
        // It goes on at the new end, and the last part is kept.
        program.write_all(b"c").unwrap();
        assert_eq!(std::fs::read(&log).unwrap(), b"c");
        assert_eq!(std::fs::metadata(log.with_extension("log.1")).unwrap().len(), 101);
    }

    #[test]
    fn a_fatal_end_shows_the_end_of_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("worker-1.log");
        let lines: Vec<String> = (0..50).map(|n| format!("line {n}")).collect();
        std::fs::write(&log, lines.join("\n")).unwrap();
        let e = Fatal { name: "worker-1".into(), log }.error();
        assert_eq!(e.exit().code(), 64);
        assert!(e.to_string().ends_with("line 49") && !e.to_string().contains("line 41"), "{e}");
    }
}
