//! HTML to Markdown: headings, lists, links, code, tables and the text; menus, scripts and forms left out.
//!
//! One pass over the tags and no tree. A page is somebody else's: a tree builder follows the rules of browsers, by which a
//! few bytes of tags that are never closed become millions of nodes. Here work and memory are linear in the page.

use reqwest::Url;

/// Elements of which nothing is shown, whatever is in them.
const HIDDEN: &[&str] = &[
    "script", "style", "title", "noscript", "template", "svg", "iframe", "object", "head", "select",
    "button", "canvas", "audio", "video",
];
/// Elements around the text, left out where the page says which part is the text, and at its sides otherwise.
const AROUND: &[&str] = &["nav", "aside", "footer", "form", "dialog"];
/// Begin and end a line of their own.
const BLOCKS: &[&str] = &[
    "p",
    "div",
    "section",
    "article",
    "main",
    "header",
    "ul",
    "ol",
    "dl",
    "dt",
    "dd",
    "figure",
    "figcaption",
    "table",
    "thead",
    "tbody",
    "address",
    "details",
    "summary",
    "fieldset",
    "body",
    "html",
    "center",
    "hr",
];
/// Text of the part that says it is the text, below which the whole page is taken.
const MAIN_CHARS_MIN: usize = 200;
/// Longest address of a link that is kept.
const LINK_CHARS_MAX: usize = 500;
/// Deepest list that is indented.
const INDENT_MAX: usize = 6;

/// The page's text; its title is the first line.
pub(super) fn of(html: &str, url: &Url) -> String {
    let title = between(html, "<title", "</title").map(|t| squeezed(&unescaped(t))).unwrap_or_default();
    let whole = |part: &str| {
        let mut writer = Writer::new(url);
        writer.read(part);
        writer.finish()
    };
    // What calls itself the text is taken for it, if there is some.
    let main = ["main", "article"].iter().find_map(|name| {
        let text = whole(between(html, &format!("<{name}"), &format!("</{name}"))?);
        (text.chars().count() >= MAIN_CHARS_MIN).then_some(text)
    });
    let text = main.unwrap_or_else(|| whole(html));
    let has_title =
        title.is_empty() || text.lines().next().is_some_and(|l| l.trim_start_matches('#').trim() == title);
    match (has_title, text.is_empty()) {
        (true, _) => text,
        (false, true) => format!("# {title}"),
        (false, false) => format!("# {title}\n\n{text}"),
    }
}

/// What stands in the first element of that name, up to its last closing tag.
fn between<'a>(html: &'a str, open: &str, close: &str) -> Option<&'a str> {
    let start = find(html, open, 0)?;
    let end_of_name = html.as_bytes().get(start + open.len())?;
    if !end_of_name.is_ascii_whitespace() && *end_of_name != b'>' {
        return None;
    }
    let from = start + html[start..].find('>')? + 1;
    let to = rfind(html, close).filter(|to| *to >= from).unwrap_or(html.len());
    Some(&html[from..to])
}

/// As `find`, whatever the case of ASCII letters.
fn find(text: &str, what: &str, from: usize) -> Option<usize> {
    let bytes = text.as_bytes().get(from..)?;
    bytes.windows(what.len()).position(|w| w.eq_ignore_ascii_case(what.as_bytes())).map(|at| from + at)
}

fn rfind(text: &str, what: &str) -> Option<usize> {
    text.as_bytes().windows(what.len()).rposition(|w| w.eq_ignore_ascii_case(what.as_bytes()))
}

struct Writer<'a> {
    base: &'a Url,
    out: String,
    /// Lists around here: `None` a bullet, else the last number.
    lists: Vec<Option<u32>>,
    /// Where the text of an open link begins, and its address.
    link: Option<(usize, String)>,
    /// In `<pre>`: blanks and line ends stay.
    pre: bool,
    /// Depth in elements that are left out, by name, and since where.
    around: Option<(String, u32)>,
    /// Cells of the row so far.
    cells: u32,
    rows: u32,
}

impl<'a> Writer<'a> {
    fn new(base: &'a Url) -> Self {
        Self {
            base,
            out: String::new(),
            lists: vec![],
            link: None,
            pre: false,
            around: None,
            cells: 0,
            rows: 0,
        }
    }

    fn read(&mut self, html: &str) {
        let mut at = 0;
        while at < html.len() {
            let Some(open) = html[at..].find('<').map(|o| at + o) else {
                self.text(&html[at..]);
                return;
            };
            self.text(&html[at..open]);
            let rest = &html[open..];
            if let Some(comment) = rest.strip_prefix("<!--") {
                at = comment.find("-->").map_or(html.len(), |end| open + 4 + end + 3);
                continue;
            }
            let second = rest.as_bytes().get(1).copied().unwrap_or(b' ');
            if !second.is_ascii_alphabetic() && !matches!(second, b'/' | b'!' | b'?') {
                // A lone sign in the text.
                self.text("<");
                at = open + 1;
                continue;
            }
            let end = end_of_tag(rest);
            let tag = &rest[1..end];
            at = (open + end + 1).min(html.len());
            let (is_end, tag) = tag.strip_prefix('/').map_or((false, tag), |t| (true, t));
            let name: String = tag.chars().take_while(|c| c.is_ascii_alphanumeric()).collect();
            let name = name.to_ascii_lowercase();
            if !is_end && HIDDEN.contains(&name.as_str()) && !tag.ends_with('/') {
                at = find(html, &format!("</{name}"), at).map_or(html.len(), |to| to);
                continue;
            }
            self.tag(&name, is_end, &tag[name.len().min(tag.len())..]);
        }
    }

