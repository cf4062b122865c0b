//! The five tools: what each takes, and which routes it asks.

use super::door::{Door, in_words};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Bytes of a file that are given.
const FILE_BYTES_MAX: usize = 256 * 1024;

/// Their declarations, as `tools/list` answers.
pub(super) fn list() -> Value {
    let text = |what: &str| json!({"type": "string", "description": what});
    let goal = || text("id of the goal, 32 hex digits");
    let tool = |name: &str, what: &str, reads: bool, properties: Value, required: &[&str]| {
        json!({"name": name, "description": what, "annotations": {"readOnlyHint": reads}, "inputSchema": {"type": "object",
            "properties": properties, "required": required, "additionalProperties": false}})
    };
    json!([
        tool(
            "submit",
            "Hand a goal in; it is planned and worked off by the fleet. Answers its id.",
            false,
            json!({"text": text("what shall be done, in your own words"),
                "constraints": {"type": "array", "items": {"type": "string"}},
                "budget_tokens": {"type": "integer", "minimum": 0}, "deadline_s": {"type": "integer", "minimum": 1},
                "idempotency_key": text("the same key finds the same goal: give one, so that a repeat is no second goal")}),
            &["text"]
        ),
        tool(
            "status",
            "How a goal stands: its state, its tickets, and what waits for a person.",
            true,
            json!({"goal": goal()}),
            &["goal"]
        ),
        tool(
            "answer",
            "Answer what waits for a person, in that person's words and as that person decided.",
            false,
            json!({"goal": goal(), "ticket": text("key of the ticket; left out: the goal itself asks"),
                "decision": {"type": "string", "enum": ["retry", "skip", "fail", "approve", "deny"],
                    "description": "for a ticket always; for a goal only when its plan waits for approval"},
                "text": text("the answer, note or reason")}),
            &["goal"]
        ),
        tool("list_files", "The accepted files of a goal.", true, json!({"goal": goal()}), &["goal"]),
        tool(
            "read_file",
            "Text of an accepted file; TODO.md is the plan as it stands.",
            true,
            json!({"goal": goal(), "path": text("as list_files says it")}),
            &["goal", "path"]
        ),
    ])
}

/// Calls it; `None`: there is none of this name. What goes wrong is an answer that the model can read.
pub(super) async fn call(door: &Door, name: &str, arguments: Value) -> Option<Value> {
    let said = match name {
        "submit" => submit(door, arguments).await,
        "status" => status(door, arguments).await,
        "answer" => answer(door, arguments).await,
        "list_files" => list_files(door, arguments).await,
        "read_file" => read_file(door, arguments).await,
        _ => return None,
    };
    let (text, is_error) = match said {
        Ok(text) => (text, false),
        Err(Problem::Arguments(text)) => (text, true),
        Err(Problem::Refused(response)) => (in_words(*response).await, true),
    };
    Some(json!({"content": [{"type": "text", "text": text}], "isError": is_error}))
}

enum Problem {
    Arguments(String),
    Refused(Box<Response>),
}

impl From<Response> for Problem {
    fn from(response: Response) -> Self {
        Self::Refused(Box::new(response))
    }
}

fn read<T: for<'de> Deserialize<'de>>(arguments: Value) -> Result<T, Problem> {
    serde_json::from_value(arguments)
        .map_err(|e| Problem::Arguments(format!("the arguments do not fit: {e}")))
}

