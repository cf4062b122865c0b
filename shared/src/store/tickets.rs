//! Claims and outcomes of tickets.
use super::*;
use crate::ticket::Ticket;

impl Store {
    /// Claims up to `n` tickets. Repeating it with the same `lease_prefix` after a lost reply is safe.
    pub async fn claim(&self, _request: &ClaimRequest<'_>) -> Result<ClaimReply> {
        todo!()
    }
    /// Renews leases and beats the consumer. `idle_ms` is how long ago the work last moved.
    pub async fn renew(
        &self,
        _consumer: &str,
        _lanes: &[String],
        _lease_ms: u64,
        _progress_limit_ms: u64,
        _run_limit_ms: u64,
        _held: &[(Held, u64)],
    ) -> Result<Vec<Renewal>> {
        todo!()
    }
    /// Hands in finished work; under review policy none it publishes.
    pub async fn complete(&self, _done: &[Completion]) -> Result<Vec<Written>> {
        todo!()
    }
    /// A reviewer's verdicts; a pass publishes and releases the dependents.
    pub async fn decide(&self, _decisions: &[Decision]) -> Result<Vec<Written>> {
        todo!()
    }
    /// The attempt (or the review) failed.
    pub async fn fail(&self, _failure: &Failure) -> Result<Written> {
        todo!()
    }
    /// Gives the ticket back unharmed (drain).
    pub async fn release(&self, _held: &Held) -> Result<Written> {
        todo!()
    }
    /// Asks a person to confirm one exact call.
    pub async fn park(&self, _held: &Held, _permit: &Permit, _expiry_ms: u64) -> Result<Written> {
        todo!()
    }
    /// One of its paths changed under it.
    pub async fn conflict(&self, _held: &Held, _detail: &str) -> Result<Written> {
        todo!()
    }
    /// A ticket, or `None`.
    pub async fn ticket(&self, _id: &str) -> Result<Option<Ticket>> {
        todo!()
    }
    /// A page of a goal's tickets in plan order.
    pub async fn tickets(&self, _goal: &str, _offset: usize, _limit: usize) -> Result<Vec<Ticket>> {
        todo!()
    }
    /// All of a goal's tickets in plan order (read in pages).
    pub async fn all_tickets(&self, _goal: &str) -> Result<Vec<Ticket>> {
        todo!()
    }
    /// A worker's progress: an event, a conclusion for the shared list, and for an obstacle a word to the manager.
    pub async fn progress(
        &self,
        _held: &Held,
        _status: &str,
        _message: &str,
        _conclusion: Option<&str>,
    ) -> Result<Written> {
        todo!()
    }
}
