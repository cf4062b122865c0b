//! `muster record`: everything that a goal's models were asked and answered, into one file that `muster replay` plays.

use super::client::{Client, segment, segments};
use super::context::Context;
use super::error::{CliError, Exit};
use super::home::write_private;
use super::ids;
use super::out::{items, number, short, size, text};
use super::pull::hex;
use super::rehearsal::compare::timeless;
use super::rehearsal::recording::{Call, File, Goal, Head, Input, Item, Recording, Ticket, VERSION};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use shared::planfile::{GoalSection, PlanFile};
use shared::store::LogEvent;
use shared::ticket::TicketSpec;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

/// Events asked for at once.
const PAGE: usize = 500;
/// A body is written beside the work and may come a moment after its record: so often it is looked for.
const LOOKS: u32 = 10;
const LOOK: Duration = Duration::from_millis(200);
/// Errors after which the same request was made again: what was said in them is not needed.
const PASSING: [&str; 6] = ["quota", "overload", "network", "auth", "budget", "cancelled"];

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  muster record last\n  muster record 0193f0a0 --out count.jsonl && muster replay count.jsonl"
)]
pub(crate) struct Args {
    /// The goal: first digits of its id, or `last`.
    goal: String,
    /// Where to; readable by you alone, for it holds prompts and input files. [default: <goal>.recording.jsonl]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Largest file, in bytes; a goal that needs more is refused.
    #[arg(long, default_value_t = 64 * 1024 * 1024, value_name = "N")]
    bytes_max: usize,
}

pub(crate) async fn run(ctx: &Context, args: &Args) -> Result<Exit, CliError> {
    let client = ctx.client().await?;
    let id = ids::goal(&client, &args.goal).await?;
    let recording = record(&client, &id, args.bytes_max).await?;
    let whole = recording.write();
    let too_large = |bytes: usize| {
        CliError::failed(
            format!(
                "the recording has {}, at most {} are allowed",
                size(bytes as u64),
                size(args.bytes_max as u64)
            ),
            "raise --bytes-max (bytes)",
        )
    };
    if whole.len() > args.bytes_max {
        return Err(too_large(whole.len()));
    }
    let to = args.out.clone().unwrap_or_else(|| PathBuf::from(format!("{}.recording.jsonl", short(&id))));
    write_private(&to, &whole)?;
    let (calls, bytes) = (recording.calls.len(), whole.len());
    ctx.out.show(
        &json!({"goal": id, "file": to, "calls": calls, "inputs": recording.inputs.len(), "bytes": bytes}),
        || to.display().to_string(),
    )?;
    ctx.out.note(&format!("{calls} calls, {} input files, {}", recording.inputs.len(), size(bytes as u64)));
    Ok(Exit::Done)
}

async fn record(client: &Client, id: &str, bytes_max: usize) -> Result<Recording, CliError> {
    let goal = client.get(&format!("/v1/goals/{}", segment(id))).await?;
    let listed = client.get(&format!("/v1/goals/{}/tickets", segment(id))).await?;
    let tickets: Vec<shared::ticket::Ticket> =
        items(&listed, "tickets").iter().filter_map(|t| serde_json::from_value(t.clone()).ok()).collect();
    let calls = calls(client, id, bytes_max).await?;
    let planned = calls.iter().any(|c| c.role == "planner" && c.key.is_empty());
    let asked = Goal {
        text: text(&goal, "text").to_owned(),
        constraints: strings(&goal, "constraints"),
        review: goal.get("review").and_then(|r| serde_json::from_value(r.clone()).ok()).unwrap_or_default(),
        language: text(&goal, "language").to_owned(),
        in_flight_max: u32::try_from(number(&goal, "in_flight_max")).unwrap_or(0),
    };
    let head = Head {
        v: VERSION,
        muster: env!("CARGO_PKG_VERSION").into(),
        plan: (!planned && !tickets.is_empty()).then(|| plan(&asked, &tickets)),
        goal: asked,
        state: text(&goal, "state").to_owned(),
    };
    let files = client.get(&format!("/v1/goals/{}/files", segment(id))).await?;
    let mut inputs = vec![];
    for entry in items(&files, "files").iter().filter(|f| text(f, "creator") == "input") {
        inputs.push(input(text(entry, "path"), &content(client, id, entry, bytes_max).await?));
    }
    let (tickets, files) = end(client, id, bytes_max).await?;
    Ok(Recording { head, inputs, calls, tickets, files })
}

