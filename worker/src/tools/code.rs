//! code_interpreter: one Python process an attempt, kept between calls, in the sandbox.
//!
//! The driver (`code/driver.py`) reads requests from its stdin and answers on what was its stderr, both as
//! frames: 4 bytes of length (big endian), then JSON. stdout carries what the code and its children print,
//! and ends each run with a marker that only host and driver know.

use super::ToolError;
use serde::{Deserialize, Serialize};
use shared::config;
use shared::sandbox::{Capture, Job, Python, Sandbox, SandboxError};
use shared::workspace::Attempt;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};

/// The tool's name.
pub(super) const NAME: &str = "code_interpreter";
const DRIVER: &str = include_str!("code/driver.py");
/// Kept of what one run prints, half from the beginning, half from the end.
const PRINTED_BYTES_MAX: usize = 1024 * 1024;
/// Longest answer of the driver.
const ANSWER_BYTES_MAX: u32 = 64 * 1024;
/// Between the answer and the end of the output; they are written one after the other.
const REST: Duration = Duration::from_secs(2);
/// Python's own start.
const START: Duration = Duration::from_secs(60);
/// A killed Python is gone at once.
const REAP: Duration = Duration::from_secs(5);
/// Libraries named in the description.
const LIBRARIES_MAX: usize = 30;

#[derive(Serialize)]
struct Request<'a> {
    code: &'a str,
    cell: u32,
    marker: &'a str,
    /// Beginning of the paths of figures that are saved by themselves.
    figures: &'a str,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    figures: Vec<String>,
    #[serde(default)]
    failed: bool,
}

/// What a run gave.
pub(super) struct Ran {
    /// What the code printed, its traceback included.
    pub said: String,
    /// The code raised, exited with an error or was stopped.
    pub failed: bool,
    /// Why Python is gone; `None`: it is there for the next run.
    pub end: Option<String>,
}

/// A running Python. Dropped: it is killed with all its children.
pub(super) struct Interpreter {
    child: Child,
    requests: ChildStdin,
    printed: ChildStdout,
    answers: ChildStderr,
    job: Job,
    figures: String,
}

/// What the model must know of this Python.
pub(super) fn describe(python: &Python, limits: &config::Worker) -> String {
    let libraries = if python.libraries.is_empty() {
        "the standard library only".into()
    } else {
        python.libraries.iter().take(LIBRARIES_MAX).map(String::as_str).collect::<Vec<_>>().join(", ")
    };
    let (version, seconds) = (&python.version, limits.code_timeout_ms / 1000);
    format!("Python {version} with {libraries}; nothing can be installed. At most {seconds} s a call.")
}

impl Interpreter {
    /// Starts Python in the attempt's folder.
    pub(super) async fn start(
        sandbox: &Sandbox,
        python: &Python,
        attempt: &Attempt,
        limits: &config::Worker,
    ) -> Result<Self, ToolError> {
        let program = python.program.to_string_lossy().into_owned();
        let argv = [&*program, "-I", "-B", "-X", "utf8", "-c", DRIVER].map(Into::into).into();
        let job = Job {
            argv,
            folder: attempt.folder().into(),
            read_only: vec![],
            env: vec![],
            stdin: vec![],
            timeout_ms: limits.code_timeout_ms,
            memory_bytes_max: limits.code_memory_bytes_max,
            processes_max: limits.code_processes_max,
            output_bytes_max: PRINTED_BYTES_MAX,
        };
        let mut child = sandbox.start(&job).await.map_err(broken)?;
        let (Some(requests), Some(printed), Some(mut answers)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(ToolError::Broken("a pipe of the sandbox is missing".into()));
        };
        match tokio::time::timeout(START, frame(&mut answers)).await {
            Ok(Ok(_hello)) => {}
            Ok(Err(said)) => return Err(ToolError::Broken(format!("Python does not start: {said}"))),
            Err(_) => return Err(ToolError::Broken("Python does not start in time".into())),
        }
        let figures = format!("outputs/{}-figure", word(attempt.creator()));
        Ok(Self { child, requests, printed, answers, job, figures })
    }

    /// Runs a piece of code to its end, the timeout or a limit.
    pub(super) async fn run(&mut self, sandbox: &Sandbox, code: &str, cell: u32) -> Result<Ran, ToolError> {
        let marker = uuid::Uuid::now_v7().simple().to_string();
        let request = Request { code: unfenced(code), cell, marker: &marker, figures: &self.figures };
        let body = serde_json::to_vec(&request).map_err(|e| ToolError::Broken(e.to_string()))?;
        let mut bytes = u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes().to_vec();
        bytes.extend(body);

        let mut said = Capture::new(PRINTED_BYTES_MAX);
        let pid = self.child.id();
        let (end, figures, failed) = {
            let (requests, answers, printed) = (&mut self.requests, &mut self.answers, &mut self.printed);
            let talk = async {
                let output = until(printed, &marker, &mut said);
                tokio::pin!(output);
                let answer = async {
                    requests.write_all(&bytes).await.map_err(|e| e.to_string())?;
                    frame(answers).await
                };
                tokio::pin!(answer);
                tokio::select! {
                    answer = &mut answer => {
                        // Code that closed its outputs sends no marker.
                        let _ = tokio::time::timeout(REST, &mut output).await;
                        answer
                    }
                    () = &mut output => answer.await,
                }
            };
            tokio::select! {
                answer = talk => match answer {
                    Ok(answer) => (None, answer.figures, answer.failed),
                    Err(_) => (Some(End::Gone), vec![], true),
                },
                why = sandbox.watch(pid, &self.job) => (Some(End::Breach(why)), vec![], true),
                () = tokio::time::sleep(Duration::from_millis(self.job.timeout_ms)) => (Some(End::Timeout), vec![], true),
            }
        };
        let end = match end {
            None => None,
            Some(end) => Some(self.end(end).await),
        };
        let mut said = said.text();
        if said.trim().is_empty() {
            said = "(nothing was printed)".into();
        }
        if !figures.is_empty() {
            said.push_str(&format!("\n[figures saved: {}]", figures.join(", ")));
        }
        Ok(Ran { said, failed, end })
    }

