//! How large a prompt or an answer is in tokens, without the model's own tokenizer; and the alarm that a server
//! has quietly cut the prompt to fit its window (A20).

use super::wire::Draft;
use super::{Message, Usage};

/// Bytes of a prompt or an answer for one token, where the server names no usage.
const BYTES_PER_TOKEN: usize = 4;
/// No text has so many bytes for a token: what was counted is not what was sent.
const BYTES_PER_TOKEN_MOST: usize = 12;
/// Below this the frame of a request weighs more than its text.
const BYTES_MIN: usize = 8 * 1024;
/// A prompt of more bytes for each token of the known window is not worth sending.
const BYTES_PER_TOKEN_HOPED: usize = 6;

pub(super) fn draft_bytes(draft: &Draft) -> usize {
    let calls: usize = draft.calls.iter().map(|c| c.name.len() + c.arguments.to_string().len()).sum();
    draft.text.len() + draft.reasoning.len() + calls
}

/// Where the server names no usage, or not for what it broke off.
pub(super) fn estimate(prompt_bytes: usize, answer_bytes: usize) -> Usage {
    let tokens = |bytes: usize| u64::try_from(bytes.div_ceil(BYTES_PER_TOKEN)).unwrap_or(u64::MAX);
    Usage {
        input_tokens: tokens(prompt_bytes),
        output_tokens: tokens(answer_bytes),
        cached_tokens: 0,
        estimated: true,
    }
}

/// Bytes of the words that the server has to count.
pub(super) fn text_bytes(messages: &[Message]) -> usize {
    let of = |m: &Message| match m {
        Message::System(text) | Message::User(text) => text.len(),
        Message::Tool { content, .. } => content.len(),
        Message::Assistant { text, .. } => text.len(),
        // No word of it is counted by bytes.
        Message::Image(_) => 0,
    };
    messages.iter().map(of).sum()
}

/// The server counted far fewer tokens than the words have: it threw a part of them away. Later turns are believed
/// unless the window is known to be small: some servers do not count what they have cached.
pub(super) fn was_cut(messages: &[Message], usage: Usage, window: Option<u64>) -> bool {
    let bytes = text_bytes(messages);
    let counted = usize::try_from(usage.input_tokens).unwrap_or(usize::MAX);
    let first_turn = !messages.iter().any(|m| matches!(m, Message::Assistant { .. }));
    !usage.estimated
        && usage.cached_tokens == 0
        && bytes >= BYTES_MIN
        && (first_turn || window.is_some_and(|w| usage.input_tokens <= w))
        && bytes / BYTES_PER_TOKEN_MOST > counted
}

/// Whether the words certainly do not fit the window.
pub(super) fn is_beyond(messages: &[Message], window: u64) -> bool {
    let most = usize::try_from(window).unwrap_or(usize::MAX).saturating_mul(BYTES_PER_TOKEN_HOPED);
    text_bytes(messages) > most
}
