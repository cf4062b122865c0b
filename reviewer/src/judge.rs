//! The judge: one structured model call over the items that code cannot decide, each pointer resolved by code.
//!
//! Model proposes, code disposes: an item passes only if the model says so *and* shows a place that exists (D8).
//! What the model sees is in [`exhibit`], what it may answer in [`verdict`], what its pointers mean in [`evidence`].

use crate::deliverable::{Deliverable, DeliverableError};
use crate::records::{ToolRun, tool_runs};
use evidence::Places;
use exhibit::{FileShown, files_shown, images_shown, numbered, report_text};
use serde::Serialize;
use shared::blob::Blobs;
use shared::goal::Goal;
use shared::model::{Ask, CallRecord, ErrorClass, Message, Model, ModelError};
use shared::prompt;
use shared::standard::{Standard, UNSHOWN};
use shared::ticket::{Check, FailClass, Report, Ticket, Tier, VerdictItem};
use std::collections::BTreeSet;
use tokio_util::sync::CancellationToken;

mod evidence;
mod exhibit;
mod verdict;

/// Always an item (DESIGN.md 8).
pub(crate) const GOAL_ITEM: &str = "Still within the original goal and constraints";
/// Templates of the reviewer; their text is part of the actor's identity.
pub(crate) const TEMPLATES: [&str; 2] = ["reviewer.j2", "reviewer_task.j2"];
/// Tool runs shown to the judge, the last ones.
const TOOL_RUNS_MAX: usize = 30;

/// Who judges, and within which limits.
pub(crate) struct Judge<'a> {
    /// `None`: no model is configured.
    pub(crate) model: Option<&'a Model>,
    pub(crate) tier: Tier,
    pub(crate) blobs: &'a Blobs,
    /// Bytes of delivered text that are shown.
    pub(crate) shown_bytes_max: usize,
    /// Images that are shown, and the bytes of one.
    pub(crate) images_max: usize,
    pub(crate) image_bytes_max: u64,
}

/// What is judged.
pub(crate) struct Case<'a> {
    pub(crate) goal: &'a Goal,
    pub(crate) ticket: &'a Ticket,
    pub(crate) report: &'a Report,
    pub(crate) deliverable: &'a Deliverable,
    /// Items that code has passed already.
    pub(crate) passed: &'a [VerdictItem],
    /// Standards that are asked beside the items and decide nothing.
    pub(crate) shadow: &'a [Standard],
}

/// What came of the items, and of the standards in shadow by their ids: only what the answer speaks of.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    pub(crate) items: Vec<VerdictItem>,
    pub(crate) shadow: Vec<(String, bool)>,
}

/// No verdict: always the reviewer's failure, never the work's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JudgeError {
    #[error(
        "no model is configured, and {items} judged items need one (set model.url and model.standard, or let code \
         check the ticket: review = \"code\")"
    )]
    NoModel { items: usize },
    #[error("the reviewer's model {model}: {error}")]
    Model { model: String, error: ModelError },
    #[error(transparent)]
    Deliverable(#[from] DeliverableError),
    #[error(transparent)]
    Prompt(#[from] prompt::PromptError),
}

impl JudgeError {
    /// What happens next; `None`: the call was stopped, the review goes back unharmed.
    pub(crate) fn class(&self) -> Option<FailClass> {
        match self {
            Self::NoModel { .. } | Self::Prompt(_) => Some(FailClass::NotRetryable),
            Self::Deliverable(error) => Some(error.class()),
            Self::Model { error, .. } => match error.class {
                ErrorClass::Ours | ErrorClass::Context | ErrorClass::Auth => Some(FailClass::NotRetryable),
                // An unreadable verdict: another try, and at the cap the manager hears of the reviewer.
                ErrorClass::Reply => Some(FailClass::Fault),
                ErrorClass::Quota { .. } | ErrorClass::Overload | ErrorClass::Network => {
                    Some(FailClass::Wait)
                }
                // Out of budget: the goal waits for a person, the review for the goal.
                ErrorClass::Budget | ErrorClass::Cancelled => None,
            },
        }
    }

    /// How long the server asked us to wait.
    pub(crate) fn delay_ms(&self) -> Option<u64> {
        match self {
            Self::Model { error: ModelError { class: ErrorClass::Quota { retry_after_ms }, .. }, .. } => {
                *retry_after_ms
            }
            Self::Model { .. } | Self::NoModel { .. } | Self::Deliverable(_) | Self::Prompt(_) => None,
        }
    }
}

/// The items that a model judges: those of the checklist, and always the goal's.
pub(crate) fn judged_items(ticket: &Ticket) -> Vec<&str> {
    let own = ticket.checklist.iter().filter_map(|check| match check {
        Check::Judged { text } => Some(text.as_str()),
        Check::FileExists { .. }
        | Check::MinBytes { .. }
        | Check::Regex { .. }
        | Check::NotRegex { .. }
        | Check::JsonSchema { .. }
        | Check::CsvRows { .. }
        | Check::MinCount { .. }
        | Check::Command { .. } => None,
    });
    let mut items: Vec<&str> = own.collect();
    if !items.contains(&GOAL_ITEM) {
        items.push(GOAL_ITEM);
    }
    items
}

#[derive(Serialize)]
struct Task<'a> {
    // I9: goal, constraints and checklist stand here word for word.
    goal: &'a str,
    constraints: &'a [String],
    checklist: &'a [&'a str],
    ticket: TicketShown<'a>,
    report: String,
    tools: Vec<ToolRun>,
    files: Vec<FileShown>,
    files_more: usize,
    passed: Vec<&'a str>,
}

