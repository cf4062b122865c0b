//! A direct tool ticket: the whole work is one call, no model is asked.

use crate::agent::{self, End};
use crate::effects::{Decision, Effects, Gate};
use crate::tools::ToolBox;
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

/// Makes the call. Cancellation: ends soon after `job.stop`, unless an effect outside has begun.
pub(super) async fn run(
    job: &Job,
    toolbox: &mut ToolBox,
    call: &DirectCall,
    effects: &mut Effects<'_>,
) -> End {
    let gate = {
        let working = guarded(toolbox, call, effects);
        tokio::pin!(working);
        loop {
            tokio::select! {
                gate = &mut working => break gate,
                () = tokio::time::sleep(BEAT) => job.pulse.beat(),
            }
        }
    };
    job.pulse.beat();
    metrics::tool_call(toolbox.kind(&call.tool), matches!(&gate, Gate::Answer { ok: true, .. }));
    let text = match gate {
        Gate::Answer { text, ok: true } => text,
        Gate::Answer { text, ok: false } => {
            return End::fault(format!("{} failed:\n{}", call.tool, tail(&text)));
        }
        other @ (Gate::Denied(_) | Gate::Park(_) | Gate::Stopped | Gate::Broken(_)) => {
            return super::gate_closed(other, &call.tool);
        }
    };
    // Made again it would do the same.
    if !toolbox.undone().is_empty() {
        return End::not_retryable(super::foreign(toolbox.undone()));
    }
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
        outputs: changed,
        tool_calls: BTreeMap::from([(call.tool.clone(), 1)]),
        ..Report::default()
    }))
}

async fn guarded(toolbox: &mut ToolBox, call: &DirectCall, effects: &mut Effects<'_>) -> Gate {
    let Some(decl) = toolbox.decl(&call.tool).cloned() else {
        return Gate::Answer { text: format!("there is no tool `{}` here", call.tool), ok: false };
    };
    match effects.decide(toolbox, &decl, call.args.clone(), 0).await {
        Decision::Run { args, permit } => effects.run(toolbox, &decl, args, permit, 0).await,
        Decision::Ended(gate) => gate,
    }
}

/// The end of a traceback says most.
fn tail(text: &str) -> &str {
    let mut at = text.len().saturating_sub(SUMMARY_CHARS_MAX);
    while !text.is_char_boundary(at) {
        at += 1;
    }
    text[at..].trim()
}
