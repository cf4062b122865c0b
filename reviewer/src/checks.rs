//! Code checks: what code can decide of finished work, decided without a model (I6). One file a kind.
//!
//! A check that finds fault rejects the work. A check that cannot be run is the reviewer's failure, never a
//! pass and never the work's fault (I7, I8).

use crate::deliverable::{Content, Deliverable, DeliverableError};
use bytes::Bytes;
use shared::ticket::{Check, FailClass, Report, Ticket, VerdictItem};
use std::time::Duration;

mod claims;
mod command;
mod csv_rows;
mod file;
mod json_schema;
mod pattern;
pub(crate) mod write_set;

pub(crate) use command::Bench;

/// Longest that one check may compute; a command has its own limit.
const COMPUTE_LIMIT: Duration = Duration::from_secs(60);

/// What a check found, with the reason in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Holds(String),
    Fails(String),
}

impl Found {
    fn of(holds: bool, reason: String) -> Self {
        if holds { Self::Holds(reason) } else { Self::Fails(reason) }
    }
}

/// A check could not be run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckError {
    #[error(transparent)]
    Deliverable(#[from] DeliverableError),
    /// What the plan told the check cannot be used; the validator lets no such plan in.
    #[error("the check cannot be run: {0}")]
    Parameter(String),
    /// There is no sandbox here, or it broke.
    #[error("the command cannot be run: {0}")]
    Sandbox(String),
    #[error("the check did not end within {} s", COMPUTE_LIMIT.as_secs())]
    TooLong,
}

impl CheckError {
    /// Whether another try, or another reviewer, may do better.
    pub(crate) fn class(&self) -> FailClass {
        match self {
            Self::Deliverable(error) => error.class(),
            Self::Parameter(_) => FailClass::NotRetryable,
            Self::Sandbox(_) | Self::TooLong => FailClass::Fault,
        }
    }
}

/// Whether anything but the tool records has to be looked at.
pub(crate) fn reads_files(ticket: &Ticket, report: &Report) -> bool {
    !ticket.outputs.is_empty() || !report.outputs.is_empty() || ticket.checklist.iter().any(Check::is_code)
}

/// Runs every code check of the ticket, those that nobody wrote down too: claims against records, and declared
/// outputs. All are run, so that the worker hears of everything at once. Commands come last, in a copy of their own.
///
/// # Errors
/// [`CheckError`] when one could not be run. A fault found before counts more: then the work is rejected.
pub(crate) async fn run_all(
    ticket: &Ticket,
    report: &Report,
    deliverable: &Deliverable,
    bench: &Bench<'_>,
) -> Result<Vec<VerdictItem>, CheckError> {
    let mut items = claims::check(ticket, report, deliverable);
    for path in &ticket.outputs {
        let found = file::exists(path, deliverable);
        items.push(item(format!("the declared output {path} is delivered"), found));
    }
    let mut unable = None;
    let (commands, others): (Vec<_>, Vec<_>) =
        ticket.checklist.iter().filter(|c| c.is_code()).partition(|c| matches!(c, Check::Command { .. }));
    for check in others {
        match run(check, deliverable).await {
            Ok(found) => items.push(item(check.describe(), found)),
            Err(error) => unable = unable.or(Some(error)),
        }
    }
    // A command is the dearest check: what has failed already is not run any further.
    if items.iter().all(|i| i.pass) && unable.is_none() && !commands.is_empty() {
        for (check, found) in commands.iter().zip(bench.run(ticket, deliverable.root(), &commands).await?) {
            items.push(item(check.describe(), found));
        }
    }
    match unable {
        Some(error) if items.iter().all(|i| i.pass) => Err(error),
        Some(_) | None => Ok(items),
    }
}

fn item(item: String, found: Found) -> VerdictItem {
    let (pass, reason) = match found {
        Found::Holds(reason) => (true, reason),
        Found::Fails(reason) => (false, reason),
    };
    VerdictItem { item, pass, reason, evidence: String::new(), by_code: true }
}

async fn run(check: &Check, deliverable: &Deliverable) -> Result<Found, CheckError> {
    match check {
        Check::FileExists { path } => Ok(file::exists(path, deliverable)),
        Check::MinBytes { path, min } => Ok(file::min_bytes(path, *min, deliverable)),
        Check::Regex { path, pattern } => {
            let pattern = pattern::compile(pattern)?;
            with_content(path, deliverable, move |bytes| pattern::matches(&pattern, &bytes, true)).await
        }
        Check::NotRegex { path, pattern } => {
            let pattern = pattern::compile(pattern)?;
            with_content(path, deliverable, move |bytes| pattern::matches(&pattern, &bytes, false)).await
        }
        Check::MinCount { path, pattern, min } => {
            let (pattern, min) = (pattern::compile(pattern)?, *min);
            with_content(path, deliverable, move |bytes| pattern::min_count(&pattern, &bytes, min)).await
        }
        Check::JsonSchema { path, schema } => {
            let schema = json_schema::compile(schema)?;
            with_content(path, deliverable, move |bytes| json_schema::check(&schema, &bytes)).await
        }
        Check::CsvRows { path, min, columns } => {
            let (min, columns) = (*min, columns.clone());
            with_content(path, deliverable, move |bytes| csv_rows::check(&bytes, min, &columns)).await
        }
        // Run together on the bench, and by the judge.
        Check::Command { .. } | Check::Judged { .. } => {
            Err(CheckError::Parameter(format!("`{}` is not read from a file", check.describe())))
        }
    }
}

/// Runs a check over a file's bytes, away from the async threads and for a bounded time.
async fn with_content(
    path: &str,
    deliverable: &Deliverable,
    check: impl FnOnce(Bytes) -> Found + Send + 'static,
) -> Result<Found, CheckError> {
    let bytes = match deliverable.content(path).await? {
        Content::Is(bytes) => bytes,
        Content::Missing => return Ok(Found::Fails(format!("{path} is not there"))),
        Content::TooLarge { bytes } => {
            let max = crate::deliverable::FILE_BYTES_MAX;
            return Ok(Found::Fails(format!("{path} has {bytes} bytes, a check reads at most {max}")));
        }
    };
    let computing = tokio::task::spawn_blocking(move || check(bytes));
    match tokio::time::timeout(COMPUTE_LIMIT, computing).await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(panicked)) => Err(CheckError::Parameter(panicked.to_string())),
        Err(_) => Err(CheckError::TooLong),
    }
}

/// The beginning of a text, for a reason.
fn head(text: &str, chars: usize) -> String {
    let mut head: String = text.chars().take(chars).collect();
    if head.len() < text.len() {
        head.push('…');
    }
    head
}

#[cfg(test)]
#[path = "checks/tests.rs"]
mod tests;
