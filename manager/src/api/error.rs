//! The one shape in which the API refuses, and the reading of request bodies, where most refusals begin.

use super::Api;
use super::types::{ErrorBody, ErrorDetail};
use axum::body::Body as HttpBody;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use shared::store::StoreError;

/// A refused request. The status says whose turn it is: 4xx the client's, 503 "come back".
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    detail: Box<ErrorDetail>,
}

/// Seconds after which a busy or unreachable fleet may be asked again.
const RETRY_AFTER_S: &str = "2";

impl ApiError {
    fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        let detail = ErrorDetail { code: code.into(), message: message.into(), ..ErrorDetail::default() };
        Self { status, detail: Box::new(detail) }
    }

    /// The request is wrong in this field; `field` may be empty.
    pub(crate) fn bad(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message).at(field)
    }

    pub(crate) fn unauthorized(message: &str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", message).hint(
            "send `Authorization: Bearer TOKEN`; the first token is manager.admin_token of the configuration, \
             more come from `muster token create`",
        )
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    /// `what` names the kind of thing; the id is the client's own.
    pub(crate) fn not_found(what: &str, id: &str) -> Self {
        let id: String = id.chars().take(80).collect();
        Self::new(StatusCode::NOT_FOUND, "not_found", format!("there is no {what} {id}"))
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", message)
    }

    /// More than the limit of that name allows.
    pub(crate) fn too_large(field: &str, limit: &str, max: u64) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_large",
            format!("{field} is larger than {limit} = {max} allows"),
        )
        .at(field)
        .hint(format!("send less, or raise {limit} in the manager's configuration"))
    }

    pub(crate) fn busy() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", "the fleet has too much waiting work")
            .hint("repeat the request later with the same idempotency_key")
    }

    /// Redis is at its `maxmemory`: waiting alone does not help.
    pub(crate) fn redis_full() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "redis_full", "Redis is full: nothing new is stored").hint(
            "raise maxmemory of Redis, or cancel goals that nobody needs (`muster cancel GOAL`), or shorten \
             blobs.retention_s; then repeat the request with the same idempotency_key",
        )
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
            .hint("repeat the request; `muster doctor` says what is wrong")
    }

    pub(crate) fn internal(message: &str) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
            .hint("the manager's log has the details")
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "this path has no such method")
    }

    #[must_use]
    pub(crate) fn at(mut self, field: impl Into<String>) -> Self {
        self.detail.field = field.into();
        self
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.detail.hint = hint.into();
        self
    }

    #[cfg(test)]
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    #[cfg(test)]
    pub(crate) fn detail(&self) -> &ErrorDetail {
        &self.detail
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(_) => {
                tracing::warn!(%error, "store not answering a request");
                Self::unavailable("redis is not answering; the outcome of a write is not known")
            }
            StoreError::Refused(reason) => Self::unavailable(reason),
            StoreError::OutOfMemory => {
                tracing::warn!("redis is full; a request was refused");
                Self::redis_full()
            }
            StoreError::Broken(reason) => {
                tracing::error!(reason, "store answered what it should not");
                Self::internal("the store answered what it should not")
            }
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let retry = self.status == StatusCode::SERVICE_UNAVAILABLE;
        let unauthorized = self.status == StatusCode::UNAUTHORIZED;
        let mut response = (self.status, axum::Json(ErrorBody { error: *self.detail })).into_response();
        if retry {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_S));
        }
        if unauthorized {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// Longest text of a refusal that was not made here.
const FOREIGN_BYTES_MAX: usize = 4 * 1024;

/// Refusals of the framework (an unreadable query, a timeout) come as plain text or nothing: they get our shape.
pub(crate) async fn in_one_shape(response: Response) -> Response {
    let status = response.status();
    let ours = response.headers().get(header::CONTENT_TYPE).is_some_and(|t| t == "application/json");
    if ours || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let text = match axum::body::to_bytes(response.into_body(), FOREIGN_BYTES_MAX).await {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => String::new(),
    };
    let reason = status.canonical_reason().unwrap_or("refused");
    let code = match status {
        StatusCode::GATEWAY_TIMEOUT => "timeout",
        _ if status.is_server_error() => "internal",
        _ => "bad_request",
    };
    ApiError::new(status, code, if text.is_empty() { reason.to_lowercase() } else { text }).into_response()
}

pub(crate) type Answer<T> = Result<axum::Json<T>, ApiError>;

/// A JSON body of at most `manager.request_bytes_max`; nothing at all counts as `{}`.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Api> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request<HttpBody>, api: &Api) -> Result<Self, ApiError> {
        let max = api.config.manager.request_bytes_max;
        let too_large = || ApiError::too_large("body", "manager.request_bytes_max", max as u64);
        // Refused before a byte of it is kept when the client says its size.
        let said = request.headers().get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok());
        if said.and_then(|v| v.parse::<usize>().ok()).is_some_and(|n| n > max) {
            super::drain::whole(request.into_body()).await;
            return Err(too_large());
        }
        let bytes = axum::body::to_bytes(request.into_body(), max).await.map_err(|error| {
            let by_limit = std::error::Error::source(&error)
                .is_some_and(|s| s.to_string().contains("length limit exceeded"));
            if by_limit { too_large() } else { ApiError::bad("body", format!("the body broke off: {error}")) }
        })?;
        parse(&bytes).map(Self)
    }
}

