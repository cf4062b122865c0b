//! Section `[webhooks]`: who is told what needs a person and what has ended.

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

/// Shortest secret: one that is guessed signs for everybody.
const SECRET_BYTES_MIN: usize = 16;
const TRIES_MAX: u32 = 50;

/// Whom managers tell.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Webhooks {
    /// Address that is called with POST; empty: none.
    pub url: String,
    /// Signs each call (HMAC-SHA256).
    #[serde(serialize_with = "super::redacted")]
    pub secret: SecretString,
    /// Calls for one message; then it is given up and the log says so.
    pub tries_max: u32,
    /// Milliseconds before the second call; doubled for each later one, up to an hour.
    pub retry_ms: u64,
    pub timeout_ms: u64,
}

impl Default for Webhooks {
    fn default() -> Self {
        Self {
            url: String::new(),
            secret: SecretString::default(),
            tries_max: 10,
            retry_ms: 5_000,
            timeout_ms: 10_000,
        }
    }
}

impl Webhooks {
    /// The first setting that cannot be: its name, and what is wrong with it.
    #[must_use]
    pub fn problem(&self) -> Option<(&'static str, String)> {
        if self.url.is_empty() {
            return None;
        }
        if !(self.url.starts_with("https://") || self.url.starts_with("http://")) {
            return Some(("webhooks.url", "must begin with https:// or http://".into()));
        }
        if self.secret.expose_secret().len() < SECRET_BYTES_MIN {
            let say =
                format!("must have at least {SECRET_BYTES_MIN} bytes, such as `openssl rand -hex 32` gives");
            return Some(("webhooks.secret", say));
        }
        if !(1..=TRIES_MAX).contains(&self.tries_max) {
            return Some(("webhooks.tries_max", format!("must be 1 to {TRIES_MAX}")));
        }
        if self.retry_ms == 0 || self.timeout_ms == 0 {
            return Some(("webhooks.retry_ms, webhooks.timeout_ms", "must be above 0".into()));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_secret_is_refused() {
        let of = |url: &str, secret: &str| Webhooks {
            url: url.into(),
            secret: secret.to_owned().into(),
            ..Webhooks::default()
        };
        assert_eq!(Webhooks::default().problem(), None);
        assert_eq!(of("https://example.org/hook", "0123456789abcdef").problem(), None);
        for (wrong, field) in [
            (of("https://example.org/hook", "short"), "webhooks.secret"),
            (of("example.org", "0123456789abcdef"), "webhooks.url"),
            (Webhooks { tries_max: 0, ..of("http://x", "0123456789abcdef") }, "webhooks.tries_max"),
        ] {
            assert_eq!(wrong.problem().map(|(name, _)| name), Some(field));
        }
    }
}
