//! Whether a set of tickets is a sound plan: every problem at once, each with the way out. Pure.
//!
//! The manager calls it on a model's plan (the problems go back to the model), the API and the command
//! line on a plan file. It proposes nothing and changes nothing (I6).

use super::outputs::overlaps;
use super::params;
use super::words::hint;
use super::{Graph, integrating};
use crate::ticket::limits::{Limits, is_word};
use crate::ticket::{Check, ReviewPolicy, TicketSpec};
use crate::tool::{BUNDLES, ToolDecl};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Problems reported at once; what lies beyond is found after these are mended (I11).
pub const PROBLEMS_MAX: usize = 50;
/// Longest description of a ticket, bytes.
pub const DESCRIPTION_BYTES_MAX: usize = 32 * 1024;
/// Longest expected output, persona, judged item or command, bytes.
pub const TEXT_BYTES_MAX: usize = 8 * 1024;
/// Largest input context and largest arguments of a direct call, bytes of JSON.
pub const VALUE_BYTES_MAX: usize = 256 * 1024;
/// Most columns that a check names.
const COLUMNS_MAX: usize = 200;

/// One thing that is wrong with a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Key of the ticket; empty when it is the plan's as a whole.
    pub ticket: String,
    /// As a plan file names it, such as `needs` or `checks[2].pattern`.
    pub field: String,
    pub problem: String,
    /// The way out.
    pub hint: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.ticket.is_empty() {
            write!(f, "ticket {}, ", self.ticket)?;
        }
        write!(f, "{}: {}", self.field, self.problem)?;
        if !self.hint.is_empty() {
            write!(f, " ({})", self.hint)?;
        }
        Ok(())
    }
}

/// What a plan may name.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    pub roles: &'a [String],
    pub tools: &'a [ToolDecl],
    /// Keys of tickets that the goal has already: a need may name them, a new ticket may not take them.
    pub existing: &'a BTreeSet<String>,
}

impl Known<'_> {
    fn bundles(&self) -> BTreeSet<&str> {
        self.tools.iter().map(|t| t.bundle.as_str()).chain(BUNDLES.iter().copied()).collect()
    }
}

struct Found(Vec<Problem>);

impl Found {
    fn add(
        &mut self,
        ticket: &str,
        field: impl Into<String>,
        problem: impl Into<String>,
        hint: impl Into<String>,
    ) {
        if !self.is_full() {
            self.0.push(Problem {
                ticket: cut(ticket, 80),
                field: field.into(),
                problem: cut(&problem.into(), 500),
                hint: cut(&hint.into(), 500),
            });
        }
    }

    fn is_full(&self) -> bool {
        self.0.len() >= PROBLEMS_MAX
    }
}

/// At most `max` bytes of a text, whole characters.
fn cut(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.into();
    }
    let end = (0..=max).rev().find(|&i| text.is_char_boundary(i)).unwrap_or_default();
    format!("{}…", &text[..end])
}

/// Everything that is wrong with the plan, at most [`PROBLEMS_MAX`]; empty: it is sound.
#[must_use]
pub fn problems(specs: &[TicketSpec], known: &Known<'_>, limits: &Limits) -> Vec<Problem> {
    let mut found = Found(vec![]);
    if specs.is_empty() {
        found.add("", "tickets", "the plan has no ticket", "a plan holds at least one");
        return found.0;
    }
    if specs.len() > limits.tickets_max {
        found.add(
            "",
            "tickets",
            format!("{} tickets, at most {} are allowed", specs.len(), limits.tickets_max),
            "split by deliverable, not by step; or raise limits.tickets_max",
        );
        // A size that is refused is not worth reading any further.
        return found.0;
    }
    links(specs, known, limits, &mut found);
    write_sets(specs, &mut found);
    let names = BundleNames { bundles: known.bundles(), tools: known.tools };
    let mut schemas = HashMap::new();
    for spec in specs {
        if found.is_full() {
            break;
        }
        texts(spec, &mut found);
        executor(spec, known, &names, &mut schemas, &mut found);
        deliverable(spec, limits, &mut found);
        for (i, check) in spec.checklist.iter().enumerate().take(limits.checks_max) {
            check_params(&spec.key, i, check, &mut found);
        }
        if spec.depth > limits.depth_max {
            found.add(
                &spec.key,
                "depth",
                format!("{} splits deep, at most {} are allowed", spec.depth, limits.depth_max),
                "hand it to a person, or raise limits.depth_max",
            );
        }
        if spec.priority > 2 {
            found.add(
                &spec.key,
                "priority",
                format!("{} is none", spec.priority),
                "0 urgent, 1 normal, 2 bulk",
            );
        }
    }
    found.0
}