    async fn end(&mut self, end: End) -> String {
        if !matches!(end, End::Gone) {
            let _ = self.child.start_kill();
        }
        let status = tokio::time::timeout(REAP, self.child.wait()).await;
        match end {
            End::Timeout => format!("the code was stopped after {} s", self.job.timeout_ms / 1000),
            End::Breach(why) => format!("the code was stopped: it used {why}"),
            End::Gone => match status {
                Ok(Ok(status)) if status.code().is_some_and(|code| code > 128) => {
                    format!("Python was killed by signal {}", status.code().unwrap_or_default() - 128)
                }
                Ok(Ok(status)) => format!("Python ended with code {}", status.code().unwrap_or(-1)),
                Ok(Err(_)) | Err(_) => {
                    let _ = self.child.start_kill();
                    "Python does not answer any more".into()
                }
            },
        }
    }
}

enum End {
    Timeout,
    Breach(String),
    Gone,
}

fn broken(error: SandboxError) -> ToolError {
    ToolError::Broken(error.to_string())
}

/// Reads one frame. An error holds what stood there instead.
async fn frame(from: &mut ChildStderr) -> Result<Answer, String> {
    let mut head = [0; 4];
    from.read_exact(&mut head).await.map_err(|e| e.to_string())?;
    let length = u32::from_be_bytes(head);
    if length > ANSWER_BYTES_MAX {
        let mut said = Capture::new(2_000);
        said.add(&head);
        let _ = tokio::time::timeout(REST, said.read_from(from)).await;
        return Err(said.text());
    }
    let mut body = vec![0; length as usize];
    from.read_exact(&mut body).await.map_err(|e| e.to_string())?;
    serde_json::from_slice(&body).map_err(|e| e.to_string())
}

/// Reads into `said` up to the marker (which may come in pieces), or to the end of the pipe.
async fn until(from: &mut (impl AsyncRead + Unpin), marker: &str, said: &mut Capture) {
    let mark = format!("\0{marker}\0").into_bytes();
    let (mut held, mut piece) = (Vec::new(), vec![0; 16 * 1024]);
    loop {
        let read = match from.read(&mut piece).await {
            Ok(0) | Err(_) => return said.add(&held),
            Ok(read) => read,
        };
        held.extend_from_slice(&piece[..read]);
        if let Some(at) = held.windows(mark.len()).position(|window| window == mark) {
            return said.add(&held[..at]);
        }
        // Only what may be the beginning of the marker stays: a cut must not lose the last words.
        let may_begin = held.len().saturating_sub(mark.len() - 1);
        let sure =
            held[may_begin..].iter().position(|byte| *byte == 0).map_or(held.len(), |at| may_begin + at);
        said.add(&held[..sure]);
        held.drain(..sure);
    }
}

/// Models send code in a Markdown fence.
fn unfenced(code: &str) -> &str {
    let Some(inside) = code.trim().strip_prefix("```").and_then(|rest| rest.strip_suffix("```")) else {
        return code;
    };
    match inside.split_once('\n') {
        Some((language, body)) if language.trim().chars().all(char::is_alphanumeric) => body,
        Some(_) | None => code,
    }
}

/// The text as part of a file name.
fn word(text: &str) -> String {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || *c == '-' || *c == '_';
    let word: String = text.chars().filter(is_plain).take(64).collect();
    if word.is_empty() { "code".into() } else { word }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_marker_in_pieces_is_found_and_nothing_of_it_is_shown() {
        let marker = "0123456789abcdef";
        let (mut to, mut from) = tokio::io::duplex(7);
        let write = tokio::spawn(async move {
            to.write_all(b"one \0 two \x000123 three\0").await.unwrap();
            to.write_all(format!("\0{marker}\0after").as_bytes()).await.unwrap();
        });
        let mut said = Capture::new(1000);
        until(&mut from, marker, &mut said).await;
        assert_eq!(said.text(), "one \0 two \x000123 three\0");
        drop(from);
        let _ = write.await;
    }

    #[test]
    fn fences_are_taken_off() {
        assert_eq!(unfenced("```python\nprint(1)\n```"), "print(1)\n");
        assert_eq!(unfenced("```\nprint(1)\n```\n"), "print(1)\n");
        assert_eq!(unfenced("print('```')"), "print('```')");
        assert_eq!(word("a/b c-1"), "abc-1");
    }
}
