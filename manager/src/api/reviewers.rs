//! The reviewers as they were measured: who they are, what they said to known deliverables, and a person's word on them.

use super::Api;
use super::auth::{Admin, Reader};
use super::error::{Answer, ApiError, Body};
use super::types::{Ack, OrderProbes, ReviewerList, ReviewerShown, Words};
use axum::Json;
use axum::extract::{Path, State};

/// Known deliverables of one order.
const ORDER_MAX: u64 = 100;

fn unknown(actor: &str) -> ApiError {
    ApiError::not_found("reviewer", actor).hint("`muster reviewers list` shows them")
}

pub(super) async fn list(State(api): State<Api>, Reader(_): Reader) -> Answer<ReviewerList> {
    Ok(Json(ReviewerList { reviewers: api.store.reviewer_books().await? }))
}

pub(super) async fn show(
    State(api): State<Api>,
    Reader(_): Reader,
    Path(actor): Path<String>,
) -> Answer<ReviewerShown> {
    let books = api.store.reviewer_books().await?;
    let reviewer = books.into_iter().find(|book| book.actor == actor).ok_or_else(|| unknown(&actor))?;
    Ok(Json(ReviewerShown { reviewer, probes: api.store.reviewer_probes(&actor).await? }))
}

/// It reviews again. Whoever let it be suspended must have looked: an admin of the whole fleet.
pub(super) async fn lift(
    State(api): State<Api>,
    Admin(caller): Admin,
    Path(actor): Path<String>,
    Body(_): Body<Words>,
) -> Answer<Ack> {
    caller.for_fleet()?;
    if !api.store.lift_reviewer(&actor, &caller.who).await? {
        return Err(ApiError::conflict(format!("no reviewer {actor} is suspended"))
            .hint("`muster reviewers list` shows who is"));
    }
    tracing::info!(who = caller.who, reviewer = actor, "a reviewer's suspension was lifted");
    Ok(Json(Ack { outcome: "ok".into() }))
}

/// It is shown so many known deliverables more, at once; a suspended one too.
pub(super) async fn probe(
    State(api): State<Api>,
    Admin(caller): Admin,
    Path(actor): Path<String>,
    Body(wanted): Body<OrderProbes>,
) -> Answer<Ack> {
    caller.for_fleet()?;
    if wanted.count == 0 || wanted.count > ORDER_MAX {
        return Err(ApiError::bad("count", format!("must be from 1 to {ORDER_MAX}")));
    }
    if !api.store.order_probes(&actor, wanted.count).await? {
        return Err(unknown(&actor));
    }
    tracing::info!(who = caller.who, reviewer = actor, count = wanted.count, "known deliverables ordered");
    Ok(Json(Ack { outcome: "ok".into() }))
}
