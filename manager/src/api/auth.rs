//! Who may do what: bearer tokens, their scopes and tenants.
//!
//! A handler says what it needs by the extractor it takes ([`Reader`], [`Submitter`], [`Decider`],
//! [`Admin`]); a request without a valid token gets no further (I7). Only hashes are stored.

use super::Api;
use super::error::ApiError;
use super::types::TokenInfo;
use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use shared::config::is_word;
use shared::goal::Goal;

/// What a token may do. `Admin` may do everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Scope {
    Read,
    /// Submit goals; cancel, pause and annotate them.
    Submit,
    /// Answer what waits for a person.
    Decide,
    Admin,
}

impl Scope {
    pub(crate) const ALL: [Scope; 4] = [Self::Read, Self::Submit, Self::Decide, Self::Admin];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Submit => "submit",
            Self::Decide => "decide",
            Self::Admin => "admin",
        }
    }

    pub(crate) fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.as_str() == word)
    }
}

/// Who sends the request.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// For the record: `admin`, or the token's name.
    pub(crate) who: String,
    scopes: Vec<Scope>,
    /// `None`: every tenant.
    tenant: Option<String>,
}

/// Tenant of whoever names none.
pub(crate) const DEFAULT_TENANT: &str = "default";

impl Caller {
    fn may(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope) || self.scopes.contains(&Scope::Admin)
    }

    /// Whether the goal is of a tenant that this caller may see.
    pub(crate) fn sees(&self, goal: &Goal) -> bool {
        self.tenant.as_ref().is_none_or(|t| *t == goal.tenant)
    }

    pub(crate) fn sees_all(&self) -> bool {
        self.tenant.is_none()
    }

    /// The tenant in whose name something is made.
    ///
    /// # Errors
    /// A tenant other than the token's, or a name that cannot be one.
    pub(crate) fn tenant_for(&self, asked: Option<&str>) -> Result<String, ApiError> {
        match (&self.tenant, asked.filter(|t| !t.is_empty())) {
            (Some(own), None) => Ok(own.clone()),
            (Some(own), Some(asked)) if own == asked => Ok(own.clone()),
            (Some(_), Some(_)) => {
                Err(ApiError::forbidden("this token is bound to another tenant").at("tenant"))
            }
            (None, None) => Ok(DEFAULT_TENANT.into()),
            (None, Some(asked)) if is_word(asked) => Ok(asked.into()),
            (None, Some(_)) => Err(ApiError::bad(
                "tenant",
                "a tenant is a word of letters, digits, - and _, at most 64 of them",
            )),
        }
    }

    /// Whether what concerns a tenant is for this caller.
    pub(crate) fn may_see_tenant(&self, tenant: &str) -> bool {
        self.tenant.as_ref().is_none_or(|own| own == tenant)
    }

    /// What concerns the whole fleet is not for a token that is bound to a tenant.
    ///
    /// # Errors
    /// 403 for such a token.
    pub(crate) fn for_fleet(&self) -> Result<(), ApiError> {
        if self.sees_all() {
            return Ok(());
        }
        Err(ApiError::forbidden("this concerns every tenant, the token is bound to one"))
    }

    #[cfg(test)]
    pub(crate) fn of(scopes: &[Scope], tenant: Option<&str>) -> Self {
        Self { who: "test".into(), scopes: scopes.to_vec(), tenant: tenant.map(str::to_owned) }
    }
}

/// An extractor that lets through who holds the scope; without a valid token nobody gets further.
macro_rules! allowed {
    ($(#[$doc:meta] $name:ident => $scope:expr;)+) => {$(
        #[$doc]
        pub(crate) struct $name(pub(crate) Caller);

        impl FromRequestParts<Api> for $name {
            type Rejection = ApiError;

            async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
                api.caller_with(bearer(parts)?, $scope).await.map(Self)
            }
        }
    )+};
}

allowed! {
    /// A caller who may read.
    Reader => Scope::Read;
    /// A caller who may submit.
    Submitter => Scope::Submit;
    /// A caller who may decide.
    Decider => Scope::Decide;
    /// A caller who may everything.
    Admin => Scope::Admin;
}

