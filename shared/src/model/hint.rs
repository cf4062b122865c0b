//! When a server says that it may be asked again (A23): in a header of one of many kinds, or in its words.

use regex::Regex;
use reqwest::header::HeaderMap;
use std::sync::LazyLock;

/// Kinds of limits that are counted apart, in the names of both families of headers.
const COUNTED: [&str; 4] = ["requests", "tokens", "input-tokens", "output-tokens"];

/// `retry-after-ms`; `Retry-After` as seconds or as a date; else the reset times of the limits that are used up:
/// `x-ratelimit-reset-requests: 1m30s`, `x-ratelimit-reset: 1764528000`, `anthropic-ratelimit-tokens-reset: 2026-…Z`.
pub(super) fn retry_after_ms(headers: &HeaderMap) -> Option<u64> {
    let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).map(str::trim);
    if let Some(ms) = text("retry-after-ms").and_then(|v| v.parse::<f64>().ok()) {
        return whole_ms(ms);
    }
    if let Some(value) = text("retry-after") {
        return moment(value);
    }
    let mut latest = None;
    for kind in COUNTED {
        for (left, reset) in [
            (format!("x-ratelimit-remaining-{kind}"), format!("x-ratelimit-reset-{kind}")),
            (format!("anthropic-ratelimit-{kind}-remaining"), format!("anthropic-ratelimit-{kind}-reset")),
        ] {
            // A limit with room left is not the one that was met.
            if text(&left).is_none_or(|n| n == "0") {
                latest = latest.max(text(&reset).and_then(moment));
            }
        }
    }
    latest
        .or_else(|| text("x-ratelimit-reset").and_then(moment))
        .or_else(|| text("ratelimit-reset").and_then(moment))
}

/// Milliseconds from now: of a number of seconds, a Unix time in seconds or milliseconds, a length of time, a date.
fn moment(value: &str) -> Option<u64> {
    let now_ms = jiff::Timestamp::now().as_millisecond();
    let until = |at_ms: i64| u64::try_from(at_ms - now_ms).unwrap_or(0);
    if let Ok(number) = value.parse::<f64>() {
        #[expect(clippy::cast_possible_truncation, reason = "a time of this century fits")]
        return match number {
            n if n > 1e15 => None,
            n if n > 1e12 => Some(until(n as i64)),
            n if n > 1e9 => Some(until((n * 1_000.0) as i64)),
            n => whole_ms(n * 1_000.0),
        };
    }
    length_of_time(value).or_else(|| {
        let at = jiff::fmt::rfc2822::parse(value).map(|zoned| zoned.timestamp());
        let at = at.or_else(|_| value.parse::<jiff::Timestamp>()).ok()?;
        Some(until(at.as_millisecond()))
    })
}

/// `1h2m3.5s`, `250ms`.
fn length_of_time(value: &str) -> Option<u64> {
    let (mut rest, mut ms) = (value, 0.0);
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, unit) = rest.split_at(end);
        let number: f64 = number.parse().ok()?;
        let (factor, len) = match unit {
            u if u.starts_with("ms") => (1.0, 2),
            u if u.starts_with('s') => (1_000.0, 1),
            u if u.starts_with('m') => (60_000.0, 1),
            u if u.starts_with('h') => (3_600_000.0, 1),
            _ => return None,
        };
        ms += number * factor;
        rest = &unit[len..];
    }
    whole_ms(ms).filter(|_| !value.is_empty())
}

static HINT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?:retry|try again)[^0-9]{0,20}(?:(\d+)m)?\s*(\d+(?:\.\d+)?)\s*(ms|milliseconds|s\b|sec|seconds)",
    )
    .ok()
});

/// `retry after 2s`, `Please try again in 1m30.5s`, `try again in 120ms`.
pub(super) fn hint_in_words(words: &str) -> Option<u64> {
    let found = HINT.as_ref()?.captures(words)?;
    let minutes = found.get(1).and_then(|m| m.as_str().parse::<f64>().ok()).unwrap_or(0.0);
    let number = found.get(2)?.as_str().parse::<f64>().ok()?;
    let unit_ms = if found.get(3)?.as_str().starts_with('m') { 1.0 } else { 1_000.0 };
    whole_ms(minutes * 60_000.0 + number * unit_ms)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked against both ends")]
fn whole_ms(ms: f64) -> Option<u64> {
    // A day: what is longer is a mistake of units.
    (ms.is_finite() && (0.0..=86_400_000.0).contains(&ms)).then_some(ms as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(headers: &[(&'static str, &str)]) -> Option<u64> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        retry_after_ms(&map)
    }

    #[test]
    fn a23_every_form_of_a_hint_is_read() {
        assert_eq!(hint(&[("retry-after", "7")]), Some(7_000));
        assert_eq!(hint(&[("retry-after", "0.25")]), Some(250));
        assert_eq!(hint(&[("retry-after-ms", "1500"), ("retry-after", "2")]), Some(1_500));
        assert_eq!(hint(&[("x-ratelimit-reset-requests", "1m30.5s")]), Some(90_500));
        assert_eq!(hint(&[("x-ratelimit-reset-tokens", "6ms")]), Some(6));
        assert_eq!(hint(&[("x-ratelimit-reset", "12")]), Some(12_000));
        assert_eq!(hint(&[("retry-after", "soon")]), None);
        assert_eq!(hint(&[("retry-after", "999999999")]), None, "a day is the most");
        assert_eq!(hint(&[]), None);
    }

    #[test]
    fn a23_only_the_limit_that_is_used_up_counts() {
        let both = [
            ("x-ratelimit-remaining-requests", "12"),
            ("x-ratelimit-reset-requests", "1h"),
            ("x-ratelimit-remaining-tokens", "0"),
            ("x-ratelimit-reset-tokens", "2s"),
        ];
        assert_eq!(hint(&both), Some(2_000));
    }

    #[test]
    fn a23_times_of_day_are_reckoned_from_now() {
        let late = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(600);
        let http = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&late).unwrap();
        let (seconds, millis) = (late.as_second().to_string(), late.as_millisecond().to_string());
        for headers in [
            ("retry-after", http.as_str()),
            ("x-ratelimit-reset", seconds.as_str()),
            ("x-ratelimit-reset", millis.as_str()),
            ("anthropic-ratelimit-requests-reset", &late.to_string()),
        ] {
            let ms = hint(&[headers]).unwrap();
            assert!((500_000..=600_000).contains(&ms), "{headers:?}: {ms}");
        }
        assert_eq!(hint(&[("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT")]), Some(0), "long past");
    }
}
