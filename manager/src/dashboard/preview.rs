//! Files drawn so that nothing of them runs: Markdown and CSV as HTML of ours, pictures as pictures, the rest as text.
//!
//! Two nets: raw HTML in Markdown is text before anything is drawn, and what was drawn is sanitised again. The pages'
//! policy, which allows no inline script, is the third.

use maud::{Markup, PreEscaped, html};
use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd};
use shared::workspace::mime_of;
use std::collections::HashSet;

/// Rows and columns of a table that are drawn; lines of a source.
const ROWS_MAX: usize = 200;
const COLUMNS_MAX: usize = 50;
const LINES_MAX: usize = 5_000;
/// Longest line of a source, in characters.
const LINE_CHARS_MAX: usize = 2_000;

/// How a file can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Markdown,
    Table,
    Picture,
    Text,
}

impl Kind {
    pub(super) fn of(path: &str) -> Self {
        let mime = mime_of(path);
        match mime {
            "text/markdown" => Self::Markdown,
            "text/csv" => Self::Table,
            _ if mime.starts_with("image/") => Self::Picture,
            _ => Self::Text,
        }
    }

    /// Whether there is more than the source.
    pub(super) fn is_drawn(self) -> bool {
        self != Self::Text
    }

    pub(super) fn has_source(self) -> bool {
        self != Self::Picture
    }
}

/// Where a document's own links lead.
pub(super) struct Base {
    files: String,
    raw: String,
    /// Folder of the document in its workspace, with a slash at its end unless it is empty.
    folder: String,
}

impl Base {
    pub(super) fn new(files: &str, raw: &str, path: &str) -> Self {
        let folder = path.rfind('/').map_or("", |at| &path[..=at]);
        Self { files: files.into(), raw: raw.into(), folder: folder.into() }
    }

    /// Of a file in a document that holds all files of its goal, each under its own path.
    pub(super) fn within(path: &str) -> Self {
        Self::new("#", "", path)
    }

    /// A path relative to the document as a path of the workspace; `None` for what leads out of it or elsewhere.
    fn inside(&self, link: &str) -> Option<String> {
        let path = link.split(['#', '?']).next().unwrap_or_default();
        if path.is_empty() || path.starts_with('/') || path.contains([':', '\\']) {
            return None;
        }
        let mut parts: Vec<&str> = self.folder.split('/').filter(|p| !p.is_empty()).collect();
        for part in path.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    parts.pop()?;
                }
                name => parts.push(name),
            }
        }
        // Markdown has it encoded already where it must be.
        Some(parts.join("/"))
    }
}

/// Lines that are marked, from 1, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    first: usize,
    last: usize,
}

impl Span {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let span = Self { first: first.parse().ok()?, last: last.parse().ok()? };
        (span.first > 0 && span.last >= span.first).then_some(span)
    }
}

pub(super) fn drawn(kind: Kind, bytes: &[u8], raw: &str, name: &str, base: &Base) -> Markup {
    match kind {
        Kind::Markdown => html! { article.document { (markdown(&String::from_utf8_lossy(bytes), base)) } },
        Kind::Table => table(bytes),
        Kind::Picture => html! { p { img.picture src=(raw) alt=(format!("The picture {name}")); } },
        Kind::Text => source(bytes, None),
    }
}

/// The text by numbered lines. When lines are marked, only they and what stands around them, if it is long.
pub(super) fn source(bytes: &[u8], marked: Option<Span>) -> Markup {
    let Ok(text) = std::str::from_utf8(cut_to_chars(bytes)) else {
        return html! { p { "This file is no text, so there is nothing to show here." } };
    };
    let start = marked.map_or(1, |m| m.first.saturating_sub(LINES_MAX / 2).max(1));
    let is_marked = |n: usize| marked.is_some_and(|m| (m.first..=m.last).contains(&n));
    html! {
        ol.source start=(start) {
            @for (n, line) in text.lines().enumerate().map(|(n, l)| (n + 1, l)).skip(start - 1).take(LINES_MAX) {
                li.marked[is_marked(n)] id=(format!("L{n}")) {
                    @if is_marked(n) { mark { (clipped(line)) } } @else { (clipped(line)) }
                }
            }
        }
    }
}

fn clipped(line: &str) -> String {
    line.chars().take(LINE_CHARS_MAX).collect()
}

/// Without the beginning of a character that was cut at the end.
fn cut_to_chars(bytes: &[u8]) -> &[u8] {
    match std::str::from_utf8(bytes) {
        Err(e) if e.error_len().is_none() => &bytes[..e.valid_up_to()],
        Ok(_) | Err(_) => bytes,
    }
}

fn table(bytes: &[u8]) -> Markup {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(bytes);
    let rows: Vec<csv::StringRecord> = reader.records().take(ROWS_MAX + 2).filter_map(Result::ok).collect();
    let Some((first, rest)) = rows.split_first() else { return html! { p { "An empty table." } } };
    html! {
        div.scroll role="region" aria-label="Table" tabindex="0" {
            table {
                thead { tr { @for cell in first.iter().take(COLUMNS_MAX) { th scope="col" { (cell) } } } }
                tbody { @for row in rest.iter().take(ROWS_MAX) { tr { @for cell in row.iter().take(COLUMNS_MAX) { td { (clipped(cell)) } } } } }
            }
        }
        @if rest.len() > ROWS_MAX { p.help { "The first " (ROWS_MAX) " rows." } }
    }
}

