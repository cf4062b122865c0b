//! Where words go: data to stdout, everything else to stderr; and how tables, ages and sizes are written.

use super::error::CliError;
use serde_json::Value;
use std::io::{IsTerminal, Write};

/// How this run of the command line speaks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Out {
    pub(crate) json: bool,
    /// Stderr is a terminal: live lines are possible.
    pub(crate) live: bool,
    colour: bool,
}

impl Out {
    pub(crate) fn new(json: bool) -> Self {
        let live = std::io::stderr().is_terminal();
        let colour = live && super::env::get(super::env::NO_COLOR).is_none();
        Self { json, live: live && !json, colour }
    }

    /// A line of data.
    pub(crate) fn line(&self, text: &str) -> Result<(), CliError> {
        let mut to = std::io::stdout().lock();
        written(to.write_all(text.as_bytes()).and_then(|()| to.write_all(b"\n")).and_then(|()| to.flush()))
    }

    /// A whole JSON document.
    pub(crate) fn document(&self, value: &Value) -> Result<(), CliError> {
        self.line(&serde_json::to_string_pretty(value).unwrap_or_default())
    }

    /// The document under `--json`, otherwise the text.
    pub(crate) fn show(&self, value: &Value, human: impl FnOnce() -> String) -> Result<(), CliError> {
        if self.json { self.document(value) } else { self.line(human().trim_end()) }
    }

    /// Something worth knowing that is not data. A closed stderr is nobody's problem.
    pub(crate) fn note(&self, text: &str) {
        let mut to = std::io::stderr().lock();
        let _ = writeln!(to, "{text}");
    }

    /// The end of a failed command: what, and the way out.
    pub(crate) fn error(&self, e: &CliError) {
        if self.json {
            self.note(&e.to_json().to_string());
            return;
        }
        self.note(&format!("{} {e}", self.paint("error:", "1;31")));
        if !e.hint().is_empty() {
            self.note(&format!("  {} {}", self.paint("hint:", "1;36"), e.hint()));
        }
    }

    /// `text` in an SGR colour, when colours are on.
    pub(crate) fn paint(&self, text: &str, sgr: &str) -> String {
        if self.colour { format!("\x1b[{sgr}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

fn written(result: std::io::Result<()>) -> Result<(), CliError> {
    match result {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Err(CliError::BrokenPipe),
        Err(e) => Err(CliError::failed(format!("stdout: {e}"), "is the disk full?")),
    }
}

/// A table without lines, columns two blanks apart; readable by people and by `awk`.
pub(crate) fn table(headers: &[&str], rows: &[Vec<String>]) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_header(headers.iter().copied());
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.to_string().lines().map(|l| l.trim_end().to_owned() + "\n").collect()
}

/// First twelve digits: long enough to be unique, short enough to type.
pub(crate) fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

/// One line of at most `max` characters.
pub(crate) fn one_line(text: &str, max: usize) -> String {
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if flat.chars().count() <= max {
        return flat;
    }
    flat.chars().take(max.saturating_sub(1)).chain(['…']).collect()
}

/// A span of time in its two largest units at most: `4s`, `3m 12s`, `2h 5m`, `6d 1h`.
pub(crate) fn span(ms: u64) -> String {
    let s = ms / 1_000;
    match s {
        0..60 => format!("{s}s"),
        60..3_600 => format!("{}m {}s", s / 60, s % 60),
        3_600..86_400 => format!("{}h {}m", s / 3_600, s % 3_600 / 60),
        _ => format!("{}d {}h", s / 86_400, s % 86_400 / 3_600),
    }
}

/// Millionths of a dollar as dollars.
pub(crate) fn dollars(microusd: u64) -> String {
    format!("{}.{:04}", microusd / 1_000_000, microusd % 1_000_000 / 100)
}

/// Bytes with a binary unit.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut unit = 0;
    let mut left = bytes / 1024;
    let mut rest = bytes % 1024;
    while left >= 1024 && unit + 1 < UNITS.len() {
        rest = left % 1024;
        left /= 1024;
        unit += 1;
    }
    format!("{left}.{} {}", rest * 10 / 1024, UNITS[unit])
}

/// Now, as milliseconds since 1970, by this machine's clock: for ages only.
pub(crate) fn now_ms() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0)
}

/// Time of day, UTC: the machines of a fleet may live in several zones.
pub(crate) fn clock(ms: u64) -> String {
    let Ok(at) = jiff::Timestamp::from_millisecond(i64::try_from(ms).unwrap_or(0)) else {
        return "--:--:--".into();
    };
    at.strftime("%H:%M:%S").to_string()
}

/// A string field of a JSON object, empty if it is not there.
pub(crate) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// A number field of a JSON object, 0 if it is not there.
pub(crate) fn number(value: &Value, key: &str) -> u64 {
    value.get(key).and_then(Value::as_u64).unwrap_or(0)
}

/// The items of a listing: the array under `key`, or the document itself.
pub(crate) fn items<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).unwrap_or(value).as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_sizes_are_short() {
        assert_eq!(
            [0, 59_999, 60_000, 3_725_000, 180_000_000].map(span),
            ["0s", "59s", "1m 0s", "1h 2m", "2d 2h"]
        );
        assert_eq!(
            [0, 1023, 1024, 1536, 5 << 20, 3 << 30].map(size),
            ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "5.0 MiB", "3.0 GiB"]
        );
    }

    #[test]
    fn one_line_cuts_by_characters_not_bytes() {
        assert_eq!(one_line("一二三四五", 3), "一二…");
        assert_eq!(one_line(" a\n b ", 10), "a b");
    }

    #[test]
    fn items_takes_both_shapes() {
        let bare = serde_json::json!([1, 2]);
        let wrapped = serde_json::json!({"goals": [1, 2]});
        assert_eq!(items(&bare, "goals"), items(&wrapped, "goals"));
    }
}
