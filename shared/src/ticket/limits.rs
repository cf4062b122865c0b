//! How much may come in from outside, and which words may become part of a key. Plain data; the configuration
//! has it as its section `limits`.

use serde::{Deserialize, Serialize};

/// Sizes and counts that come in from outside.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    pub goal_text_bytes_max: usize,
    pub constraints_max: usize,
    pub input_files_max: usize,
    pub input_bytes_max: u64,
    pub plan_bytes_max: usize,
    pub tickets_max: usize,
    pub needs_max: usize,
    pub depth_max: u32,
    pub checks_max: usize,
    pub replans_max: u32,
    /// Ready deliveries of a lane beyond which a submit is answered BUSY.
    pub ready_max: usize,
    /// Tickets of one goal that run at once; 0: no cap.
    pub in_flight_max: u32,
    pub attempt_files_max: usize,
    pub attempt_bytes_max: u64,
    pub result_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            goal_text_bytes_max: 64 * 1024,
            constraints_max: 50,
            input_files_max: 1_000,
            input_bytes_max: 64 * 1024 * 1024,
            plan_bytes_max: 4 * 1024 * 1024,
            tickets_max: 1_000,
            needs_max: 100,
            depth_max: 5,
            checks_max: 50,
            replans_max: 20,
            ready_max: 100_000,
            in_flight_max: 0,
            attempt_files_max: 100,
            attempt_bytes_max: 256 * 1024 * 1024,
            result_bytes_max: 8 * 1024,
        }
    }
}

/// Letters, digits, `-` and `_`, 1 to 64 of them: what may become part of a key or a label.
#[must_use]
pub fn is_word(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 64
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}
