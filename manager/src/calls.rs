//! The manager's model calls: one structured answer, why there is none, and what it cost (I10).

use serde_json::Value;
use shared::blob::Blobs;
use shared::config::Lease;
use shared::goal::Goal;
use shared::model::{Account, Ask, CallRecord, ErrorClass, Message, Model, ModelError};
use shared::store::{Store, StoreError};
use shared::telemetry::metrics;
use shared::ticket::Tier;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long a call waits for an endpoint that is out, before a person is asked.
const HURRY: Duration = Duration::from_secs(30);

/// Why there is no answer. Ends in the cause that a person reads.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The prompt could not be made: our fault.
    #[error("the prompt could not be made: {0}")]
    Ours(String),
    #[error("{}", .0.detail)]
    Model(ModelError),
    #[error("the goal's budget of {budget} tokens is spent ({spent} so far)")]
    Budget { budget: u64, spent: u64 },
    #[error("no model is configured for this manager")]
    NoModel,
}

impl Failure {
    /// The word kept as the goal's or ticket's cause.
    pub(crate) fn cause(&self) -> &'static str {
        match self {
            Self::Ours(_) => "internal",
            Self::NoModel => "no_model",
            Self::Budget { .. } => "budget",
            Self::Model(error) => match error.class {
                ErrorClass::Ours => "model_refused",
                ErrorClass::Reply => "model_unusable",
                ErrorClass::Quota { .. } => "model_quota",
                ErrorClass::Overload => "model_overloaded",
                ErrorClass::Context => "model_context",
                ErrorClass::Auth => "model_auth",
                ErrorClass::Network => "model_unreachable",
                ErrorClass::Budget => "budget",
                ErrorClass::Cancelled => "cancelled",
            },
        }
    }

    /// What a person can do about it.
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Self::Ours(_) => "the manager's log has the details",
            Self::NoModel => {
                "set model.url and model.standard in the manager's configuration and answer, or submit a plan file"
            }
            Self::Budget { .. } => "answer with a higher budget_tokens",
            Self::Model(error) => match error.class {
                ErrorClass::Auth => "set model.api_key or top up its account, then answer",
                ErrorClass::Budget => {
                    "answer with a higher budget_tokens or budget_microusd, whichever it names"
                }
                ErrorClass::Context => {
                    "shorten the goal or choose a model with a larger context, then answer"
                }
                ErrorClass::Reply => {
                    "say it more simply, choose a stronger model, or submit a plan file; then answer"
                }
                ErrorClass::Ours
                | ErrorClass::Quota { .. }
                | ErrorClass::Overload
                | ErrorClass::Network
                | ErrorClass::Cancelled => {
                    "see that the model's server answers (`muster doctor`), then answer"
                }
            },
        }
    }

    /// The caller's own stop came: nothing was decided.
    pub(crate) fn is_cancelled(&self) -> bool {
        matches!(self, Self::Model(ModelError { class: ErrorClass::Cancelled, .. }))
    }

    /// The model answered, but nothing that the validator takes.
    pub(crate) fn is_unusable(&self) -> bool {
        matches!(self, Self::Model(ModelError { class: ErrorClass::Reply, .. }))
    }

    /// Its reasons, one a line.
    pub(crate) fn problems(&self) -> Vec<String> {
        self.to_string().split("; ").map(str::to_owned).collect()
    }
}

/// An answer or why there is none, and the records of every request that was sent for it.
pub(crate) struct Asked<T> {
    pub(crate) outcome: Result<T, Failure>,
    pub(crate) records: Vec<CallRecord>,
}

impl<T> Asked<T> {
    /// Nothing was sent.
    pub(crate) fn failed(failure: Failure) -> Self {
        Self { outcome: Err(failure), records: vec![] }
    }
}

/// One question to the model.
pub(crate) struct Call<'a> {
    pub(crate) model: &'a Model,
    pub(crate) tier: Tier,
    pub(crate) messages: &'a [Message],
    pub(crate) stop: &'a CancellationToken,
    pub(crate) on_bytes: &'a (dyn Fn() + Send + Sync),
}

impl Call<'_> {
    /// A JSON answer that is valid against the schema and that `check` accepts; its reasons go back to the model.
    pub(crate) async fn structured<T>(
        &self,
        name: &str,
        schema: &Value,
        check: impl Fn(&Value) -> Result<T, Vec<String>>,
    ) -> Asked<T> {
        let ask = Ask {
            role: "planner",
            tier: self.tier,
            messages: self.messages,
            tools: &[],
            output_tokens_max: 0,
            stop: self.stop,
            on_bytes: self.on_bytes,
            on_wait: &shared::model::ignore_wait,
        };
        match self.model.structured(&ask, name, schema, check).await {
            Ok((answer, records)) => Asked { outcome: Ok(answer), records },
            Err(mut error) => {
                let records = std::mem::take(&mut error.records);
                Asked { outcome: Err(Failure::Model(error)), records }
            }
        }
    }
}

/// The model on the goal's account, if there is one and the goal may still spend (I7).
pub(crate) fn model_for(
    model: Option<&Model>,
    store: &Store,
    blobs: &Blobs,
    goal: &Goal,
    ticket: &str,
    lease: &Lease,
) -> Result<Model, Failure> {
    let Some(model) = model else { return Err(Failure::NoModel) };
    let (budget, spent) = (goal.budget_tokens, goal.spent_tokens);
    if budget > 0 && spent >= budget {
        return Err(Failure::Budget { budget, spent });
    }
    Ok(model.on_account(Account::new(store, &goal.id, ticket, lease).keeping(blobs).in_a_hurry(HURRY)))
}

/// Books one request on the goal, and on the ticket when it was about one. Money that was spent is booked even
/// when the answer is of no use, or the step is fenced (I3).
///
/// # Errors
/// [`StoreError`] when it is not known whether it was booked.
pub(crate) async fn book(
    store: &Store,
    goal: &str,
    ticket: &str,
    record: &CallRecord,
) -> Result<(), StoreError> {
    if record.settled {
        return Ok(());
    }
    let value = record.to_value();
    store.settle(&record.call, goal, ticket, record.tokens(), record.microusd, &value).await.map(|_| ())
}

/// Counts it for the metrics.
pub(crate) fn count(tier: Tier, record: &CallRecord) {
    let ended = match record.error.as_str() {
        "" => metrics::Call::Ok,
        "reply" => metrics::Call::Reply,
        "quota" => metrics::Call::Quota,
        "overload" => metrics::Call::Overload,
        "context" => metrics::Call::Context,
        "auth" => metrics::Call::Auth,
        "network" => metrics::Call::Network,
        "budget" => metrics::Call::Budget,
        "cancelled" => metrics::Call::Cancelled,
        _ => metrics::Call::Ours,
    };
    let took = std::time::Duration::from_millis(record.duration_ms);
    metrics::model_cost(metrics::Role::Manager, record.microusd);
    metrics::model_call(
        metrics::Role::Manager,
        tier.as_str(),
        ended,
        took,
        record.input_tokens,
        record.output_tokens,
    );
}
