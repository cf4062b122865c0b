//! Tenants as the fleet sees them: what each may use of the models, and what it has spent in its period.

use super::Api;
use super::auth::{Admin, Reader};
use super::error::{Answer, ApiError, Body};
use super::types::{Raised, TenantBudget, TenantList};
use axum::Json;
use axum::extract::{Path, State};
use shared::config::is_word;

/// A token that is bound to a tenant sees its own.
pub(super) async fn list(State(api): State<Api>, Reader(caller): Reader) -> Answer<TenantList> {
    let mut tenants = api.store.tenant_books().await?;
    tenants.retain(|book| caller.may_see_tenant(&book.tenant));
    Ok(Json(TenantList { tenants }))
}

/// Nobody raises their own budget: it takes an admin of the whole fleet.
pub(super) async fn budget(
    State(api): State<Api>,
    Admin(caller): Admin,
    Path(tenant): Path<String>,
    Body(wanted): Body<TenantBudget>,
) -> Answer<Raised> {
    caller.for_fleet()?;
    if !is_word(&tenant) {
        return Err(ApiError::bad(
            "tenant",
            "a tenant is a word of letters, digits, - and _, at most 64 of them",
        ));
    }
    if wanted.tokens.is_none() && wanted.microusd.is_none() {
        return Err(ApiError::bad("tokens", "name the tokens, the microusd, or both; 0 is no limit"));
    }
    let goals = api.store.raise_tenant(&tenant, wanted.tokens, wanted.microusd).await?;
    let (tokens, microusd) = (wanted.tokens, wanted.microusd);
    tracing::info!(who = caller.who, tenant, tokens, microusd, goals, "a tenant's budget was set");
    Ok(Json(Raised { goals, book: api.store.tenant_book(&tenant).await? }))
}
