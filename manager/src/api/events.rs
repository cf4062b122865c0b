//! A goal's event log: as pages of JSON, or as a stream that ends with the goal.

use super::Api;
use super::auth::Reader;
use super::error::ApiError;
use super::types::{EventList, StreamEnd};
use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::Stream;
use serde::Deserialize;
use std::convert::Infallible;
use std::time::Duration;

/// Events of one page, and of one look at the log while streaming.
const PAGE_MAX: usize = 500;
/// How often a stream looks for new events.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long a stream waits after the store did not answer.
const RETRY_EVERY: Duration = Duration::from_secs(1);
const KEEP_ALIVE: Duration = Duration::from_secs(15);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsQuery {
    #[serde(default)]
    after: String,
    #[serde(default = "default_limit")]
    limit: usize,
}

fn default_limit() -> usize {
    PAGE_MAX
}

pub(super) async fn events(
    State(api): State<Api>,
    Reader(caller): Reader,
    Path(goal): Path<String>,
    Query(query): Query<EventsQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let text = |name| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
    // A browser that connects again says where it was.
    let resumed = text(header::HeaderName::from_static("last-event-id"));
    let after = if resumed.is_empty() { query.after.as_str() } else { resumed };
    let after = if after.is_empty() { "0" } else { after };
    if !is_position(after) {
        return Err(no_position());
    }
    // The state before the events: when it is terminal, what was read after it is everything.
    let state = api.goal_for(&caller, &goal).await?.state;
    if text(header::ACCEPT).contains("text/event-stream") {
        let stream = follow(api, goal, after.to_owned());
        return Ok(Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response());
    }
    let limit = query.limit.clamp(1, PAGE_MAX);
    let events = api.store.events(&goal, after, limit).await?;
    let last = events.last().map_or(after, |e| &e.id).to_owned();
    let end = state.is_terminal() && events.len() < limit;
    Ok(Json(EventList { events, last, end }).into_response())
}

/// A stream id of Redis: milliseconds, perhaps `-` and a number.
pub(super) fn is_position(text: &str) -> bool {
    let number = |t: &str| t.bytes().all(|b| b.is_ascii_digit()) && t.parse::<u64>().is_ok();
    text.split_once('-').map_or_else(|| number(text), |(ms, n)| number(ms) && number(n))
}

pub(super) fn no_position() -> ApiError {
    ApiError::bad("after", "this is not a position in an event log; 0 is its beginning")
}

struct Follower {
    api: Api,
    goal: String,
    after: String,
    ready: std::collections::VecDeque<Event>,
    over: bool,
}

/// Every event as `log`, at last one `end`. Ends too when the manager stops; a client then connects again
/// with the last id it saw. Dropping it loses nothing.
fn follow(api: Api, goal: String, after: String) -> impl Stream<Item = Result<Event, Infallible>> {
    let start = Follower { api, goal, after, ready: std::collections::VecDeque::new(), over: false };
    futures::stream::unfold(start, |mut follower| async move {
        while follower.ready.is_empty() && !follower.over {
            follower.look().await;
        }
        let event = follower.ready.pop_front()?;
        Some((Ok(event), follower))
    })
}

impl Follower {
    async fn look(&mut self) {
        if self.api.stop.is_cancelled() {
            return self.end("shutdown");
        }
        let found = async {
            let state = self.api.store.goal(&self.goal).await?.map(|g| g.state);
            Ok::<_, shared::store::StoreError>((
                state,
                self.api.store.events(&self.goal, &self.after, PAGE_MAX).await?,
            ))
        };
        let wait = match found.await {
            Ok((state, events)) => {
                let full = events.len() == PAGE_MAX;
                for event in events {
                    self.after.clone_from(&event.id);
                    let id = event.id.clone();
                    if let Ok(data) = Event::default().event("log").id(id).json_data(&event) {
                        self.ready.push_back(data);
                    }
                }
                if full {
                    return;
                }
                match state {
                    None => return self.end("forgotten"),
                    Some(state) if state.is_terminal() => return self.end(state.as_str()),
                    Some(_) if !self.ready.is_empty() => return,
                    Some(_) => LOOK_EVERY,
                }
            }
            Err(error) => {
                tracing::debug!(%error, goal = self.goal, "event stream waits for the store");
                RETRY_EVERY
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = self.api.stop.cancelled() => {}
        }
    }

    fn end(&mut self, state: &str) {
        self.over = true;
        if let Ok(end) = Event::default().event("end").json_data(StreamEnd { state: state.into() }) {
            self.ready.push_back(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_stream_ids() {
        assert!(is_position("0") && is_position("1700000000000-3"));
        for wrong in ["", "-", "1-", "$", "+", "+1", "1-2-3", "x", "null", "18446744073709551616"] {
            assert!(!is_position(wrong), "{wrong}");
        }
    }
}
