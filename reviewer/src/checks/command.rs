//! Commands that must exit 0 in the sandbox. They run in a copy of the workspace, so that what they write
//! changes neither the deliverable nor the evidence.

use super::{CheckError, Found, head};
use shared::blob::Blobs;
use shared::config::{Limits, Worker};
use shared::sandbox::{Job, Sandbox};
use shared::ticket::{Check, Ticket};
use shared::workspace::Attempt;
use std::path::Path;

/// Bytes of a command's output that are kept.
const OUTPUT_BYTES_MAX: usize = 16 * 1024;
/// Characters of a failed command's output that go into the reason.
const TAIL_CHARS: usize = 800;

/// Where commands run: the sandbox, if there is one, and the limits of code.
pub(crate) struct Bench<'a> {
    pub(crate) blobs: &'a Blobs,
    pub(crate) sandbox: Option<&'a Sandbox>,
    pub(crate) scratch: &'a Path,
    pub(crate) limits: &'a Limits,
    pub(crate) code: &'a Worker,
}

impl Bench<'_> {
    /// Runs the commands one after the other in one copy of the workspace.
    ///
    /// # Errors
    /// [`CheckError::Sandbox`] without a sandbox (I7), or when it broke; [`CheckError::Deliverable`].
    pub(super) async fn run(
        &self,
        ticket: &Ticket,
        root: &str,
        commands: &[&Check],
    ) -> Result<Vec<Found>, CheckError> {
        // I7: no sandbox, no command; and a command that was not run is never a pass.
        let Some(sandbox) = self.sandbox else {
            return Err(CheckError::Sandbox("this reviewer has no sandbox (bubblewrap)".into()));
        };
        let attempt = Attempt::open(
            self.blobs,
            &ticket.goal,
            root,
            &ticket.overlay_ref,
            self.scratch,
            self.limits,
            "review",
        )
        .await
        .map_err(crate::deliverable::DeliverableError::from)?;
        let mut found = vec![];
        for check in commands {
            let Check::Command { command } = check else { continue };
            found.push(self.run_one(sandbox, attempt.folder(), command).await?);
        }
        Ok(found)
    }

    async fn run_one(&self, sandbox: &Sandbox, folder: &Path, command: &str) -> Result<Found, CheckError> {
        let job = Job {
            argv: vec!["/bin/sh".into(), "-c".into(), command.into()],
            folder: folder.into(),
            read_only: vec![],
            env: vec![],
            stdin: vec![],
            timeout_ms: self.code.code_timeout_ms,
            memory_bytes_max: self.code.code_memory_bytes_max,
            processes_max: self.code.code_processes_max,
            output_bytes_max: OUTPUT_BYTES_MAX,
        };
        let output = sandbox.run(job).await.map_err(|e| CheckError::Sandbox(e.to_string()))?;
        let said = tail(&format!("{}{}", output.stdout, output.stderr));
        Ok(match output.code {
            _ if output.timed_out => Found::Fails(format!(
                "it did not end within {} ms; its last output: {said}",
                self.code.code_timeout_ms
            )),
            Some(0) => Found::Holds("it exits 0".into()),
            Some(code) => Found::Fails(format!("it exits {code}: {said}")),
            None => Found::Fails(format!("it was killed: {said}")),
        })
    }
}

/// The end of a text, where commands say what went wrong.
fn tail(text: &str) -> String {
    let text = text.trim();
    let skip = text.chars().count().saturating_sub(TAIL_CHARS);
    if skip == 0 {
        head(text, TAIL_CHARS)
    } else {
        format!("…{}", text.chars().skip(skip).collect::<String>())
    }
}
