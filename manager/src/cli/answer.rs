//! `muster answer`: a person's decision on a ticket or a goal, of those that `muster inbox` shows.

use super::client::segment;
use super::context::Context;
use super::error::{CliError, Exit};
use super::ids::{self, Target};
use super::out::{number, text};
use super::types::{AnswerTicket, Words};
use serde_json::Value;
use shared::store::PersonDecision;
use shared::ticket::patch::Edit;

#[derive(Debug, Default, clap::Args)]
#[command(after_help = "Examples:\n  muster answer 0193f0a0 \"Use last year's figures\"\n  \
    muster answer 0193f0a0/measure --retry --note \"the file is in data/raw\"\n  \
    muster answer 0193f0a0/send --approve\n  muster answer 0193f0a0/measure --retry --edit '{\"tier\":\"strong\"}'")]
#[command(group = clap::ArgGroup::new("decision").args(["retry", "skip", "fail", "approve", "deny"]))]
pub(crate) struct Args {
    /// The goal or the ticket (GOAL/KEY).
    what: String,
    /// The answer to a goal's question, or the note or reason of a decision.
    text: Option<String>,
    /// Ticket: try again, counted from zero.
    #[arg(long)]
    retry: bool,
    /// Ticket: go on without it.
    #[arg(long)]
    skip: bool,
    /// Ticket: it has failed.
    #[arg(long)]
    fail: bool,
    /// Ticket: the exact call that it asks for may run, once. Goal: its plan may run.
    #[arg(long)]
    approve: bool,
    /// Ticket: the call may not run; the agent is told. Goal: its plan may not run; it is planned anew with your words.
    #[arg(long)]
    deny: bool,
    /// Note for the next try, or the reason.
    #[arg(long, conflicts_with = "text")]
    note: Option<String>,
    /// With --retry: fields of the ticket to change, as JSON.
    #[arg(long, value_name = "JSON")]
    edit: Option<String>,
    /// With --approve: other arguments for the call, as JSON.
    #[arg(long, value_name = "JSON")]
    args: Option<String>,
    /// Goal: the tokens that it may cost from now on.
    #[arg(long, value_name = "N", conflicts_with = "decision")]
    budget_tokens: Option<u64>,
    /// Goal: the money that it may cost from now on, such as 12.50.
    #[arg(long, value_name = "X", conflicts_with = "decision", value_parser = super::limits::microusd)]
    budget_dollars: Option<u64>,
}

impl Args {
    /// `muster answer WHAT --approve [--args JSON]`
    pub(crate) fn approval(what: &str, args: Option<&str>) -> Self {
        Self { what: what.into(), approve: true, args: args.map(str::to_owned), ..Self::default() }
    }

    /// `muster answer WHAT --deny REASON`
    pub(crate) fn denial(what: &str, reason: Option<&str>) -> Self {
        Self { what: what.into(), deny: true, text: reason.map(str::to_owned), ..Self::default() }
    }
}

pub(crate) async fn run(ctx: &Context, args: &Args) -> Result<Exit, CliError> {
    let note = args.note.clone().or_else(|| args.text.clone()).unwrap_or_default();
    let decision = decision(args, &note)?;
    let client = ctx.client().await?;
    let request_id = super::request_id();
    let answer = match (ids::any(&client, &args.what).await?, decision) {
        (Target::Ticket(ticket), Some(decision)) => {
            // Decided on what was read: if the ticket moves meanwhile, the manager says so.
            let body = AnswerTicket { decision, request_id, expected_epoch: number(&ticket, "epoch") };
            client
                .post_once(&format!("/v1/tickets/{}/answer", segment(text(&ticket, "task_id"))), &body)
                .await?
        }
        (Target::Ticket(_), None) => {
            return Err(CliError::usage(
                "a ticket needs a decision",
                "one of --retry, --skip, --fail; for a confirmation --approve or --deny",
            ));
        }
        (Target::Goal(goal), Some(decision)) if of_plan(&decision).is_some() => {
            let decision = of_plan(&decision).unwrap_or_default().to_owned();
            let body = Words { text: note, decision, request_id, ..Words::default() };
            client.post_once(&format!("/v1/goals/{}/answer", segment(&goal)), &body).await?
        }
        (Target::Goal(_), Some(_)) => {
            return Err(CliError::usage(
                format!("`{}` is a goal, and the decision is one for a ticket", args.what),
                "name the ticket as GOAL/KEY, as `muster inbox` shows it; a goal is answered with words, its plan with \
                 --approve or --deny",
            ));
        }
        (Target::Goal(_), None)
            if note.trim().is_empty() && args.budget_tokens.is_none() && args.budget_dollars.is_none() =>
        {
            return Err(CliError::usage("the answer is empty", "muster answer GOAL \"…\""));
        }
        (Target::Goal(goal), None) => {
            let (budget_tokens, budget_microusd) = (args.budget_tokens, args.budget_dollars);
            let body = Words { text: note, request_id, budget_tokens, budget_microusd, ..Words::default() };
            client.post_once(&format!("/v1/goals/{}/answer", segment(&goal)), &body).await?
        }
    };
    acknowledged(ctx, &answer)
}

