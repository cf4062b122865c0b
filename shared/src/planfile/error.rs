//! Why a plan file cannot be read: file, line, field, and what was probably meant.

use crate::ticket::graph::words;

/// The file is no plan. One message for people and for the API.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanFileError {
    #[error(
        "{file}: {bytes} bytes, at most {max} are allowed\n  hint: put large data into input files, or raise limits.plan_bytes_max"
    )]
    TooLarge { file: String, bytes: usize, max: usize },
    #[error("{file}{}{}: {problem}{}", at_line(*.line), at_field(field), as_hint(hint))]
    Wrong {
        file: String,
        /// From 1; 0 when it is not known.
        line: usize,
        /// Such as `tickets[2].checks[0].kind`; empty when it is the text as a whole.
        field: String,
        problem: String,
        hint: String,
    },
}

fn at_line(line: usize) -> String {
    if line == 0 { String::new() } else { format!(", line {line}") }
}

fn at_field(field: &str) -> String {
    if field.is_empty() { String::new() } else { format!(", {field}") }
}

fn as_hint(hint: &str) -> String {
    if hint.is_empty() { String::new() } else { format!("\n  hint: {hint}") }
}

pub(super) fn of_toml(file: &str, path: &str, error: &toml::de::Error, text: &str) -> PlanFileError {
    let line = error.span().map_or(0, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
    wrong(file, line, path, error.message())
}

pub(super) fn of_json(file: &str, path: &str, error: &serde_json::Error) -> PlanFileError {
    let message = error.to_string();
    // The line is told apart from the message; a value in memory has none.
    let message = match message.rfind(" at line ") {
        Some(at) => message[..at].to_owned(),
        None => message,
    };
    wrong(file, error.line(), path, &message)
}

fn wrong(file: &str, line: usize, path: &str, message: &str) -> PlanFileError {
    let field = if path == "." { String::new() } else { path.to_owned() };
    let problem: String = message.lines().next().unwrap_or_default().chars().take(400).collect();
    PlanFileError::Wrong { file: file.into(), line, field, hint: hint(message), problem }
}

/// serde says "unknown field `x`, expected one of `a`, `b`": the nearest of these is what was meant.
fn hint(message: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let unknown = message.starts_with("unknown field") || message.starts_with("unknown variant");
    match (unknown, quoted.next()) {
        (true, Some(word)) => match words::nearest(word, quoted) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "see \"How to write a plan file\" in README.md".into(),
        },
        (false, Some("goal")) if message.starts_with("missing field") => {
            "a plan file begins with [goal] and its text".into()
        }
        (false, Some(word)) if message.starts_with("missing field") => format!("add `{word}`"),
        _ => String::new(),
    }
}
