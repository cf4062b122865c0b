//! Reading what models really write: JSON in fences, behind reasoning, with trailing commas or lone surrogates.
//!
//! Every repair here keeps the meaning; nothing is filled in. Whatever is read is validated afterwards all the same.

use serde_json::Value;

/// Candidates looked at in one text.
const CANDIDATES_MAX: usize = 16;
/// Opening brackets that are followed to their end: each may cost a pass over the whole text.
const OPENINGS_MAX: usize = 64;

/// Text that is no JSON.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotJson {
    pub(super) problem: String,
    /// It ends before it is complete.
    pub(super) truncated: bool,
}

/// The first `bytes_max` bytes, cut at a character.
pub(super) fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = bytes_max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Parses strictly, then repaired; the flag says that a repair was needed.
pub(super) fn json(text: &str) -> Result<(Value, bool), NotJson> {
    let first = match serde_json::from_str(text) {
        Ok(value) => return Ok((value, false)),
        Err(e) => e,
    };
    match serde_json::from_str(&repaired(text)) {
        Ok(value) => Ok((value, true)),
        Err(second) => {
            Err(NotJson { problem: first.to_string(), truncated: first.is_eof() || second.is_eof() })
        }
    }
}

/// Raw control characters inside strings become escapes, lone surrogate escapes U+FFFD, commas before a closing
/// bracket go. Outside of these the text stays byte-identical.
fn repaired(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len() + 16);
    let mut in_string = false;
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        if !in_string {
            let drop = byte == b',' && {
                let next = bytes[at + 1..].iter().find(|b| !b.is_ascii_whitespace());
                matches!(next, Some(b'}' | b']'))
            };
            in_string = byte == b'"';
            if !drop {
                out.push(byte);
            }
            at += 1;
            continue;
        }
        match byte {
            b'"' => in_string = false,
            b'\n' => {
                out.extend_from_slice(b"\\n");
                at += 1;
                continue;
            }
            b'\t' => {
                out.extend_from_slice(b"\\t");
                at += 1;
                continue;
            }
            0..=0x1f => {
                out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
                at += 1;
                continue;
            }
            b'\\' => {
                let step = match escape_unit(&bytes[at..]) {
                    Some(0xD800..=0xDBFF)
                        if matches!(bytes.get(at + 6..).and_then(escape_unit), Some(0xDC00..=0xDFFF)) =>
                    {
                        12
                    }
                    Some(0xD800..=0xDFFF) => {
                        out.extend_from_slice(b"\\ufffd");
                        at += 6;
                        continue;
                    }
                    Some(_) => 6,
                    None => 2,
                };
                let end = (at + step).min(bytes.len());
                out.extend_from_slice(&bytes[at..end]);
                at = end;
                continue;
            }
            _ => {}
        }
        out.push(byte);
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The code unit of an escape `\uXXXX` at the start of `bytes`.
fn escape_unit(bytes: &[u8]) -> Option<u16> {
    let digits = bytes.strip_prefix(b"\\u")?.get(..4)?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// A text without the reasoning that stood before it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Thought<'a> {
    /// No reasoning at its start: the text is untouched.
    None,
    Apart {
        reasoning: &'a str,
        answer: &'a str,
    },
    /// The reasoning was never closed: there is no answer.
    Unclosed {
        reasoning: &'a str,
    },
}

/// Splits off `<think>…</think>` at the very start; tags elsewhere are text (A13).
pub(super) fn thought(text: &str) -> Thought<'_> {
    let start = text.trim_start();
    for tag in ["think", "thinking", "thought", "reasoning"] {
        let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
        if !start.get(..open.len()).is_some_and(|s| s.eq_ignore_ascii_case(&open)) {
            continue;
        }
        let inner = &start[open.len()..];
        // ASCII lower case keeps byte offsets.
        return match inner.to_ascii_lowercase().find(&close) {
            Some(end) => Thought::Apart {
                reasoning: inner[..end].trim(),
                answer: inner[end + close.len()..].trim_start(),
            },
            None => Thought::Unclosed { reasoning: inner.trim() },
        };
    }
    Thought::None
}

/// The inside of the first fenced block (```` ```json ````), closed or not, and what follows it.
pub(super) fn fenced(text: &str) -> Option<(&str, &str)> {
    let open = text.find("```")?;
    let inner = &text[open + 3..];
    let line_end = inner.find('\n').unwrap_or(0);
    // A language word may follow the fence; JSON may follow it at once.
    let word = inner[..line_end].trim();
    let inner = if word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') {
        &inner[line_end..]
    } else {
        inner.strip_prefix("json").unwrap_or(inner)
    };
    Some(match inner.find("```") {
        Some(end) => (&inner[..end], &inner[end + 3..]),
        None => (inner, ""),
    })
}

