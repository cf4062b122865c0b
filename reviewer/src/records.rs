//! What the records say of an attempt: the tool runs of its step log, for the judge to point at.
//!
//! The log is the worker's: lines of JSON, one a finished step. What is not known in it is passed over.

use crate::deliverable::DeliverableError;
use serde::{Deserialize, Serialize};
use shared::blob::{BlobError, Blobs};
use shared::prompt::clip;
use shared::workspace::WorkspaceError;

/// Largest log that is read.
const LOG_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Characters shown of the arguments and of the result of a call.
const ARGS_CHARS: usize = 300;
const RESULT_CHARS: usize = 500;

/// The tool runs of one step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ToolRun {
    /// Number that `tool:N` points at.
    pub(crate) step: u32,
    /// Which tools, with what, and what came of it; shortened.
    pub(crate) text: String,
}

#[derive(Deserialize)]
struct Step {
    step: u32,
    #[serde(default)]
    calls: Vec<Call>,
}

#[derive(Deserialize)]
struct Call {
    name: String,
    #[serde(default)]
    args: String,
    #[serde(default)]
    result: String,
    #[serde(default)]
    ok: bool,
}

/// Steps with tool runs, oldest first; none without a log, or when it is gone.
///
/// # Errors
/// The log cannot be read just now.
pub(crate) async fn tool_runs(
    blobs: &Blobs,
    goal: &str,
    steps_ref: &str,
) -> Result<Vec<ToolRun>, DeliverableError> {
    if steps_ref.is_empty() {
        return Ok(vec![]);
    }
    match blobs.get(goal, steps_ref, LOG_BYTES_MAX).await {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).lines().filter_map(run_of).collect()),
        Err(error) if error.is_retryable() => Err(WorkspaceError::from(error).into()),
        Err(error) => {
            lost(&error);
            Ok(vec![])
        }
    }
}

/// Pointers into it will not resolve then, which fails their items: closed, not open.
fn lost(error: &BlobError) {
    tracing::warn!(error = %error, "the step log is not there");
}

fn run_of(line: &str) -> Option<ToolRun> {
    let step: Step = serde_json::from_str(line).ok()?;
    let calls: Vec<String> = step.calls.iter().map(text_of).collect();
    (!calls.is_empty()).then(|| ToolRun { step: step.step, text: calls.join("\n") })
}

fn text_of(call: &Call) -> String {
    let how = if call.ok { "ok" } else { "failed" };
    let (args, result) = (clip(&call.args, ARGS_CHARS), clip(&call.result, RESULT_CHARS));
    format!("{} ({how})\narguments: {args}\nresult: {result}", call.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Fixture, GOAL};

    #[tokio::test]
    async fn steps_with_calls_are_what_can_be_pointed_at() {
        let f = Fixture::new(&[], &[]).await;
        let log = concat!(
            r#"{"v":1,"step":1,"at_ms":3,"text":"I think","calls":[],"input_tokens":1,"output_tokens":1}"#,
            "\n",
            r#"{"v":1,"step":2,"at_ms":9,"text":"","calls":[{"name":"code_interpreter","args":"{\"code\":\"print(3)\"}","result":"3","ok":true,"ms":5}]}"#,
            "\nno json\n",
            r#"{"v":1,"left_out":4}"#,
            "\n"
        );
        let reference = f.blobs.put(GOAL, log).await.unwrap();
        let runs = tool_runs(&f.blobs, GOAL, &reference).await.unwrap();
        assert_eq!(runs.len(), 1);
        assert_eq!(runs[0].step, 2);
        assert!(runs[0].text.starts_with("code_interpreter (ok)\narguments: {\"code\""), "{}", runs[0].text);
        assert_eq!(tool_runs(&f.blobs, GOAL, "").await.unwrap(), []);
        assert_eq!(tool_runs(&f.blobs, GOAL, &"0".repeat(64)).await.unwrap(), []);
    }
}