/// How the tickets of a goal ended, and what it delivered, in the order of key and path.
///
/// # Errors
/// No manager, or a file larger than `bytes_max`.
pub(crate) async fn end(
    client: &Client,
    id: &str,
    bytes_max: usize,
) -> Result<(Vec<Ticket>, Vec<File>), CliError> {
    let listed = client.get(&format!("/v1/goals/{}/tickets", segment(id))).await?;
    let mut tickets: Vec<Ticket> = items(&listed, "tickets").iter().map(ended).collect();
    tickets.sort_by(|a, b| a.key.cmp(&b.key));
    let listed = client.get(&format!("/v1/goals/{}/files", segment(id))).await?;
    let mut files = vec![];
    for entry in items(&listed, "files").iter().filter(|f| text(f, "creator") != "input") {
        let bytes = content(client, id, entry, bytes_max).await?;
        let sha256 = match std::str::from_utf8(&bytes) {
            Ok(words) => hex(&Sha256::digest(timeless(words))),
            Err(_) => hex(&Sha256::digest(&bytes)),
        };
        files.push(File { path: text(entry, "path").to_owned(), sha256 });
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok((tickets, files))
}

fn ended(ticket: &Value) -> Ticket {
    let items = ticket.pointer("/verdict/items").and_then(Value::as_array).into_iter().flatten();
    Ticket {
        key: text(ticket, "key").to_owned(),
        status: text(ticket, "status").to_owned(),
        reviews: number(ticket, "reviews"),
        items: items
            .map(|i| Item {
                item: text(i, "item").to_owned(),
                pass: i.get("pass").and_then(Value::as_bool) == Some(true),
            })
            .collect(),
    }
}

/// The plan file that says the same as the tickets of a goal that no model planned.
fn plan(goal: &Goal, tickets: &[shared::ticket::Ticket]) -> Value {
    let keys: BTreeMap<&str, &str> = tickets.iter().map(|t| (t.task_id.as_str(), t.key.as_str())).collect();
    // Tickets that came later, by an escalation's split, come again by the same way.
    let first = tickets.iter().filter(|t| t.depth == 0);
    let specs: Vec<TicketSpec> = first
        .map(|t| TicketSpec {
            needs: t.needs.iter().filter_map(|id| keys.get(id.as_str())).map(|k| (*k).to_owned()).collect(),
            input_context: t.input_context.clone(),
            role: t.role.clone(),
            persona: t.persona.clone(),
            tier: t.tier,
            tools: t.tools.clone(),
            pool: t.pool.clone(),
            call: t.call.clone(),
            outputs: t.outputs.clone(),
            checklist: t.checklist.clone(),
            review: t.review,
            needs_policy: t.needs_policy,
            priority: t.priority,
            mandatory: t.mandatory,
            integrates: t.integrates,
            ..TicketSpec::new(&t.key, &t.description, &t.expected_output)
        })
        .collect();
    let section = GoalSection {
        text: goal.text.clone(),
        constraints: goal.constraints.clone(),
        review: Some(goal.review),
        ..GoalSection::default()
    };
    PlanFile::of(section, &specs).to_json()
}

fn input(path: &str, bytes: &[u8]) -> Input {
    match std::str::from_utf8(bytes) {
        Ok(words) => Input { path: path.into(), text: Some(words.into()), base64: None },
        Err(_) => Input { path: path.into(), text: None, base64: Some(BASE64_STANDARD.encode(bytes)) },
    }
}

async fn content(client: &Client, id: &str, entry: &Value, bytes_max: usize) -> Result<Vec<u8>, CliError> {
    let path = text(entry, "path");
    if number(entry, "size_bytes") > bytes_max as u64 {
        return Err(CliError::failed(
            format!(
                "{path} has {}, at most {} are allowed",
                size(number(entry, "size_bytes")),
                size(bytes_max as u64)
            ),
            "raise --bytes-max (bytes)",
        ));
    }
    let reply = client.open(&format!("/v1/goals/{}/files/{}", segment(id), segments(path)), "*/*").await?;
    Ok(reply.bytes().await.map_err(|e| client.unreachable(&e))?.to_vec())
}

/// Every call in the order of the goal's log.
async fn calls(client: &Client, id: &str, bytes_max: usize) -> Result<Vec<Call>, CliError> {
    let (mut calls, mut seen, mut bytes) = (vec![], BTreeSet::new(), 0);
    let mut after = "0".to_owned();
    loop {
        let path = format!("/v1/goals/{}/events?after={}&limit={PAGE}", segment(id), segment(&after));
        let page = client.get(&path).await?;
        let events: Vec<LogEvent> =
            items(&page, "events").iter().filter_map(|e| serde_json::from_value(e.clone()).ok()).collect();
        for (n, event) in events.iter().enumerate().filter(|(_, e)| e.event == "model_call") {
            // The search for a call begins right before it: the log is read once, however long it is.
            let before = n.checked_sub(1).and_then(|n| events.get(n)).map_or(&after, |e| &e.id);
            let record: Value = serde_json::from_str(&event.detail).unwrap_or_default();
            if seen.insert(text(&record, "call").to_owned()) {
                let call = call(client, id, &event.key, &record, before).await?;
                bytes += call.request.to_string().len();
                if bytes > bytes_max {
                    return Err(CliError::failed(
                        format!("the calls have more than {}", size(bytes_max as u64)),
                        "raise --bytes-max (bytes)",
                    ));
                }
                calls.push(call);
            }
        }
        match events.last() {
            Some(last) if page.get("end").and_then(Value::as_bool) != Some(true) && last.id != after => {
                after.clone_from(&last.id);
            }
            Some(_) | None => return Ok(calls),
        }
    }
}

async fn call(client: &Client, goal: &str, key: &str, record: &Value, after: &str) -> Result<Call, CliError> {
    let id = text(record, "call");
    let mut made = Call {
        role: text(record, "role").to_owned(),
        key: key.to_owned(),
        dialect: text(record, "dialect").to_owned(),
        request: Value::Null,
        answer: json!({"error": text(record, "error"), "detail": text(record, "detail")}),
    };
    if PASSING.contains(&text(record, "error")) {
        return Ok(made);
    }
    let lost = |what: &str, hint: &str| {
        Err(CliError::failed(format!("what was said in call {} {what}", short(id)), hint.to_owned()))
    };
    if id.is_empty() || text(record, "body").is_empty() {
        return lost("was not kept", "set model.record_bytes_max above 0 and run the goal again");
    }
    for look in 0..LOOKS {
        if look > 0 {
            tokio::time::sleep(LOOK).await;
        }
        let path = format!("/v1/goals/{}/calls/{}?after={}", segment(goal), segment(id), segment(after));
        let shown = client.get(&path).await?;
        let body = shown.get("body").unwrap_or(&Value::Null);
        if body.get("cut").and_then(Value::as_bool) == Some(true) {
            return lost("was cut to size", "raise model.record_bytes_max (bytes) and run the goal again");
        }
        if let (Some(request), Some(answer)) = (body.get("request"), body.get("answer")) {
            made.request = request.clone();
            made.answer = answer.clone();
            return Ok(made);
        }
    }
    lost("is gone", "record a goal before its blobs are cleared away")
}

fn strings(value: &Value, key: &str) -> Vec<String> {
    let all = value.get(key).and_then(Value::as_array).into_iter().flatten();
    all.filter_map(Value::as_str).map(str::to_owned).collect()
}
