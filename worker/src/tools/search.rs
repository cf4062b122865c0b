//! search_files: lines of the workspace's text files that hold a text or match a pattern. Bounded in files, bytes and hits.

use super::ToolError;
use regex::{Regex, RegexBuilder};
use shared::workspace::Attempt;

/// A file is read this far.
const FILE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// All files together.
const BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Lines that are shown.
const HITS_MAX: usize = 200;
/// Characters of a line that are shown.
const LINE_CHARS_MAX: usize = 300;
/// Bytes of a compiled pattern.
const PATTERN_BYTES_MAX: usize = 1024 * 1024;

/// What is looked for; the pattern runs in time linear in the text, whatever a model writes.
pub(super) struct Query(Regex);

impl Query {
    pub(super) fn new(pattern: &str, is_regex: bool, ignore_case: bool) -> Result<Self, ToolError> {
        let plain = regex::escape(pattern);
        let mut builder = RegexBuilder::new(if is_regex { pattern } else { &plain });
        let built = builder.case_insensitive(ignore_case).size_limit(PATTERN_BYTES_MAX).build();
        built.map(Self).map_err(|e| ToolError::Tell(format!("the pattern cannot be used: {e}")))
    }
}

/// `path:line: text` for each line that holds it, by path. Cancellation safe.
pub(super) async fn search(attempt: &Attempt, query: Query, prefix: &str) -> Result<String, ToolError> {
    let prefix = super::files::relative(prefix).trim_start_matches("./");
    let files = attempt.list().await?;
    let (mut hits, mut more, mut bytes, mut left_out) = (vec![], 0_usize, 0, vec![]);
    for (path, size) in files.iter().filter(|(path, _)| path.starts_with(prefix)) {
        if bytes > BYTES_MAX {
            left_out.push(format!("{path} (too much text; give a prefix)"));
            continue;
        }
        let Ok((content, length)) = attempt.read_part(path, 0, FILE_BYTES_MAX).await else { continue };
        bytes += content.len() as u64;
        // Pictures and archives have no lines.
        if content.iter().take(8_000).any(|b| *b == 0) {
            continue;
        }
        if length > content.len() as u64 {
            left_out.push(format!("{path} (searched up to byte {} of {size})", content.len()));
        }
        let text = String::from_utf8_lossy(&content);
        for (n, line) in text.lines().enumerate().filter(|(_, line)| query.0.is_match(line)) {
            if hits.len() < HITS_MAX {
                hits.push(format!("{path}:{}: {}", n + 1, shown(line, &query.0)));
            } else {
                more += 1;
            }
        }
        tokio::task::yield_now().await;
    }
    let mut said = if hits.is_empty() { "no line holds it".into() } else { hits.join("\n") };
    if more > 0 {
        said.push_str(&format!("\n[{more} more lines: narrow the pattern or give a prefix]"));
    }
    if !left_out.is_empty() {
        said.push_str(&format!("\n[not searched to the end: {}]", left_out.join(", ")));
    }
    Ok(said)
}

/// The line, or the part of a long one in which it stands.
fn shown(line: &str, query: &Regex) -> String {
    if line.chars().count() <= LINE_CHARS_MAX {
        return line.trim_end().to_owned();
    }
    let at = query.find(line).map_or(0, |m| m.start());
    let from = line.floor_char_boundary(at.saturating_sub(LINE_CHARS_MAX / 3));
    let part: String = line[from..].chars().take(LINE_CHARS_MAX).collect();
    format!("…{part}…")
}
