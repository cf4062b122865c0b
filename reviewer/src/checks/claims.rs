//! What the worker claims, held against the records (B2): models report work that no tool did.

use super::{Found, head, item};
use crate::deliverable::Deliverable;
use shared::ticket::graph::params;
use shared::ticket::{Report, Ticket, VerdictItem};

/// Tools that tell of work and do none.
const TELLING: [&str; 2] = ["update_progress", "finish"];

pub(super) fn check(ticket: &Ticket, report: &Report, deliverable: &Deliverable) -> Vec<VerdictItem> {
    let mut items = vec![item("what is claimed was really done by tools".into(), execution(ticket, report))];
    let named = report.outputs.iter().filter_map(|o| claimed_path(o));
    for path in named.filter(|p| !ticket.outputs.iter().any(|o| o == p)) {
        if deliverable.entry(path).is_none() {
            items.push(item(
                format!("the file {path}, which the report names, is delivered"),
                Found::Fails(format!("{path} is not there")),
            ));
        }
    }
    items
}

/// A path as the report names it, as the workspace does. What is no path, or is never published, claims nothing.
fn claimed_path(output: &str) -> Option<&str> {
    let path = output.trim_start_matches("/workspace/").trim_start_matches("./");
    params::output_path(path).ok().map(|()| path)
}

fn execution(ticket: &Ticket, report: &Report) -> Found {
    if report.status == "failed" {
        return Found::Fails(format!("the worker itself reports failure: {}", head(&report.summary, 500)));
    }
    let calls: u32 =
        report.tool_calls.iter().filter(|(tool, _)| !TELLING.contains(&tool.as_str())).map(|(_, n)| n).sum();
    // What a person delivers has no tool runs, and claims none.
    let claims = report.status == "done" || !report.tool_calls.is_empty();
    let needs_tools = !ticket.outputs.is_empty() || !ticket.tools.is_empty() || ticket.call.is_some();
    if claims && needs_tools && calls == 0 {
        let what = if ticket.outputs.is_empty() { "tools" } else { "files that only tools can make" };
        return Found::Fails(format!(
            "the report says done, but no tool was run and the ticket needs {what}"
        ));
    }
    Found::Holds(format!("{calls} tool runs are recorded"))
}
