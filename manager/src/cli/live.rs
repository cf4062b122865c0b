//! Draws progress on stderr: live lines on a terminal, one plain line an event elsewhere.

use super::board::{Board, plain};
use super::out::{Out, now_ms, number, short, text};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde_json::Value;
use shared::store::LogEvent;
use shared::ticket::Status;
use std::time::Duration;

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// Lines that change in place.
    Live,
    /// One line an event on stderr.
    Plain,
    /// One line an event on stdout: the events are the data (`watch`).
    Data,
    /// Nothing: `--json` prints the end only.
    Quiet,
}

/// The picture of one goal.
pub(crate) struct Live {
    out: Out,
    style: Style,
    goal: String,
    board: Board,
    multi: MultiProgress,
    head: ProgressBar,
    bars: Vec<ProgressBar>,
}

impl Live {
    pub(crate) fn new(out: Out, style: Style, goal: &str) -> Self {
        let multi = MultiProgress::new();
        let head = ProgressBar::new_spinner();
        let mut live = Self {
            out,
            style,
            goal: goal.to_owned(),
            board: Board::default(),
            multi,
            head,
            bars: Vec::new(),
        };
        if style == Style::Live {
            live.head = live.multi.add(ProgressBar::new_spinner());
            live.head.enable_steady_tick(Duration::from_millis(120));
            live.tick();
        }
        live
    }

    /// Takes an event in and shows it.
    pub(crate) fn take(&mut self, event: &LogEvent) -> Result<(), super::error::CliError> {
        let changed = self.board.take(event);
        match self.style {
            Style::Live => {
                if changed {
                    self.tick();
                }
            }
            Style::Plain => self.out.note(&plain(event)),
            Style::Data if self.out.json => self.out.line(&serde_json::json!(event).to_string())?,
            Style::Data => self.out.line(&plain(event))?,
            Style::Quiet => {}
        }
        Ok(())
    }

    /// Whether tickets are missing from the picture: events tell of one when it first moves.
    pub(crate) fn lacks(&self, tickets: u64) -> bool {
        self.style == Style::Live && (self.board.len() as u64) < tickets
    }

    /// Puts tickets into the picture that no event has told of yet.
    pub(crate) fn know(&mut self, tickets: &[Value]) {
        for ticket in tickets {
            if let Some(status) = Status::parse(text(ticket, "status")) {
                self.board.know(text(ticket, "key"), status, number(ticket, "updated_at_ms"));
            }
        }
    }

    /// Moves the clocks on.
    pub(crate) fn tick(&mut self) {
        if self.style != Style::Live {
            return;
        }
        self.head.set_message(format!("goal {}  {}", short(&self.goal), self.board.summary()));
        let lines = self.board.lines();
        while self.bars.len() < lines.len() {
            let bar = self.multi.add(ProgressBar::new_spinner());
            if let Ok(style) = ProgressStyle::with_template("{prefix:>3} {wide_msg}") {
                bar.set_style(style);
            }
            self.bars.push(bar);
        }
        while self.bars.len() > lines.len() {
            if let Some(bar) = self.bars.pop() {
                bar.finish_and_clear();
                self.multi.remove(&bar);
            }
        }
        let width = lines.iter().map(|l| l.key.chars().count()).max().unwrap_or(0).min(32);
        let now = now_ms();
        for (bar, line) in self.bars.iter().zip(lines) {
            bar.set_prefix(line.mark());
            bar.set_message(line.draw(width, now));
        }
    }

    /// Says something without breaking the picture.
    pub(crate) fn note(&self, text: &str) {
        if self.style == Style::Live {
            self.multi.suspend(|| self.out.note(text));
        } else {
            self.out.note(text);
        }
    }

    /// Leaves the last picture standing.
    pub(crate) fn end(mut self) {
        self.tick();
        for bar in &self.bars {
            bar.abandon();
        }
        self.head.abandon();
    }
}
