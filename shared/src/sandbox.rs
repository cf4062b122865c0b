//! Where foreign code runs: bubblewrap, without network, without the host's files and environment, with limits.
//! No sandbox, no code tool (I7).
//!
//! - [`arguments`]: what bubblewrap is told, a pure function; the order of the arguments is the policy.
//! - [`probe`]: finds out at start whether it works here, and with which Python.
//! - [`limits`]: limits of one process (rlimits) and of the tree (a watch).
//! - [`seccomp`]: system calls that are refused.
//! - [`user`]: whose processes they are.
//! - [`launcher`]: the thread that starts sandboxes, and never ends before the process does.
//! - [`capture`]: the first and last bytes of an output.

mod arguments;
mod capture;
mod launcher;
mod limits;
mod probe;
#[cfg(target_os = "linux")]
mod seccomp;
mod user;
/// Elsewhere there is no bubblewrap to read it.
#[cfg(not(target_os = "linux"))]
mod seccomp {
    pub(super) fn open() -> std::io::Result<Option<std::os::fd::OwnedFd>> {
        Ok(None)
    }

    pub(super) fn filters_of(_pid: u32) -> Option<u32> {
        None
    }
}

pub use capture::Capture;
pub use probe::Python;

use arguments::Layout;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

/// The folder of the job as the code in the sandbox sees it.
pub const WORKSPACE: &str = "/workspace";
/// After a kill the pipes close at once; this is for a kernel that takes its time.
const REAP: Duration = Duration::from_secs(5);
/// Setting up takes some hundredths of a second; this is for a machine under heavy load.
const START: Duration = Duration::from_secs(60);
/// Between two looks at a process that is about to be tied, a moment in most cases.
const TIED_LOOK: Duration = Duration::from_millis(1);
/// What is kept of the words of a sandbox that does not start.
const SETUP_BYTES_MAX: usize = 2_000;

/// Why there is no sandbox here. The worker then offers no code tool and does not claim from pools that run code.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NoSandbox {
    #[error(
        "bubblewrap (bwrap) is not installed\n  hint: apt-get install bubblewrap; elsewhere than on Linux code tools are off"
    )]
    Missing,
    #[error(
        "bubblewrap does not run here: {0}\n  hint: it needs user namespaces: kernel.unprivileged_userns_clone=1, on Ubuntu \
         kernel.apparmor_restrict_unprivileged_userns=0, in a container a seccomp profile that allows them"
    )]
    Refused(String),
}

/// Why a job did not run. What the code itself did wrong is in [`Output`], not here.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The sandbox could not be set up: the attempt fails, another may do.
    #[error("the sandbox does not start: {0}")]
    Broken(String),
    /// The job itself cannot be run as it is: a bug of the caller.
    #[error("not a job for the sandbox: {0}")]
    Job(&'static str),
}

/// A sandbox that works; cheap to clone.
#[derive(Clone, Debug)]
pub struct Sandbox {
    layout: Arc<Layout>,
    /// Under root: the one that starts as another user, where that works.
    as_other: Option<Arc<Layout>>,
}

/// One program to run.
#[derive(Clone, Debug)]
pub struct Job {
    /// The program and its arguments; a name is looked up in the sandbox's own PATH.
    pub argv: Vec<String>,
    /// Bound read-write as `/workspace`, where the program starts. Nothing else of the host can be written.
    pub folder: PathBuf,
    /// Folders of the host that are shown read-only, at the same place.
    pub read_only: Vec<PathBuf>,
    /// All of the environment beside PATH, HOME, LANG and the like.
    pub env: Vec<(String, String)>,
    pub stdin: Vec<u8>,
    pub timeout_ms: u64,
    /// Address space of each process, and memory in use of all of them together.
    pub memory_bytes_max: u64,
    pub processes_max: u64,
    /// Of each of the two outputs; first and last half are kept.
    pub output_bytes_max: usize,
}

/// What became of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Exit code; `None` when it was killed. Signals show as 128 + number.
    pub code: Option<i32>,
    pub stdout: String,
    /// When limits of the tree were passed, the last line says which.
    pub stderr: String,
    pub timed_out: bool,
    /// An output was longer than allowed.
    pub truncated: bool,
}