#[derive(Serialize)]
struct TicketShown<'a> {
    key: &'a str,
    description: &'a str,
    input: String,
    expected_output: &'a str,
    outputs: &'a [String],
}

impl Judge<'_> {
    /// One verdict over all judged items. What the calls cost is added to `records`, whatever comes of them.
    ///
    /// Cancellation safe; but dropping it loses the records of a call under way, so prefer `stop`.
    ///
    /// # Errors
    /// [`JudgeError`]: there is no verdict.
    pub(crate) async fn judge(
        &self,
        case: &Case<'_>,
        stop: &CancellationToken,
        on_bytes: &(dyn Fn() + Send + Sync),
        records: &mut Vec<CallRecord>,
    ) -> Result<Judged, JudgeError> {
        let mut items = judged_items(case.ticket);
        let shadow: Vec<&Standard> =
            case.shadow.iter().filter(|s| !items.contains(&s.text.as_str())).collect();
        let real = items.len();
        items.extend(shadow.iter().map(|s| s.text.as_str()));
        // I7: without a judge nothing passes.
        let Some(model) = self.model else { return Err(JudgeError::NoModel { items: items.len() }) };
        let report = report_text(case.report);
        let mut tools = tool_runs(self.blobs, &case.ticket.goal, &case.report.steps_ref).await?;
        let known: BTreeSet<u32> = tools.iter().map(|t| t.step).collect();
        tools.drain(..tools.len().saturating_sub(TOOL_RUNS_MAX));
        let (files, files_more) = files_shown(case, self.shown_bytes_max).await?;
        let images = images_shown(case, &files, self.images_max, self.image_bytes_max).await?;
        let ticket = case.ticket;
        let task = Task {
            goal: &case.goal.text,
            constraints: &case.goal.constraints,
            checklist: &items,
            ticket: TicketShown {
                key: &ticket.key,
                description: &ticket.description,
                input: if ticket.input_context.is_null() {
                    String::new()
                } else {
                    ticket.input_context.to_string()
                },
                expected_output: &ticket.expected_output,
                outputs: &ticket.outputs,
            },
            report: numbered(&report),
            tools,
            files,
            files_more,
            passed: case.passed.iter().map(|i| i.item.as_str()).collect(),
        };
        let mut messages = vec![
            Message::System(prompt::render(TEMPLATES[0], &serde_json::json!({}))?),
            Message::User(prompt::render(TEMPLATES[1], &task)?),
        ];
        messages.extend(images.into_iter().map(Message::Image));
        let ask = Ask {
            role: "reviewer",
            tier: self.tier,
            messages: &messages,
            tools: &[],
            output_tokens_max: 0,
            stop,
            on_bytes,
            on_wait: &shared::model::ignore_wait,
        };
        let count = items.len();
        let asked =
            model.structured(&ask, "verdict", &verdict::schema(count), |v| verdict::findings(v, count)).await;
        let findings = match asked {
            Ok((findings, spent)) => {
                records.extend(spent);
                findings
            }
            Err(mut error) => {
                records.append(&mut error.records);
                return Err(JudgeError::Model { model: model.name(self.tier).into(), error });
            }
        };
        let places = Places { deliverable: case.deliverable, report: &report, tools: &known };
        let mut judged = Judged::default();
        for (n, (item, finding)) in items.iter().zip(findings).enumerate() {
            let left_out = finding.left_out;
            let mut verdict = VerdictItem {
                item: (*item).to_owned(),
                pass: finding.pass,
                reason: finding.reason,
                evidence: finding.evidence,
                by_code: false,
            };
            if verdict.pass
                && let Err(problem) = places.resolve(&verdict.evidence).await?
            {
                // D8: what the judge cannot show, it has not seen.
                verdict.pass = false;
                verdict.reason = format!(
                    "{UNSHOWN}{}` does not hold: {problem} (judge: {})",
                    verdict.evidence, verdict.reason
                );
            }
            match n.checked_sub(real).and_then(|at| shadow.get(at)) {
                None => judged.items.push(verdict),
                Some(_) if left_out => {}
                Some(standard) => judged.shadow.push((standard.id.clone(), verdict.pass)),
            }
        }
        Ok(judged)
    }
}

#[cfg(test)]
#[path = "judge/tests.rs"]
mod tests;
