//! `muster replay`: a recorded goal once more, by a private fleet whose model is the recording; no model is asked, and
//! nothing is spent. Says whether verdicts and deliverables are the same, or what is the first difference.

use super::client::Client;
use super::context::Context;
use super::error::{CliError, Exit};
use super::home::Home;
use super::intake::{self, Ready};
use super::live::Style;
use super::local::{Fleet, Options, Recorded};
use super::out::text;
use super::rehearsal::recording::{Recording, Ticket};
use super::rehearsal::{self, Replayer};
use super::types::SubmitGoal;
use super::{config, record, watch};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  muster replay 0193f0a0b1c2.recording.jsonl\n  muster replay count.jsonl --json | jq -r .difference\n\n\
    Exit codes: 0 the same verdicts and deliverables, 1 a difference (the first one is named), 64 no recording.\n\
    Tools really run again, with this machine's roles and configuration. Times, ids, and what a prompt says about how\n\
    far other tickets are, are set aside."
)]
pub(crate) struct Args {
    /// What `muster record` wrote.
    file: PathBuf,
    /// Workers of the private fleet.
    #[arg(long, default_value_t = 2, value_name = "N")]
    workers: usize,
}

pub(crate) async fn run(ctx: &Context, args: &Args) -> Result<Exit, CliError> {
    let wrong = |problem: String| {
        CliError::usage(format!("{}: {problem}", args.file.display()), "`muster record GOAL` writes one")
    };
    let read = std::fs::read_to_string(&args.file).map_err(|e| wrong(e.to_string()))?;
    let recording = Recording::read(&read).map_err(|e| wrong(e.to_string()))?;
    let folder = tempfile::Builder::new().prefix("muster-replay-").tempdir();
    let folder = folder.map_err(|e| super::home::trouble(&std::env::temp_dir(), &e))?;
    let ready = ready(&recording, folder.path()).map_err(wrong)?;
    // Of its own: whatever fleet runs here goes on as if nothing were.
    let home = Home::new(&folder.path().join("fleet"))?;
    let inner = Context { out: ctx.out, url: None, home, config: ctx.config.clone() };
    let settings = config::load(&inner)?;

    let stop = CancellationToken::new();
    let replayer = Arc::new(Replayer::new(&recording, stop.clone()));
    let listening =
        |e: std::io::Error| CliError::failed(format!("cannot listen: {e}"), "is this machine out of ports?");
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(listening)?;
    let url = format!("http://{}/v1", listener.local_addr().map_err(listening)?);
    tokio::spawn(rehearsal::serve_recorded(Arc::clone(&replayer), listener, stop.clone()));
    let options = Options {
        workers: args.workers,
        recorded: Some(Recorded { url, dialect: dialect(&recording) }),
        ..Options::default()
    };
    let fleet = Fleet::start(&inner, settings, options).await?;
    let client = fleet.client()?;
    let difference = tokio::select! {
        biased;
        () = replayer.diverged().cancelled() => Ok(replayer.divergence()),
        difference = play(&inner, &client, ready, &recording, &replayer) => difference,
    };
    // Nothing of it is worth a drain.
    let stopped = fleet.abandon().await;
    stop.cancel();
    let difference = difference?;
    stopped?;

    let (answered, _) = replayer.rest();
    let (tickets, files) = (recording.tickets.len(), recording.files.len());
    let document = json!({"same": difference.is_none(), "difference": difference, "calls": answered,
        "tickets": tickets, "deliverables": files});
    ctx.out.show(&document, || match &difference {
        None => format!("the same: {answered} calls, {tickets} tickets, {files} deliverables"),
        Some(difference) => format!("the first difference: {difference}"),
    })?;
    Ok(if difference.is_none() { Exit::Done } else { Exit::Failed })
}

/// Submits, waits for the end, and compares; gives the first difference.
async fn play(
    ctx: &Context,
    client: &Client,
    ready: Ready,
    recording: &Recording,
    replayer: &Replayer,
) -> Result<Option<String>, CliError> {
    let submitted = intake::submit(client, ready).await?;
    let goal = text(&submitted, "goal").to_owned();
    let style = if ctx.out.json { Style::Quiet } else { Style::Plain };
    let ended = watch::to_end(ctx, client, &goal, style).await?;
    let (tickets, files) = record::end(client, &goal, usize::MAX).await?;
    if let Some(divergence) = replayer.divergence() {
        return Ok(Some(divergence));
    }
    let state = text(&ended.goal, "state");
    if state != recording.head.state {
        let cause = text(&ended.goal, "cause_detail");
        return Ok(Some(
            format!("the goal was {} and is {state} now {cause}", recording.head.state).trim().to_owned(),
        ));
    }
    let pairs = |files: &[rehearsal::recording::File]| -> Vec<(String, String)> {
        files.iter().map(|f| (f.path.clone(), f.sha256.clone())).collect()
    };
    let verdicts = |tickets: &[Ticket]| -> Vec<(String, String)> {
        tickets.iter().map(|t| (t.key.clone(), verdict(t))).collect()
    };
    Ok(first("the ticket", &verdicts(&recording.tickets), &verdicts(&tickets), true)
        .or_else(|| first("the deliverable", &pairs(&recording.files), &pairs(&files), false))
        .or_else(|| replayer.rest().1))
}