/// JSON into a request type; the error names the field.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let bytes = if bytes.iter().all(u8::is_ascii_whitespace) { b"{}" } else { bytes };
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let reason = error.into_inner();
        let field = if path == "." { field_in(&reason.to_string()) } else { path };
        ApiError::bad(field, format!("the body is not as it should be: {reason}"))
    })?;
    reader.end().map_err(|_| ApiError::bad("", "something stands behind the end of the JSON body"))?;
    Ok(value)
}

/// serde names missing and unknown fields in backquotes only.
fn field_in(message: &str) -> String {
    let names_one = ["unknown field", "missing field"].iter().any(|p| message.starts_with(p));
    if names_one { message.split('`').nth(1).unwrap_or_default().to_owned() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::types::{AnswerTicket, SubmitGoal, Words};
    use shared::store::PersonDecision;

    fn refused<T: DeserializeOwned + std::fmt::Debug>(json: &str) -> ErrorDetail {
        parse::<T>(json.as_bytes()).err().map(|e| e.detail().clone()).unwrap_or_default()
    }

    #[test]
    fn a_wrong_body_names_its_field() {
        assert_eq!(refused::<SubmitGoal>(r#"{"text": "x", "colour": 1}"#).field, "colour");
        assert_eq!(refused::<SubmitGoal>(r#"{"text": 7}"#).field, "text");
        let nested = refused::<SubmitGoal>(r#"{"text":"x","inputs":[{"path":"a","blob":"b"},{"path":"c"}]}"#);
        assert!(nested.field.starts_with("inputs[1]"), "{nested:?}");
        assert_eq!(refused::<SubmitGoal>("{").code, "bad_request");
        assert_eq!(refused::<Words>("{} x").message, "something stands behind the end of the JSON body");
    }

    #[test]
    fn q05_a_full_redis_is_not_called_a_busy_fleet() {
        let full = ApiError::from(StoreError::OutOfMemory);
        assert_eq!(
            (full.status(), full.detail().code.as_str()),
            (StatusCode::SERVICE_UNAVAILABLE, "redis_full")
        );
        assert!(full.detail().hint.contains("maxmemory"), "{:?}", full.detail());
    }

    #[test]
    fn no_body_is_an_empty_one() {
        assert_eq!(parse::<Words>(b" \n").ok(), Some(Words::default()));
    }

    #[test]
    fn an_answer_is_one_flat_object() {
        let json = r#"{"decision":"retry","note":"shorter","edit":{"role":"summarizer"},"request_id":"r1","expected_epoch":7}"#;
        let answer: AnswerTicket = parse(json.as_bytes()).ok().unwrap();
        assert_eq!((answer.request_id.as_str(), answer.expected_epoch), ("r1", 7));
        let PersonDecision::Retry { note, edit } = answer.decision else { panic!("{:?}", answer.decision) };
        assert_eq!((note.as_str(), edit.role.as_deref()), ("shorter", Some("summarizer")));
        assert!(parse::<AnswerTicket>(br#"{"decision":"skip","colour":"red"}"#).is_err());
        assert!(parse::<AnswerTicket>(br#"{"decision":"shrug"}"#).is_err());
    }
}
