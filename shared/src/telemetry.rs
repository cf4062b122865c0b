//! Logs to stderr (human or JSON) and, when a collector is configured, traces over OTLP.
//!
//! Metrics are in [`metrics`], the listener for them and for health in [`probe`], trace context across
//! queue hops in [`propagate`], the spans of those hops in [`hops`], those of models and tools in [`genai`].

pub mod genai;
pub mod hops;
pub mod metrics;
pub mod probe;
pub mod propagate;

use crate::config;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::WithExportConfig as _;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

/// Longest that a flush of spans may take at the end.
const FLUSH_MAX: std::time::Duration = std::time::Duration::from_secs(3);

/// What a process has not sent when it is killed is lost; so not the five seconds of the default.
const EXPORT_DELAY: std::time::Duration = std::time::Duration::from_secs(1);

/// Libraries that tell every step of theirs; whoever wants to read it names them in the filter.
const QUIET: &str = "rust_sugiyama=warn";

/// Telemetry cannot be set up as configured.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("configuration: telemetry.log_filter: {0}")]
    Filter(String),
    #[error("configuration: telemetry.otlp_url: {0}")]
    Exporter(String),
}

/// Keeps the exporter; [`Guard::shutdown`] sends what is left.
pub struct Guard {
    provider: Option<SdkTracerProvider>,
}

impl Guard {
    /// Sends the last spans. Blocks for at most a few seconds; call it outside of the runtime.
    pub fn shutdown(self) {
        if let Some(provider) = self.provider {
            let _ = provider.shutdown_with_timeout(FLUSH_MAX);
        }
    }
}

/// Sets up logs and traces for the whole process. Call once, before a runtime runs
/// (the exporter's blocking client must not be made inside one). A second call changes nothing.
///
/// # Errors
/// [`TelemetryError`] naming the key of the configuration.
pub fn init(name: &'static str, config: &config::Telemetry) -> Result<Guard, TelemetryError> {
    let filter = EnvFilter::try_new(format!("{QUIET},{}", config.log_filter))
        .map_err(|e| TelemetryError::Filter(e.to_string()))?;
    let logs = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let logs = if config.log_format == "json" {
        logs.json().flatten_event(true).with_current_span(true).with_span_list(false).boxed()
    } else {
        use std::io::IsTerminal as _;
        logs.with_target(false).with_ansi(std::io::stderr().is_terminal()).boxed()
    };
    let provider = if config.otlp_url.is_empty() { None } else { Some(exporter(name, &config.otlp_url)?) };
    let traces = provider.as_ref().map(|p| {
        tracing_opentelemetry::layer()
            .with_tracer(p.tracer("muster"))
            // The exporter's own HTTP client must not trace itself, and what only helps debugging does not leave.
            .with_filter(tracing_subscriber::filter::filter_fn(|meta| {
                let own = ["hyper", "reqwest", "h2", "opentelemetry", "rustls"];
                (meta.is_span() || *meta.level() <= tracing::Level::INFO)
                    && !own.iter().any(|own| meta.target().starts_with(own))
            }))
    });
    let _ = tracing_subscriber::registry().with(traces).with(logs.with_filter(filter)).try_init();
    Ok(Guard { provider })
}

fn exporter(name: &'static str, url: &str) -> Result<SdkTracerProvider, TelemetryError> {
    let endpoint = format!("{}/v1/traces", url.trim_end_matches('/'));
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_endpoint(endpoint)
        .build()
        .map_err(|e| TelemetryError::Exporter(e.to_string()))?;
    let resource = opentelemetry_sdk::Resource::builder()
        .with_service_name(name)
        .with_attribute(opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build();
    let delay =
        opentelemetry_sdk::trace::BatchConfigBuilder::default().with_scheduled_delay(EXPORT_DELAY).build();
    let batches =
        opentelemetry_sdk::trace::BatchSpanProcessor::builder(exporter).with_batch_config(delay).build();
    Ok(SdkTracerProvider::builder()
        .with_span_processor(batches)
        .with_id_generator(hops::HopIds::default())
        .with_resource(resource)
        .build())
}
