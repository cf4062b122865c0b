//! Pointers that the judge gives as evidence: reading them, and finding out whether the place exists (D8).

use crate::deliverable::{Deliverable, Text};
use std::collections::BTreeSet;

/// Most pointers of one item.
const POINTERS_MAX: usize = 5;
/// Most parts between separators, those of names included.
const PARTS_MAX: usize = 50;

/// A place in what was delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pointer {
    /// Lines of a file, from 1, both inclusive.
    Lines { path: String, first: usize, last: usize },
    /// Lines of the worker's report.
    Report { first: usize, last: usize },
    /// A recorded tool run.
    Tool(u32),
    /// A file as a whole: only for one that is no text.
    File(String),
}

/// Reads the pointers of an item, separated by `;` or `,`. Names of files may hold these too: `is_file` says
/// whether there is a file of that name, and a name that is there is never cut.
///
/// # Errors
/// What is wrong, for the verdict's reason.
pub(crate) fn parse(text: &str, is_file: &dyn Fn(&str) -> bool) -> Result<Vec<Pointer>, String> {
    let text = text.trim().trim_matches('`');
    // Where a pointer may begin and end.
    let mut cuts: Vec<(usize, usize)> = vec![];
    let mut begin = 0;
    for (at, _) in text.match_indices([';', ',']) {
        cuts.push((begin, at));
        begin = at + 1;
    }
    cuts.push((begin, text.len()));
    if cuts.len() > PARTS_MAX {
        return Err(format!("{} parts, at most {PARTS_MAX} are read", cuts.len()));
    }
    let mut pointers = vec![];
    let mut i = 0;
    while i < cuts.len() {
        let part = |last: usize| text[cuts[i].0..cuts[last].1].trim().trim_matches('`');
        if part(i).is_empty() {
            i += 1;
            continue;
        }
        let (pointer, last) = first_meant(&(i..cuts.len()).map(part).collect::<Vec<_>>(), is_file)?;
        pointers.push(pointer);
        i += last + 1;
    }
    match pointers.len() {
        0 => Err("no evidence was given".into()),
        n if n > POINTERS_MAX => Err(format!("{n} pointers, at most {POINTERS_MAX} are read")),
        _ => Ok(pointers),
    }
}

/// Of ever longer readings of one beginning the first that names a file that is there; if none does, the first
/// alone. With the place of the reading.
fn first_meant(readings: &[&str], is_file: &dyn Fn(&str) -> bool) -> Result<(Pointer, usize), String> {
    for (n, reading) in readings.iter().enumerate() {
        match parse_one(reading) {
            Ok(Pointer::Lines { path, .. } | Pointer::File(path)) if !is_file(&path) => {}
            Ok(pointer) => return Ok((pointer, n)),
            Err(_) => {}
        }
    }
    Ok((parse_one(readings.first().copied().unwrap_or_default())?, 0))
}

fn parse_one(text: &str) -> Result<Pointer, String> {
    let Some((place, span)) = text.rsplit_once(':') else { return Ok(Pointer::File(text.into())) };
    if place == "tool" {
        return span.trim().parse().map(Pointer::Tool).map_err(|_| format!("`{text}` names no tool run"));
    }
    let (first, last) = span.split_once('-').unwrap_or((span, span));
    let number = |n: &str| n.trim().trim_start_matches(['L', 'l']).parse::<usize>().ok();
    let (Some(first), Some(last)) = (number(first), number(last)) else {
        return Err(format!("`{text}` is not `path:first-last`"));
    };
    if first == 0 || last < first {
        return Err(format!("`{text}` names no lines"));
    }
    Ok(match place.trim() {
        "report" => Pointer::Report { first, last },
        path => Pointer::Lines { path: path.into(), first, last },
    })
}

/// What the pointers may point at.
pub(crate) struct Places<'a> {
    pub(crate) deliverable: &'a Deliverable,
    pub(crate) report: &'a str,
    /// Numbers of the recorded tool runs.
    pub(crate) tools: &'a BTreeSet<u32>,
}