fn verdict(ticket: &Ticket) -> String {
    let failed: Vec<&str> = ticket.items.iter().filter(|i| !i.pass).map(|i| i.item.as_str()).collect();
    let passed = ticket.items.len() - failed.len();
    let failed = if failed.is_empty() { String::new() } else { format!(", failed: {}", failed.join("; ")) };
    format!("{} after {} reviews, {passed} items passed{failed}", ticket.status, ticket.reviews)
}

/// The first entry that is not the same in both, both in the order of their names.
fn first(what: &str, then: &[(String, String)], now: &[(String, String)], shown: bool) -> Option<String> {
    let of =
        |list: &[(String, String)], name: &str| list.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
    for (name, old) in then {
        match of(now, name) {
            None => return Some(format!("{what} {name} was recorded and is not there now")),
            Some(new) if new != *old && shown => {
                return Some(format!("{what} {name}:\n  recorded: {old}\n  now:      {new}"));
            }
            Some(new) if new != *old => return Some(format!("{what} {name} has another content now")),
            Some(_) => {}
        }
    }
    let new = now.iter().find(|(name, _)| of(then, name).is_none());
    new.map(|(name, _)| format!("{what} {name} is there now and was not recorded"))
}

/// The goal as it was submitted, its inputs written below `folder`.
fn ready(recording: &Recording, folder: &Path) -> Result<Ready, String> {
    let inputs = folder.join("inputs");
    std::fs::create_dir(&inputs).map_err(|e| e.to_string())?;
    let mut files = vec![];
    for (n, input) in recording.inputs.iter().enumerate() {
        let bytes = match (&input.text, &input.base64) {
            (Some(words), None) => words.clone().into_bytes(),
            (None, Some(coded)) => {
                BASE64_STANDARD.decode(coded).map_err(|e| format!("input {}: {e}", input.path))?
            }
            (Some(_), Some(_)) | (None, None) => {
                return Err(format!("input {}: needs either text or base64", input.path));
            }
        };
        // By number: a path of the file decides nothing on this machine.
        let file = inputs.join(n.to_string());
        std::fs::write(&file, &bytes).map_err(|e| e.to_string())?;
        files.push((input.path.clone(), file, bytes.len() as u64));
    }
    let goal = &recording.head.goal;
    let body = SubmitGoal {
        text: goal.text.clone(),
        constraints: goal.constraints.clone(),
        plan: recording.head.plan.clone(),
        review: Some(goal.review),
        in_flight_max: (goal.in_flight_max > 0).then_some(goal.in_flight_max),
        idempotency_key: Some(uuid::Uuid::now_v7().simple().to_string()),
        language: (!goal.language.is_empty()).then(|| goal.language.clone()),
        ..SubmitGoal::default()
    };
    Ok(Ready::of(body, files))
}

/// The dialect that all workers spoke, if it was one and not the native one: the fleet must not begin with another.
fn dialect(recording: &Recording) -> Option<String> {
    let mut spoken: Vec<&str> =
        recording.calls.iter().filter(|c| c.role == "worker").map(|c| c.dialect.as_str()).collect();
    spoken.sort_unstable();
    spoken.dedup();
    match spoken.as_slice() {
        [one] if ["json", "xml", "text"].contains(one) => Some((*one).to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_of_two_lists_is_named() {
        let list = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
        };
        let (one, other) = (list(&[("a", "1"), ("b", "2")]), list(&[("a", "1"), ("b", "3")]));
        assert_eq!(first("the file", &one, &one, true), None);
        assert_eq!(
            first("the file", &one, &other, true).unwrap(),
            "the file b:\n  recorded: 2\n  now:      3"
        );
        assert!(first("the file", &one, &list(&[("a", "1")]), true).unwrap().ends_with("is not there now"));
        assert!(first("the file", &list(&[]), &one, true).unwrap().contains("a is there now"));
    }
}
