//! Trace context across queue hops, as a W3C `traceparent` in deliveries and hashes.
//!
//! One goal is one trace: the context stored at submit is the parent of every attempt and review, never the
//! context of whoever claims.

use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState};
use rand::RngExt as _;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// The current span's `traceparent`, or empty when no traces are kept.
#[must_use]
pub fn current() -> String {
    let context = tracing::Span::current().context();
    let span = context.span();
    let span = span.span_context();
    if span.is_valid() {
        format!("00-{}-{}-{:02x}", span.trace_id(), span.span_id(), span.trace_flags().to_u8())
    } else {
        String::new()
    }
}

/// The current span's `traceparent`; else the given one, with its sampled flag; without either a new sampled trace, so
/// that a goal's trace begins at its submit even when nobody keeps one there.
#[must_use]
pub fn current_or(given: &str) -> String {
    let current = current();
    if !current.is_empty() {
        return current;
    }
    if parse(given).is_some() {
        return given.into();
    }
    let mut rng = rand::rng();
    format!("00-{:032x}-{:016x}-01", rng.random::<u128>() | 1, rng.random::<u64>() | 1)
}

/// Makes `span` a child of the stored context. A malformed or empty one changes nothing.
/// Call it before the span is entered.
pub fn set_parent(span: &tracing::Span, traceparent: &str) {
    if let Some(parent) = parse(traceparent) {
        let _ = span.set_parent(opentelemetry::Context::new().with_remote_span_context(parent));
    }
}

pub(super) fn parse(text: &str) -> Option<SpanContext> {
    let mut parts = text.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    if version != "00" || trace.len() != 32 || span.len() != 16 || flags.len() != 2 || parts.next().is_some()
    {
        return None;
    }
    let context = SpanContext::new(
        TraceId::from_hex(trace).ok()?,
        SpanId::from_hex(span).ok()?,
        TraceFlags::new(u8::from_str_radix(flags, 16).ok()?),
        true,
        TraceState::default(),
    );
    context.is_valid().then_some(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q52_a_stored_context_keeps_its_trace_and_sampled_flag() {
        let parsed = parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").unwrap();
        assert_eq!(parsed.trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert!(parsed.is_sampled());
        assert!(parse(&current_or("")).is_some());
        let unsampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
        assert_eq!(current_or(unsampled), unsampled);
        for bad in [
            "",
            "00",
            "00-4bf9-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "zz-x-y-z",
        ] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }
}
