//! A direct tool ticket: the whole work is one call, no model is asked.

use crate::agent::{self, End};
use crate::tools::{ToolBox, ToolError};
use shared::consumer::Job;
use shared::prompt;
use shared::telemetry::metrics;
use shared::ticket::{DirectCall, Report};
use std::collections::BTreeMap;
use std::time::Duration;

/// Characters of the tool's text that become the report's summary.
const SUMMARY_CHARS_MAX: usize = 2_000;
/// A running tool beats this often; its own timeout ends it.
const BEAT: Duration = Duration::from_secs(5);

/// Makes the call. Cancellation: ends soon after `job.stop`.
pub(super) async fn run(job: &Job, toolbox: &mut ToolBox, call: &DirectCall) -> End {
    let done = {
        let working = toolbox.call(&call.tool, &call.args);
        tokio::pin!(working);
        loop {
            tokio::select! {
                done = &mut working => break done,
                () = job.stop.cancelled() => return End::Stopped,
                () = tokio::time::sleep(BEAT) => job.pulse.beat(),
            }
        }
    };
    job.pulse.beat();
    metrics::tool_call(matches!(&done, Ok(result) if !result.failed));
    let text = match done {
        Ok(result) if result.failed => {
            return End::fault(format!("{} failed:\n{}", call.tool, tail(&result.text)));
        }
        Ok(result) => result.text,
        Err(ToolError::Tell(problem)) => return End::fault(format!("{}: {problem}", call.tool)),
        Err(ToolError::Broken(problem)) => return agent::broken(&call.tool, &problem),
    };
    let (missing, changed) = match agent::outputs(toolbox, &job.claim.ticket.outputs).await {
        Ok(outputs) => outputs,
        Err(end) => return end,
    };
    if !missing.is_empty() {
        return End::fault(format!(
            "{} ran, but these declared outputs are not there: {}. It said:\n{}",
            call.tool,
            missing.join(", "),
            tail(&text)
        ));
    }
    End::Report(Box::new(Report {
        status: "done".into(),
        summary: prompt::clip(text.trim(), SUMMARY_CHARS_MAX),
        conclusions: vec![],
        outputs: changed,
        tool_calls: BTreeMap::from([(call.tool.clone(), 1)]),
        steps_ref: String::new(),
    }))
}

/// The end of a traceback says most.
fn tail(text: &str) -> &str {
    let mut at = text.len().saturating_sub(SUMMARY_CHARS_MAX);
    while !text.is_char_boundary(at) {
        at += 1;
    }
    text[at..].trim()
}