/// The decision on a plan that a decision on a ticket is the same word as.
fn of_plan(decision: &PersonDecision) -> Option<&'static str> {
    match decision {
        PersonDecision::Approve { args: None } => Some("approve"),
        PersonDecision::Deny { .. } => Some("deny"),
        PersonDecision::Approve { args: Some(_) }
        | PersonDecision::Retry { .. }
        | PersonDecision::Deliver { .. }
        | PersonDecision::Skip { .. }
        | PersonDecision::Fail { .. }
        | PersonDecision::Reopen { .. }
        | PersonDecision::ApprovePlan { .. }
        | PersonDecision::DenyPlan { .. }
        | PersonDecision::Answer { .. } => None,
    }
}

fn decision(args: &Args, note: &str) -> Result<Option<PersonDecision>, CliError> {
    let reason = note.to_owned();
    let misplaced = [
        ("--edit", args.edit.is_some(), "--retry", args.retry),
        ("--args", args.args.is_some(), "--approve", args.approve),
    ];
    if let Some((what, _, with, _)) = misplaced.into_iter().find(|(_, given, _, fits)| *given && !fits) {
        return Err(CliError::usage(
            format!("{what} goes with {with} only"),
            format!("add {with}, or leave {what} out"),
        ));
    }
    Ok(if args.retry {
        let edit: Edit = args.edit.as_deref().map_or(Ok(Edit::default()), |json| parsed("--edit", json))?;
        Some(PersonDecision::Retry { note: reason, edit: Box::new(edit) })
    } else if args.skip {
        Some(PersonDecision::Skip { reason })
    } else if args.fail {
        Some(PersonDecision::Fail { reason })
    } else if args.approve {
        let args: Option<Value> = args.args.as_deref().map(|json| parsed("--args", json)).transpose()?;
        Some(PersonDecision::Approve { args })
    } else if args.deny {
        Some(PersonDecision::Deny { reason })
    } else {
        None
    })
}

fn parsed<T: serde::de::DeserializeOwned>(option: &str, json: &str) -> Result<T, CliError> {
    let mut reader = serde_json::Deserializer::from_str(json);
    serde_path_to_error::deserialize(&mut reader).map_err(|e| {
        CliError::usage(
            format!("{option}, {}: {}", e.path(), e.inner()),
            "give it as one JSON object in quotes",
        )
    })
}

/// Says what a write came to, in the same words everywhere.
pub(crate) fn acknowledged(ctx: &Context, answer: &Value) -> Result<Exit, CliError> {
    ctx.out.show(answer, || match text(answer, "outcome") {
        "" => "ok".to_owned(),
        outcome => outcome.to_owned(),
    })?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &str) -> Result<Args, clap::Error> {
        <Line as clap::Parser>::try_parse_from(line.split_whitespace()).map(|l| l.args)
    }

    #[test]
    fn decisions_are_sent_as_the_api_reads_them() {
        let body = |line: &str| {
            let args = args(line).unwrap();
            let decision = decision(&args, "why").unwrap().unwrap();
            json!(AnswerTicket { decision, request_id: "r".into(), expected_epoch: 7 })
        };
        assert_eq!(
            body("x g/t --skip"),
            json!({"decision": "skip", "reason": "why", "request_id": "r", "expected_epoch": 7})
        );
        assert_eq!(body("x g/t --approve")["decision"], "approve");
        assert_eq!(body("x g/t --retry --edit {\"tier\":\"strong\"}")["edit"]["tier"], "strong");
    }

    #[test]
    fn one_decision_at_a_time() {
        assert!(args("x g/t --skip --fail").is_err());
        assert!(decision(&args("x g/t --edit {} --skip").unwrap(), "").is_err());
        assert!(decision(&args("x g some").unwrap(), "").unwrap().is_none());
    }

    #[test]
    fn an_unknown_field_of_an_edit_is_named() {
        let e = decision(&args("x g/t --retry --edit {\"teir\":1}").unwrap(), "").unwrap_err();
        assert!(e.to_string().contains("teir"), "{e}");
    }
}