/// The JSON objects and arrays that begin in `text`, in order, outermost only; strings are respected.
pub(super) fn balanced(text: &str) -> Vec<&str> {
    let bytes = text.as_bytes();
    let mut found = vec![];
    let (mut at, mut openings) = (0, 0);
    while at < bytes.len() && found.len() < CANDIDATES_MAX && openings < OPENINGS_MAX {
        if !matches!(bytes[at], b'{' | b'[') {
            at += 1;
            continue;
        }
        openings += 1;
        match closing(&bytes[at..]) {
            Some(len) => {
                found.push(&text[at..at + len]);
                at += len;
            }
            // Prose may hold a stray bracket before the object: look on behind it.
            None => at += 1,
        }
    }
    found
}

/// The object or list at the very start of `text`, closed but not yet parsed, and what follows it.
pub(super) fn leading(text: &str) -> Option<(&str, &str)> {
    text.starts_with(['{', '[']).then(|| closing(text.as_bytes()))?.map(|end| text.split_at(end))
}

/// Length of the value that opens at the first byte.
fn closing(bytes: &[u8]) -> Option<usize> {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (at, byte) in bytes.iter().enumerate() {
        match (in_string, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (true, b'"') => in_string = false,
            (true, _) => {}
            (false, b'"') => in_string = true,
            (false, b'{' | b'[') => depth += 1,
            (false, b'}' | b']') => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            (false, _) => {}
        }
    }
    None
}

/// Everything in an answer that may be the value asked for, best first: the whole text, what follows the
/// reasoning, a fenced block, each balanced object (A13, A22). Empty: there is no JSON in it at all.
pub(super) fn candidates(text: &str) -> Vec<Value> {
    if let Ok((value, _)) = json(text.trim()) {
        return vec![value];
    }
    let answer = match thought(text) {
        Thought::None => match text.rfind("</think>") {
            // Some chat templates put the opening tag into the prompt.
            Some(end) => &text[end + "</think>".len()..],
            None => text,
        },
        Thought::Apart { answer, .. } => answer,
        Thought::Unclosed { .. } => return vec![],
    };
    let mut values = vec![];
    let mut texts = vec![answer.trim()];
    if let Some((inner, _)) = fenced(answer) {
        texts.push(inner.trim());
        texts.extend(balanced(inner));
    }
    texts.extend(balanced(answer));
    // A template's typo doubles the outer braces: `{{"a": 1}}`.
    texts.extend(answer.trim().strip_prefix('{').and_then(|t| t.strip_suffix('}')));
    for candidate in texts {
        if let Ok((value, _)) = json(candidate)
            && (value.is_object() || value.is_array())
            && !values.contains(&value)
        {
            values.push(value);
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn what_is_valid_stays_as_it_is() {
        let text = r#"{"a":"x,} \ud83d\ude00 \\","b":[1,2]}"#;
        assert_eq!(repaired(text), text);
        assert!(!json(text).unwrap().1);
    }

    #[test]
    fn repairs_keep_the_meaning() {
        assert_eq!(json("[1,2,]").unwrap(), (json!([1, 2]), true));
        assert_eq!(json("{\"a\":\"1\n2\t\u{1}\"}").unwrap(), (json!({"a": "1\n2\t\u{1}"}), true));
        assert_eq!(json(r#""\udc00\ud800x""#).unwrap(), (json!("\u{fffd}\u{fffd}x"), true));
        assert!(json("{\"a\": tru").unwrap_err().truncated);
        assert!(!json("{'a': 1}").unwrap_err().truncated);
    }

    #[test]
    fn a_text_full_of_brackets_ends_soon() {
        let started = std::time::Instant::now();
        assert_eq!(candidates(&"{".repeat(1_000_000)), Vec::<Value>::new());
        assert!(started.elapsed() < std::time::Duration::from_secs(20));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(?s)[<>/a-z{}\\[\\]\"\\\\`:, \u{e4}\u{1f600}0-9\n]{0,200}") {
            let _ = candidates(&text);
            let _ = candidates(&format!("<think>{text}</think>```json\n{text}\n```"));
            let tools = crate::tool::builtin();
            let _ = crate::model::dialect::content::read(&format!("<tool_call>{text}<function={text}"), &tools);
            for dialect in crate::model::dialect::LADDER {
                for around in [
                    text.clone(),
                    format!("{{\"tool_calls\":[{text}"),
                    format!("<tool_call><function>{text}</function><args>{text}</args><tool_call>{text}"),
                    format!("TOOL: read_file\nARGS: {text}\nTOOL:{text}"),
                ] {
                    let _ = dialect.speech().read(&around, &tools);
                }
            }
        }

        #[test]
        fn what_a_program_writes_is_read_unchanged(text in ".{0,60}", number in any::<i64>()) {
            let value = json!({"text": text, "list": [number, {"x": text}]});
            prop_assert_eq!(json(&value.to_string()).unwrap(), (value.clone(), false));
            prop_assert_eq!(serde_json::from_str::<Value>(&repaired(&value.to_string())).unwrap(), value);
        }
    }
}