/// Markdown as HTML that runs nothing and loads nothing from elsewhere.
#[expect(clippy::wildcard_enum_match_arm, reason = "all other parts of a document are drawn as they are")]
pub(super) fn markdown(text: &str, base: &Base) -> Markup {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut picture = false;
    let events = Parser::new_ext(text, options).map(|event| match event {
        // HTML of the document is shown, not used.
        Event::Html(text) | Event::InlineHtml(text) => Event::Text(text),
        Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
            let to = base.inside(&dest_url).map(|path| CowStr::from(format!("{}/{path}", base.files)));
            Event::Start(Tag::Link { link_type, dest_url: to.unwrap_or(dest_url), title, id })
        }
        Event::Start(Tag::Image { link_type, dest_url, title, id }) => match base.inside(&dest_url) {
            Some(path) if !base.raw.is_empty() => {
                let dest_url = CowStr::from(format!("{}/{path}", base.raw));
                Event::Start(Tag::Image { link_type, dest_url, title, id })
            }
            // A picture from elsewhere would tell who looks: its address as text.
            _ => {
                picture = true;
                Event::Text(CowStr::from(format!("[picture {dest_url}] ")))
            }
        },
        Event::End(TagEnd::Image) if picture => {
            picture = false;
            Event::Text(CowStr::from(""))
        }
        other => other,
    });
    let mut drawn = String::new();
    pulldown_cmark::html::push_html(&mut drawn, events);
    PreEscaped(sanitised(&drawn))
}

fn sanitised(html: &str) -> String {
    let tags = HashSet::from([
        "a",
        "blockquote",
        "br",
        "code",
        "del",
        "em",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "hr",
        "img",
        "li",
        "ol",
        "p",
        "pre",
        "strong",
        "table",
        "tbody",
        "td",
        "th",
        "thead",
        "tr",
        "ul",
    ]);
    ammonia::Builder::default()
        .tags(tags)
        .url_schemes(HashSet::from(["http", "https", "mailto"]))
        .link_rel(Some("noopener noreferrer nofollow"))
        .clean(html)
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> Base {
        Base::new("/goals/g/files", "/goals/g/raw", "outputs/report.md")
    }

    #[test]
    fn q_stored_scripts_run_nothing_in_a_drawn_document() {
        let evil = concat!(
            "# Hello <script>alert(1)</script>\n\n<img src=x onerror=alert(1)>\n\n",
            "<iframe src=\"//evil.example\"></iframe>\n\n[a](javascript:alert(1)) [b](data:text/html,x) [c](vbscript:x)\n\n",
            "![p](https://evil.example/pixel.png) ![q](javascript:alert(1))\n\n<svg onload=alert(1)>\n\n",
            "[d](https://example.org \"t\\\" onmouseover=alert(1)\")\n\n```html\n<script>x</script>\n```\n",
        );
        let text = markdown(evil, &base()).into_string();
        for never in [
            "<script",
            "<img",
            "<iframe",
            "<svg",
            "href=\"javascript",
            "href=\"data",
            "href=\"vbscript",
            "src=\"http",
        ] {
            assert!(!text.contains(never), "{never}: {text}");
        }
        // Attributes by their names: what stands in quotes is a value.
        let bare = regex::Regex::new(r#""[^"]*""#).unwrap().replace_all(&text, "");
        let handler = regex::Regex::new(r"<[^>]*\son\w+=").unwrap();
        assert!(!handler.is_match(&bare), "{text}");
        assert!(
            text.contains("&lt;script&gt;alert(1)")
                && text.contains("[picture https://evil.example/pixel.png]"),
            "{text}"
        );
        assert!(text.contains("rel=\"noopener noreferrer nofollow\""), "{text}");
    }

    #[test]
    fn a_documents_own_links_and_pictures_stay_in_the_workspace() {
        let text =
            markdown("![c](chart.svg) [t](../data/a.csv) [up](../../../etc/passwd) [/](/login)", &base())
                .into_string();
        assert!(
            text.contains("src=\"/goals/g/raw/outputs/chart.svg\"")
                && text.contains("href=\"/goals/g/files/data/a.csv\""),
            "{text}"
        );
        let one = markdown("![c](chart.svg) [t](../data/a.csv)", &Base::within("outputs/report.md"));
        assert!(one.clone().into_string().contains("href=\"#/data/a.csv\""), "{one:?}");
        assert!(one.into_string().contains("[picture chart.svg]"));
        assert_eq!(base().inside("../../../etc/passwd"), None);
        assert_eq!(base().inside("javascript:alert(1)"), None);
        assert_eq!(base().inside("./a/../b.md#x").as_deref(), Some("outputs/b.md"));
    }

    #[test]
    fn marked_lines_are_found_and_bytes_are_no_text() {
        let text = source("one\n<two>\nthree".as_bytes(), Span::parse("2-2")).into_string();
        assert!(text.contains("<li class=\"marked\" id=\"L2\"><mark>&lt;two&gt;</mark></li>"), "{text}");
        assert!(source(&[0xff, 0xfe, 0], None).into_string().contains("no text"));
        // A file that was cut in the middle of a character is still text.
        assert!(source(&"aä".as_bytes()[..2], None).into_string().contains('a'));
        for wrong in ["", "0-1", "3-2", "x"] {
            assert_eq!(Span::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_table_is_a_table() {
        let text = table(b"name,n\n\"<b>\",1\nlonger,2,3\n").into_string();
        assert!(
            text.contains("<th scope=\"col\">name</th>") && text.contains("<td>&lt;b&gt;</td>"),
            "{text}"
        );
        assert_eq!(Kind::of("x/a.CSV"), Kind::Table);
        assert_eq!(Kind::of("a.html"), Kind::Text);
    }
}
