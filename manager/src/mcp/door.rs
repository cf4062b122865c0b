//! The way to the API: its routes in this process, with the caller's own token.

use crate::api::types::ErrorBody;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Method, Request, header};
use axum::response::Response;
use futures::StreamExt as _;
use serde_json::Value;
use tower::ServiceExt as _;

/// Largest answer that is read.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Asks in the caller's name.
pub(super) struct Door {
    api: Router,
    token: Option<HeaderValue>,
}

impl Door {
    pub(super) fn new(api: Router, token: Option<HeaderValue>) -> Self {
        Self { api, token }
    }

    /// # Errors
    /// The API's refusal, as it answered.
    pub(super) async fn get(&self, path: &str) -> Result<Value, Response> {
        read(self.ask(Method::GET, path, Body::empty()).await?).await
    }

    /// # Errors
    /// The API's refusal, as it answered.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Value, Response> {
        read(self.ask(Method::POST, path, Body::from(body.to_string())).await?).await
    }

    /// At most the first `max` bytes, and whether that is all.
    ///
    /// # Errors
    /// The API's refusal, as it answered.
    pub(super) async fn beginning(&self, path: &str, max: usize) -> Result<(Vec<u8>, bool), Response> {
        let mut pieces = self.ask(Method::GET, path, Body::empty()).await?.into_body().into_data_stream();
        let mut head: Vec<u8> = vec![];
        while let Some(piece) = pieces.next().await {
            // Broken off in the middle: what came is not all.
            let Ok(piece): Result<Bytes, _> = piece else { return Ok((head, false)) };
            let room = max - head.len();
            head.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.len() > room {
                return Ok((head, false));
            }
        }
        Ok((head, true))
    }

    async fn ask(&self, method: Method, path: &str, body: Body) -> Result<Response, Response> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().unwrap_or_default();
        if let Some(token) = &self.token {
            request.headers_mut().insert(header::AUTHORIZATION, token.clone());
        }
        let answer = self.api.clone().oneshot(request).await;
        let response = answer.unwrap_or_else(|never: std::convert::Infallible| match never {});
        if response.status().is_success() { Ok(response) } else { Err(response) }
    }
}

async fn read(response: Response) -> Result<Value, Response> {
    let bytes = axum::body::to_bytes(response.into_body(), ANSWER_BYTES_MAX).await.unwrap_or_default();
    Ok(serde_json::from_slice(&bytes).unwrap_or_default())
}

/// What was refused, in words for the model, and the way out.
pub(super) async fn in_words(refused: Response) -> String {
    let bytes = axum::body::to_bytes(refused.into_body(), ANSWER_BYTES_MAX).await.unwrap_or_default();
    let error = serde_json::from_slice::<ErrorBody>(&bytes).map(|b| b.error).unwrap_or_default();
    let field = if error.field.is_empty() { String::new() } else { format!("{}: ", error.field) };
    let hint = if error.hint.is_empty() { String::new() } else { format!("\n{}", error.hint) };
    format!("{field}{}{hint}", error.message)
}
