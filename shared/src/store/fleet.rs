//! Consumers, waiting for work, gauges, dead letters, tokens, the fleet record.
use super::*;

/// Waits for wake tokens on its own connection. Cancelling a wait loses at most a token, never a ticket.
pub struct Waiter {}

impl Waiter {
    /// Returns when there may be work in one of the lanes, or after `block_ms`. Errors are slept over.
    pub async fn wait(&mut self, _lanes: &[String], _block_ms: u64) {
        todo!()
    }
}

impl Store {
    /// A waiter with a connection of its own (made at the first wait).
    pub fn waiter(&self) -> Waiter {
        todo!()
    }
    /// Publishes a consumer (TTL 90 s) and its lanes.
    pub async fn publish_consumer(&self, _consumer: &Consumer) -> Result<()> {
        todo!()
    }
    /// Takes it off the lists (drain's end).
    pub async fn retire_consumer(&self, _id: &str, _lanes: &[String]) -> Result<()> {
        todo!()
    }
    pub async fn consumers(&self) -> Result<Vec<Consumer>> {
        todo!()
    }
    /// Tells one consumer to take no new work (`cordoned`), to leave (`draining`), or to go on (`active`).
    pub async fn order_consumer(&self, _id: &str, _state: &str) -> Result<bool> {
        todo!()
    }
    /// What was ordered for it, or `active`.
    pub async fn order_for(&self, _id: &str) -> Result<String> {
        todo!()
    }
    pub async fn gauges(&self) -> Result<Gauges> {
        todo!()
    }
    /// Keeps what does not decode, unchanged, with the reason.
    pub async fn dead_letter(&self, _lane: &str, _raw: &[u8], _reason: &str) -> Result<()> {
        todo!()
    }
    pub async fn dead_letters(&self, _limit: usize) -> Result<Vec<DeadLetter>> {
        todo!()
    }
    /// Takes dead letters off the list; the tickets they named, if live, get a fresh delivery from their hash.
    pub async fn requeue_dead_letters(&self, _limit: usize) -> Result<usize> {
        todo!()
    }
    /// The fleet's nonce (made by the first who asks): proves that two hosts see the same blob store.
    pub async fn fleet_nonce(&self) -> Result<String> {
        todo!()
    }
    /// API tokens: hash -> JSON record.
    pub async fn token_put(&self, _hash: &str, _record: &serde_json::Value) -> Result<()> {
        todo!()
    }
    pub async fn token_get(&self, _hash: &str) -> Result<Option<serde_json::Value>> {
        todo!()
    }
    pub async fn token_list(&self) -> Result<Vec<(String, serde_json::Value)>> {
        todo!()
    }
    pub async fn token_delete(&self, _hash: &str) -> Result<bool> {
        todo!()
    }
    /// Whether new claims of the fleet are stopped.
    pub async fn fleet_paused(&self) -> Result<bool> {
        todo!()
    }
}
