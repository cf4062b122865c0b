//! Waiting for work: blocking pops of wake tokens, on a connection of their own.
//!
//! Claims are level-triggered, so a lost token costs at most one block time and never a ticket.

use super::link::{Conn, Dialer};
use super::{Store, StoreError};
use std::sync::Arc;
use std::time::Duration;

/// How long a reply may be late beyond the block time.
const SLACK: Duration = Duration::from_secs(2);
/// Longest pause after an error, so that a returning server is noticed at once.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Waits for wake tokens on its own connection. Cancelling a wait loses at most a token, never a ticket.
pub struct Waiter {
    dialer: Arc<Dialer>,
    prefix: String,
    conn: Option<(Conn, Duration)>,
    pause: Duration,
}

impl Store {
    /// A waiter with a connection of its own (made at the first wait).
    #[must_use]
    pub fn waiter(&self) -> Waiter {
        Waiter {
            dialer: Arc::clone(&self.link.dialer),
            prefix: self.keys.at("wk:"),
            conn: None,
            pause: Duration::from_millis(100),
        }
    }
}

impl Waiter {
    /// Returns when there may be work in one of the lanes, or after `block_ms`. Errors drop the connection and
    /// are slept over: the caller claims and waits again.
    pub async fn wait(&mut self, lanes: &[String], block_ms: u64) {
        if self.try_wait(lanes, block_ms).await.is_err() {
            self.conn = None;
            tokio::time::sleep(self.pause.mul_f64(rand::random_range(0.5..1.0))).await;
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        } else {
            self.pause = Duration::from_millis(100);
        }
    }

    async fn try_wait(&mut self, lanes: &[String], block_ms: u64) -> Result<(), StoreError> {
        let block = Duration::from_millis(block_ms);
        let unavailable = |e: redis::RedisError| StoreError::Unavailable(e.to_string());
        // Taken out while in use: a cancelled wait must not leave a connection with a reply under way.
        let (mut conn, limit) = match self.conn.take() {
            Some((conn, limit)) if limit >= block + SLACK => (conn, limit),
            _ => {
                let limit = block + SLACK;
                (self.dialer.dial(limit).await.map_err(unavailable)?, limit)
            }
        };
        let mut cmd = redis::cmd("BLPOP");
        for lane in lanes {
            cmd.arg(format!("{}{lane}", self.prefix));
        }
        cmd.arg(block.as_secs_f64());
        conn.run(&cmd).await.map_err(unavailable)?;
        self.conn = Some((conn, limit));
        Ok(())
    }
}
