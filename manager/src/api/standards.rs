//! The standards of a tenant: a person reads them with their tallies, promotes and drops them. Each call is about one
//! tenant: the token's own, or the one that it names.

use super::Api;
use super::auth::{Decider, Reader};
use super::error::{Answer, ApiError, Body};
use super::types::{DecideStandard, StandardList, StandardWord};
use axum::Json;
use axum::extract::{Path, Query, State};
use shared::standard::{self, Standard, Tallied};
use shared::store::Decided;

/// Whose standards, and which of them.
#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Which {
    tenant: String,
    /// Empty: of every kind.
    kind: String,
    /// None: in every state.
    state: Option<standard::State>,
}

pub(super) async fn list(
    State(api): State<Api>,
    Reader(caller): Reader,
    Query(which): Query<Which>,
) -> Answer<StandardList> {
    let tenant = caller.tenant_for(Some(&which.tenant))?;
    let mut standards = api.store.all_standards(&tenant).await?;
    standards.retain(|t| which.kind.is_empty() || t.standard.kind == which.kind);
    standards.retain(|t| which.state.is_none_or(|state| t.state == state));
    Ok(Json(StandardList { tenant, standards }))
}

async fn find(api: &Api, tenant: &str, id: &str) -> Result<Tallied, ApiError> {
    let all = api.store.all_standards(tenant).await?;
    all.into_iter()
        .find(|t| t.standard.id == id)
        .ok_or_else(|| ApiError::not_found("standard", id).hint("`muster standards list` shows them"))
}

pub(super) async fn show(
    State(api): State<Api>,
    Reader(caller): Reader,
    Path(id): Path<String>,
    Query(which): Query<Which>,
) -> Answer<Tallied> {
    let tenant = caller.tenant_for(Some(&which.tenant))?;
    find(&api, &tenant, &id).await.map(Json)
}

pub(super) async fn decide(
    State(api): State<Api>,
    Decider(caller): Decider,
    Path(id): Path<String>,
    Query(which): Query<Which>,
    Body(wanted): Body<DecideStandard>,
) -> Answer<Tallied> {
    let tenant = caller.tenant_for(Some(&which.tenant))?;
    let limits = &api.config.standards;
    let known = find(&api, &tenant, &id).await?.standard;
    let text = wanted.text.as_deref().map_or(known.text.as_str(), str::trim).to_owned();
    if text.is_empty() || text.chars().count() > limits.chars_max {
        return Err(ApiError::bad("text", format!("must have from 1 to {} characters", limits.chars_max)));
    }
    let to = match wanted.decision {
        StandardWord::Promote => standard::State::Promoted,
        StandardWord::Drop => standard::State::Dropped,
    };
    let standard = Standard { text, ..known };
    match api.store.decide_standard(&tenant, &standard, to, &caller.who, limits.promoted_max).await? {
        Decided::Ok => {}
        Decided::Gone => return Err(ApiError::not_found("standard", &id)),
        Decided::Full => {
            let max = limits.promoted_max;
            return Err(ApiError::conflict(format!("{max} of kind {} are promoted already", standard.kind))
                .hint("drop one, or raise standards.promoted_max"));
        }
    }
    tracing::info!(who = caller.who, tenant, standard = id, to = to.as_str(), "a standard was decided");
    find(&api, &tenant, &id).await.map(Json)
}
