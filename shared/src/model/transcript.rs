//! What was said in one request, for those who look into it later: redacted, cut to size, kept as a blob (I10, I12).

use super::error::{Fault, clean};
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
    let whole = clean(&json!({"v": 1, "request": body, "answer": &answer}).to_string(), key);
    if whole.len() <= bytes_max {
        return whole;
    }
    // The beginning of a prompt says who asks, its end what; escapes of quotes double a piece at most.
    let piece = bytes_max / 7;
    let request = clean(&body.to_string(), key);
    let mut from = request.len().saturating_sub(piece);
    while !request.is_char_boundary(from) {
        from += 1;
    }
    let answer = clean(&answer.to_string(), key);
    json!({"v": 1, "cut": true, "bytes": whole.len(), "request_head": tolerant::cut(&request, piece),
        "request_tail": &request[from..], "answer_head": tolerant::cut(&answer, piece)})
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i12_a_key_in_a_prompt_or_an_answer_is_not_kept() {
        let body = json!({"messages": [{"role": "user", "content": "my key is sk-0123456789abcdef, yours hunter2"}]});
        let draft = Draft { text: "Bearer abc.def.ghi and \"quotes\"".into(), ..Draft::default() };
        let kept = text(&body, Ok(&draft), "hunter2", 10_000);
        for secret in ["0123456789abcdef", "hunter2", "abc.def"] {
            assert!(!kept.contains(secret), "{kept}");
        }
        let value: Value = serde_json::from_str(&kept).unwrap();
        assert!(value["answer"]["text"].as_str().unwrap().ends_with("and \"quotes\""), "{value}");
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
