//! Bytes into lines, bounded. Server-sent events are read line by line: providers send one JSON text a line,
//! comments between them, and some forget the blank lines.

/// A line grew beyond its limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// Cuts a stream into lines.
pub(super) struct Lines {
    buffer: Vec<u8>,
    bytes_max: usize,
}

/// What a line is to a reader of events.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    Data(&'a str),
    Done,
    /// End of an event.
    Blank,
    /// Comments and fields that carry nothing here; they show that the server is alive.
    Other,
    /// Not a line of an event stream at all: the server may have answered in one piece.
    Loose(&'a str),
}

impl Lines {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { buffer: vec![], bytes_max }
    }

    /// Takes bytes in and gives the lines that are now complete.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Vec<String>, TooLong> {
        let mut lines = vec![];
        for part in bytes.split_inclusive(|b| *b == b'\n') {
            if self.buffer.len() + part.len() > self.bytes_max {
                return Err(TooLong);
            }
            self.buffer.extend_from_slice(part);
            if part.ends_with(b"\n") {
                lines.push(self.take());
            }
        }
        Ok(lines)
    }

    /// The last line, when the stream ended without a line end.
    pub(super) fn rest(&mut self) -> Option<String> {
        (!self.buffer.is_empty()).then(|| self.take())
    }

    fn take(&mut self) -> String {
        let line = String::from_utf8_lossy(&self.buffer);
        let line = line.trim_end_matches(['\n', '\r']).to_owned();
        self.buffer.clear();
        line
    }
}

/// Names the kind of a line.
pub(super) fn kind(line: &str) -> Line<'_> {
    let line = line.trim_start_matches('\u{feff}');
    if line.trim().is_empty() {
        return Line::Blank;
    }
    if let Some(data) = line.strip_prefix("data:") {
        let data = data.trim();
        return if data == "[DONE]" { Line::Done } else { Line::Data(data) };
    }
    if line.starts_with(':') || ["event:", "id:", "retry:"].iter().any(|f| line.starts_with(f)) {
        return Line::Other;
    }
    Line::Loose(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_however_the_bytes_are_cut() {
        let text = "data: {\"a\":\"\u{e4}\"}\r\n\r\n: hi\ndata: [DONE]";
        for cut in 0..=text.len() {
            let mut lines = Lines::new(100);
            let mut got = lines.push(&text.as_bytes()[..cut]).unwrap();
            got.extend(lines.push(&text.as_bytes()[cut..]).unwrap());
            got.extend(lines.rest());
            assert_eq!(got, ["data: {\"a\":\"\u{e4}\"}", "", ": hi", "data: [DONE]"]);
        }
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut lines = Lines::new(10);
        assert_eq!(lines.push(b"12345"), Ok(vec![]));
        assert_eq!(lines.push(b"678901"), Err(TooLong));
    }

    #[test]
    fn kinds() {
        assert_eq!(kind("data:{}"), Line::Data("{}"));
        assert_eq!(kind("data: [DONE]"), Line::Done);
        assert_eq!(kind(": OPENROUTER PROCESSING"), Line::Other);
        assert_eq!(kind("event: error"), Line::Other);
        assert_eq!(kind("  "), Line::Blank);
        assert_eq!(kind("{\"a\":1}"), Line::Loose("{\"a\":1}"));
    }
}
