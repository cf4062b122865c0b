//! Spans of a goal's hops: its submit, each try at a ticket (attempt or review), and a lease that was lost.
//!
//! A try's span id is made from its ticket and its number, so nobody has to be told it to link to it: the next try, the
//! review of an attempt, and the sweeper, which takes a ticket back from a worker that died and never sent its span.

use super::metrics::Outcome;
use super::propagate;
use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, Status, TraceContextExt as _, TraceId};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};
use sha2::{Digest as _, Sha256};
use std::cell::Cell;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

thread_local! {
    /// Id of the span that this thread starts next.
    static NEXT: Cell<Option<SpanId>> = const { Cell::new(None) };
}

/// Random ids, but those of tries.
#[derive(Debug, Default)]
pub(super) struct HopIds {
    random: RandomIdGenerator,
}

impl IdGenerator for HopIds {
    fn new_trace_id(&self) -> TraceId {
        self.random.new_trace_id()
    }

    fn new_span_id(&self) -> SpanId {
        NEXT.take().unwrap_or_else(|| self.random.new_span_id())
    }
}

/// Somebody's try at a ticket: its nth attempt or its nth review.
#[derive(Clone, Copy, Debug)]
pub struct Try<'a> {
    pub ticket: &'a str,
    /// `attempt` or `review`.
    pub what: &'a str,
    /// From 1.
    pub number: u32,
}

impl Try<'_> {
    fn span_id(self) -> SpanId {
        let digest = Sha256::digest(format!("{}/{}/{}", self.ticket, self.what, self.number));
        let mut id = [0; 8];
        id.copy_from_slice(&digest[..8]);
        // All zeros are no id.
        id[7] |= u8::from(id == [0; 8]);
        SpanId::from_bytes(id)
    }

    fn context(self, of: &SpanContext) -> SpanContext {
        SpanContext::new(of.trace_id(), self.span_id(), of.trace_flags(), true, of.trace_state().clone())
    }
}

/// Makes `span` the span of this try: below the stored context, linked to the try that it follows. Call it before the
/// span is entered. Without a valid context nothing happens.
pub fn begin(span: &tracing::Span, traceparent: &str, this: Try<'_>, after: Option<Try<'_>>) {
    let Some(parent) = below(span, traceparent, after) else { return };
    debug_assert!(parent.is_valid());
    NEXT.set(Some(this.span_id()));
    // This starts it.
    let _ = span.context();
    NEXT.set(None);
}

/// Says in the current try's span what it came to.
pub fn ended(outcome: Outcome) {
    let span = tracing::Span::current();
    span.set_attribute("outcome", outcome.as_str());
    match outcome {
        Outcome::Fault | Outcome::NotRetryable | Outcome::Panic | Outcome::Dropped => {
            span.set_attribute("error.type", outcome.as_str());
            span.set_status(Status::error(outcome.as_str()));
        }
        Outcome::Completed
        | Outcome::Passed
        | Outcome::ItemFailed
        | Outcome::Wait
        | Outcome::Released
        | Outcome::Parked
        | Outcome::Conflict => {}
    }
}

/// Tells the trace that this try's owner lost its lease: a span below the stored context, linked to the try.
pub fn lost(traceparent: &str, goal: &str, epoch: u64, consumer: &str, of: Try<'_>) {
    let span = tracing::debug_span!(
        "lease_lost",
        goal,
        ticket = of.ticket,
        epoch,
        consumer,
        otel.status_code = "ERROR",
        otel.status_description = "its owner did not renew the lease"
    );
    span.set_attribute(of.what.to_owned(), i64::from(of.number));
    if below(&span, traceparent, Some(of)).is_some() {
        let _ = span.context();
    }
}

fn below(span: &tracing::Span, traceparent: &str, after: Option<Try<'_>>) -> Option<SpanContext> {
    let parent = propagate::parse(traceparent)?;
    let _ = span.set_parent(Context::new().with_remote_span_context(parent.clone()));
    if let Some(after) = after {
        span.add_link(after.context(&parent));
    }
    Some(parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q52_every_try_has_an_id_that_can_be_told_from_its_name() {
        let id = |what, number| Try { ticket: "0123", what, number }.span_id();
        assert_eq!(id("attempt", 1), id("attempt", 1));
        assert_ne!(id("attempt", 1), id("attempt", 2));
        assert_ne!(id("attempt", 1), id("review", 1));
        // Whoever runs another version has to find the same.
        assert_eq!(id("attempt", 1).to_string(), "be6700a598baae2e");
    }
}