/// Keys, needs, cycles, and what the integrating ticket waits for.
fn links(specs: &[TicketSpec], known: &Known<'_>, limits: &Limits, found: &mut Found) {
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    for spec in specs {
        *count.entry(&spec.key).or_default() += 1;
    }
    for (key, n) in &count {
        if !is_word(key) {
            found.add(
                key,
                "id",
                format!("`{}` is not a word", cut(key, 40)),
                "letters, digits, - and _, 1 to 64 of them",
            );
        }
        if *n > 1 {
            found.add(key, "id", format!("{n} tickets have this id"), "every ticket needs an id of its own");
        } else if known.existing.contains(*key) {
            found.add(key, "id", "the goal has a ticket of this id already", "choose another id");
        }
    }
    for spec in specs {
        if spec.needs.len() > limits.needs_max {
            found.add(
                &spec.key,
                "needs",
                format!("{} needs, at most {} are allowed", spec.needs.len(), limits.needs_max),
                "gather in between, or raise limits.needs_max",
            );
        }
        let mut seen = BTreeSet::new();
        for need in spec.needs.iter().take(limits.needs_max) {
            if found.is_full() {
                return;
            }
            if !seen.insert(need) {
                found.add(
                    &spec.key,
                    "needs",
                    format!("`{}` stands there twice", cut(need, 64)),
                    "name each need once",
                );
            } else if !count.contains_key(need.as_str()) && !known.existing.contains(need) {
                found.add(
                    &spec.key,
                    "needs",
                    format!("there is no ticket `{}`", cut(need, 64)),
                    hint(need, count.keys().copied().filter(|k| *k != spec.key)),
                );
            }
        }
    }
    if let Err(cycle) = Graph::of(specs).layers() {
        let at = cycle.keys.first().cloned().unwrap_or_default();
        found.add(
            &at,
            "needs",
            format!("the tickets wait for each other: {}", cycle.path()),
            "remove one of these needs",
        );
    }
    let mut marked = specs.iter().filter(|s| s.integrates);
    let first = marked.next();
    if let Some(second) = marked.next() {
        found.add(
            &second.key,
            "integrates",
            "a second ticket is marked as the integrating one",
            "mark the last one only",
        );
    } else if let Some(first) = first
        && let Some(integration) = integrating(specs)
    {
        if !integration.missing.is_empty() {
            found.add(
                &first.key,
                "needs",
                format!("the integrating ticket does not wait for {}", integration.missing.join(", ")),
                "add these to its needs, or mark them mandatory = false",
            );
        }
        if !integration.after.is_empty() {
            found.add(
                &first.key,
                "integrates",
                format!("{} come after it, so it is not the last", integration.after.join(", ")),
                "nothing mandatory may need the integrating ticket",
            );
        }
    }
}

/// No two tickets write one file unless one of them waits for the other.
fn write_sets(specs: &[TicketSpec], found: &mut Found) {
    for overlap in overlaps(specs, PROBLEMS_MAX) {
        let (first, path) = (&specs[overlap.first].key, cut(overlap.path, 80));
        let (problem, hint) = match overlap.folder {
            Some(folder) => (
                format!("`{path}` lies below `{}`, which is an output of `{first}`", cut(folder, 80)),
                "a path is a file or a folder: name another file".to_owned(),
            ),
            None => (
                format!("`{path}` is an output of `{first}` too, and neither needs the other"),
                format!("add \"{first}\" to its needs, or name another file"),
            ),
        };
        found.add(&specs[overlap.second].key, "outputs", problem, hint);
    }
}

