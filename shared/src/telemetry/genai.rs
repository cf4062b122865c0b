//! Spans of model calls and tools, by OpenTelemetry's conventions for generative AI. They hold no prompts and no answers.

use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// What is known of an answer before it is asked for.
pub struct Chat<'a> {
    /// Format of the server's API: `openai` or `anthropic`.
    pub provider: &'a str,
    pub model: &'a str,
    /// Host of the server.
    pub server: &'a str,
    /// 0: the server's own limit.
    pub output_tokens_max: u64,
}

/// What an answer came to.
pub struct Answered<'a> {
    pub model: &'a str,
    pub finish: &'a str,
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// HTTP requests that it took.
    pub requests: usize,
}

/// The span of one answer, with all its requests.
#[must_use]
pub fn chat(ask: &Chat<'_>) -> tracing::Span {
    let span = tracing::debug_span!(
        "chat",
        otel.name = format!("chat {}", ask.model),
        otel.kind = "client",
        gen_ai.operation.name = "chat",
        gen_ai.provider.name = ask.provider,
        gen_ai.request.model = ask.model,
        server.address = ask.server
    );
    if ask.output_tokens_max > 0 {
        span.set_attribute("gen_ai.request.max_tokens", signed(ask.output_tokens_max));
    }
    span
}

/// Ends the span of an answer that came.
pub fn answered(span: &tracing::Span, answer: &Answered<'_>) {
    let finish = opentelemetry::Array::String(vec![answer.finish.to_owned().into()]);
    span.set_attribute("gen_ai.response.model", answer.model.to_owned());
    span.set_attribute("gen_ai.response.finish_reasons", opentelemetry::Value::Array(finish));
    span.set_attribute("gen_ai.usage.input_tokens", signed(answer.input_tokens));
    span.set_attribute("gen_ai.usage.output_tokens", signed(answer.output_tokens));
    span.set_attribute("muster.requests", signed(answer.requests as u64));
}

/// Ends a span that came to nothing; `class` is a fixed word.
pub fn failed(span: &tracing::Span, class: &'static str) {
    span.set_attribute("error.type", class);
    span.set_status(opentelemetry::trace::Status::error(class));
}

/// The span of one call of a tool.
#[must_use]
pub fn tool(name: &str, call: &str) -> tracing::Span {
    tracing::debug_span!(
        "execute_tool",
        otel.name = format!("execute_tool {name}"),
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = name,
        gen_ai.tool.call.id = call
    )
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
