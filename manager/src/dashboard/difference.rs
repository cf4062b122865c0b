//! What is different between the files of two attempts, line by line.

use super::Dashboard;
use super::desk::{Fault, path_of};
use super::session::Session;
use crate::api::types::{ChangedFile, ChangedFiles};
use maud::{Markup, html};
use similar::{ChangeTag, TextDiff};
use std::collections::BTreeSet;
use std::time::Duration;

/// Files that are compared, and how large each may be.
const FILES_MAX: usize = 20;
const BYTES_MAX: u64 = 256 * 1024;
/// Lines around a difference, and lines of one file's differences.
const CONTEXT: usize = 2;
const LINES_MAX: usize = 400;
/// After so long the comparison is rougher.
const PATIENCE: Duration = Duration::from_millis(500);

/// All files of both; those that are the same are only named.
///
/// # Errors
/// A refusal of the API.
pub(super) async fn between(
    dashboard: &Dashboard,
    session: &Session,
    ticket: &str,
    before: usize,
    after: usize,
) -> Result<Markup, Fault> {
    let base = |place: usize| format!("/v1/tickets/{ticket}/attempts/{place}/files");
    let old: ChangedFiles = dashboard.desk.get(session, &base(before)).await?;
    let new: ChangedFiles = dashboard.desk.get(session, &base(after)).await?;
    let of =
        |list: &ChangedFiles, path: &str| list.files.iter().find(|f| f.path == path && !f.deleted).cloned();
    let paths: BTreeSet<&str> = old.files.iter().chain(&new.files).map(|f| f.path.as_str()).collect();
    let mut drawn = vec![];
    for path in &paths {
        let (old, new) = (of(&old, path), of(&new, path));
        let what = match (&old, &new) {
            (None, None) => continue,
            (Some(old), Some(new)) if old.hash == new.hash => html! { span { "the same" } },
            (Some(_), None) => html! { span { "not made any more" } },
            (None, Some(_)) => html! { span { "new" } },
            (Some(o), Some(n)) if drawn.len() < FILES_MAX && small(o) && small(n) => {
                let (o, n) = (
                    dashboard.desk.bytes(session, &format!("{}/{}", base(before), path_of(path))).await?,
                    dashboard.desk.bytes(session, &format!("{}/{}", base(after), path_of(path))).await?,
                );
                match (String::from_utf8(o), String::from_utf8(n)) {
                    (Ok(o), Ok(n)) => lines(&o, &n),
                    (Ok(_) | Err(_), Ok(_) | Err(_)) => html! { span { "different" } },
                }
            }
            (Some(_), Some(_)) => html! { span { "different" } },
        };
        drawn.push(html! { li { strong { (path) } " " (what) } });
    }
    Ok(
        html! { @if drawn.is_empty() { p { "Neither has files." } } @else { ul.plain { @for one in &drawn { (one) } } } },
    )
}

fn small(file: &ChangedFile) -> bool {
    file.size_bytes <= BYTES_MAX
}

/// Lines that went and came, with a word beside the colour.
fn lines(old: &str, new: &str) -> Markup {
    let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(old, new);
    let groups = diff.grouped_ops(CONTEXT);
    let changes: Vec<_> =
        groups.iter().flatten().flat_map(|op| diff.iter_changes(op)).take(LINES_MAX + 1).collect();
    html! {
        pre.difference tabindex="0" {
            @for change in changes.iter().take(LINES_MAX) {
                @let text = change.value().trim_end_matches('\n');
                @match change.tag() {
                    ChangeTag::Delete => { del { "- " (text) } "\n" }
                    ChangeTag::Insert => { ins { "+ " (text) } "\n" }
                    ChangeTag::Equal => { "  " (text) "\n" }
                }
            }
            @if changes.len() > LINES_MAX { "…\n" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_went_and_came_are_told_apart_without_colour() {
        let text = lines("a\nb\nc\n", "a\n<b>\nc\n").into_string();
        assert!(text.contains("<del>- b</del>") && text.contains("<ins>+ &lt;b&gt;</ins>"), "{text}");
        assert!(!lines("same\n", "same\n").into_string().contains("same"));
    }
}
