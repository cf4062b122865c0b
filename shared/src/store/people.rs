//! What people do: answers, cancels, pauses, notes, reopening.
use super::*;

impl Store {
    /// A person's decision on a ticket or goal. `expected_epoch` 0: whatever it is now.
    pub async fn answer(
        &self,
        _id: &str,
        _expected_epoch: u64,
        _request_id: &str,
        _who: &str,
        _decision: &PersonDecision,
        _expiry_ms: u64,
    ) -> Result<Answered> {
        todo!()
    }
    /// Open decisions, soonest expiry first.
    pub async fn open_decisions(&self, _limit: usize) -> Result<Vec<OpenDecision>> {
        todo!()
    }
    /// Cancels a goal at once and its tickets in pages; `false`: it was over already.
    pub async fn cancel_goal(&self, _goal: &str, _who: &str) -> Result<bool> {
        todo!()
    }
    /// Cancels one ticket; an owner is told at its next renewal and fenced after the grace.
    pub async fn cancel_ticket(&self, _id: &str, _who: &str) -> Result<Answered> {
        todo!()
    }
    /// Stops (or resumes) new claims of a goal.
    pub async fn pause_goal(&self, _goal: &str, _paused: bool, _who: &str) -> Result<bool> {
        todo!()
    }
    /// Stops (or resumes) new claims of the whole fleet.
    pub async fn pause_fleet(&self, _paused: bool) -> Result<()> {
        todo!()
    }
    /// A note to the goal's manager.
    pub async fn note(&self, _goal: &str, _who: &str, _text: &str) -> Result<bool> {
        todo!()
    }
    /// Reopens a finished goal: running again, the manager hears `answered` with the note.
    pub async fn reopen_goal(&self, _goal: &str, _who: &str, _note: &str) -> Result<Answered> {
        todo!()
    }
}
