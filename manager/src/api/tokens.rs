//! Tokens: made, listed, revoked. The secret is shown once and never kept.

use super::Api;
use super::auth::{Admin, Record, Scope, digest, hex};
use super::error::{Answer, ApiError, Body};
use super::types::{Ack, NewToken, TokenInfo, TokenList, TokenMade};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use base64::Engine as _;

const NAME_BYTES_MAX: usize = 100;
/// Hex digits of the hash that stand for the token in lists.
const ID_DIGITS: usize = 12;

pub(super) async fn create(
    State(api): State<Api>,
    Admin(caller): Admin,
    Body(wanted): Body<NewToken>,
) -> Result<(StatusCode, Json<TokenMade>), ApiError> {
    if wanted.name.len() > NAME_BYTES_MAX || wanted.name.chars().any(char::is_control) {
        return Err(ApiError::bad("name", format!("a name is one line of at most {NAME_BYTES_MAX} bytes")));
    }
    let scopes: Vec<Scope> = wanted
        .scopes
        .iter()
        .map(|word| {
            Scope::parse(word).ok_or_else(|| {
                let known: Vec<&str> = Scope::ALL.into_iter().map(Scope::as_str).collect();
                ApiError::bad("scopes", format!("there is no scope {word}; there are {}", known.join(", ")))
            })
        })
        .collect::<Result<_, _>>()?;
    if scopes.is_empty() {
        return Err(ApiError::bad("scopes", "a token needs at least one scope"));
    }
    // Only a caller of every tenant makes a token of every tenant.
    let tenant = match (wanted.tenant.as_str(), caller.sees_all()) {
        ("", true) => String::new(),
        (asked, _) => caller.tenant_for(Some(asked))?,
    };
    let token = format!(
        "mst_{}",
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>())
    );
    let hash = hex(&digest(&token));
    let now_ms = api.store.now_ms().await?;
    let info = TokenInfo {
        id: hash[..ID_DIGITS].to_owned(),
        name: wanted.name,
        scopes: scopes.into_iter().map(|s| s.as_str().to_owned()).collect(),
        tenant,
        created_at_ms: now_ms,
        expires_at_ms: if wanted.expires_in_s == 0 {
            0
        } else {
            now_ms.saturating_add(wanted.expires_in_s.saturating_mul(1000))
        },
    };
    let record = serde_json::to_value(Record { info: info.clone() })
        .map_err(|_| ApiError::internal("the token's record does not serialise"))?;
    api.store.token_put(&hash, &record).await?;
    tracing::info!(token = info.id, who = caller.who, "token made");
    Ok((StatusCode::CREATED, Json(TokenMade { token, info })))
}

pub(super) async fn list(State(api): State<Api>, Admin(caller): Admin) -> Answer<TokenList> {
    let mut tokens: Vec<TokenInfo> = records(&api).await?.into_iter().map(|(_, info)| info).collect();
    if !caller.sees_all() {
        let own = caller.tenant_for(None)?;
        tokens.retain(|t| t.tenant == own);
    }
    tokens.sort_by_key(|t| t.created_at_ms);
    Ok(Json(TokenList { tokens }))
}

pub(super) async fn revoke(
    State(api): State<Api>,
    Admin(caller): Admin,
    Path(id): Path<String>,
) -> Answer<Ack> {
    let own = if caller.sees_all() { None } else { Some(caller.tenant_for(None)?) };
    let found = records(&api)
        .await?
        .into_iter()
        .find(|(_, info)| info.id == id && own.as_ref().is_none_or(|t| *t == info.tenant));
    let (hash, _) = found.ok_or_else(|| ApiError::not_found("token", &id))?;
    let was = api.store.token_delete(&hash).await?;
    tracing::info!(token = id, who = caller.who, "token revoked");
    Ok(Json(Ack { outcome: if was { "ok" } else { "unchanged" }.into() }))
}

async fn records(api: &Api) -> Result<Vec<(String, TokenInfo)>, ApiError> {
    let all = api.store.token_list().await?;
    Ok(all
        .into_iter()
        .filter_map(|(hash, value)| Some((hash, serde_json::from_value::<Record>(value).ok()?.info)))
        .collect())
}
