//! The file of a recorded goal: JSON lines with a version, read and written here alone. No network, no fleet.
//!
//! ```text
//! {"kind":"head","v":1,"muster":"0.1.0","goal":{…},"plan":null,"state":"done"}   always the first
//! {"kind":"input","path":"data/a.csv","text":"…"}                                or "base64" when it is no text
//! {"kind":"call","role":"worker","key":"measure","dialect":"native","request":{…},"answer":{…}}   in their order
//! {"kind":"ticket","key":"measure","status":"done","reviews":1,"items":[{"item":"…","pass":true}]}
//! {"kind":"file","path":"outputs/a.md","sha256":"…"}                             times and ids set aside
//! {"kind":"end","lines":42}                                                      without it the file was cut off
//! ```

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version written; no other one is read, for there has been no other.
pub(crate) const VERSION: u32 = 1;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Line {
    Head(Head),
    Input(Input),
    Call(Call),
    Ticket(Ticket),
    File(File),
    End { lines: usize },
}

/// What was asked for, and how it ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Head {
    pub(crate) v: u32,
    /// Version of the program that wrote it, for people.
    pub(crate) muster: String,
    pub(crate) goal: Goal,
    /// The plan file as JSON, when no model planned.
    pub(crate) plan: Option<Value>,
    /// State of the goal when it was recorded.
    pub(crate) state: String,
}

/// The goal as it was submitted. Budget and deadline are left out: a replay spends nothing and takes its own time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Goal {
    pub(crate) text: String,
    pub(crate) constraints: Vec<String>,
    pub(crate) review: shared::ticket::ReviewPolicy,
    pub(crate) language: String,
    /// Tickets that may run at once; 0: no such cap.
    pub(crate) in_flight_max: u32,
}

/// A file that the goal was given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    pub(crate) path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) base64: Option<String>,
}

/// One model call. The results of tools stand in the requests that they went into.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Call {
    /// `planner`, `worker` or `reviewer`.
    pub(crate) role: String,
    /// Key of the ticket; empty for the goal's plan.
    pub(crate) key: String,
    /// How the answer was asked for, as in the call's record.
    pub(crate) dialect: String,
    /// Body of the request, redacted.
    pub(crate) request: Value,
    /// `text`, `reasoning`, `calls`, `finish`; or `error` and `detail`.
    pub(crate) answer: Value,
}

/// How a ticket ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ticket {
    pub(crate) key: String,
    pub(crate) status: String,
    pub(crate) reviews: u64,
    /// The last verdict, item by item.
    pub(crate) items: Vec<Item>,
}

/// One item of a verdict.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Item {
    pub(crate) item: String,
    pub(crate) pass: bool,
}

/// A deliverable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    pub(crate) path: String,
    /// Of the content with times and ids set aside, in hex.
    pub(crate) sha256: String,
}

/// A whole recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Recording {
    pub(crate) head: Head,
    pub(crate) inputs: Vec<Input>,
    pub(crate) calls: Vec<Call>,
    pub(crate) tickets: Vec<Ticket>,
    pub(crate) files: Vec<File>,
}

/// The file is no recording that can be replayed: a usage error, found before anything is started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordingError {
    #[error("line {line}: {problem}")]
    Line { line: usize, problem: serde_json::Error },
    #[error("it does not begin with a head: it is no recording")]
    NoHead,
    #[error("it is of version {0}, and this program reads version {VERSION}")]
    Version(u32),
    #[error("it was cut off: its last line is missing, or does not count {0} lines before it")]
    CutOff(usize),
}

impl Recording {
    /// The file's text, each line redacted as the records of calls are (I12).
    pub(crate) fn write(&self) -> String {
        let mut lines = vec![Line::Head(self.head.clone())];
        lines.extend(self.inputs.iter().cloned().map(Line::Input));
        lines.extend(self.calls.iter().cloned().map(Line::Call));
        lines.extend(self.tickets.iter().cloned().map(Line::Ticket));
        lines.extend(self.files.iter().cloned().map(Line::File));
        lines.push(Line::End { lines: lines.len() });
        lines.iter().fold(String::new(), |mut text, line| {
            // Plain data with string keys always serialises.
            let line = serde_json::to_value(line).unwrap_or_default().to_string();
            text.push_str(&shared::model::redacted(&line));
            text.push('\n');
            text
        })
    }