impl Places<'_> {
    /// Whether every pointer of the item points at something that is there.
    ///
    /// # Errors
    /// Outer: a file cannot be read for a reason that is not the work's. Inner: which place does not exist.
    pub(crate) async fn resolve(
        &self,
        evidence: &str,
    ) -> Result<Result<(), String>, crate::deliverable::DeliverableError> {
        let pointers = match parse(evidence, &|path| self.deliverable.entry(path).is_some()) {
            Ok(pointers) => pointers,
            Err(problem) => return Ok(Err(problem)),
        };
        for pointer in pointers {
            if let Err(problem) = self.resolve_one(pointer).await? {
                return Ok(Err(problem));
            }
        }
        Ok(Ok(()))
    }

    async fn resolve_one(
        &self,
        pointer: Pointer,
    ) -> Result<Result<(), String>, crate::deliverable::DeliverableError> {
        Ok(match pointer {
            Pointer::Tool(step) if self.tools.contains(&step) => Ok(()),
            Pointer::Tool(step) => Err(format!("there is no tool run {step}")),
            Pointer::Report { first, last } => lines_exist("report", self.report, first, last),
            Pointer::Lines { path, first, last } => match self.deliverable.text(&path).await? {
                Text::Is(text) => lines_exist(&path, &text, first, last),
                Text::Binary => Err(format!("{path} is no text and has no lines")),
                Text::Missing => Err(format!("there is no file {path}")),
                Text::TooLarge { .. } => Err(format!("{path} is too large to be read")),
            },
            Pointer::File(path) => match self.deliverable.text(&path).await? {
                Text::Binary => Ok(()),
                Text::Is(_) | Text::TooLarge { .. } => Err(format!("`{path}` names no lines")),
                Text::Missing => Err(format!("`{path}` points at nothing")),
            },
        })
    }
}

/// The lines are there and say something.
fn lines_exist(path: &str, text: &str, first: usize, last: usize) -> Result<(), String> {
    let count = text.lines().count();
    if last > count {
        return Err(format!("{path} has {count} lines, the evidence points at {first}-{last}"));
    }
    let says = text.lines().skip(first - 1).take(last - first + 1).any(|l| !l.trim().is_empty());
    if says { Ok(()) } else { Err(format!("the lines {first}-{last} of {path} are blank")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_read_as_they_are_meant() {
        let parse = |text: &str| parse(text, &|_| false);
        let lines = |path: &str, first, last| Pointer::Lines { path: path.into(), first, last };
        assert_eq!(parse("outputs/a.md:3-9").unwrap(), [lines("outputs/a.md", 3, 9)]);
        assert_eq!(parse("`outputs/a.md:L4`").unwrap(), [lines("outputs/a.md", 4, 4)]);
        assert_eq!(
            parse("report:1-2; tool:3").unwrap(),
            [Pointer::Report { first: 1, last: 2 }, Pointer::Tool(3)]
        );
        assert_eq!(parse("a:b.md:1-2").unwrap(), [lines("a:b.md", 1, 2)]);
        assert_eq!(parse("outputs/x.png").unwrap(), [Pointer::File("outputs/x.png".into())]);
    }

    #[test]
    fn d8_a_name_with_a_separator_is_not_cut() {
        let files = ["data/a, b.csv", "data/c;d.csv", "x.png", "y, z.png"];
        let parse = |text: &str| parse(text, &|path| files.contains(&path));
        let lines = |path: &str, first, last| Pointer::Lines { path: path.into(), first, last };
        let file = |path: &str| Pointer::File(path.into());
        assert_eq!(parse("data/a, b.csv:1-2").unwrap(), [lines("data/a, b.csv", 1, 2)]);
        assert_eq!(
            parse("data/c;d.csv:1, tool:2; `data/a, b.csv:3-4`").unwrap(),
            [lines("data/c;d.csv", 1, 1), Pointer::Tool(2), lines("data/a, b.csv", 3, 4)]
        );
        assert_eq!(parse("x.png, y, z.png; report:1").unwrap()[..2], [file("x.png"), file("y, z.png")]);
        // What is not there is named by its own, and fails as such.
        assert_eq!(parse("gone.md:1; x.png").unwrap(), [lines("gone.md", 1, 1), file("x.png")]);
        assert!(parse(&",".repeat(100)).is_err());
    }

    #[test]
    fn d8_what_is_no_pointer_is_said() {
        let parse = |text: &str| parse(text, &|_| false);
        for bad in [
            "",
            " ",
            ";",
            "the report: it says so",
            "a:0-3",
            "a:9-3",
            "tool:x",
            "a:1-2;b:1;c:1;d:1;e:1;f:1",
            "tool:-1",
            "a:1-99999999999999999999",
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn d8_lines_must_exist_and_say_something() {
        let text = "a\n\n\nb";
        assert!(lines_exist("x", text, 1, 4).is_ok());
        assert!(lines_exist("x", text, 1, 5).unwrap_err().contains("has 4 lines"));
        assert!(lines_exist("x", text, 2, 3).unwrap_err().contains("blank"));
        assert!(lines_exist("x", "", 1, 1).is_err());
    }
}
