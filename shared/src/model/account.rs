//! Whose money a call spends: reserved on the goal's ledger before each request, settled by its usage.

use super::error::{ErrorClass, Fault};
use super::{Ask, CallRecord};
use crate::config;
use crate::store::{Reservation, Reserved, Store};
use crate::ticket::new_id;
use std::convert::Infallible;
use std::time::Duration;
use tokio::time::Instant;

/// A reservation lives this long after the last sign of its call; then its caller is dead.
const EXPIRY_MS: u64 = 60_000;
/// How often a call under way says that it lives.
const KEEP: Duration = Duration::from_secs(15);
/// Pause before the ledger is asked again, when other calls may give back enough or it does not answer.
const PAUSE_MS: u64 = 100;
/// Bytes of a request for one token, reckoned on the safe side.
const BYTES_PER_TOKEN: u64 = 3;

/// A goal's account, and the ticket that the calls are about. Cheap to clone.
#[derive(Clone)]
pub struct Account {
    store: Store,
    goal: String,
    ticket: String,
    person_expiry_ms: u64,
}

/// What one request takes at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Worst {
    tokens: u64,
    microusd: u64,
}

impl Worst {
    pub(super) fn of(prompt_bytes: usize, output_tokens_max: u32, config: &config::Model) -> Self {
        let input = u64::try_from(prompt_bytes).unwrap_or(u64::MAX / 4).div_ceil(BYTES_PER_TOKEN);
        let output = u64::from(output_tokens_max);
        let price = u128::from(input) * u128::from(config.input_microusd_per_mtok)
            + u128::from(output) * u128::from(config.output_microusd_per_mtok);
        let microusd = u64::try_from(price.div_ceil(1_000_000)).unwrap_or(u64::MAX);
        Self { tokens: input + output, microusd }
    }
}

impl Account {
    /// The account of a goal; `ticket` is empty for calls about the whole of it.
    #[must_use]
    pub fn new(store: &Store, goal: &str, ticket: &str, lease: &config::Lease) -> Self {
        Self {
            store: store.clone(),
            goal: goal.into(),
            ticket: ticket.into(),
            person_expiry_ms: lease.person_expiry_ms,
        }
    }

    /// Waits while other calls of the goal may give back enough. Answers the call id.
    pub(super) async fn reserve(
        &self,
        worst: Worst,
        deadline: Instant,
        ask: &Ask<'_>,
    ) -> Result<String, Fault> {
        let call = new_id();
        let reservation = Reservation {
            call: &call,
            goal: &self.goal,
            ticket: &self.ticket,
            tokens: worst.tokens,
            microusd: worst.microusd,
            expiry_ms: EXPIRY_MS,
            person_expiry_ms: self.person_expiry_ms,
        };
        loop {
            let late = match self.store.reserve(&reservation).await {
                Ok(Reserved::Ok) => return Ok(call),
                Ok(Reserved::Refused { left }) => {
                    let detail = format!(
                        "the call may take {} tokens and {left} of the goal's budget are free",
                        worst.tokens
                    );
                    return Err(Fault::new(ErrorClass::Budget, detail));
                }
                Ok(Reserved::Gone) => return Err(Fault::new(ErrorClass::Cancelled, "the goal is over")),
                Ok(Reserved::Later { .. }) => "other calls hold what is left of the goal's budget".to_owned(),
                Err(error) if error.is_retryable() => format!("the ledger does not answer: {error}"),
                Err(error) => return Err(Fault::new(ErrorClass::Overload, format!("the ledger: {error}"))),
            };
            let pause = Duration::from_millis(PAUSE_MS + rand::random_range(0..=PAUSE_MS));
            if Instant::now() + pause >= deadline {
                return Err(Fault::new(ErrorClass::Overload, late));
            }
            tokio::select! {
                biased;
                () = ask.stop.cancelled() => {
                    return Err(Fault::new(ErrorClass::Cancelled, "stopped by the caller"));
                }
                () = tokio::time::sleep(pause) => {}
            }
            // Whoever waits its turn is not stuck.
            (ask.on_bytes)();
        }
    }

    /// The call, with its reservation kept alive.
    pub(super) async fn while_kept<T>(&self, call: &str, sent: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            done = sent => done,
            never = self.keep(call) => match never {},
        }
    }

    async fn keep(&self, call: &str) -> Infallible {
        loop {
            tokio::time::sleep(KEEP).await;
            if let Err(error) = self.store.keep_reserved(&self.goal, call, EXPIRY_MS).await {
                tracing::warn!(%error, call, "a reservation was not prolonged");
            }
        }
    }

    /// Settles what is not yet, so that the next reservation finds the budget as it is. What fails is left to the
    /// caller, who books it at the end.
    pub(super) async fn settle(&self, records: &mut [CallRecord]) {
        for record in records.iter_mut().filter(|r| !r.settled) {
            let (tokens, value) = (record.tokens(), record.to_value());
            let booked =
                self.store.settle(&record.call, &self.goal, &self.ticket, tokens, record.microusd, &value);
            match booked.await {
                Ok(_) => record.settled = true,
                Err(error) => tracing::warn!(%error, call = record.call, "a call is not settled yet"),
            }
        }
    }
}
