//! Booking of model calls: each one, failed ones too, whoever owns the ticket by then (I3, I10).

use shared::consumer::Job;
use shared::model::{CallRecord, ErrorClass};
use shared::store::Store;
use shared::telemetry::metrics::{self, Call, Role};
use std::time::Duration;

/// Tries while the store does not answer; then the log has the record.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);

/// Books the records on goal and ticket.
pub(crate) async fn book(store: &Store, job: &Job, records: &[CallRecord]) {
    let ticket = &job.claim.ticket;
    metrics::model_cost(Role::Worker, records.iter().map(|r| r.microusd).sum());
    for record in records.iter().filter(|r| !r.settled) {
        let value = record.to_value();
        for attempt in 1..=TRIES {
            let (tokens, microusd) = (record.tokens(), record.microusd);
            let id = &job.claim.held.id;
            match store.settle(&record.call, &ticket.goal, id, tokens, microusd, &value).await {
                Ok(_) => break,
                Err(error) if error.is_retryable() && attempt < TRIES => {
                    tokio::time::sleep(PAUSE * attempt).await
                }
                Err(error) => {
                    tracing::error!(%error, record = %value, "model call not booked");
                    break;
                }
            }
        }
    }
}

/// The metric's word.
pub(crate) fn outcome(class: ErrorClass) -> Call {
    match class {
        ErrorClass::Ours => Call::Ours,
        ErrorClass::Reply => Call::Reply,
        ErrorClass::Quota { .. } => Call::Quota,
        ErrorClass::Overload => Call::Overload,
        ErrorClass::Context => Call::Context,
        ErrorClass::Auth => Call::Auth,
        ErrorClass::Network => Call::Network,
        ErrorClass::Budget => Call::Budget,
        ErrorClass::Cancelled => Call::Cancelled,
    }
}
