//! Patterns over a file's text: is there a match, is there none, how many are there.

use super::{CheckError, Found, head};
use regex::Regex;
use shared::ticket::graph::params;

pub(super) fn compile(pattern: &str) -> Result<Regex, CheckError> {
    params::pattern(pattern).map_err(CheckError::Parameter)
}

/// Whether the text matches exactly when it is `wanted`.
pub(super) fn matches(pattern: &Regex, bytes: &[u8], wanted: bool) -> Found {
    let text = String::from_utf8_lossy(bytes);
    match pattern.find(&text) {
        Some(found) => {
            let line = text[..found.start()].matches('\n').count() + 1;
            Found::of(wanted, format!("line {line} matches: `{}`", head(found.as_str().trim(), 120)))
        }
        None => Found::of(!wanted, "nothing in it matches".into()),
    }
}

/// Whether there are at least `min` matches that do not overlap.
pub(super) fn min_count(pattern: &Regex, bytes: &[u8], min: u64) -> Found {
    let text = String::from_utf8_lossy(bytes);
    // Counting on would change nothing.
    let enough = usize::try_from(min).unwrap_or(usize::MAX);
    let count = pattern.find_iter(&text).take(enough).count();
    if count >= enough {
        Found::Holds(format!("it occurs at least {min} times"))
    } else {
        Found::Fails(format!("it occurs {count} times, at least {min} are needed"))
    }
}
