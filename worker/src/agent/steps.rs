//! The step log of an attempt: one line of JSON a step, kept as a blob whose reference the report carries.

use serde::Serialize;
use shared::prompt;

/// Characters kept of an argument, a result, a text.
const TEXT_CHARS_MAX: usize = 4_000;
/// Bytes of a whole log; what comes after is counted only.
const BYTES_MAX: usize = 2 * 1024 * 1024;

/// One finished step.
#[derive(Serialize)]
pub(crate) struct Step {
    /// Version of this format.
    pub(crate) v: u32,
    pub(crate) step: u32,
    /// Milliseconds since the attempt began.
    pub(crate) at_ms: u64,
    pub(crate) text: String,
    pub(crate) calls: Vec<Call>,
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
}

/// One tool call of a step.
#[derive(Serialize)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) args: String,
    pub(crate) result: String,
    pub(crate) ok: bool,
    pub(crate) ms: u64,
}

impl Call {
    pub(crate) fn new(name: &str, args: &str, result: &str, ok: bool, ms: u64) -> Self {
        let clip = |text: &str| prompt::clip(text, TEXT_CHARS_MAX);
        Self { name: name.into(), args: clip(args), result: clip(result), ok, ms }
    }
}

/// Append-only.
#[derive(Default)]
pub(crate) struct StepLog {
    lines: String,
    left_out: u32,
}

impl StepLog {
    /// The line that was added; empty when there was no room.
    pub(crate) fn add(&mut self, mut step: Step) -> String {
        step.text = prompt::clip(&step.text, TEXT_CHARS_MAX);
        match serde_json::to_string(&step) {
            Ok(line) if self.lines.len() + line.len() < BYTES_MAX => {
                self.resume(&line);
                line
            }
            Ok(_) | Err(_) => {
                self.left_out += 1;
                String::new()
            }
        }
    }

    /// A line that an earlier owner of the ticket wrote.
    pub(crate) fn resume(&mut self, line: &str) {
        if !line.is_empty() && self.lines.len() + line.len() < BYTES_MAX {
            self.lines.push_str(line);
            self.lines.push('\n');
        }
    }

    /// All lines; empty when no step was finished.
    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        if self.left_out > 0 {
            self.lines.push_str(&format!("{{\"v\":1,\"left_out\":{}}}\n", self.left_out));
        }
        self.lines.into_bytes()
    }
}
