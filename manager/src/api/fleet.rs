//! The fleet as a whole: consumers, pause, gauges, dead letters, the audit of everything.

use super::Api;
use super::auth::{Admin, Reader};
use super::error::{Answer, ApiError, Body};
use super::types::{Ack, Audit, DeadLetters, Fleet, Lane, Requeue, Requeued, Stats, Words};
use axum::Json;
use axum::extract::{Path, State};

/// Dead letters of one answer.
const LETTERS_MAX: usize = 1_000;

pub(super) async fn show(State(api): State<Api>, Reader(_): Reader) -> Answer<Fleet> {
    let consumers = api.store.consumers().await?;
    Ok(Json(Fleet { paused: api.store.fleet_paused().await?, consumers }))
}

pub(super) async fn pause(State(api): State<Api>, Admin(caller): Admin, Body(_): Body<Words>) -> Answer<Ack> {
    caller.for_fleet()?;
    api.store.pause_fleet(true).await?;
    tracing::info!(who = caller.who, "fleet paused");
    Ok(done())
}

pub(super) async fn resume(
    State(api): State<Api>,
    Admin(caller): Admin,
    Body(_): Body<Words>,
) -> Answer<Ack> {
    caller.for_fleet()?;
    api.store.pause_fleet(false).await?;
    tracing::info!(who = caller.who, "fleet resumed");
    Ok(done())
}

pub(super) async fn order(
    State(api): State<Api>,
    Admin(caller): Admin,
    Path((consumer, verb)): Path<(String, String)>,
    Body(_): Body<Words>,
) -> Answer<Ack> {
    caller.for_fleet()?;
    let state = match verb.as_str() {
        "cordon" => "cordoned",
        "drain" => "draining",
        "activate" => "active",
        other => {
            return Err(ApiError::not_found("order", other).hint("there are cordon, drain and activate"));
        }
    };
    if !api.store.order_consumer(&consumer, state).await? {
        return Err(ApiError::not_found("consumer", &consumer).hint("`muster fleet list` shows them"));
    }
    tracing::info!(who = caller.who, consumer, state, "consumer ordered");
    Ok(done())
}

/// The next call to the endpoint is made whatever it said before.
pub(super) async fn lift(
    State(api): State<Api>,
    Admin(caller): Admin,
    Path(endpoint): Path<String>,
    Body(_): Body<Words>,
) -> Answer<Ack> {
    caller.for_fleet()?;
    if !api.store.quota_lift(&endpoint).await? {
        return Err(ApiError::not_found("endpoint", &endpoint).hint("`muster stats` shows them"));
    }
    tracing::info!(who = caller.who, endpoint, "cool-down and breaker lifted");
    Ok(done())
}

pub(super) async fn stats(State(api): State<Api>, Reader(_): Reader) -> Answer<Stats> {
    let lanes = api.store.measure().await?.lanes.into_iter().map(|(name, seen)| {
        let (ready, leased) = (seen.ready, seen.leased);
        (name, Lane { ready, leased, consumers: seen.consumers, oldest_ready_ms: seen.oldest_ready_ms })
    });
    Ok(Json(Stats {
        lanes: lanes.collect(),
        version: env!("CARGO_PKG_VERSION").into(),
        gauges: api.store.gauges().await?,
        model: api.config.model.is_configured(),
        usage: api.store.usage().await?,
        endpoints: api.store.quotas().await?,
    }))
}

pub(super) async fn audit(State(api): State<Api>, Admin(caller): Admin) -> Answer<Audit> {
    caller.for_fleet()?;
    Ok(Json(Audit { violations: api.store.audit().await? }))
}

pub(super) async fn dead_letters(State(api): State<Api>, Admin(caller): Admin) -> Answer<DeadLetters> {
    caller.for_fleet()?;
    Ok(Json(DeadLetters { letters: api.store.dead_letters(LETTERS_MAX).await? }))
}

pub(super) async fn requeue(
    State(api): State<Api>,
    Admin(caller): Admin,
    Body(wanted): Body<Requeue>,
) -> Answer<Requeued> {
    caller.for_fleet()?;
    let (taken, requeued) = api.store.requeue_dead_letters(wanted.limit.min(LETTERS_MAX)).await?;
    tracing::info!(who = caller.who, taken, requeued, "dead letters requeued");
    Ok(Json(Requeued { taken, requeued }))
}

fn done() -> Json<Ack> {
    Json(Ack { outcome: "ok".into() })
}
