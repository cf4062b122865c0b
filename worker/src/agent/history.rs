//! Making a conversation shorter when it no longer fits: at most once between two turns (B4).

use shared::model::Message;

/// The last messages stay as they are, except for results that are too long by themselves.
const KEPT: usize = 6;
/// Bytes that an old result keeps, and a recent one.
const OLD_BYTES: usize = 200;
const RECENT_BYTES: usize = 4_000;

/// What an image weighs beside text.
const IMAGE_BYTES: usize = 8_000;

/// Shortens old tool results and texts in place; system prompt and task stay verbatim (I9), and every call keeps
/// its answer. `false`: there was nothing worth dropping, the same again would not fit either.
pub(crate) fn compact(messages: &mut [Message]) -> bool {
    let before: usize = messages.iter().map(size).sum();
    let recent = messages.len().saturating_sub(KEPT);
    for (at, message) in messages.iter_mut().enumerate().skip(2) {
        let keep = if at < recent { OLD_BYTES } else { RECENT_BYTES };
        if let Message::Image(image) = message {
            *message = Message::User(image.placeholder("left out; read it again if it is needed"));
            continue;
        }
        match message {
            Message::Tool { content, .. } => shorten(content, keep),
            Message::Assistant { text, reasoning, calls } => {
                shorten(text, keep);
                if at < recent {
                    reasoning.clear();
                    for call in calls {
                        if let Ok(args) = &mut call.args {
                            args.values_mut().for_each(|value| {
                                if let serde_json::Value::String(text) = value {
                                    shorten(text, keep);
                                }
                            });
                        }
                    }
                }
            }
            Message::System(_) | Message::User(_) | Message::Image(_) => {}
        }
    }
    let after: usize = messages.iter().map(size).sum();
    after * 10 <= before * 9
}

fn size(message: &Message) -> usize {
    match message {
        Message::System(text) | Message::User(text) | Message::Tool { content: text, .. } => text.len(),
        // Some 2,000 tokens, whatever its bytes.
        Message::Image(_) => IMAGE_BYTES,
        Message::Assistant { text, reasoning, calls } => {
            let calls: usize = calls
                .iter()
                .map(|c| c.args.as_ref().map_or(0, |a| a.values().map(|v| v.to_string().len()).sum()))
                .sum();
            text.len() + reasoning.len() + calls
        }
    }
}

/// Head and tail stay.
fn shorten(text: &mut String, keep: usize) {
    if text.len() <= keep + 60 {
        return;
    }
    let (mut head, mut tail) = (keep / 2, text.len() - keep / 2);
    while !text.is_char_boundary(head) {
        head -= 1;
    }
    while !text.is_char_boundary(tail) {
        tail += 1;
    }
    *text = format!("{}\n[… {} bytes left out …]\n{}", &text[..head], tail - head, &text[tail..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a19_old_results_shrink_and_the_task_stays() {
        let mut messages = vec![Message::System("s".repeat(5_000)), Message::User("t".repeat(5_000))];
        for n in 0..10 {
            messages.push(Message::Assistant {
                text: String::new(),
                reasoning: "r".repeat(100),
                calls: vec![],
            });
            messages.push(Message::Tool { call_id: n.to_string(), content: "ü".repeat(4_000) });
        }
        let task = messages[..2].to_vec();
        assert!(compact(&mut messages));
        assert_eq!(messages[..2], task);
        assert_eq!(messages.len(), 22, "every call keeps its answer");
        let Message::Tool { content, .. } = &messages[3] else { panic!() };
        assert!(content.len() < 300 && content.contains("left out"));
        assert!(!compact(&mut messages), "b4: a second time there is nothing to drop");
    }

    #[test]
    fn a19_images_go_first_and_leave_their_names() {
        let png = shared::model::Image::of("data/a.png", b"\x89PNG\r\n\x1a\n").unwrap();
        let mut messages = vec![
            Message::System("s".into()),
            Message::User("t".into()),
            Message::Image(png),
            Message::User("u".into()),
        ];
        assert!(compact(&mut messages));
        assert!(matches!(&messages[2], Message::User(text) if text.contains("`data/a.png`")), "{messages:?}");
    }

    #[test]
    fn a19_one_result_that_is_too_long_alone_keeps_head_and_tail() {
        let mut messages = vec![
            Message::System(String::new()),
            Message::User(String::new()),
            Message::Tool { call_id: "1".into(), content: format!("HEAD{}TAIL", "x".repeat(50_000)) },
        ];
        assert!(compact(&mut messages));
        let Message::Tool { content, .. } = &messages[2] else { panic!() };
        assert!(content.starts_with("HEAD") && content.ends_with("TAIL") && content.len() < 5_000);
    }
}
