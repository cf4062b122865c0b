//! What the judge is shown of a deliverable: the report and the files, lines numbered, within a budget.

use super::Case;
use crate::deliverable::{Content, DeliverableError, Text};
use serde::Serialize;
use shared::model::Image;
use shared::ticket::Report;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Longest line shown, characters.
const LINE_CHARS_MAX: usize = 2_000;
/// Most files shown; what is left of the budget for more would be too little of each.
const FILES_MAX: usize = 20;
/// A file is given at least this much of the budget.
const SHARE_BYTES_MIN: usize = 1_024;

/// A file as the prompt shows it.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct FileShown {
    pub(super) path: String,
    /// Size, and whether all of it is shown.
    pub(super) note: String,
    pub(super) text: String,
}

/// The worker's report as lines.
pub(super) fn report_text(report: &Report) -> String {
    let mut text = format!("status: {}\n{}\n", report.status, report.summary.trim());
    for fact in &report.conclusions {
        let _ = writeln!(text, "- {}", fact.replace('\n', " "));
    }
    text
}

/// Each line with its number, as pointers name them.
pub(super) fn numbered(text: &str) -> String {
    text.lines().enumerate().fold(String::new(), |mut out, (i, line)| {
        push_line(&mut out, i + 1, line);
        out
    })
}

fn push_line(out: &mut String, number: usize, line: &str) {
    match line.char_indices().nth(LINE_CHARS_MAX) {
        None => _ = writeln!(out, "{number}| {line}"),
        Some((at, _)) => _ = writeln!(out, "{number}| {}… (line cut)", &line[..at]),
    }
}

/// The declared files first, then those of the report, then what else the attempt changed; and how many more
/// there are. Missing ones are left to the code checks.
pub(super) async fn files_shown(
    case: &Case<'_>,
    bytes_max: usize,
) -> Result<(Vec<FileShown>, usize), DeliverableError> {
    let mut seen = BTreeSet::new();
    let paths: Vec<&str> = (case.ticket.outputs.iter().map(String::as_str))
        .chain(case.report.outputs.iter().map(String::as_str))
        .chain(case.deliverable.changed())
        .filter(|path| case.deliverable.entry(path).is_some() && seen.insert(*path))
        .collect();
    let mut left = bytes_max;
    let mut files = vec![];
    for (i, path) in paths.iter().take(FILES_MAX).enumerate() {
        let bytes = case.deliverable.entry(path).map_or(0, |e| e.size_bytes);
        // What a small file leaves over goes to those after it.
        let share = (left / (paths.len().min(FILES_MAX) - i)).max(SHARE_BYTES_MIN);
        let (note, text) = match case.deliverable.text(path).await? {
            Text::Is(text) if text.trim().is_empty() => (format!("{bytes} bytes, blank"), String::new()),
            Text::Is(text) => {
                let (shown, whole) = cut_lines(&text, share);
                let lines = text.lines().count();
                (format!("{bytes} bytes, {lines} lines{}", if whole { "" } else { ", a part of it" }), shown)
            }
            Text::Binary => (format!("{bytes} bytes, not a text; pointer `{path}`"), String::new()),
            Text::TooLarge { .. } | Text::Missing => {
                (format!("{bytes} bytes, too large to show"), String::new())
            }
        };
        left = left.saturating_sub(text.len());
        files.push(FileShown { path: (*path).into(), note, text });
    }
    Ok((files, paths.len().saturating_sub(FILES_MAX)))
}

/// The images among the files that the prompt names, as far as they may be shown.
pub(super) async fn images_shown(
    case: &Case<'_>,
    files: &[FileShown],
    most: usize,
    bytes_max: u64,
) -> Result<Vec<Image>, DeliverableError> {
    let mut images = vec![];
    for file in files.iter().filter(|f| f.text.is_empty()) {
        let small = case.deliverable.entry(&file.path).is_some_and(|e| e.size_bytes <= bytes_max);
        if images.len() < most
            && small
            && let Content::Is(bytes) = case.deliverable.content(&file.path).await?
        {
            images.extend(Image::of(&file.path, &bytes));
        }
    }
    Ok(images)
}

/// Numbered lines of the head (two thirds of the share) and of the tail; whether that is all.
fn cut_lines(text: &str, share: usize) -> (String, bool) {
    let whole = numbered(text);
    if whole.len() <= share {
        return (whole, true);
    }
    let lines: Vec<&str> = whole.lines().collect();
    let (mut head, mut tail) = (0, lines.len());
    let mut room = share * 2 / 3;
    while head < lines.len() && lines[head].len() < room {
        room -= lines[head].len() + 1;
        head += 1;
    }
    let mut room = share / 3;
    while tail > head && lines[tail - 1].len() < room {
        room -= lines[tail - 1].len() + 1;
        tail -= 1;
    }
    let mut shown = lines[..head].join("\n");
    let _ = write!(shown, "\n… ({} lines left out)\n", tail - head);
    shown.push_str(&lines[tail..].join("\n"));
    (shown, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_keep_head_and_tail_with_their_numbers() {
        let text: String = (1..=1_000).map(|i| format!("row {i}\n")).collect();
        let (shown, whole) = cut_lines(&text, 1_200);
        assert!(!whole && shown.len() < 1_300);
        assert!(shown.starts_with("1| row 1\n2| row 2\n"));
        assert!(shown.trim_end().ends_with("1000| row 1000"));
        assert!(shown.contains("lines left out"));
        let (shown, whole) = cut_lines("a\nb\n", 1_200);
        assert!(whole);
        assert_eq!(shown, "1| a\n2| b\n");
    }

    #[test]
    fn endless_lines_are_cut() {
        let shown = numbered(&"x".repeat(1_000_000));
        assert!(shown.len() < 3_000 && shown.contains("(line cut)"));
        let (shown, _) = cut_lines(&"x\n".repeat(10).replace('x', &"y".repeat(900)), 1_024);
        assert!(shown.contains("10 lines left out") || shown.len() < 1_200);
    }
}
