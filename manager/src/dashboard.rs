//! The dashboard: HTML pages for people, served beside the HTTP API. One page a file.
//!
//! Every page is a client of the API inside this process ([`desk`]): the same routes, tokens, scopes and limits as
//! for everybody, so nothing can be seen or done here that the API would refuse. Pages are drawn on the server;
//! the script only keeps them fresh (server-sent events) and works without being needed.

mod assets;
mod attempt;
mod desk;
mod difference;
mod file;
mod fleet;
mod goal;
mod goals;
mod graph;
mod inbox;
mod live;
mod page;
mod posted;
mod preview;
mod report;
mod session;
mod state;
mod submit;
mod ticket;
mod timeline;
mod verdict;
mod wording;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use desk::Desk;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;

/// What a page may load and do: only what this program serves. No inline script or style, no frames, no plugins.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// What the pages share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Dashboard {
    desk: Desk,
    layouts: graph::Layouts,
    /// Cancelled when the manager leaves: streams end.
    stop: CancellationToken,
}

/// The API with the dashboard in front of it: a path that is no page's is the API's.
pub(crate) fn before(api: Router, stop: CancellationToken) -> Router {
    let dashboard = Dashboard { desk: Desk::new(api.clone()), layouts: graph::Layouts::default(), stop };
    let pages = Router::new()
        .route("/", get(async || Redirect::to("/goals")))
        .route("/login", get(session::form).post(session::enter))
        .route("/logout", post(session::leave))
        .route("/goals", get(goals::show))
        .route("/goals/live", get(goals::live))
        // Streamed on; the API's limits end it.
        .route("/submit", get(submit::form).post(submit::send).layer(DefaultBodyLimit::disable()))
        .route("/goals/{goal}", get(goal::show))
        .route("/goals/{goal}/head", get(goal::head))
        .route("/goals/{goal}/graph", get(goal::graph))
        .route("/goals/{goal}/events", get(goal::events))
        .route("/goals/{goal}/timeline", get(timeline::show))
        .route("/goals/{goal}/report", get(report::download))
        .route("/goals/{goal}/{act}", post(goal::act))
        .route("/goals/{goal}/answer", post(inbox::answer_goal))
        .route("/goals/{goal}/files/{*path}", get(file::of_goal))
        .route("/goals/{goal}/raw/{*path}", get(file::raw_of_goal))
        .route("/tickets/{ticket}", get(ticket::show))
        .route("/tickets/{ticket}/{act}", post(ticket::act))
        .route("/tickets/{ticket}/answer", post(inbox::answer_ticket))
        .route("/tickets/{ticket}/deliver", post(inbox::deliver).layer(DefaultBodyLimit::disable()))
        .route("/tickets/{ticket}/attempts/{place}", get(attempt::show))
        .route("/tickets/{ticket}/attempts/{place}/files/{*path}", get(file::of_attempt))
        .route("/tickets/{ticket}/attempts/{place}/raw/{*path}", get(file::raw_of_attempt))
        .route("/inbox", get(inbox::show))
        .route("/inbox/live", get(inbox::live))
        .route("/reviewers/{reviewer}/lift", post(inbox::lift))
        .route("/fleet", get(fleet::show))
        .route("/fleet/live", get(fleet::live))
        .route("/fleet/{act}", post(fleet::act))
        .route("/fleet/{consumer}/{order}", post(fleet::order))
        .route("/assets/{name}", get(assets::serve))
        .with_state(dashboard)
        .layer(axum::middleware::map_response(guarded))
        .layer(CatchPanicLayer::custom(|_: Box<dyn std::any::Any + Send>| -> Response {
            tracing::error!("a page's handler panicked");
            guard(desk::Fault::internal().into_response())
        }));
    pages.fallback_service(api)
}

async fn guarded(response: Response) -> Response {
    guard(response)
}

/// Headers of every answer here. What has a policy of its own (a file, which is sandboxed) keeps it.
fn guard(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(POLICY));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(
        HeaderName::from_static("cross-origin-opener-policy"),
        HeaderValue::from_static("same-origin"),
    );
    response
}

#[cfg(test)]
#[path = "dashboard/tests.rs"]
mod tests;
