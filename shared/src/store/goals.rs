//! Goals: submit, the manager's lease, plan, patch, finish.
use super::*;
use crate::goal::{Goal, GoalState, NewGoal};
use crate::ticket::patch::{NewTicket, PatchOp};

impl Store {
    /// Submits a goal: planning, event `plan` in its inbox.
    pub async fn submit_goal(&self, _goal: &NewGoal, _ready_max: usize) -> Result<Submitted> {
        todo!()
    }
    /// Takes a goal that has events, if any waits. The inbox is read, not trimmed.
    pub async fn manage_claim(
        &self,
        _manager: &str,
        _lease_id: &str,
        _lease_ms: u64,
    ) -> Result<Option<GoalClaim>> {
        todo!()
    }
    /// Keeps the raw plan's blob before it is applied.
    pub async fn plan_store(&self, _held: &Held, _plan_ref: &str) -> Result<Written> {
        todo!()
    }
    /// One page (at most 100) of the plan's tickets; repeated pages are DUP.
    pub async fn submit_tickets(&self, _held: &Held, _page: &[NewTicket]) -> Result<Written> {
        todo!()
    }
    /// Seals the plan (`total` tickets) and releases its roots, page by page, to the end.
    pub async fn seal(&self, _held: &Held, _total: usize) -> Result<Written> {
        todo!()
    }
    /// Applies all operations or none, against the plan version and the epochs as read; trims `read` inbox events.
    pub async fn patch(
        &self,
        _held: &Held,
        _step_id: &str,
        _plan_version: u64,
        _read: usize,
        _ops: &[PatchOp],
    ) -> Result<Patched> {
        todo!()
    }
    /// Ends the manager's step; trims `read` inbox events (0 after a patch of the same step).
    pub async fn manage_finish(
        &self,
        _held: &Held,
        _step_id: &str,
        _plan_version: u64,
        _read: usize,
        _finish: &Finish,
    ) -> Result<Finished> {
        todo!()
    }
    pub async fn goal(&self, _id: &str) -> Result<Option<Goal>> {
        todo!()
    }
    /// Newest first.
    pub async fn goals(&self, _state: Option<GoalState>, _offset: usize, _limit: usize) -> Result<Vec<Goal>> {
        todo!()
    }
    /// Books what a model call or tool cost and keeps its record in the event log.
    pub async fn book(
        &self,
        _goal: &str,
        _ticket: &str,
        _tokens: u64,
        _microusd: u64,
        _record: &serde_json::Value,
    ) -> Result<()> {
        todo!()
    }
}
