//! The chain of models of a tier: when one is out, the next one answers.
//!
//! Out means: its breaker is open, it cannot be reached, it refuses the key, its quota is used up, or it is overloaded
//! again and again. What is our own fault, or does not fit the context, is so with every model and goes to the caller.

use super::error::{ErrorClass, ModelError};
use super::{Ask, CallRecord, Inner, Model, tolerant};
use crate::telemetry::metrics;
use crate::ticket::Tier;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Bytes of the reason in a record.
const WHY_BYTES_MAX: usize = 200;

/// Where in the chain a session stands.
#[derive(Clone)]
pub(super) struct Leg {
    /// Nobody else could answer.
    pub(super) is_last: bool,
    /// Which models could not, and why; empty for the first.
    pub(super) instead_of: String,
    /// When the whole answer was begun.
    pub(super) begun: Instant,
}

impl Leg {
    /// The only one.
    pub(super) fn only() -> Self {
        Self { is_last: true, instead_of: String::new(), begun: Instant::now() }
    }

    /// For another answer at the same place.
    pub(super) fn again(&self) -> Self {
        Self { begun: Instant::now(), ..self.clone() }
    }
}

/// A model that refused the key, or whose account is empty, is left alone for a while where another one can answer: no
/// breaker opens for it.
#[derive(Default)]
pub(super) struct Rest {
    until: Mutex<Option<Instant>>,
}

impl Rest {
    fn begin(&self, time: Duration) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + time);
    }

    fn is_on(&self) -> bool {
        self.until.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|until| Instant::now() < until)
    }
}

/// Whether another model may do better.
fn is_out(error: &ModelError) -> bool {
    match error.class {
        ErrorClass::Network | ErrorClass::Auth | ErrorClass::Quota { .. } => true,
        // The server's own word, not a wait of ours that was too long.
        ErrorClass::Overload => {
            error.records.last().is_some_and(|r| r.error == ErrorClass::Overload.as_str())
        }
        ErrorClass::Ours
        | ErrorClass::Reply
        | ErrorClass::Context
        | ErrorClass::Budget
        | ErrorClass::Cancelled => false,
    }
}

/// One answer's way along the chain.
pub(super) struct Chain {
    links: Vec<Model>,
    /// The one that is asked, counted from 1.
    at: usize,
    tier: Tier,
    leg: Leg,
    /// Of those that were out.
    pub(super) records: Vec<CallRecord>,
}

impl Chain {
    pub(super) fn new(model: &Model, tier: Tier) -> Self {
        let leg = Leg { is_last: false, ..Leg::only() };
        Self { links: model.links(tier), at: 0, tier, leg, records: vec![] }
    }

    /// The next model that may answer; there is always one more, until [`Chain::failed`] gives the error back.
    pub(super) async fn next(&mut self, ask: &Ask<'_>) -> (Model, Leg) {
        loop {
            let last = self.links.len() - 1;
            let link = self.links[self.at.min(last)].clone();
            self.leg.is_last = self.at >= last;
            self.at += 1;
            if !self.leg.is_last && link.inner.rest.is_on() {
                self.leg.passes(&link.inner.described(self.tier), "it refused a moment ago");
                continue;
            }
            link.know(ask, &self.leg).await;
            return (link, self.leg.clone());
        }
    }

    /// That one gave no answer: the next one is to be asked.
    ///
    /// # Errors
    /// There is none, or it would do no better: the error goes to the caller, with all records.
    pub(super) fn failed(
        &mut self,
        link: &Model,
        role: &str,
        mut error: ModelError,
    ) -> Result<(), ModelError> {
        let falls = !self.leg.is_last && is_out(&error);
        self.records.append(&mut error.records);
        if !falls {
            return Err(ModelError { records: std::mem::take(&mut self.records), ..error });
        }
        if error.class == ErrorClass::Auth {
            link.inner.rest.begin(Duration::from_millis(link.inner.config.breaker_open_ms));
        }
        let (name, why) =
            (link.inner.described(self.tier), format!("{}: {}", error.class.as_str(), error.detail));
        metrics::model_fallback(role);
        tracing::warn!(role, model = name, why, "a model is out; the next of its chain is asked");
        self.leg.passes(&name, &why);
        Ok(())
    }
}

impl Leg {
    fn passes(&mut self, name: &str, why: &str) {
        if !self.instead_of.is_empty() {
            self.instead_of.push_str("; ");
        }
        self.instead_of.push_str(&format!("{name} ({})", tolerant::cut(why, WHY_BYTES_MAX)));
    }
}

impl Inner {
    /// The server, for people: no URL, which may hold a secret.
    pub(super) fn host(&self) -> String {
        let url = reqwest::Url::parse(&self.config.url).ok();
        url.and_then(|u| u.host_str().map(str::to_owned)).unwrap_or_default()
    }

    pub(super) fn described(&self, tier: Tier) -> String {
        format!("{} at {}", self.config.name(tier), self.host())
    }
}