async fn submit(door: &Door, arguments: Value) -> Result<String, Problem> {
    // The API's own body; it names what it does not know.
    let made = door.post("/v1/goals", &arguments).await?;
    Ok(made.to_string())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfGoal {
    goal: String,
}

async fn status(door: &Door, arguments: Value) -> Result<String, Problem> {
    let OfGoal { goal } = read(arguments)?;
    let path = format!("/v1/goals/{}", segment(&goal));
    let now = door.get(&path).await?;
    let tickets = door.get(&format!("{path}/tickets")).await?;
    let inbox = door.get("/v1/inbox").await?;
    let some = |of: &Value, names: &[&str]| -> Value {
        names
            .iter()
            .map(|name| ((*name).to_owned(), of[*name].clone()))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let each = |list: &Value, names: &[&str]| -> Vec<Value> {
        list.as_array().into_iter().flatten().map(|of| some(of, names)).collect()
    };
    let mut shown =
        some(&now, &["id", "state", "cause", "cause_detail", "paused", "spent_tokens", "budget_tokens"]);
    shown["tickets"] = each(&tickets["tickets"], &["key", "status", "cause", "attempts"]).into();
    let waits: Vec<Value> =
        inbox["decisions"].as_array().into_iter().flatten().filter(|d| d["goal"] == goal).cloned().collect();
    shown["waits_for_a_person"] = each(&waits.into(), &["key", "cause", "detail", "choices"]).into();
    Ok(shown.to_string())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    goal: String,
    #[serde(default)]
    ticket: String,
    #[serde(default)]
    decision: String,
    #[serde(default)]
    text: String,
}

async fn answer(door: &Door, arguments: Value) -> Result<String, Problem> {
    let wanted: Answer = read(arguments)?;
    let goal = format!("/v1/goals/{}", segment(&wanted.goal));
    if wanted.ticket.is_empty() {
        let body = json!({"text": wanted.text, "decision": wanted.decision});
        return Ok(door.post(&format!("{goal}/answer"), &body).await?.to_string());
    }
    let tickets = door.get(&format!("{goal}/tickets")).await?;
    let found = tickets["tickets"].as_array().into_iter().flatten().find(|t| t["key"] == wanted.ticket);
    let Some(id) = found.and_then(|t| t["task_id"].as_str()) else {
        return Err(Problem::Arguments(format!("the goal has no ticket {}", wanted.ticket)));
    };
    let words = match wanted.decision.as_str() {
        "retry" => "note",
        "skip" | "fail" | "deny" => "reason",
        "approve" => {
            return Ok(door
                .post(&format!("/v1/tickets/{id}/answer"), &json!({"decision": "approve"}))
                .await?
                .to_string());
        }
        _ => {
            return Err(Problem::Arguments(
                "a ticket's decision is retry, skip, fail, approve or deny".into(),
            ));
        }
    };
    let body = json!({"decision": wanted.decision, words: wanted.text});
    Ok(door.post(&format!("/v1/tickets/{id}/answer"), &body).await?.to_string())
}

async fn list_files(door: &Door, arguments: Value) -> Result<String, Problem> {
    let OfGoal { goal } = read(arguments)?;
    let list = door.get(&format!("/v1/goals/{}/files", segment(&goal))).await?;
    let lines = list["files"].as_array().into_iter().flatten().map(|f| {
        let text = |name: &str| f[name].as_str().unwrap_or_default().to_owned();
        format!("{} ({} bytes, {}, by {})", text("path"), f["size_bytes"], text("mime"), text("creator"))
    });
    let lines: Vec<String> = lines.collect();
    Ok(if lines.is_empty() { "no file was accepted yet".into() } else { lines.join("\n") })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfFile {
    goal: String,
    path: String,
}

async fn read_file(door: &Door, arguments: Value) -> Result<String, Problem> {
    let OfFile { goal, path } = read(arguments)?;
    let at = format!("/v1/goals/{}/files/{}", segment(&goal), encoded(&path));
    let (mut bytes, whole) = door.beginning(&at, FILE_BYTES_MAX).await?;
    if !whole && let Err(error) = std::str::from_utf8(&bytes) {
        // Perhaps cut in the middle of a character.
        bytes.truncate(error.valid_up_to());
    }
    let mut text = String::from_utf8(bytes).map_err(|_| {
        Problem::Arguments(format!("{path} is no text; a person can download it from the dashboard"))
    })?;
    if !whole {
        let _ = write!(text, "\n[only the first {FILE_BYTES_MAX} bytes]");
    }
    Ok(text)
}

/// One part of a path.
fn segment(text: &str) -> String {
    encoded(text).replace('/', "%2F")
}

/// As it stands in a URL; slashes stay.
fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte) {
            out.push(byte.into());
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}
