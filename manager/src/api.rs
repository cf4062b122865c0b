//! The HTTP API: one router, routes by resource. What a request may do is decided by the extractor that its
//! handler takes (see [`auth`]); every refusal has the shape of [`error`].

mod attempts;
pub(crate) mod auth;
mod calls;
mod drain;
pub(crate) mod error;
mod events;
pub(crate) mod files;
mod fleet;
mod goals;
mod history;
mod memory;
mod openapi;
mod reviewers;
mod standards;
mod submit;
mod tenants;
mod tickets;
mod tokens;
pub(crate) mod types;
mod write_set;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use error::ApiError;
use secrecy::ExposeSecret;
use shared::blob::Blobs;
use shared::config::Config;
use shared::model::Model;
use shared::store::Store;
use shared::telemetry::{metrics, probe};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;

/// A request whose client sends or reads nothing for so long is ended; streams are exempt (they send keep-alives).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);

/// What the handlers share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Api {
    store: Store,
    blobs: Blobs,
    config: Arc<Config>,
    model: Option<Model>,
    /// sha256 of `manager.admin_token`, if one is set.
    admin_digest: Option<[u8; 32]>,
    histories: history::Histories,
    /// Cancelled when the manager leaves: streams end.
    stop: CancellationToken,
}

impl Api {
    pub(crate) fn new(
        store: Store,
        blobs: Blobs,
        config: Arc<Config>,
        model: Option<Model>,
        stop: CancellationToken,
    ) -> Self {
        let token = config.manager.admin_token.expose_secret();
        let admin_digest = (!token.is_empty()).then(|| auth::digest(token));
        Self { store, blobs, config, model, admin_digest, histories: history::Histories::default(), stop }
    }
}

/// Everything under `/v1`, and health and metrics without a token.
pub(crate) fn router(api: Api, readiness: probe::Readiness) -> Router {
    Router::new()
        .route("/v1/goals", get(goals::list).post(submit::submit))
        .route("/v1/goals/{goal}", get(goals::show))
        .route("/v1/goals/{goal}/tickets", get(goals::tickets))
        .route("/v1/goals/{goal}/attempts", get(attempts::of_goal))
        .route("/v1/goals/{goal}/events", get(events::events))
        .route("/v1/goals/{goal}/calls/{call}", get(calls::show))
        .route("/v1/goals/{goal}/files", get(files::list))
        .route("/v1/goals/{goal}/files/{*path}", get(files::show))
        .route("/v1/goals/{goal}/audit", get(goals::audit))
        .route("/v1/goals/{goal}/cancel", post(goals::cancel))
        .route("/v1/goals/{goal}/pause", post(goals::pause))
        .route("/v1/goals/{goal}/resume", post(goals::resume))
        .route("/v1/goals/{goal}/reopen", post(goals::reopen))
        .route("/v1/goals/{goal}/note", post(goals::note))
        .route("/v1/goals/{goal}/answer", post(goals::answer))
        .route("/v1/tickets/{ticket}", get(tickets::show))
        .route("/v1/tickets/{ticket}/attempts", get(attempts::list))
        .route("/v1/tickets/{ticket}/attempts/{place}/steps", get(attempts::steps))
        .route("/v1/tickets/{ticket}/attempts/{place}/files", get(attempts::files))
        .route("/v1/tickets/{ticket}/attempts/{place}/files/{*path}", get(attempts::file))
        .route("/v1/tickets/{ticket}/cancel", post(tickets::cancel))
        .route("/v1/tickets/{ticket}/retry", post(tickets::retry))
        .route("/v1/tickets/{ticket}/reopen", post(tickets::reopen))
        .route("/v1/tickets/{ticket}/answer", post(tickets::answer))
        .route("/v1/tickets/{ticket}/deliver", post(tickets::deliver))
        .route("/v1/inbox", get(tickets::inbox))
        .route("/v1/fleet", get(fleet::show))
        .route("/v1/fleet/pause", post(fleet::pause))
        .route("/v1/fleet/resume", post(fleet::resume))
        .route("/v1/fleet/{consumer}/{order}", post(fleet::order))
        .route("/v1/endpoints/{endpoint}/lift", post(fleet::lift))
        .route("/v1/tenants", get(tenants::list))
        .route("/v1/tenants/{tenant}/budget", post(tenants::budget))
        .route("/v1/standards", get(standards::list))
        .route("/v1/standards/{standard}", get(standards::show).post(standards::decide))
        .route("/v1/memory", get(memory::list).delete(memory::forget_all))
        .route("/v1/memory/{lesson}", get(memory::show).post(memory::edit).delete(memory::forget))
        .route("/v1/reviewers", get(reviewers::list))
        .route("/v1/reviewers/{reviewer}", get(reviewers::show))
        .route("/v1/reviewers/{reviewer}/lift", post(reviewers::lift))
        .route("/v1/reviewers/{reviewer}/probe", post(reviewers::probe))
        .route("/v1/stats", get(fleet::stats))
        .route("/v1/audit", get(fleet::audit))
        .route("/v1/dead-letters", get(fleet::dead_letters))
        .route("/v1/dead-letters/requeue", post(fleet::requeue))
        .route("/v1/openapi.json", get(openapi::show))
        .route("/v1/tokens", get(tokens::list).post(tokens::create))
        .route("/v1/tokens/{token}", delete(tokens::revoke))
        .layer(tower_http::timeout::TimeoutLayer::with_status_code(
            StatusCode::GATEWAY_TIMEOUT,
            REQUEST_TIMEOUT,
        ))
        // A plan takes as long as its model, an upload as long as its client keeps sending.
        .route("/v1/plans", post(submit::plan))
        .route("/v1/uploads", put(files::upload))
        // Bodies have limits of their own, by route: `Body` and the upload.
        .layer(axum::extract::DefaultBodyLimit::disable())
        .method_not_allowed_fallback(async || ApiError::method_not_allowed())
        .fallback(async || ApiError::not_found("path", "of this name"))
        .with_state(api)
        .layer(axum::middleware::map_response(error::in_one_shape))
        .merge(probe::routes(readiness))
        .layer(CatchPanicLayer::custom(|_: Box<dyn std::any::Any + Send>| -> Response {
            tracing::error!("a request's handler panicked");
            ApiError::internal("the request could not be handled").into_response()
        }))
        .layer(axum::middleware::map_response(async |response: Response| {
            metrics::http_request(response.status().as_u16());
            response
        }))
}

#[cfg(test)]
#[path = "api/tests.rs"]
mod tests;
