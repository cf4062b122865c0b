//! A server that is a program: in the sandbox, in the attempt's folder, without network, with an environment of its own.
//! One JSON text a line each way.

use super::protocol::{self, Fault, Message};
use serde_json::Value;
use shared::sandbox::{Capture, Job, Sandbox};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};

/// Kept of what the program says beside the protocol.
const WORDS_BYTES_MAX: usize = 2_000;
/// What a line has beside the result in it.
const LINE_SLACK: usize = 64 * 1024;
/// A killed program is gone at once; one that ends by itself may say its last words.
const REAP: Duration = Duration::from_secs(2);

/// A running program. Dropped: it is killed with all its children.
pub(super) struct Program {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
    words: ChildStderr,
    said: Capture,
    job: Job,
    sandbox: Sandbox,
    /// Read and not yet a whole line.
    held: Vec<u8>,
    line_bytes_max: usize,
}

impl Program {
    pub(super) async fn start(sandbox: &Sandbox, job: Job, result_bytes_max: usize) -> Result<Self, Fault> {
        let gone = |why: String| Fault::NotSent(why);
        let mut child = sandbox.start(&job).await.map_err(|e| gone(e.to_string()))?;
        let (Some(input), Some(output), Some(words)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(gone("a pipe of the sandbox is missing".into()));
        };
        Ok(Self {
            child,
            input,
            output,
            words,
            said: Capture::new(WORDS_BYTES_MAX),
            job,
            sandbox: sandbox.clone(),
            held: vec![],
            line_bytes_max: result_bytes_max + LINE_SLACK,
        })
    }

    pub(super) async fn tell(&mut self, message: &Value) -> Result<(), Fault> {
        let line = format!("{message}\n");
        if self.input.write_all(line.as_bytes()).await.is_err() || self.input.flush().await.is_err() {
            return Err(self.gone().await);
        }
        Ok(())
    }

    /// Sends a request and waits for its answer. Cut in the middle, the program is of no use any more.
    pub(super) async fn request(&mut self, id: u64, message: &Value) -> Result<Value, Fault> {
        // The program may talk before it reads: both at once, or full pipes would wait for each other.
        let line = format!("{message}\n").into_bytes();
        let mut sent = 0;
        let (mut piece, mut word) = (vec![0; 16 * 1024], vec![0; 4 * 1024]);
        let mut is_talking = true;
        let (pid, job, sandbox) = (self.child.id(), self.job.clone(), self.sandbox.clone());
        let watch = sandbox.watch(pid, &job);
        tokio::pin!(watch);
        loop {
            while let Some(answer) = self.line() {
                // What is no JSON was printed by mistake, as many servers do.
                let Ok(message) = serde_json::from_slice::<Value>(&answer) else {
                    self.said.add(&answer);
                    continue;
                };
                match protocol::read(&message, id) {
                    Message::Answer(answer) => return answer,
                    Message::Asks(back) => self.tell(&back).await?,
                    Message::Other => {}
                }
            }
            if self.held.len() > self.line_bytes_max {
                return Err(Fault::Gone(format!(
                    "its answer is longer than {} bytes",
                    self.line_bytes_max - LINE_SLACK
                )));
            }
            tokio::select! {
                wrote = self.input.write(&line[sent..]), if sent < line.len() => match wrote {
                    Ok(n) if n > 0 => sent += n,
                    Ok(_) | Err(_) => return Err(self.gone().await),
                },
                read = self.output.read(&mut piece) => match read {
                    Ok(n) if n > 0 => self.held.extend_from_slice(&piece[..n]),
                    Ok(_) | Err(_) => return Err(self.gone().await),
                },
                read = self.words.read(&mut word), if is_talking => match read {
                    Ok(n) if n > 0 => self.said.add(&word[..n]),
                    Ok(_) | Err(_) => is_talking = false,
                },
                why = &mut watch => return Err(Fault::Gone(format!("it used {why}"))),
            }
        }
    }

    /// The next whole line that was read.
    fn line(&mut self) -> Option<Vec<u8>> {
        let end = self.held.iter().position(|b| *b == b'\n')?;
        let rest = self.held.split_off(end + 1);
        let mut line = std::mem::replace(&mut self.held, rest);
        line.pop();
        Some(line)
    }

    /// How it ended, with its last words.
    async fn gone(&mut self) -> Fault {
        let _ = tokio::time::timeout(REAP, self.said.read_from(&mut self.words)).await;
        let status = tokio::time::timeout(REAP, self.child.wait()).await;
        let _ = self.child.start_kill();
        let how = match status {
            Ok(Ok(status)) => format!("it ended with code {}", status.code().unwrap_or(-1)),
            Ok(Err(_)) | Err(_) => "it closed its pipes".into(),
        };
        let words = self.said.text();
        let words = words.trim();
        Fault::Gone(if words.is_empty() { how } else { format!("{how} and said: {words}") })
    }
}
