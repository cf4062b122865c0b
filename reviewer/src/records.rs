//! What the records say of an attempt: the tool runs of its step log, for the judge to point at.

use crate::deliverable::DeliverableError;
use serde::Serialize;
use shared::blob::Blobs;

/// A recorded tool run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ToolRun {
    /// Number that `tool:N` points at.
    pub(crate) step: u32,
    /// Which tool, with what, and what came of it; shortened.
    pub(crate) text: String,
}
/// The tool runs of a step log, oldest first; none without a log.
///
/// # Errors
/// The log cannot be read.
pub(crate) async fn tool_runs(
    _blobs: &Blobs,
    _goal: &str,
    _steps_ref: &str,
) -> Result<Vec<ToolRun>, DeliverableError> {
    Ok(vec![])
}
