//! Naming what was probably meant: the nearest known word.

/// Words longer than this are not compared.
const WORD_BYTES_MAX: usize = 64;

/// The candidate nearest to `word`, if it is near enough to be what was meant.
#[must_use]
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.is_empty() || word.len() > WORD_BYTES_MAX {
        return None;
    }
    let near_enough = (word.len() / 3).max(1);
    candidates
        .into_iter()
        .filter(|c| c.len() <= WORD_BYTES_MAX)
        .map(|c| (distance(word, c), c))
        .filter(|(d, c)| {
            *d <= near_enough || (word.len() > 2 && (c.starts_with(word) || word.starts_with(c)))
        })
        .min_by_key(|(d, _)| *d)
        .map(|(_, c)| c)
}

/// "did you mean `x`?" with the nearest, otherwise the list (its beginning) of what is known.
#[must_use]
pub fn hint<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    const SHOWN: usize = 20;
    let known: Vec<&str> = known.into_iter().collect();
    if let Some(near) = nearest(word, known.iter().copied()) {
        return format!("did you mean `{near}`?");
    }
    if known.is_empty() {
        return "none is known here".into();
    }
    let more = if known.len() > SHOWN { ", …" } else { "" };
    format!("known: {}{more}", known.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", "))
}

/// Edit distance: insertions, deletions and replacements, case aside.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.to_lowercase().chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_what_was_meant_and_stays_silent_on_strangers() {
        let kinds = ["file_exists", "csv_rows", "regex", "json_schema"];
        assert_eq!(nearest("csv_row", kinds), Some("csv_rows"));
        assert_eq!(nearest("Regexp", kinds), Some("regex"));
        assert_eq!(nearest("json-schema", kinds), Some("json_schema"));
        assert_eq!(nearest("sha256", kinds), None);
        assert_eq!(nearest("", kinds), None);
        assert!(hint("sha256", kinds).starts_with("known: file_exists, "));
    }
}