    /// Reads one.
    ///
    /// # Errors
    /// [`RecordingError`] names the line, or what is missing.
    pub(crate) fn read(text: &str) -> Result<Self, RecordingError> {
        let mut recording = Self::default();
        let mut ended = None;
        let lines: Vec<&str> = text.lines().collect();
        for (n, line) in lines.iter().enumerate() {
            let read = |problem| RecordingError::Line { line: n + 1, problem };
            if n == 0 {
                // Before the shape of the rest is judged: another version may have another one.
                let head: Value = serde_json::from_str(line).map_err(|_| RecordingError::NoHead)?;
                let version = head.get("v").and_then(Value::as_u64).and_then(|v| u32::try_from(v).ok());
                match (head.get("kind").and_then(Value::as_str), version) {
                    (Some("head"), Some(VERSION)) => {}
                    (Some("head"), Some(other)) => return Err(RecordingError::Version(other)),
                    (Some(_) | None, _) => return Err(RecordingError::NoHead),
                }
            }
            match serde_json::from_str(line).map_err(read)? {
                Line::Head(head) => recording.head = head,
                Line::Input(input) => recording.inputs.push(input),
                Line::Call(call) => recording.calls.push(call),
                Line::Ticket(ticket) => recording.tickets.push(ticket),
                Line::File(file) => recording.files.push(file),
                Line::End { lines } => ended = Some((n, lines)),
            }
        }
        let before = lines.len().saturating_sub(1);
        match ended {
            _ if lines.is_empty() => Err(RecordingError::NoHead),
            Some((at, counted)) if at == before && counted == before => Ok(recording),
            Some(_) | None => Err(RecordingError::CutOff(before)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn recording() -> Recording {
        Recording {
            head: Head {
                v: VERSION,
                muster: "0.1.0".into(),
                goal: Goal {
                    text: "Count, with key-0123456789".into(),
                    language: "en".into(),
                    ..Goal::default()
                },
                plan: None,
                state: "done".into(),
            },
            inputs: vec![
                Input { path: "data/a.csv".into(), text: Some("a\n1\n".into()), base64: None },
                Input { path: "data/b.bin".into(), text: None, base64: Some("/w==".into()) },
            ],
            calls: vec![Call {
                role: "worker".into(),
                key: "count".into(),
                dialect: "native".into(),
                request: json!({"messages": [{"role": "user", "content": "# Your ticket: count"}]}),
                answer: json!({"text": "one", "reasoning": "", "calls": [], "finish": "stop"}),
            }],
            tickets: vec![Ticket {
                key: "count".into(),
                status: "done".into(),
                reviews: 1,
                items: vec![Item { item: "it is one".into(), pass: true }],
            }],
            files: vec![File { path: "outputs/a.md".into(), sha256: "00ff".into() }],
        }
    }

    #[test]
    fn the_format_is_this_one() {
        insta::assert_snapshot!(recording().write(), @r##"
        {"goal":{"constraints":[],"in_flight_max":0,"language":"en","review":"judged","text":"Count, with [redacted]"},"kind":"head","muster":"0.1.0","plan":null,"state":"done","v":1}
        {"kind":"input","path":"data/a.csv","text":"a\n1\n"}
        {"base64":"/w==","kind":"input","path":"data/b.bin"}
        {"answer":{"calls":[],"finish":"stop","reasoning":"","text":"one"},"dialect":"native","key":"count","kind":"call","request":{"messages":[{"content":"# Your ticket: count","role":"user"}]},"role":"worker"}
        {"items":[{"item":"it is one","pass":true}],"key":"count","kind":"ticket","reviews":1,"status":"done"}
        {"kind":"file","path":"outputs/a.md","sha256":"00ff"}
        {"kind":"end","lines":6}
        "##);
    }

    #[test]
    fn what_was_written_is_read_and_what_is_not_whole_is_refused() {
        let mut whole = recording();
        let text = whole.write();
        whole.head.goal.text = "Count, with [redacted]".into();
        assert_eq!(Recording::read(&text).unwrap(), whole);
        let problem = |text: &str| Recording::read(text).unwrap_err().to_string();
        assert!(problem("").contains("no recording"));
        assert!(problem("[goal]\ntext = 1").contains("no recording"));
        assert!(problem(&text.replace("\"v\":1", "\"v\":2")).contains("version 2"));
        let cut = text.lines().take(3).map(|l| format!("{l}\n")).collect::<String>();
        assert!(problem(&cut).contains("cut off"));
        let lost: String = text.lines().filter(|l| !l.contains("a.csv")).map(|l| format!("{l}\n")).collect();
        assert!(problem(&lost).contains("cut off"));
        assert!(problem(&text.replace("\"path\":\"outputs", "\"whither\":\"outputs")).contains("line 6"));
    }
}
