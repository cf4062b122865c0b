//! Everything that touches Redis. Opens connections, loads the scripts, hands out calls.
//!
//! Every change of a ticket is one script (I2). Three classes of connection: commands (multiplexed),
//! one plain connection for each blocking waiter, none shared between them.

mod args;
mod calls;
mod confirm;
mod effects;
mod events;
mod fields;
mod fleet;
mod goals;
mod keys;
mod ledger;
mod link;
mod measure;
mod memory;
mod people;
mod quota;
mod reply;
mod reviewers;
mod scripts;
mod server;
mod standards;
mod steps;
mod sweeper;
mod tenants;
mod tickets;
mod traits;
mod waiter;
mod webhooks;
mod write_sets;

pub use calls::*;
pub use confirm::{Confirmation, Confirming};
pub use effects::{Begun, Effect, EffectState};
pub use ledger::{Payer, Reservation, Reserved, Used};
pub use quota::{Admission, Endpoint, Heard, Lane, Tokens, Turn};
pub use reviewers::{Measured, ProbeKind, ProbeRecord, REVIEWER_DECISION, ReviewerBook};
pub use scripts::script_names;
pub use standards::Decided;
pub use tenants::TenantBook;
pub use waiter::Waiter;
pub use webhooks::{HOOK_VERSION, Hook};

use crate::config;
use keys::Keys;
use link::{Dialer, Link};
use redis::Value;
use scripts::Script;
use std::sync::Arc;
use std::time::Duration;

/// A handle to the store; cheap to clone.
#[derive(Clone)]
pub struct Store {
    link: Arc<Link>,
    keys: Arc<Keys>,
}

/// What can go wrong on the way to Redis and back.
#[derive(Clone, Debug, thiserror::Error)]
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
    pub async fn connect(config: &config::Redis) -> Result<Self> {
        let store = Self::connect_unchecked(config).await?;
        let problems = store.problems(config.allow_no_persistence).await?;
        if problems.is_empty() { Ok(store) } else { Err(StoreError::Refused(problems.join("\n"))) }
    }

    /// Connects without the checks, for `muster doctor`, which reports them itself.
    ///
    /// # Errors
    /// [`StoreError`] when the URL is wrong or nobody answers.
    pub async fn connect_unchecked(config: &config::Redis) -> Result<Self> {
        let dialer = Arc::new(Dialer::new(config)?);
        let link = Arc::new(Link::new(dialer, Duration::from_millis(config.response_timeout_ms)));
        let store = Self { link, keys: Arc::new(Keys::new(&config.prefix, 0)) };
        store.now_ms().await?;
        Ok(store)
    }

    async fn call(&self, script: &Script, args: &[Vec<u8>]) -> Result<Value> {
        let (key, cluster) = (self.keys.ctl(), self.link.dialer.is_cluster());
        let by_hash = script.by_hash(&key, args, cluster);
        let whole = || script.whole(&key, args, cluster);
        // Boxed: a call takes 5 KiB while it is made, and a future that may make one would always have them.
        Box::pin(self.link.run(&by_hash, Some(&whole))).await.map_err(|e| match e {
            StoreError::Broken(text) => StoreError::Broken(format!("{}: {text}", script.name)),
            StoreError::Unavailable(_) | StoreError::Refused(_) | StoreError::OutOfMemory => e,
        })
    }

    async fn command(&self, verb: &str, args: &[&str]) -> Result<Value> {
        let mut cmd = redis::cmd(verb);
        for a in args {
            cmd.arg(*a);
        }
        Box::pin(self.link.run(&cmd, None)).await
    }
}
