//! Times, money and sizes in words.

use maud::{Markup, html};

/// The manager's clock, milliseconds.
pub(super) fn now_ms() -> u64 {
    jiff::Timestamp::now().as_millisecond().try_into().unwrap_or(0)
}

/// `3 min`, `2 h 5 min`, `4 d 2 h`.
pub(super) fn span(ms: u64) -> String {
    let s = ms / 1000;
    match s {
        0 => format!("{ms} ms"),
        1..60 => format!("{s} s"),
        60..3_600 => format!("{} min {} s", s / 60, s % 60),
        3_600..86_400 => format!("{} h {} min", s / 3_600, s / 60 % 60),
        _ => format!("{} d {} h", s / 86_400, s / 3_600 % 24),
    }
}

/// How long ago, with the exact time for who wants it. To the minute: a page that keeps itself fresh is not sent again
/// because a second has passed.
pub(super) fn ago(at_ms: u64) -> Markup {
    let exact = stamp(at_ms);
    let ms = now_ms().saturating_sub(at_ms);
    let words = match ms / 60_000 {
        0 => "just now".to_owned(),
        minutes @ 1..60 => format!("{minutes} min ago"),
        _ => format!("{} ago", span(ms)),
    };
    html! { time datetime=(exact) title=(exact) { (words) } }
}

/// How long until then; `passed` when it is over.
pub(super) fn until(at_ms: u64, passed: &str) -> Markup {
    let exact = stamp(at_ms);
    let left = at_ms.saturating_sub(now_ms());
    html! { time datetime=(exact) title=(exact) { @if left == 0 { (passed) } @else { "in " (span(left)) } } }
}

/// As in ISO 8601, to the second.
pub(super) fn stamp(at_ms: u64) -> String {
    let ms = i64::try_from(at_ms).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(ms)
        .map(|t| t.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
        .unwrap_or_default()
}

/// `$0.0123` from millionths.
pub(super) fn dollars(microusd: u64) -> String {
    format!("${}.{:04}", microusd / 1_000_000, microusd % 1_000_000 / 100)
}

/// `12,345`.
pub(super) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    digits.bytes().enumerate().fold(String::new(), |mut text, (i, digit)| {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit as char);
        text
    })
}

/// `1.4 KiB`.
pub(super) fn bytes(n: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// The first line, at most so many characters.
pub(super) fn line(text: &str, max: usize) -> String {
    let first = text.trim().lines().next().unwrap_or_default().trim();
    if first.chars().count() <= max {
        return first.to_owned();
    }
    let mut cut: String = first.chars().take(max.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// A number with its noun: `1 ticket`, `3 tickets`.
pub(super) fn counted(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(n), if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_like_a_persons() {
        assert_eq!(
            (grouped(0), grouped(1_234_567), dollars(1_234_500)),
            ("0".into(), "1,234,567".into(), "$1.2345".into())
        );
        assert_eq!(
            (span(0), span(61_000), span(90_000_000)),
            ("0 ms".into(), "1 min 1 s".into(), "1 d 1 h".into())
        );
        assert_eq!((bytes(1023), bytes(1536)), ("1023 B".into(), "1.5 KiB".into()));
        assert_eq!(
            (line("äöü\nx", 2), counted(1, "ticket"), counted(0, "file")),
            ("ä…".into(), "1 ticket".into(), "0 files".into())
        );
    }
}