fn texts(spec: &TicketSpec, found: &mut Found) {
    if spec.description.trim().is_empty() {
        found.add(&spec.key, "description", "is empty", "say what is to be done");
    }
    for (field, text, max) in [
        ("description", &spec.description, DESCRIPTION_BYTES_MAX),
        ("expected_output", &spec.expected_output, TEXT_BYTES_MAX),
        ("persona", &spec.persona, TEXT_BYTES_MAX),
    ] {
        if text.len() > max {
            found.add(
                &spec.key,
                field,
                format!("{} bytes, at most {max} are allowed", text.len()),
                "put long texts into an input file",
            );
        }
    }
    let size = json_bytes(&spec.input_context);
    if size > VALUE_BYTES_MAX {
        found.add(
            &spec.key,
            "input_context",
            format!("{size} bytes, at most {VALUE_BYTES_MAX} are allowed"),
            "put large data into an input file",
        );
    }
}

fn json_bytes(value: &serde_json::Value) -> usize {
    if value.is_null() { 0 } else { value.to_string().len() }
}

struct BundleNames<'a> {
    bundles: BTreeSet<&'a str>,
    tools: &'a [ToolDecl],
}

impl BundleNames<'_> {
    fn hint(&self, name: &str) -> String {
        match crate::tool::find(self.tools, name) {
            Some(tool) => format!("`{name}` is a tool of the bundle `{}`: name the bundle", tool.bundle),
            None => hint(name, self.bundles.iter().copied()),
        }
    }
}

/// Who does it: a role, a persona or a direct call, with tools that exist.
fn executor<'a>(
    spec: &TicketSpec,
    known: &Known<'a>,
    names: &BundleNames<'_>,
    schemas: &mut HashMap<&'a str, Option<jsonschema::Validator>>,
    found: &mut Found,
) {
    if !spec.role.is_empty() && !known.roles.contains(&spec.role) {
        found.add(
            &spec.key,
            "role",
            format!("there is no role `{}`", cut(&spec.role, 64)),
            hint(&spec.role, known.roles.iter().map(String::as_str)),
        );
    }
    if spec.role.is_empty() && spec.persona.is_empty() && spec.call.is_none() {
        found.add(
            &spec.key,
            "role",
            "nobody does it",
            format!("name a role or a tool; {}", hint("", known.roles.iter().map(String::as_str))),
        );
    }
    for bundle in &spec.tools {
        if !names.bundles.contains(bundle.as_str()) {
            found.add(
                &spec.key,
                "tools",
                format!("there is no bundle `{}`", cut(bundle, 64)),
                names.hint(bundle),
            );
        }
    }
    if !is_word(&spec.pool) {
        found.add(
            &spec.key,
            "pool",
            format!("`{}` is not a word", cut(&spec.pool, 40)),
            "letters, digits, - and _",
        );
    }
    let Some(call) = &spec.call else { return };
    let callable = || known.tools.iter().filter(|t| t.bundle != "fleet").map(|t| t.name.as_str());
    let Some(tool) = known.tools.iter().find(|t| t.name == call.tool && t.bundle != "fleet") else {
        let problem = format!("there is no tool `{}` that a ticket could call", cut(&call.tool, 64));
        found.add(&spec.key, "tool", problem, hint(&call.tool, callable()));
        return;
    };
    let size = json_bytes(&call.args);
    if size > VALUE_BYTES_MAX {
        let problem = format!("{size} bytes, at most {VALUE_BYTES_MAX} are allowed");
        found.add(&spec.key, "args", problem, "put large data into an input file");
        return;
    }
    // The tool's own schema is ours or a server's: what does not compile is not the plan's fault.
    let schema = schemas.entry(&tool.name).or_insert_with(|| params::schema(&tool.schema).ok());
    for error in schema.iter().flat_map(|s| s.iter_errors(&call.args)).take(3) {
        let at = error.instance_path().to_string();
        let field = if at.is_empty() { "args".into() } else { format!("args{}", at.replace('/', ".")) };
        found.add(
            &spec.key,
            field,
            cut(&error.to_string(), 300),
            format!("see the arguments of {}", tool.name),
        );
    }
}

