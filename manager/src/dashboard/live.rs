//! Parts of pages that keep themselves fresh: drawn again now and then, sent when they are no longer the same.

use super::Dashboard;
use super::desk::Fault;
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use maud::Markup;
use std::convert::Infallible;
use std::time::Duration;

/// How often a part is drawn anew.
const EVERY: Duration = Duration::from_secs(2);
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A stream of the part: at once, then whenever it has changed. Ends when the manager leaves, or when the visitor may
/// not look any more; dropping it loses nothing.
pub(super) fn part<D, F>(dashboard: &Dashboard, draw: D) -> Response
where
    D: Fn() -> F + Send + 'static,
    F: Future<Output = Result<Markup, Fault>> + Send,
{
    let stop = dashboard.stop.clone();
    let start = (draw, None::<String>);
    let stream = futures::stream::unfold(start, |(draw, mut last)| async move {
        loop {
            if last.is_some() {
                tokio::time::sleep(EVERY).await;
            }
            match draw().await {
                Ok(now) => {
                    let now = now.into_string();
                    if last.as_ref() != Some(&now) {
                        let event = Event::default().event("part").data(&now);
                        return Some((Ok::<_, Infallible>(event), (draw, Some(now))));
                    }
                }
                Err(fault) if matches!(fault.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                    return None;
                }
                // Redis is away for a moment: what stands there stays.
                Err(_) => last = Some(last.unwrap_or_default()),
            }
        }
    });
    let until = Box::pin(async move { stop.cancelled().await });
    Sse::new(stream.take_until(until)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}
