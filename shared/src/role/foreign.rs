//! Words of other programs' agent files in ours: their tools are bundles here, their models tiers.

use crate::ticket::Tier;
use crate::tool;
use serde_json::Value;

/// What an agent has whose file names no tools; bundles of the configuration are named.
const ALL: [&str; 3] = ["code", "files", "web"];

/// The bundles of a role's `tools` (a text with commas, a list, or a map of flags) without what `denied` names.
pub(super) fn bundles(tools: Option<&Value>, denied: Option<&Value>) -> Vec<String> {
    let named = match tools {
        None => ALL.map(str::to_owned).to_vec(),
        Some(tools) => names(tools).iter().flat_map(|name| bundles_of(name)).collect(),
    };
    // A bundle is denied with its tools, but files of an attempt are nobody else's: they may always be written.
    let mut denied: Vec<String> =
        denied.map(names).unwrap_or_default().iter().flat_map(|n| bundles_of(n)).collect();
    denied.retain(|bundle| bundle != "files");
    let mut found: Vec<String> = vec![];
    for bundle in named {
        if !denied.contains(&bundle) && !found.contains(&bundle) {
            found.push(bundle);
        }
    }
    found
}

fn names(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => commas(text),
        Value::Array(items) => items.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        Value::Object(flags) => {
            flags.iter().filter(|(_, on)| **on != Value::Bool(false)).map(|(name, _)| name.clone()).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => vec![],
    }
}

/// The parts between commas, those within parentheses not counted: `Bash(git log:*, git diff:*), Read`.
fn commas(text: &str) -> Vec<String> {
    let (mut parts, mut depth) = (vec![String::new()], 0_u32);
    for c in text.trim().trim_matches(['[', ']']).chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if c == ',' && depth == 0 {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(c);
        }
    }
    let trimmed = parts.iter().map(|part| part.trim().trim_matches(['"', '\'']).to_owned());
    trimmed.filter(|part| !part.is_empty()).collect()
}

fn bundles_of(name: &str) -> Vec<String> {
    let name = name.split('(').next().unwrap_or(name).trim();
    if tool::BUNDLES.contains(&name) {
        return vec![name.into()];
    }
    if let Some(own) = tool::find(&tool::builtin(), name) {
        return vec![own.bundle.clone()];
    }
    // A tool of an MCP server: the bundle has the server's name.
    if let Some(rest) = name.strip_prefix("mcp__") {
        return vec![rest.split("__").next().unwrap_or(rest).into()];
    }
    if let Some((server, _)) = name.split_once('/') {
        return vec![server.into()];
    }
    match name.to_lowercase().as_str() {
        "*" | "all" => ALL.map(str::to_owned).to_vec(),
        "read" | "write" | "edit" | "multiedit" | "notebookread" | "notebookedit" | "grep" | "glob"
        | "ls" | "list" | "patch" | "view" | "create" | "search" | "codebase" | "editfiles" => {
            vec!["files".into()]
        }
        "bash" | "shell" | "terminal" | "execute" | "runcommands" | "run_shell_command" | "powershell"
        | "python" => {
            vec!["code".into()]
        }
        "websearch" | "webfetch" | "web_fetch" | "google_web_search" | "fetch" | "open_link"
        | "web_search" => {
            vec!["web".into()]
        }
        // Lists and helpers of their own: progress and plan are the fleet's.
        "task" | "agent" | "todo" | "todowrite" | "todoread" | "skill" | "exitplanmode"
        | "askuserquestion" => vec![],
        // A bundle of the configuration; one that a fleet does not have brings nothing.
        _ => vec![name.into()],
    }
}

/// `cheap`, `standard`, `strong`, or the class of the model that is named.
pub(super) fn tier(model: &str) -> Tier {
    let model = model.to_lowercase();
    let is = |words: &[&str]| words.iter().any(|word| model.contains(word));
    if model == "cheap" || is(&["haiku", "-mini", "flash", "nano"]) {
        Tier::Cheap
    } else if model == "strong" || is(&["opus"]) {
        Tier::Strong
    } else {
        Tier::Standard
    }
}