    fn tag(&mut self, name: &str, is_end: bool, attributes: &str) {
        if let Some((around, depth)) = &mut self.around {
            if name == around {
                *depth = if is_end { *depth - 1 } else { *depth + 1 };
                if *depth == 0 {
                    self.around = None;
                }
            }
            return;
        }
        if AROUND.contains(&name) {
            if !is_end {
                self.around = Some((name.to_owned(), 1));
            }
            self.block();
            return;
        }
        match (name, is_end) {
            ("br", _) => self.newline(),
            ("hr", false) => {
                self.block();
                self.out.push_str("---");
                self.block();
            }
            ("h1" | "h2" | "h3" | "h4" | "h5" | "h6", false) => {
                self.block();
                let level = name.as_bytes()[1] - b'0';
                self.out.push_str(&"#".repeat(level.into()));
                self.out.push(' ');
            }
            ("ul", false) => self.list(None),
            ("ol", false) => self.list(Some(0)),
            ("ul" | "ol", true) => {
                self.lists.pop();
                self.block();
            }
            ("li", false) => self.item(),
            ("pre", false) => {
                self.block();
                self.out.push_str("```\n");
                self.pre = true;
            }
            ("pre", true) if self.pre => {
                self.pre = false;
                if !self.out.ends_with('\n') {
                    self.out.push('\n');
                }
                self.out.push_str("```");
                self.block();
            }
            ("code", _) if !self.pre => self.out.push('`'),
            ("b" | "strong", false) if !self.pre => self.out.push_str("**"),
            ("b" | "strong", true) if !self.pre => match self.out.strip_suffix("**") {
                // Nothing stood in it.
                Some(before) => self.out.truncate(before.len()),
                None => self.out.push_str("**"),
            },
            ("blockquote", false) => {
                self.block();
                self.out.push_str("> ");
            }
            ("table", false) => {
                self.rows = 0;
                self.block();
            }
            ("tr", false) => {
                self.newline();
                self.cells = 0;
            }
            ("tr", true) if self.cells > 0 => {
                self.out.push_str(" |");
                self.rows += 1;
                if self.rows == 1 {
                    let line = "|---".repeat(self.cells as usize);
                    self.out.push_str(&format!("\n{line}|"));
                }
                self.cells = 0;
            }
            ("td" | "th", false) => {
                self.cells += 1;
                self.out.push_str(if self.cells == 1 { "| " } else { " | " });
            }
            ("a", false) => {
                self.close_link();
                let address = attribute(attributes, "href").and_then(|to| self.base.join(to.trim()).ok());
                let address = address.filter(|to| ["http", "https"].contains(&to.scheme()));
                if let Some(to) = address.filter(|to| to.as_str().len() <= LINK_CHARS_MAX) {
                    self.link = Some((self.out.len(), to.into()));
                }
            }
            ("a", true) => self.close_link(),
            ("img", false) => {
                let words =
                    attribute(attributes, "alt").map(|alt| squeezed(&unescaped(&alt))).unwrap_or_default();
                if !words.is_empty() {
                    self.out.push_str(&format!("[image: {words}]"));
                }
            }
            ("h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "blockquote", true) => self.block(),
            (block, _) if BLOCKS.contains(&block) => self.block(),
            (_, _) => {}
        }
    }

    fn close_link(&mut self) {
        let Some((from, address)) = self.link.take() else { return };
        // A block within the link may have taken blanks back.
        let from = from.min(self.out.len());
        let words = squeezed(&self.out[from..]);
        if words.is_empty() || self.out[from..].contains('\n') {
            return;
        }
        let lead = if self.out[from..].starts_with(' ') { " " } else { "" };
        self.out.truncate(from);
        self.out.push_str(&format!("{lead}[{words}]({address})"));
    }

    fn text(&mut self, text: &str) {
        if self.around.is_some() || text.is_empty() {
            return;
        }
        let text = unescaped(text);
        if self.pre {
            self.out.push_str(&text);
            return;
        }
        for word in text.split_inclusive(char::is_whitespace) {
            let bare = word.trim();
            self.out.push_str(bare);
            let is_blank = bare.len() < word.len();
            if is_blank && !self.out.ends_with([' ', '\n']) && !self.out.is_empty() {
                self.out.push(' ');
            }
        }
    }

    fn newline(&mut self) {
        if !self.pre {
            trim_end(&mut self.out);
        }
        if !self.out.is_empty() {
            self.out.push('\n');
        }
    }

    /// An empty line before what comes, outside of tables and lists; within them a line end at most.
    fn block(&mut self) {
        if self.pre || self.cells > 0 {
            return;
        }
        trim_end(&mut self.out);
        let line = self.out.rsplit('\n').next().unwrap_or_default().trim();
        let is_number =
            || line.strip_suffix('.').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
        if matches!(line, "-" | ">" | "#" | "##" | "###" | "####" | "#####" | "######") || is_number() {
            self.out.push(' ');
            return;
        }
        let want = if self.lists.is_empty() { 2 } else { 1 };
        let have = self.out.bytes().rev().take_while(|b| *b == b'\n').count();
        if !self.out.is_empty() {
            self.out.extend(std::iter::repeat_n('\n', want - have.min(want)));
        }
    }

    fn list(&mut self, number: Option<u32>) {
        self.block();
        self.lists.push(number);
    }

    fn item(&mut self) {
        trim_end(&mut self.out);
        if !self.out.is_empty() && !self.out.ends_with('\n') {
            self.out.push('\n');
        }
        let depth = self.lists.len().saturating_sub(1).min(INDENT_MAX);
        self.out.push_str(&"  ".repeat(depth));
        match self.lists.last_mut() {
            Some(Some(number)) => {
                *number += 1;
                self.out.push_str(&format!("{number}. "));
            }
            Some(None) | None => self.out.push_str("- "),
        }
    }

    /// Lines without blanks at their ends, never more than one empty line.
    fn finish(mut self) -> String {
        self.close_link();
        let mut text = String::with_capacity(self.out.len());
        let mut empty = 0;
        for line in self.out.lines() {
            let line = line.trim_end();
            empty = if line.is_empty() { empty + 1 } else { 0 };
            if empty < 2 && !(line.is_empty() && text.is_empty()) {
                text.push_str(line);
                text.push('\n');
            }
        }
        text.trim_end().to_owned()
    }
}

fn trim_end(out: &mut String) {
    out.truncate(out.trim_end_matches(' ').len());
}

/// Where the tag that begins here ends: its `>`, not one within quotes; the text's end where there is none.
fn end_of_tag(tag: &str) -> usize {
    let mut quote = None;
    for (at, byte) in tag.bytes().enumerate() {
        match (quote, byte) {
            (None, b'>') => return at,
            (None, b'"' | b'\'') if tag.as_bytes()[at - 1] == b'=' => quote = Some(byte),
            (Some(open), byte) if open == byte => quote = None,
            (_, _) => {}
        }
    }
    // A quote that is never closed is no quote.
    tag.find('>').unwrap_or(tag.len())
}

/// The value of an attribute.
fn attribute(attributes: &str, name: &str) -> Option<String> {
    let mut from = 0;
    loop {
        let at = find(attributes, name, from)?;
        from = at + name.len();
        let is_word = at > 0 && attributes.as_bytes()[at - 1].is_ascii_whitespace();
        let Some(value) = attributes[from..].trim_start().strip_prefix('=').map(str::trim_start) else {
            continue;
        };
        if !is_word {
            continue;
        }
        let value = match value.chars().next()? {
            quote @ ('"' | '\'') => value[1..].split(quote).next()?,
            _ => value.split(|c: char| c.is_whitespace() || c == '>').next()?,
        };
        return Some(unescaped(value));
    }
}

/// Words with one blank between them.
fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Character references: the numbers, and the names that texts really use.
fn unescaped(text: &str) -> String {
    /// The longest name or number between `&` and `;`.
    const LONGEST: usize = 10;
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = rest.bytes().take(LONGEST).position(|b| b == b';');
        let found = end.and_then(|end| Some((end, character(&rest[1..end])?)));
        match found {
            Some((end, c)) => {
                out.push(c);
                rest = &rest[end + 1..];
            }
            None => {
                out.push('&');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

fn character(name: &str) -> Option<char> {
    if let Some(number) = name.strip_prefix('#') {
        let code = match number.strip_prefix(['x', 'X']) {
            Some(hex) => u32::from_str_radix(hex, 16).ok()?,
            None => number.parse().ok()?,
        };
        return char::from_u32(code).filter(|c| *c != '\0');
    }
    Some(match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        "nbsp" | "ensp" | "emsp" | "thinsp" => ' ',
        "ndash" => '–',
        "mdash" => '—',
        "hellip" => '…',
        "lsquo" => '‘',
        "rsquo" => '’',
        "ldquo" => '“',
        "rdquo" => '”',
        "laquo" => '«',
        "raquo" => '»',
        "bull" => '•',
        "middot" => '·',
        "copy" => '©',
        "reg" => '®',
        "trade" => '™',
        "deg" => '°',
        "euro" => '€',
        "pound" => '£',
        "yen" => '¥',
        "sect" => '§',
        "times" => '×',
        "plusmn" => '±',
        "rarr" => '→',
        "larr" => '←',
        "auml" => 'ä',
        "ouml" => 'ö',
        "uuml" => 'ü',
        "Auml" => 'Ä',
        "Ouml" => 'Ö',
        "Uuml" => 'Ü',
        "szlig" => 'ß',
        "eacute" => 'é',
        "egrave" => 'è',
        "agrave" => 'à',
        "ccedil" => 'ç',
        "ntilde" => 'ñ',
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
