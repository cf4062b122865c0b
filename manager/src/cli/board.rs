//! What a goal looks like while it runs, built from its events alone: a line a ticket. No I/O here.

use super::out::{clock, number, one_line, span, text};
use serde_json::Value;
use shared::store::LogEvent;
use shared::ticket::Status;
use std::time::Duration;

/// Most tickets that get a line of their own.
pub(crate) const LINES_MAX: usize = 24;

/// One ticket's line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) key: String,
    pub(crate) status: Status,
    pub(crate) who: String,
    /// Since when it is in this status, by the clock of the fleet.
    pub(crate) since_ms: u64,
    /// How often it was claimed for work.
    pub(crate) attempts: u32,
    /// Its last attempt: whose, and since when it was at work; 0: none yet.
    worker: String,
    started_ms: u64,
}

/// All lines, in the order in which the tickets were first heard of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Board {
    lines: Vec<Line>,
}

impl Board {
    /// Takes one event in; says whether a line changed.
    pub(crate) fn take(&mut self, event: &LogEvent) -> bool {
        let name = if event.key.is_empty() { &event.ticket } else { &event.key };
        let Some(status) = Status::parse(&event.to) else { return false };
        if name.is_empty() {
            return false;
        }
        let index = match self.lines.iter().position(|l| &l.key == name) {
            Some(index) => index,
            None => {
                self.lines.push(Line {
                    key: name.clone(),
                    status,
                    who: String::new(),
                    since_ms: event.at_ms,
                    attempts: 0,
                    worker: String::new(),
                    started_ms: 0,
                });
                self.lines.len() - 1
            }
        };
        let line = &mut self.lines[index];
        if line.status != status || status == Status::Running {
            line.since_ms = event.at_ms;
        }
        line.status = status;
        match status {
            Status::Running => {
                line.attempts += 1;
                line.who.clone_from(&event.who);
                line.worker.clone_from(&event.who);
                if line.started_ms == 0 {
                    line.started_ms = event.at_ms;
                }
            }
            // How it ended is the work's, not the reviewer's.
            Status::Done => line.who = line.worker.clone(),
            Status::Reviewing => line.who.clone_from(&event.who),
            Status::Pending
            | Status::Rejected
            | Status::Blocked
            | Status::AwaitingApproval
            | Status::Escalated
            | Status::NeedsHuman
            | Status::Skipped
            | Status::Superseded
            | Status::Failed
            | Status::Cancelled => line.who.clear(),
        }
        true
    }

    /// Puts a ticket on the board that no event has told of yet.
    pub(crate) fn know(&mut self, key: &str, status: Status, since_ms: u64) {
        if !self.lines.iter().any(|l| l.key == key) {
            self.lines.push(Line {
                key: key.to_owned(),
                status,
                who: String::new(),
                since_ms,
                attempts: 0,
                worker: String::new(),
                started_ms: 0,
            });
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }

    /// The lines to draw: all while they are few, otherwise those that somebody works on or waits for.
    pub(crate) fn lines(&self) -> Vec<&Line> {
        if self.lines.len() <= LINES_MAX {
            return self.lines.iter().collect();
        }
        let idle = |s: Status| s.is_terminal() || matches!(s, Status::Blocked | Status::Pending);
        self.lines.iter().filter(|l| !idle(l.status)).take(LINES_MAX).collect()
    }

    /// `3/5 done, 1 running, 1 reviewing`.
    pub(crate) fn summary(&self) -> String {
        let count = |status: Status| self.lines.iter().filter(|l| l.status == status).count();
        let mut text = format!("{}/{} done", count(Status::Done), self.lines.len());
        for status in Status::ALL {
            let n = count(status);
            if n > 0 && status != Status::Done {
                text.push_str(&format!(", {n} {}", status.as_str()));
            }
        }
        text
    }
}

impl Line {
    /// The line as it is drawn: key, state, who, seconds.
    pub(crate) fn draw(&self, width: usize, now_ms: u64) -> String {
        let tries = if self.attempts > 1 { format!("  try {}", self.attempts) } else { String::new() };
        let time = match (self.status.is_terminal(), self.status == Status::Blocked) {
            (true, _) if self.started_ms > 0 => span(self.since_ms.saturating_sub(self.started_ms)),
            (true, _) | (_, true) => String::new(),
            (false, false) => span(now_ms.saturating_sub(self.since_ms)),
        };
        format!(
            "{:<width$}  {:<11} {:>7}  {}{tries}",
            self.key,
            self.status.as_str(),
            time,
            nickname(&self.who)
        )
        .trim_end()
        .to_owned()
    }

    pub(crate) fn mark(&self) -> &'static str {
        match self.status {
            Status::Done => "✔",
            Status::Failed | Status::Cancelled => "✘",
            Status::Skipped | Status::Superseded => "-",
            Status::NeedsHuman | Status::AwaitingApproval => "?",
            Status::Blocked => "·",
            Status::Pending | Status::Rejected | Status::Escalated | Status::Running | Status::Reviewing => {
                ""
            }
        }
    }
}

