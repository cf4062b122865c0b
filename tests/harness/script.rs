//! A script for the fake model that plays a whole company: planner, workers, reviewer. Not the rehearsal's.

use crate::model::{Answer, Asked};
use serde_json::{Value, json};

/// A ticket of a model's plan that delivers one file.
#[must_use]
pub fn ticket(id: &str, needs: &[&str]) -> Value {
    let path = output_of(id);
    json!({"id": id, "needs": needs, "description": format!("write the part {id}"), "expected_output": path,
        "role": "summarizer", "outputs": [path],
        "checks": [{"kind": "file_exists", "path": path}, {"kind": "judged", "text": format!("{id} is well written")}]})
}

/// Where [`ticket`] puts its file.
#[must_use]
pub fn output_of(id: &str) -> String {
    format!("outputs/{id}.md")
}

/// The planner's answer.
#[must_use]
pub fn plan(tickets: &[Value]) -> Answer {
    Answer::json(&json!({"tickets": tickets, "next": []}))
}

/// The judge's answer about every item that the request's schema counts; evidence is the worker's report.
#[must_use]
pub fn verdict(asked: &Asked, pass: bool) -> Answer {
    let schema = &asked.body["response_format"]["json_schema"]["schema"];
    let items = schema["properties"]["items"]["maxItems"].as_u64().unwrap_or(1);
    let items: Vec<Value> = (1..=items)
        .map(|n| json!({"item": n, "evidence": "report:1-1", "reason": "as the report says", "pass": pass}))
        .collect();
    Answer::json(&json!({"items": items, "verdict": if pass { "pass" } else { "fail" }}))
}

/// Key of the ticket that a worker's request is about; empty for other roles.
#[must_use]
pub fn key_of(asked: &Asked) -> String {
    let marker = "# Your ticket: ";
    let text =
        asked.messages().iter().filter_map(|m| m["content"].as_str()).find_map(|c| c.split_once(marker));
    let rest = text.map(|(_, rest)| rest).unwrap_or_default();
    rest.lines().next().unwrap_or_default().trim().to_owned()
}

/// A worker that writes its file in the first turn and finishes in the second.
#[must_use]
pub fn work(asked: &Asked) -> Answer {
    let key = key_of(asked);
    let path = output_of(&key);
    match asked.turn() {
        0 => Answer::call(
            "write_file",
            json!({"path": path, "content": format!("# {key}\n\nA text about {key}.\n")}),
        ),
        _ => Answer::call(
            "finish",
            json!({"status": "done", "summary": format!("{key} is written"), "outputs": [path]}),
        ),
    }
}

/// The whole company over this plan: everything works at the first try.
pub fn company(tickets: Vec<Value>) -> impl Fn(&Asked) -> Option<Answer> + Send + Sync + 'static {
    move |asked| match asked.schema() {
        "plan" => Some(plan(&tickets)),
        "verdict" => Some(verdict(asked, true)),
        "" if asked.tools().contains(&"finish") => Some(work(asked)),
        _ => None,
    }
}

/// A direct call of the Python tool, checked by code; `code` writes `output`.
#[must_use]
pub fn direct(id: &str, needs: &[&str], output: &str, code: &str) -> Value {
    json!({"id": id, "needs": needs, "description": format!("run {id}"), "expected_output": output,
        "tool": "code_interpreter", "args": {"code": code}, "outputs": [output], "review": "code",
        "checks": [{"kind": "min_bytes", "path": output, "min": 1}]})
}

/// Python that writes a file.
#[must_use]
pub fn writes(output: &str) -> String {
    format!(
        "import os\nos.makedirs(os.path.dirname('{output}') or '.', exist_ok=True)\nopen('{output}', 'w').write('made\\n')\n"
    )
}

/// A direct call that writes a file after so many seconds.
#[must_use]
pub fn slow(id: &str, needs: &[&str], seconds: f64) -> Value {
    let output = format!("data/{id}.txt");
    direct(id, needs, &output, &format!("import time\ntime.sleep({seconds})\n{}", writes(&output)))
}

/// A direct call that writes a file at once.
#[must_use]
pub fn quick(id: &str, needs: &[&str]) -> Value {
    let output = format!("data/{id}.txt");
    direct(id, needs, &output, &writes(&output))
}