/// What it delivers and what is checked of it.
fn deliverable(spec: &TicketSpec, limits: &Limits, found: &mut Found) {
    let key = &spec.key;
    if spec.expected_output.trim().is_empty() && spec.outputs.is_empty() {
        found.add(
            key,
            "expected_output",
            "the ticket has no deliverable",
            "say what comes out, or list outputs",
        );
    }
    if spec.outputs.len() > limits.attempt_files_max {
        let problem =
            format!("{} paths, at most {} are allowed", spec.outputs.len(), limits.attempt_files_max);
        found.add(key, "outputs", problem, "deliver fewer files, or raise limits.attempt_files_max");
    }
    let mut seen = BTreeSet::new();
    for output in spec.outputs.iter().take(limits.attempt_files_max) {
        if let Err(problem) = params::output_path(output) {
            found.add(
                key,
                "outputs",
                format!("`{}`: {problem}", cut(output, 80)),
                "such as outputs/report.md",
            );
        } else if !seen.insert(output) {
            found.add(key, "outputs", format!("`{output}` stands there twice"), "name each file once");
        }
    }
    if spec.checklist.len() > limits.checks_max {
        let problem = format!("{} checks, at most {} are allowed", spec.checklist.len(), limits.checks_max);
        found.add(key, "checks", problem, "join checks, or raise limits.checks_max");
    }
    let judged = spec.checklist.iter().any(|c| !c.is_code());
    match spec.review {
        ReviewPolicy::None if !spec.checklist.is_empty() => {
            found.add(
                key,
                "review",
                "checks stand there, but nobody reviews",
                "review = \"code\" or \"judged\"",
            );
        }
        ReviewPolicy::Code if judged => {
            found.add(
                key,
                "review",
                "a judged check needs a model, the policy is code",
                "review = \"judged\"",
            );
        }
        ReviewPolicy::Code | ReviewPolicy::Judged if spec.checklist.is_empty() && spec.outputs.is_empty() => {
            found.add(
                key,
                "checks",
                "the ticket has neither checks nor outputs, so nobody could say that it is done",
                "add a check, or list its outputs",
            );
        }
        ReviewPolicy::None | ReviewPolicy::Code | ReviewPolicy::Judged => {}
    }
}

fn check_params(key: &str, i: usize, check: &Check, found: &mut Found) {
    let mut wrong = |field: &str, problem: String, hint: &str| {
        found.add(key, format!("checks[{i}].{field}"), problem, hint);
    };
    if let Some(path) = check.path()
        && let Err(problem) = params::path(path)
    {
        wrong("path", format!("`{}`: {problem}", cut(path, 80)), "such as outputs/report.md");
    }
    match check {
        Check::FileExists { .. } | Check::MinBytes { .. } => {}
        Check::Regex { pattern, .. } | Check::NotRegex { pattern, .. } | Check::MinCount { pattern, .. } => {
            if let Err(problem) = params::pattern(pattern) {
                wrong("pattern", problem, "the syntax is that of Rust's regex crate: no look-around");
            }
        }
        Check::JsonSchema { schema, .. } => {
            if let Err(problem) = params::schema(schema) {
                wrong("schema", problem, "JSON Schema, draft 7 to 2020-12");
            }
        }
        Check::CsvRows { columns, .. } => {
            if columns.len() > COLUMNS_MAX || columns.iter().any(|c| c.is_empty() || c.len() > 200) {
                wrong(
                    "columns",
                    "a column is empty or longer than 200 bytes, or there are over 200".into(),
                    "",
                );
            }
        }
        Check::Command { command: text } | Check::Judged { text } => {
            let field = if check.is_code() { "command" } else { "text" };
            if text.trim().is_empty() {
                wrong(field, "is empty".into(), "say what must hold");
            } else if text.len() > TEXT_BYTES_MAX {
                wrong(field, format!("{} bytes, at most {TEXT_BYTES_MAX} are allowed", text.len()), "");
            }
        }
    }
}
