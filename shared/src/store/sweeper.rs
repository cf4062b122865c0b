//! The sweeper: lapsed leases, due delays, expired decisions, ended goals, retention, audit and repair.
use super::*;
use crate::config::Lease;

impl Store {
    /// One round: sweeps, promotes, fans out, ends goals; page by page until nothing is left.
    pub async fn sweep(&self, _lease: &Lease) -> Result<Swept> {
        todo!()
    }
    /// Read-only check of the store's rules over everything live.
    pub async fn audit(&self) -> Result<Vec<Violation>> {
        todo!()
    }
    /// Puts back into its place what the audit finds out of place; returns what was repaired.
    pub async fn repair(&self) -> Result<Vec<Violation>> {
        todo!()
    }
    /// Goals whose retention is over: their blobs are to be deleted, then [`Store::forget_goal`].
    pub async fn expired_goals(&self, _retention_s: u64, _limit: usize) -> Result<Vec<String>> {
        todo!()
    }
    /// Deletes a finished goal's keys.
    pub async fn forget_goal(&self, _goal: &str) -> Result<()> {
        todo!()
    }
}
