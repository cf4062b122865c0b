//! A receiver of traces over OTLP/HTTP, as a collector is one: it takes protobuf at `/v1/traces` and keeps the spans.

use anyhow::Result;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::Span as Sent;
use prost::Message as _;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;

/// A span as it was received, ids in hex.
#[derive(Clone, Debug)]
pub struct Span {
    /// `service.name` of the process that sent it.
    pub service: String,
    pub name: String,
    pub trace: String,
    pub id: String,
    pub parent: String,
    /// OTLP's number: 1 internal, 2 server, 3 client, 4 producer, 5 consumer.
    pub kind: i32,
    /// Ids of the spans that it is linked to; all of them in its own trace.
    pub links: Vec<String>,
    pub attributes: BTreeMap<String, String>,
    pub is_error: bool,
}

#[derive(Default)]
struct Kept {
    spans: Vec<Span>,
    problems: Vec<String>,
}

/// The receiver; it ends with the test.
pub struct Collector {
    port: u16,
    kept: Arc<Mutex<Kept>>,
}

impl Collector {
    /// Listens on a free port.
    ///
    /// # Errors
    /// When there is none.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let kept = Arc::<Mutex<Kept>>::default();
        let router = Router::new().route("/v1/traces", post(take)).with_state(Arc::clone(&kept));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { port, kept })
    }

    /// For `telemetry.otlp_url`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// All that came so far.
    ///
    /// # Errors
    /// When something came that is no export of traces.
    pub fn spans(&self) -> Result<Vec<Span>> {
        let kept = self.kept.lock().map_err(|_| anyhow::anyhow!("the receiver panicked"))?;
        anyhow::ensure!(kept.problems.is_empty(), "{:?}", kept.problems);
        Ok(kept.spans.clone())
    }
}

async fn take(
    State(kept): State<Arc<Mutex<Kept>>>,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, [(&'static str, &'static str); 1], Vec<u8>) {
    let mut problems = vec![];
    if headers.get("content-type").is_none_or(|kind| kind != "application/x-protobuf") {
        problems.push(format!("content type {:?}", headers.get("content-type")));
    }
    let mut spans = vec![];
    match ExportTraceServiceRequest::decode(body) {
        Ok(request) => {
            for resource in request.resource_spans {
                let about = resource.resource.map(|r| attributes(&r.attributes)).unwrap_or_default();
                let service = about.get("service.name").cloned().unwrap_or_default();
                for sent in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                    if sent.links.iter().any(|link| link.trace_id != sent.trace_id) {
                        problems.push(format!("{} is linked to another trace", sent.name));
                    }
                    spans.push(span(&service, sent));
                }
            }
        }
        Err(error) => problems.push(format!("no export request: {error}")),
    }
    let status = if problems.is_empty() { StatusCode::OK } else { StatusCode::BAD_REQUEST };
    if let Ok(mut kept) = kept.lock() {
        kept.spans.extend(spans);
        kept.problems.extend(problems);
    }
    let answer = ExportTraceServiceResponse::default().encode_to_vec();
    (status, [("content-type", "application/x-protobuf")], answer)
}

fn span(service: &str, sent: Sent) -> Span {
    Span {
        service: service.to_owned(),
        trace: shared::blob::hex(&sent.trace_id),
        id: shared::blob::hex(&sent.span_id),
        parent: shared::blob::hex(&sent.parent_span_id),
        kind: sent.kind,
        links: sent.links.iter().map(|link| shared::blob::hex(&link.span_id)).collect(),
        attributes: attributes(&sent.attributes),
        is_error: sent.status.is_some_and(|status| status.code == 2),
        name: sent.name,
    }
}

fn attributes(pairs: &[KeyValue]) -> BTreeMap<String, String> {
    pairs.iter().map(|pair| (pair.key.clone(), pair.value.as_ref().map(text).unwrap_or_default())).collect()
}

fn text(value: &AnyValue) -> String {
    match &value.value {
        Some(any_value::Value::StringValue(text)) => text.clone(),
        Some(any_value::Value::IntValue(number)) => number.to_string(),
        Some(any_value::Value::BoolValue(is)) => is.to_string(),
        Some(any_value::Value::ArrayValue(array)) => {
            array.values.iter().map(text).collect::<Vec<_>>().join(",")
        }
        other => format!("{other:?}"),
    }
}
