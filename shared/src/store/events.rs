//! The event log of a goal.
use super::*;

impl Store {
    /// Events after the stream id (`0` for all), at most `limit`.
    pub async fn events(&self, _goal: &str, _after: &str, _limit: usize) -> Result<Vec<LogEvent>> {
        todo!()
    }
}
