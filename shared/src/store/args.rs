//! Arguments of scripts as bytes.

use super::{Result, StoreError};

/// Longest text kept of a failure, note or message.
const DETAIL_BYTES_MAX: usize = 4096;

pub(super) fn arg(text: impl ToString) -> Vec<u8> {
    text.to_string().into_bytes()
}

pub(super) fn json(value: &impl serde::Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|e| StoreError::Broken(e.to_string()))
}

/// The first bytes of a text, cut at a character.
pub(super) fn head(text: &str) -> &str {
    let mut end = text.len().min(DETAIL_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
