//! Forms that came in: their fields, and the proof that a page of ours sent them.

use super::Dashboard;
use super::desk::Fault;
use super::session::Session;
use axum::Form;
use axum::extract::{FromRequest, FromRequestParts as _, Request};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use std::collections::BTreeMap;

/// Fields of a form; the last of a name counts.
#[derive(Default)]
pub(super) struct Fields(pub(super) BTreeMap<String, String>);

impl Fields {
    /// Empty when it is not there.
    pub(super) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// A whole number; `None` when the field is empty.
    ///
    /// # Errors
    /// It is neither empty nor a number.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Fault> {
        let text = self.text(name).trim();
        if text.is_empty() {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|_| Fault::bad(&format!("{name}: {text:?} is not a whole number")))
    }
}

impl<S: Send + Sync> FromRequest<S> for Fields {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let form = Form::<Vec<(String, String)>>::from_request(request, state).await;
        form.map(|Form(fields)| Self(fields.into_iter().collect())).map_err(IntoResponse::into_response)
    }
}

/// A form of a visitor that a page of ours sent: what every write here takes.
pub(super) struct Posted {
    pub(super) session: Session,
    pub(super) fields: Fields,
}

impl FromRequest<Dashboard> for Posted {
    type Rejection = Response;

    async fn from_request(request: Request, dashboard: &Dashboard) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let session = Session::from_request_parts(&mut parts, dashboard).await?;
        let ours = same_site(&parts.headers);
        let fields = Fields::from_request(Request::from_parts(parts, body), dashboard).await?;
        if !ours || !proven(&session, fields.text(PROOF)) {
            return Err(Fault::foreign().into_response());
        }
        Ok(Self { session, fields })
    }
}

/// Name of the field that carries the proof.
pub(super) const PROOF: &str = "proof";

/// The hidden field of every form.
pub(super) fn proof(session: &Session) -> Markup {
    html! { input type="hidden" name=(PROOF) value=(session.proof()); }
}

/// Whether the proof is this visitor's. Both are hashes: comparing them tells nothing of the token.
pub(super) fn proven(session: &Session, proof: &str) -> bool {
    session.proof() == proof
}

/// What the browser says of the page that sent the form; browsers that say nothing are left to the proof.
pub(super) fn same_site(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok());
    match text("sec-fetch-site") {
        Some(site) => matches!(site, "same-origin" | "none"),
        None => match (text("origin"), text("host")) {
            (Some(origin), Some(host)) => origin.split_once("://").is_some_and(|(_, from)| from == host),
            _ => true,
        },
    }
}
