//! What was said in one request, for those who look into it later: redacted, cut to size, kept as a blob (I10, I12).

use super::error::{Fault, clean, clean_values};
use super::tolerant;
use super::wire::Draft;
use serde_json::{Value, json};

/// The text that is kept, at most `bytes_max` long; JSON in either case.
pub(super) fn text(body: &Value, outcome: Result<&Draft, &Fault>, key: &str, bytes_max: usize) -> String {
    let answer = match outcome {
        Ok(draft) => json!({
            "text": draft.text,
            "reasoning": draft.reasoning,
            "calls": draft.calls.iter().map(|c| json!({"id": c.id, "name": c.name, "arguments": c.arguments}))
                .collect::<Vec<_>>(),
            "finish": draft.finish,
        }),
        Err(fault) => json!({"error": fault.class.as_str(), "detail": fault.detail}),
    };
    // Before they become text: a key that looks like a piece of JSON would damage it, one with quotes would stay.
    let (request, answer) = (clean_values(body, key), clean_values(&answer, key));
    let whole = json!({"v": 1, "request": request, "answer": answer}).to_string();
    if whole.len() <= bytes_max {
        return whole;
    }
    // The beginning of a prompt says who asks, its end what; escapes of quotes double a piece at most.
    let piece = bytes_max / 7;
    let request = request.to_string();
    let mut from = request.len().saturating_sub(piece);
    while !request.is_char_boundary(from) {
        from += 1;
    }
    let answer = answer.to_string();
    json!({"v": 1, "cut": true, "bytes": whole.len(), "request_head": tolerant::cut(&request, piece),
        "request_tail": &request[from..], "answer_head": tolerant::cut(&answer, piece)})
    .to_string()
}

/// A text without what looks like a key or a token, as in every kept body; JSON stays JSON (I12).
#[must_use]
pub fn redacted(text: &str) -> String {
    clean(text, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i12_a_key_in_a_prompt_or_an_answer_is_not_kept() {
        let body = json!({"messages": [{"role": "user", "content": "my key is sk-0123456789abcdef, yours hunter2hunter2"}]});
        let draft = Draft { text: "Bearer abc.def.ghi and \"quotes\"".into(), ..Draft::default() };
        let kept = text(&body, Ok(&draft), "hunter2hunter2", 10_000);
        for secret in ["0123456789abcdef", "hunter2", "abc.def"] {
            assert!(!kept.contains(secret), "{kept}");
        }
        let value: Value = serde_json::from_str(&kept).unwrap();
        assert!(value["answer"]["text"].as_str().unwrap().ends_with("and \"quotes\""), "{value}");
    }

    #[test]
    fn i12_whatever_the_key_is_the_record_stays_readable() {
        let body = json!({"messages": [{"role": "user", "content": "none of x"}], "model": "x"});
        for key in ["x", "none", "messages"] {
            let kept: Value = serde_json::from_str(&text(&body, Ok(&Draft::default()), key, 10_000)).unwrap();
            assert_eq!(kept["request"], body, "{key}");
        }
        let key = r#"quo"ted\and-long"#;
        // Itself, and as a call's arguments hold it.
        let said = format!("{key} or {}", json!({"password": key}));
        let kept = text(&json!({"prompt": said}), Ok(&Draft::default()), key, 10_000);
        let value: Value = serde_json::from_str(&kept).unwrap();
        assert_eq!(value["request"]["prompt"], r#"[redacted] or {"password":"[redacted]"}"#);
    }

    #[test]
    fn a_long_one_keeps_both_ends_within_its_size() {
        let body = json!({"messages": [{"role": "user", "content": "\"\u{e4}".repeat(50_000)}]});
        let draft = Draft { text: "the end".into(), ..Draft::default() };
        let kept = text(&body, Ok(&draft), "", 10_000);
        assert!(kept.len() <= 10_000, "{}", kept.len());
        let value: Value = serde_json::from_str(&kept).unwrap();
        assert!(value["cut"] == true && value["answer_head"].as_str().unwrap().contains("the end"));
    }
}