impl Sandbox {
    /// Runs bubblewrap a few times to see what works here; as root also as another user. Blocks, about a tenth of a
    /// second.
    ///
    /// # Errors
    /// [`NoSandbox`] says what is missing and how to get it.
    pub fn probe() -> Result<Self, NoSandbox> {
        let layout = Arc::new(probe::layout(None)?);
        let mut as_other = None;
        if nix::unistd::geteuid().is_root() {
            match probe::layout(Some(user::NOBODY)) {
                Ok(layout) => as_other = Some(Arc::new(layout)),
                Err(error) => {
                    tracing::warn!(%error, "code runs as root: the kernel will not limit its processes");
                }
            }
        }
        Ok(Self { layout, as_other })
    }

    /// The Python 3 that runs inside, if there is one.
    #[must_use]
    pub fn python(&self) -> Option<&Python> {
        self.as_other.as_ref().unwrap_or(&self.layout).python.as_ref()
    }

    /// Runs the job to its end. Dropping the future, the timeout and the end of this process all kill the
    /// whole tree of processes.
    ///
    /// # Errors
    /// [`SandboxError`]; whatever the program did is an [`Output`].
    pub async fn run(&self, job: Job) -> Result<Output, SandboxError> {
        let mut child = self.start(&job).await?;
        let (Some(mut stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(SandboxError::Broken("a pipe is missing".into()));
        };
        let (mut out, mut err) = (Capture::new(job.output_bytes_max), Capture::new(job.output_bytes_max));
        let (pid, input) = (child.id(), job.stdin.clone());
        let feed = async move {
            // A program that does not read its input is no error.
            let _ = stdin.write_all(&input).await;
        };
        let end = {
            let talk = async { tokio::join!(feed, out.read_from(stdout), err.read_from(stderr)) };
            let limit = async {
                tokio::select! {
                    breach = limits::watch(pid, &job) => End::Breach(breach),
                    () = tokio::time::sleep(Duration::from_millis(job.timeout_ms)) => End::Timeout,
                }
            };
            tokio::pin!(talk, limit);
            let talked = tokio::select! {
                _ = &mut talk => None,
                end = &mut limit => Some(end),
            };
            let end = match talked {
                Some(end) => {
                    let _ = child.start_kill();
                    let _ = tokio::time::timeout(REAP, &mut talk).await;
                    end
                }
                // The outputs may be closed while the program goes on.
                None => tokio::select! {
                    _ = child.wait() => End::Itself,
                    end = &mut limit => end,
                },
            };
            let _ = child.start_kill();
            end
        };
        let status = tokio::time::timeout(REAP, child.wait())
            .await
            .map_err(|_| SandboxError::Broken("a killed sandbox does not end".into()))?
            .map_err(|e| SandboxError::Broken(e.to_string()))?;
        let truncated = out.is_cut() || err.is_cut();
        let (stdout, mut stderr) = (out.text(), err.text());
        let code = match &end {
            End::Itself => status.code(),
            End::Breach(_) | End::Timeout => None,
        };
        if let End::Breach(why) = &end {
            stderr = format!("{stderr}\n[killed: {why}]").trim_start().to_owned();
        }
        Ok(Output { code, stdout, stderr, timed_out: matches!(end, End::Timeout), truncated })
    }

    /// Starts the job and hands out the process with its three pipes, for a talk of some length; `stdin` and
    /// `timeout_ms` are the caller's to see to, [`Sandbox::watch`] too. Killing or dropping the child kills the
    /// whole tree, and so does the end of this process; cancellation safe.
    ///
    /// # Errors
    /// [`SandboxError`] when the program was not reached.
    pub async fn start(&self, job: &Job) -> Result<Child, SandboxError> {
        if job.argv.is_empty() {
            return Err(SandboxError::Job("no program"));
        }
        let broken = |e: std::io::Error| SandboxError::Broken(e.to_string());
        let folder = job.folder.canonicalize().map_err(broken)?;
        let layout = self.layout_for(&folder).await.map_err(broken)?;
        let mut command = Command::new(&layout.bwrap);
        if let Some(user) = layout.user {
            // The groups of root go with it.
            command.uid(user).gid(user);
        }
        // Inherited by bubblewrap alone as far as it matters: others would inherit a file that says nothing.
        let filter = seccomp::open().map_err(broken)?;
        command
            .args(arguments::arguments(
                layout,
                &folder,
                &job.read_only,
                filter.as_ref().map(AsRawFd::as_raw_fd),
            ))
            .args(["/bin/sh", "-c"])
            .arg(limits::prelude(job.memory_bytes_max, job.processes_max, layout.counts_processes))
            .arg("sh")
            .args(&job.argv)
            .env_clear()
            .envs(arguments::environment(layout))
            .envs(job.env.iter().map(|(name, value)| (name, value)))
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let child = launcher::spawn(command).map_err(broken)?;
        // A task of its own: when the caller goes away, bubblewrap must not be killed before it is set up,
        // for its inner process would wait for ever for the outer one.
        let mut child =
            tokio::spawn(set_up(child)).await.map_err(|e| SandboxError::Broken(e.to_string()))??;
        let Some(stdin) = child.stdin.as_mut() else {
            return Err(SandboxError::Broken("a pipe is missing".into()));
        };
        stdin.write_all(limits::GO).await.map_err(broken)?;
        Ok(child)
    }

    /// How to start a job of this folder, which is handed over to the user that it is started as.
    async fn layout_for(&self, folder: &std::path::Path) -> std::io::Result<&Layout> {
        let Some(other) = &self.as_other else { return Ok(&self.layout) };
        let Some(user) = other.user else { return Ok(&self.layout) };
        let at = folder.to_owned();
        let handed = tokio::task::spawn_blocking(move || {
            if !user::reaches(user, &at) {
                return Ok(false);
            }
            user::hand_over(user, &at).map(|()| true)
        });
        if handed.await.map_err(std::io::Error::other)?? {
            return Ok(other);
        }
        tracing::warn!(
            folder = %folder.display(),
            "code runs as root, other users do not reach the folder: the kernel will not limit its processes"
        );
        Ok(&self.layout)
    }

    /// Waits until the tree of this process passes the limits of the job; the words say which. Never ends
    /// while they are kept. Cancellation safe.
    pub async fn watch(&self, pid: Option<u32>, job: &Job) -> String {
        limits::watch(pid, job).await
    }
}

/// Waits until everything is set up; then the tree surely dies with bubblewrap. If we die before, the shell
/// inside reads the end of its input instead of [`limits::GO`] and ends by itself.
async fn set_up(mut child: Child) -> Result<Child, SandboxError> {
    let mut ready = [0; limits::READY.len()];
    let answer = match child.stdout.as_mut() {
        Some(stdout) => tokio::time::timeout(START, stdout.read_exact(&mut ready)).await,
        None => return Err(SandboxError::Broken("a pipe is missing".into())),
    };
    match answer {
        Ok(Ok(_)) if ready == limits::READY => {
            limits::offer(child.id());
            let Some(pid) = child.id() else { return Ok(child) };
            return match tokio::time::timeout(START, tied(pid)).await {
                Ok(()) => Ok(child),
                Err(_) => Err(SandboxError::Broken("its first process is not tied to it in time".into())),
            };
        }
        Ok(_) => {}
        Err(_) => return Err(SandboxError::Broken("it is not set up in time".into())),
    }
    let mut said = Capture::new(SETUP_BYTES_MAX);
    if let Some(stderr) = child.stderr.take() {
        let _ = tokio::time::timeout(REAP, said.read_from(stderr)).await;
    }
    Err(SandboxError::Broken(said.text().trim().into()))
}

/// Waits until the first process inside dies with bubblewrap. It sees to that only after it has started the program (so
/// `READY` comes too early), and takes the filter right after it, which can be seen. Where it cannot be seen, or the
/// process is gone, there is nothing to wait for.
async fn tied(bwrap: u32) {
    loop {
        let first = limits::tree(bwrap, 1).get(1).copied();
        let (Some(of_first), Some(own)) = (first.and_then(seccomp::filters_of), seccomp::filters_of(bwrap))
        else {
            return;
        };
        if of_first > own {
            return;
        }
        tokio::time::sleep(TIED_LOOK).await;
    }
}

enum End {
    Itself,
    Breach(String),
    Timeout,
}

#[cfg(test)]
mod tests;
