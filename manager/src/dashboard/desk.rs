//! Where the pages get what they show: the API's own routes, called in this process with the visitor's token.

use super::page;
use super::session::Session;
use crate::api::types::{ErrorBody, ErrorDetail};
use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use futures::StreamExt as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tower::ServiceExt as _;

/// Largest answer that a page is drawn from: a goal of a thousand tickets is below a tenth of it.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The API as the pages see it. Cheap to clone.
#[derive(Clone)]
pub(super) struct Desk {
    api: Router,
}

impl Desk {
    pub(super) fn new(api: Router) -> Self {
        Self { api }
    }

    /// # Errors
    /// The API's refusal.
    pub(super) async fn get<T: DeserializeOwned>(&self, session: &Session, path: &str) -> Result<T, Fault> {
        read(self.send(session, Method::GET, path, Body::empty()).await?).await
    }

    /// # Errors
    /// The API's refusal; a write whose outcome is not known says so.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        session: &Session,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Fault> {
        let body = serde_json::to_vec(body).map_err(|_| Fault::internal())?;
        read(self.send(session, Method::POST, path, Body::from(body)).await?).await
    }

    /// Sends a body as it is.
    ///
    /// # Errors
    /// The API's refusal.
    pub(super) async fn put<T: DeserializeOwned>(
        &self,
        session: &Session,
        path: &str,
        body: Body,
    ) -> Result<T, Fault> {
        read(self.send(session, Method::PUT, path, body).await?).await
    }

    /// A whole file.
    ///
    /// # Errors
    /// The API's refusal.
    pub(super) async fn bytes(&self, session: &Session, path: &str) -> Result<Vec<u8>, Fault> {
        self.beginning(session, path, ANSWER_BYTES_MAX).await.map(|(_, bytes)| bytes)
    }

    /// A file's size and at most its first `max` bytes.
    ///
    /// # Errors
    /// The API's refusal, or a file that breaks off.
    pub(super) async fn beginning(
        &self,
        session: &Session,
        path: &str,
        max: usize,
    ) -> Result<(u64, Vec<u8>), Fault> {
        let response = self.send(session, Method::GET, path, Body::empty()).await?;
        let said = response.headers().get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok());
        let mut head = vec![];
        let mut pieces = response.into_body().into_data_stream();
        while head.len() < max
            && let Some(piece) = pieces.next().await
        {
            let piece = piece.map_err(|_| Fault::internal())?;
            head.extend_from_slice(&piece[..piece.len().min(max - head.len())]);
        }
        Ok((said.unwrap_or(head.len() as u64), head))
    }

    /// One request with this body; a refusal of the API is an error, everything else is given on as it is.
    ///
    /// # Errors
    /// The API's refusal.
    async fn send(
        &self,
        session: &Session,
        method: Method,
        path: &str,
        body: Body,
    ) -> Result<Response, Fault> {
        let request =
            Request::builder().method(method).uri(path).body(body).map_err(|_| Fault::not_found())?;
        self.ask(session, request).await
    }

    /// As [`Desk::send`], with the request's own headers.
    ///
    /// # Errors
    /// The API's refusal.
    pub(super) async fn ask(&self, session: &Session, mut request: Request<Body>) -> Result<Response, Fault> {
        request.headers_mut().insert(header::AUTHORIZATION, session.bearer());
        let response = self
            .api
            .clone()
            .oneshot(request)
            .await
            .unwrap_or_else(|never: std::convert::Infallible| match never {});
        if response.status().is_success() { Ok(response) } else { Err(Fault::of(response).await) }
    }
}

async fn read<T: DeserializeOwned>(response: Response) -> Result<T, Fault> {
    let bytes = axum::body::to_bytes(response.into_body(), ANSWER_BYTES_MAX).await.map_err(|error| {
        tracing::error!(%error, "an answer of the API could not be read for a page");
        Fault::internal()
    })?;
    serde_json::from_slice(&bytes).map_err(|error| {
        tracing::error!(%error, "an answer of the API is not what the page expects");
        Fault::internal()
    })
}

/// A refusal of the API, on its way to be a page.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) status: StatusCode,
    pub(super) detail: Box<ErrorDetail>,
}

impl Fault {
    fn new(status: StatusCode, message: &str) -> Self {
        Self { status, detail: Box::new(ErrorDetail { message: message.into(), ..ErrorDetail::default() }) }
    }

    pub(super) fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the page could not be drawn; the manager's log has the details",
        )
    }

    pub(super) fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "there is nothing of this name")
    }

    pub(super) fn bad(message: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// The form was not sent from a page of ours.
    pub(super) fn foreign() -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "this form was not sent from a page of this dashboard; open the page again",
        )
    }

    async fn of(response: Response) -> Self {
        const REFUSAL_BYTES_MAX: usize = 1024 * 1024;
        let status = response.status();
        let bytes = axum::body::to_bytes(response.into_body(), REFUSAL_BYTES_MAX).await.unwrap_or_default();
        let detail = serde_json::from_slice::<ErrorBody>(&bytes).map(|b| b.error).unwrap_or_default();
        Self { status, detail: Box::new(detail) }
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        if self.status == StatusCode::UNAUTHORIZED {
            return Redirect::to("/login?again=1").into_response();
        }
        (self.status, page::refusal(self.status, &self.detail)).into_response()
    }
}

/// A part of a path as it stands in a URL; slashes stay.
pub(super) fn path_of(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::with_capacity(text.len()), |mut out, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => {
                out.push(byte as char)
            }
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
        out
    })
}

/// As [`path_of`], for a value in a query.
pub(super) fn query_of(text: &str) -> String {
    path_of(text).replace('/', "%2F")
}
