//! Whose money a call spends: reserved on the goal's ledger before each request, settled by its usage; or the fleet's own.

use super::CallRecord;
use super::error::{ErrorClass, Fault};
use crate::blob::{self, Blobs};
use crate::config;
use crate::store::{Payer, Reservation, Reserved, Store, Tokens};
use std::time::Duration;

/// How long a call waits in all, for its turn or for an endpoint that is out; then its ticket goes back.
pub(super) const PATIENCE: Duration = Duration::from_secs(20 * 60);
/// The fleet's own calls are made again another time.
const FLEET_PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of a request for one token, reckoned on the safe side.
const BYTES_PER_TOKEN: u64 = 3;

/// A goal's account, and the ticket that the calls are about. Cheap to clone.
#[derive(Clone)]
pub struct Account {
    store: Store,
    goal: String,
    ticket: String,
    person_expiry_ms: u64,
    /// How long a call waits in all for an endpoint that is out.
    pub(super) patience: Duration,
    /// Where bodies are kept.
    blobs: Option<Blobs>,
}

/// What one request takes at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Worst {
    pub(super) tokens: Tokens,
    microusd: u64,
}

impl Worst {
    pub(super) fn of(prompt_bytes: usize, output_tokens_max: u32, price: config::Price) -> Self {
        let input = u64::try_from(prompt_bytes).unwrap_or(u64::MAX / 4).div_ceil(BYTES_PER_TOKEN);
        let output = u64::from(output_tokens_max);
        let microusd = price.microusd(input, 0, output);
        Self { tokens: Tokens { input, output }, microusd }
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
            patience: PATIENCE,
            blobs: None,
        }
    }

    /// What the fleet pays for itself: no goal's budget bounds it and no ledger holds it; the governor does. Who calls
    /// keeps the records.
    #[must_use]
    pub fn of_fleet(store: &Store, lease: &config::Lease) -> Self {
        Self::new(store, "", "", lease).in_a_hurry(FLEET_PATIENCE)
    }

    /// For whoever rather asks a person than waits longer than this for an endpoint that is out. Its own turn, by the pace of
    /// the endpoint or of a tenant, it waits for like all others: nothing is broken then.
    #[must_use]
    pub fn in_a_hurry(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Keeps what is said among the goal's blobs, as long as these are kept.
    #[must_use]
    pub fn keeping(self, blobs: &Blobs) -> Self {
        Self { blobs: Some(blobs.clone()), ..self }
    }

    /// Keeps a text; its reference, or nothing where no texts are kept. It is written beside the work: no call waits
    /// for its own record.
    pub(super) fn keep_body(&self, text: impl FnOnce() -> String) -> String {
        let Some(blobs) = self.blobs.clone() else { return String::new() };
        let (text, goal) = (text(), self.goal.clone());
        let reference = blob::reference(text.as_bytes());
        tokio::spawn(async move {
            if let Err(error) = blobs.put_soon(&goal, text).await {
                tracing::warn!(%error, goal, "what was said in a call is not kept");
            }
        });
        reference
    }

    pub(super) fn goal(&self) -> &str {
        &self.goal
    }

    pub(super) fn is_in_a_hurry(&self) -> bool {
        self.patience < PATIENCE
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// Whether the call may be sent; `Some`: not yet, and why.
    pub(super) async fn reserve(
        &self,
        call: &str,
        worst: Worst,
        expiry_ms: u64,
    ) -> Result<Option<String>, Fault> {
        if self.goal.is_empty() {
            return Ok(None);
        }
        let reservation = Reservation {
            call,
            goal: &self.goal,
            ticket: &self.ticket,
            tokens: worst.tokens.input + worst.tokens.output,
            microusd: worst.microusd,
            expiry_ms,
            person_expiry_ms: self.person_expiry_ms,
        };
        match self.store.reserve(&reservation).await {
            Ok(Reserved::Ok) => Ok(None),
            Ok(Reserved::Later { .. }) => Ok(Some("other calls hold what is left of the budget".into())),
            Ok(Reserved::Refused { left, of }) => {
                let asked = reservation.tokens;
                let whose = match of {
                    Payer::Goal => "goal",
                    Payer::Tenant => "tenant",
                };
                let detail = format!(
                    "the call may take {asked} tokens for {} millionths of a dollar and {left} of the {whose}'s \
                     budget are free",
                    worst.microusd
                );
                Err(Fault::new(ErrorClass::Budget, detail))
            }
            Ok(Reserved::Gone) => Err(Fault::new(ErrorClass::Cancelled, "the goal is over")),
            Err(error) if error.is_retryable() => Ok(Some(format!("the ledger does not answer: {error}"))),
            Err(error) => Err(Fault::new(ErrorClass::Overload, format!("the ledger: {error}"))),
        }
    }

    /// Says that the call lives.
    pub(super) async fn keep(&self, call: &str, expiry_ms: u64) {
        if self.goal.is_empty() {
            return;
        }
        if let Err(error) = self.store.keep_reserved(&self.goal, call, expiry_ms).await {
            tracing::warn!(%error, call, "a reservation was not prolonged");
        }
    }

    /// Settles what is not yet, so that the next reservation finds the budget as it is. What fails is left to the
    /// caller, who books it at the end.
    pub(super) async fn settle(&self, records: &mut [CallRecord]) {
        if self.goal.is_empty() {
            return;
        }
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