/// An event as one plain line: `12:00:03  measure  pending -> running  worker-1`.
pub(crate) fn plain(event: &LogEvent) -> String {
    let name = if event.key.is_empty() {
        if event.ticket.is_empty() { "goal" } else { super::out::short(&event.ticket) }
    } else {
        &event.key
    };
    let mut line = format!("{}  {name:<16} ", clock(event.at_ms));
    if event.from.is_empty() && event.to.is_empty() {
        line.push_str(&event.event);
    } else if event.from == event.to || event.from.is_empty() {
        line.push_str(&format!("{} ({})", event.to, event.event));
    } else {
        line.push_str(&format!("{} -> {} ({})", event.from, event.to, event.event));
    }
    if !event.who.is_empty() {
        line.push_str(&format!("  {}", nickname(&event.who)));
    }
    let detail = detail(&event.detail);
    if !detail.is_empty() {
        line.push_str(&format!("  {}", one_line(&detail, 200)));
    }
    line
}

/// A consumer without its random tail: `worker-host-4711` of `worker-host-4711-7c373a5948a3dab9`.
pub(crate) fn nickname(who: &str) -> &str {
    match who.rsplit_once('-') {
        Some((name, tail)) if tail.len() == 16 && tail.bytes().all(|b| b.is_ascii_hexdigit()) => name,
        Some(_) | None => who,
    }
}

/// What a person wants of an event's detail: of a verdict the items that failed, of a model call what it took.
fn detail(detail: &str) -> String {
    let Ok(value @ Value::Object(_)) = serde_json::from_str::<Value>(detail) else {
        return detail.to_owned();
    };
    if let Some(verdict) = value.get("items").and_then(Value::as_array) {
        let passes = |item: &&Value| item.get("pass").and_then(Value::as_bool) == Some(true);
        let failed: Vec<String> = verdict
            .iter()
            .filter(|item| !passes(item))
            .map(|item| format!("{}: {}", text(item, "item"), text(item, "reason")))
            .collect();
        if failed.is_empty() {
            return format!("{} checks hold", verdict.len());
        }
        return failed.join("; ");
    }
    if value.get("model").is_some() && value.get("duration_ms").is_some() {
        let error = text(&value, "error");
        return format!(
            "{} {}, {} + {} tokens, {:.1} s{}",
            text(&value, "role"),
            text(&value, "model"),
            number(&value, "input_tokens"),
            number(&value, "output_tokens"),
            Duration::from_millis(number(&value, "duration_ms")).as_secs_f64(),
            if error.is_empty() { String::new() } else { format!(", {error}: {}", text(&value, "detail")) },
        );
    }
    detail.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(key: &str, from: &str, to: &str, who: &str, at_ms: u64) -> LogEvent {
        LogEvent {
            id: format!("{at_ms}-0"),
            at_ms,
            event: "e".into(),
            ticket: key.into(),
            key: key.into(),
            from: from.into(),
            to: to.into(),
            epoch: 1,
            who: who.into(),
            detail: String::new(),
        }
    }

    #[test]
    fn a_ticket_is_one_line_through_its_life() {
        let mut board = Board::default();
        for e in [
            event("measure", "blocked", "pending", "", 1_000),
            event("measure", "pending", "running", "w1", 2_000),
            event("measure", "running", "reviewing", "", 5_000),
            event("measure", "reviewing", "rejected", "r1", 6_000),
            event("measure", "rejected", "running", "w2", 7_000),
        ] {
            assert!(board.take(&e));
        }
        let lines = board.lines();
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0].draw(8, 12_500), "measure   running          5s  w2  try 2");
        assert_eq!(board.summary(), "0/1 done, 1 running");
        board.take(&event("measure", "running", "reviewing", "r1", 13_000));
        board.take(&event("measure", "reviewing", "done", "r1", 14_000));
        assert_eq!(board.lines()[0].draw(8, 99_000), "measure   done            12s  w2  try 2");
    }

    #[test]
    fn many_tickets_show_only_what_moves() {
        let mut board = Board::default();
        for n in 0..100 {
            board.take(&event(&format!("t{n}"), "", "blocked", "", 1));
        }
        board.take(&event("t7", "pending", "running", "w", 2));
        assert_eq!(board.lines().iter().map(|l| l.key.as_str()).collect::<Vec<_>>(), ["t7"]);
    }

    #[test]
    fn events_without_a_ticket_change_no_line() {
        let mut board = Board::default();
        assert!(!board.take(&event("", "planning", "running", "m", 1)));
    }

    #[test]
    fn details_are_said_in_words() {
        let verdict = r#"{"items":[{"item":"a","pass":true,"reason":"r"},{"item":"rows","pass":false,"reason":"2 of 3"}]}"#;
        assert_eq!(detail(verdict), "rows: 2 of 3");
        assert_eq!(detail(r#"{"items":[{"item":"a","pass":true,"reason":"r"}]}"#), "1 checks hold");
        let call = r#"{"role":"worker","model":"m","duration_ms":403,"input_tokens":10,"output_tokens":2,"error":""}"#;
        assert_eq!(detail(call), "worker m, 10 + 2 tokens, 0.4 s");
        assert_eq!(detail("as it is"), "as it is");
        assert_eq!(nickname("worker-vm-21567-7c373a5948a3dab9"), "worker-vm-21567");
        assert_eq!(nickname("alice"), "alice");
    }

    #[test]
    fn plain_lines_name_both_states() {
        let line = plain(&event("measure", "pending", "running", "w1", 0));
        assert!(line.ends_with("measure          pending -> running (e)  w1"), "{line}");
    }
}
