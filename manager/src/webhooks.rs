//! Tells the configured address what needs a person and what has ended. Beside everything else: nothing waits for it.
//!
//! `Muster-Signature: t=SECONDS,v1=HEX` is HMAC-SHA256 over `SECONDS.BODY` under the shared secret; `Muster-Delivery` is the same in
//! every repeat. An answer of 2xx is taken as heard.

use anyhow::Context as _;
use aws_lc_rs::hmac;
use secrecy::ExposeSecret as _;
use shared::config::{Config, Webhooks};
use shared::egress::Guard;
use shared::store::{Hook, Store};
use shared::telemetry::metrics::{self, Webhook as Told};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How often it is looked for what is due.
const EVERY: Duration = Duration::from_millis(500);
/// Messages of one look.
const PAGE: usize = 20;
/// Longest pause between two calls.
const DELAY_MAX_MS: u64 = 3_600_000;

/// The address, ready to be called.
pub(crate) struct Sender {
    store: Store,
    client: reqwest::Client,
    url: reqwest::Url,
    key: hmac::Key,
    config: Webhooks,
}

impl Sender {
    /// `None`: no address is configured.
    ///
    /// # Errors
    /// An address that cannot be one.
    pub(crate) fn new(store: &Store, config: &Config) -> anyhow::Result<Option<Self>> {
        let hooks = &config.webhooks;
        if hooks.url.is_empty() {
            return Ok(None);
        }
        let url = reqwest::Url::parse(&hooks.url).context("webhooks.url")?;
        // The operator's own address is called wherever it is; a redirect would carry the message elsewhere.
        let guard = Guard::new(&config.egress).map_err(|e| anyhow::anyhow!("egress.allow {e}"))?.also(&url);
        let client = guard.client().timeout(Duration::from_millis(hooks.timeout_ms)).build();
        Ok(Some(Self {
            store: store.clone(),
            client: client.context("an HTTP client")?,
            url,
            key: hmac::Key::new(hmac::HMAC_SHA256, hooks.secret.expose_secret().as_bytes()),
            config: hooks.clone(),
        }))
    }

    /// Until `stop`. A message that is under way then is sent again by whoever comes.
    pub(crate) async fn run(self, stop: CancellationToken) {
        // Longer than a page of calls that are never answered.
        let lease_ms = self.config.timeout_ms.saturating_mul(PAGE as u64) + 5_000;
        loop {
            let hooks = match self.store.hooks_take(PAGE, lease_ms).await {
                Ok(hooks) => hooks,
                Err(error) => {
                    tracing::debug!(%error, "webhooks wait for the store");
                    vec![]
                }
            };
            let looked = async {
                for hook in hooks {
                    self.tell(hook).await;
                }
                tokio::time::sleep(EVERY).await;
            };
            tokio::select! {
                () = looked => {}
                () = stop.cancelled() => return,
            }
        }
    }

    async fn tell(&self, mut hook: Hook) {
        let problem = self.send(&hook).await.err();
        hook.tries += 1;
        let (told, settled) = match problem {
            None => (Told::Heard, self.store.hook_done(&hook.id).await),
            Some(problem) if hook.tries >= self.config.tries_max => {
                tracing::error!(
                    goal = hook.goal,
                    event = hook.event,
                    tries = hook.tries,
                    problem,
                    "webhook given up"
                );
                (Told::GivenUp, self.store.hook_done(&hook.id).await)
            }
            Some(problem) => {
                tracing::warn!(
                    goal = hook.goal,
                    event = hook.event,
                    tries = hook.tries,
                    problem,
                    "webhook not heard"
                );
                (Told::Again, self.store.hook_again(&hook, delay_ms(self.config.retry_ms, hook.tries)).await)
            }
        };
        metrics::webhook(told);
        if let Err(error) = settled {
            tracing::warn!(%error, "a webhook may be sent once more");
        }
    }

    async fn send(&self, hook: &Hook) -> Result<(), String> {
        let body = serde_json::to_string(hook).map_err(|e| e.to_string())?;
        let seconds = jiff::Timestamp::now().as_second();
        let request = self
            .client
            .post(self.url.clone())
            .header("Content-Type", "application/json")
            .header("Muster-Delivery", &hook.id)
            .header("Muster-Signature", signature(&self.key, seconds, &body))
            .body(body);
        // The address may hold a secret of its own: errors are told without it.
        let response = request.send().await.map_err(|e| e.without_url().to_string())?;
        let status = response.status();
        if status.is_success() { Ok(()) } else { Err(format!("it answered {}", status.as_u16())) }
    }
}

fn signature(key: &hmac::Key, seconds: i64, body: &str) -> String {
    let tag = hmac::sign(key, format!("{seconds}.{body}").as_bytes());
    let hex: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("t={seconds},v1={hex}")
}

/// Doubled with each try.
fn delay_ms(first_ms: u64, tries: u32) -> u64 {
    first_ms.saturating_mul(1 << tries.saturating_sub(1).min(20)).min(DELAY_MAX_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_signature() {
        // Python: hmac.new(b"key", b"1700000000.{}", "sha256").hexdigest()
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"key");
        let want = "9d713ed406bb7076d4123f0dc2c39d2df5c654ed4b0cd56b52c8b4c940bd63ae";
        assert_eq!(signature(&key, 1_700_000_000, "{}"), format!("t=1700000000,v1={want}"));
    }

    #[test]
    fn pauses_double_up_to_an_hour() {
        assert_eq!([1, 2, 3].map(|n| delay_ms(5_000, n)), [5_000, 10_000, 20_000]);
        assert_eq!(delay_ms(5_000, 40), DELAY_MAX_MS);
    }
}
