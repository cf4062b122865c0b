//! Everything that touches Redis. Opens connections, loads the scripts, hands out calls.
//!
//! Every change of a ticket is one script (I2). Three classes of connection: commands (multiplexed),
//! one plain connection for each blocking waiter, none shared between them.

mod calls;
mod events;
mod fleet;
mod goals;
mod people;
mod sweeper;
mod tickets;

pub use calls::*;
pub use fleet::Waiter;

use crate::config;

/// A handle to the store; cheap to clone.
#[derive(Clone)]
pub struct Store {}

/// What can go wrong on the way to Redis and back.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Not reachable, timed out or in a passing state: the outcome is unknown, repeat the same call.
    #[error("redis is not answering: {0}")]
    Unavailable(String),
    /// The server refuses us or is set up so that tickets could be lost.
    #[error("{0}")]
    Refused(String),
    /// The server's memory is full.
    #[error("redis is out of memory")]
    OutOfMemory,
    /// A script or reply is not as it should be: a bug, or bytes of a newer version.
    #[error("store: {0}")]
    Broken(String),
}

impl StoreError {
    /// Whether the same call may simply be made again.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::OutOfMemory)
    }
}

pub type Result<T> = std::result::Result<T, StoreError>;

impl Store {
    /// Connects, loads the scripts and checks that the server keeps what it is given
    /// (`maxmemory-policy noeviction`, persistence unless told otherwise).
    ///
    /// # Errors
    /// [`StoreError`] naming what is wrong and the way out.
    pub async fn connect(_config: &config::Redis) -> Result<Self> {
        todo!()
    }

    /// Connects without the checks, for `muster doctor`, which reports them itself.
    pub async fn connect_unchecked(_config: &config::Redis) -> Result<Self> {
        todo!()
    }

    /// What [`Store::connect`] would refuse, each with the way out. Empty: all is well.
    pub async fn problems(&self, _allow_no_persistence: bool) -> Result<Vec<String>> {
        todo!()
    }

    /// Redis clock, milliseconds.
    pub async fn now_ms(&self) -> Result<u64> {
        todo!()
    }
}
