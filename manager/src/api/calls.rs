//! One model call of a goal: its record, and what was said in it.

use super::Api;
use super::auth::Reader;
use super::error::{Answer, ApiError};
use super::events::{is_position, no_position};
use super::types::CallShown;
use axum::Json;
use axum::extract::{Path, Query, State};
use serde_json::Value;
use shared::blob::BlobError;

/// Events looked at in one go.
const PAGE: usize = 500;
/// A body is smaller than this, whatever the configuration of whoever wrote it.
const BODY_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Where the search begins: for whoever reads the log anyway, and would search it from its start for each call.
#[derive(serde::Deserialize)]
pub(super) struct From {
    /// Id of an event before the call's.
    #[serde(default = "start")]
    after: String,
}

fn start() -> String {
    "0".into()
}

/// Digits of a whole id: no other begins so.
const ID_DIGITS: usize = 32;

/// The call whose id begins so.
pub(super) async fn show(
    State(api): State<Api>,
    Reader(caller): Reader,
    Path((goal, call)): Path<(String, String)>,
    Query(from): Query<From>,
) -> Answer<CallShown> {
    if !is_position(&from.after) {
        return Err(no_position());
    }
    api.goal_for(&caller, &goal).await?;
    let none = || ApiError::not_found("call", &call).hint("`muster logs GOAL --calls` lists them");
    if call.is_empty() {
        return Err(none());
    }
    let record = find(&api, &goal, &call, from.after).await?.ok_or_else(none)?;
    let reference = record.get("body").and_then(Value::as_str).unwrap_or_default();
    let body = match reference.is_empty() {
        true => Value::Null,
        false => match api.blobs.get(&goal, reference, BODY_BYTES_MAX).await {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or(Value::Null),
            Err(error @ BlobError::NotFound(_)) => {
                tracing::debug!(%error, "what was said is gone");
                Value::Null
            }
            Err(error) => return Err(error.into()),
        },
    };
    Ok(Json(CallShown { record, body }))
}

/// The one call whose id begins so: nobody is shown another one than was meant.
async fn find(api: &Api, goal: &str, call: &str, mut after: String) -> Result<Option<Value>, ApiError> {
    let mut found: Option<Value> = None;
    loop {
        let events = api.store.events(goal, &after, PAGE).await?;
        let records = events.iter().filter(|e| e.event == "model_call");
        for record in records.filter_map(|e| serde_json::from_str::<Value>(&e.detail).ok()) {
            let id =
                |record: &Value| record.get("call").and_then(Value::as_str).unwrap_or_default().to_owned();
            if !id(&record).starts_with(call) {
                continue;
            }
            if let Some(first) = found.as_ref().filter(|first| id(first) != id(&record)) {
                let both = format!("{call} begins more than one call: {}, {}", id(first), id(&record));
                return Err(ApiError::bad("call", both)
                    .hint("give more digits; `muster logs GOAL --calls` lists them"));
            }
            found = Some(record);
        }
        let whole = call.len() >= ID_DIGITS && found.is_some();
        match events.last() {
            Some(last) if events.len() == PAGE && !whole => after.clone_from(&last.id),
            Some(_) | None => return Ok(found),
        }
    }
}