/// Longest token that is looked at.
const TOKEN_BYTES_MAX: usize = 512;

fn bearer(parts: &Parts) -> Result<&str, ApiError> {
    let header =
        parts.headers.get(AUTHORIZATION).ok_or_else(|| ApiError::unauthorized("no token was sent"))?;
    let text = header.to_str().unwrap_or_default();
    match text.split_once(' ') {
        Some((kind, token)) if kind.eq_ignore_ascii_case("bearer") && !token.trim().is_empty() => {
            let token = token.trim();
            if token.len() > TOKEN_BYTES_MAX {
                return Err(ApiError::unauthorized("the token is not valid"));
            }
            Ok(token)
        }
        _ => Err(ApiError::unauthorized("the Authorization header is not `Bearer TOKEN`")),
    }
}

/// What the store keeps of a token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) info: TokenInfo,
}

impl Api {
    async fn caller_with(&self, token: &str, needed: Scope) -> Result<Caller, ApiError> {
        let caller = self.caller_of(token).await?;
        if caller.may(needed) {
            return Ok(caller);
        }
        Err(ApiError::forbidden(format!("this needs the scope {}", needed.as_str()))
            .hint(format!("make a token with it: `muster token create --scope {}`", needed.as_str())))
    }

    async fn caller_of(&self, token: &str) -> Result<Caller, ApiError> {
        let hash = digest(token);
        if let Some(admin) = &self.admin_digest
            && same(admin, &hash)
        {
            return Ok(Caller { who: "admin".into(), scopes: vec![Scope::Admin], tenant: None });
        }
        // Looked up by the hash: how long that takes says nothing of a stored token's text.
        let invalid = || ApiError::unauthorized("the token is not valid");
        let found = self.store.token_get(&hex(&hash)).await?.ok_or_else(invalid)?;
        let record: Record = serde_json::from_value(found).map_err(|_| invalid())?;
        let info = record.info;
        if info.expires_at_ms > 0 && info.expires_at_ms <= self.store.now_ms().await? {
            return Err(ApiError::unauthorized("the token has expired"));
        }
        Ok(Caller {
            who: if info.name.is_empty() { format!("token {}", info.id) } else { info.name },
            scopes: info.scopes.iter().filter_map(|s| Scope::parse(s)).collect(),
            tenant: Some(info.tenant).filter(|t| !t.is_empty()),
        })
    }
}

pub(crate) fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// Compares in a time that does not depend on where the first difference is.
fn same(a: &[u8; 32], b: &[u8; 32]) -> bool {
    std::hint::black_box(a.iter().zip(b).fold(0, |difference, (x, y)| difference | (x ^ y))) == 0
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_do_not_imply_each_other_but_admin_has_all() {
        let reader = Caller::of(&[Scope::Read], None);
        assert!(reader.may(Scope::Read) && !reader.may(Scope::Submit) && !reader.may(Scope::Admin));
        let admin = Caller::of(&[Scope::Admin], None);
        assert!(Scope::ALL.into_iter().all(|s| admin.may(s)));
    }

    #[test]
    fn a_bound_token_stays_with_its_tenant() {
        let bound = Caller::of(&[Scope::Admin], Some("acme"));
        assert_eq!(bound.tenant_for(None).ok().as_deref(), Some("acme"));
        assert!(bound.tenant_for(Some("other")).is_err());
        assert!(bound.for_fleet().is_err());
        assert!(!bound.sees(&Goal { tenant: "other".into(), ..Goal::default() }));
        let free = Caller::of(&[Scope::Submit], None);
        assert_eq!(free.tenant_for(None).ok().as_deref(), Some(DEFAULT_TENANT));
        assert!(free.tenant_for(Some("a b")).is_err());
    }

    #[test]
    fn tokens_are_compared_whole() {
        assert!(same(&digest("a"), &digest("a")));
        assert!(!same(&digest("a"), &digest("b")));
        assert_eq!(hex(&[0, 255, 16]), "00ff10");
    }
}
