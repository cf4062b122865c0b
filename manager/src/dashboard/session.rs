//! Who looks: a token of the API in a cookie that no script reads and no other site sends.

use super::desk::{Desk, Fault};
use super::page;
use super::posted::{Fields, Posted, same_site};
use super::{Dashboard, desk};
use crate::api::auth::{digest, hex};
use crate::api::types::GoalList;
use axum::extract::{FromRequestParts, Query, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde::Deserialize;

const COOKIE: &str = "muster_token";
/// Seconds that a browser keeps it: a working day.
const AGE_S: u32 = 12 * 3_600;
/// Longest token that is looked at, as in the API.
const TOKEN_BYTES_MAX: usize = 512;

/// A visitor with a token. Whether it is valid says the API at the first thing that is asked.
#[derive(Clone)]
pub(crate) struct Session {
    token: String,
}

impl Session {
    fn of(token: &str) -> Option<Self> {
        let fits = !token.is_empty()
            && token.len() <= TOKEN_BYTES_MAX
            && token.bytes().all(|b| b.is_ascii_graphic() && !b";,\"\\".contains(&b));
        fits.then(|| Self { token: token.to_owned() })
    }

    /// What the API wants to see.
    pub(super) fn bearer(&self) -> HeaderValue {
        let mut value =
            HeaderValue::try_from(format!("Bearer {}", self.token)).unwrap_or(HeaderValue::from_static(""));
        value.set_sensitive(true);
        value
    }

    /// Stands in every form: another site's page cannot know it, and it does not give the token away.
    pub(super) fn proof(&self) -> String {
        hex(&digest(&format!("muster dashboard form\n{}", self.token)))
    }
}

impl FromRequestParts<Dashboard> for Session {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &Dashboard) -> Result<Self, Response> {
        // A program sends its token as to the API; another site's page cannot.
        let bearer =
            parts.headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok()?.strip_prefix("Bearer "));
        let cookies = parts.headers.get_all(header::COOKIE).iter().filter_map(|v| v.to_str().ok());
        let token =
            cookies.flat_map(|v| v.split(';')).find_map(|c| c.trim().strip_prefix(COOKIE)?.strip_prefix('='));
        bearer.or(token).and_then(Self::of).ok_or_else(|| {
            let back = parts.uri.path_and_query().map_or("/goals", |p| p.as_str());
            let is_page = parts.method == axum::http::Method::GET;
            let to = if is_page { format!("/login?next={}", desk::query_of(back)) } else { "/login".into() };
            Redirect::to(&to).into_response()
        })
    }
}

#[derive(Deserialize)]
pub(super) struct Way {
    #[serde(default)]
    next: String,
    /// The token that was there is not valid (any more).
    #[serde(default)]
    again: String,
}

/// Only to a page of ours.
fn inside(next: &str) -> &str {
    let safe = next.starts_with('/') && !next.starts_with("//") && !next.contains(['\\', '\r', '\n', '\t']);
    if safe { next } else { "/goals" }
}

pub(super) async fn form(Query(way): Query<Way>) -> Markup {
    let said =
        if way.again.is_empty() { "" } else { "The token is not valid any more. Please log in again." };
    drawn(said, inside(&way.next))
}

fn drawn(said: &str, next: &str) -> Markup {
    page::bare(
        "Log in",
        html! {
            main id="main" class="narrow" tabindex="-1" {
                h1 { "Muster" }
                p { "Log in with a token of the API. " code { "muster up" } " keeps one in " code { ".muster/token" } "; "
                    code { "muster token create" } " makes more." }
                @if !said.is_empty() { p.fault role="alert" { (said) } }
                form method="post" action="/login" {
                    input type="hidden" name="next" value=(next);
                    label for="token" { "Token" }
                    input id="token" name="token" type="password" autocomplete="current-password" required autofocus;
                    button type="submit" { "Log in" }
                }
            }
        },
    )
}

pub(super) async fn enter(
    State(dashboard): State<Dashboard>,
    headers: HeaderMap,
    fields: Fields,
) -> Result<Response, Fault> {
    // No proof can be asked of who has no token yet; a browser says where the form came from.
    if !same_site(&headers) {
        return Err(Fault::foreign());
    }
    let next = inside(fields.text("next")).to_owned();
    let wrong = || (StatusCode::UNAUTHORIZED, drawn("This token is not valid.", &next)).into_response();
    let Some(session) = Session::of(fields.text("token").trim()) else { return Ok(wrong()) };
    match known(&dashboard.desk, &session).await {
        Ok(()) => {}
        Err(fault) if fault.status == StatusCode::UNAUTHORIZED => return Ok(wrong()),
        // It is known and may not read: say so instead of letting it in to nothing.
        Err(fault) => return Err(fault),
    }
    let mut response = Redirect::to(&next).into_response();
    set_cookie(&mut response, &session.token, AGE_S, &headers);
    Ok(response)
}

async fn known(desk: &Desk, session: &Session) -> Result<(), Fault> {
    desk.get::<GoalList>(session, "/v1/goals?limit=1").await.map(|_| ())
}

pub(super) async fn leave(headers: HeaderMap, _: Posted) -> Response {
    let mut response = Redirect::to("/login").into_response();
    set_cookie(&mut response, "", 0, &headers);
    response
}

fn set_cookie(response: &mut Response, token: &str, age_s: u32, headers: &HeaderMap) {
    // Behind a proxy with TLS the browser shall never send it in the clear.
    let tls = headers.get("x-forwarded-proto").is_some_and(|p| p == "https");
    let secure = if tls { "; Secure" } else { "" };
    let text = format!("{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict; Max-Age={age_s}{secure}");
    if let Ok(mut value) = HeaderValue::try_from(text) {
        value.set_sensitive(true);
        response.headers_mut().insert(header::SET_COOKIE, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_the_login_nobody_is_sent_to_another_site() {
        for wrong in ["//evil.example", "https://evil.example", "/\\evil.example", "", "/a\r\nSet-Cookie: x"]
        {
            assert_eq!(inside(wrong), "/goals", "{wrong}");
        }
        assert_eq!(inside("/goals/1?x=2"), "/goals/1?x=2");
    }

    #[test]
    fn a_token_that_would_break_out_of_the_cookie_is_none() {
        for wrong in ["", "a;b", "a b", "a\nb", "a\"b", &"x".repeat(600)] {
            assert!(Session::of(wrong).is_none(), "{wrong}");
        }
        let session = Session::of("mst_0123").unwrap();
        assert!(!session.proof().contains("mst_") && session.proof().len() == 64);
        assert_ne!(session.proof(), Session::of("mst_0124").unwrap().proof());
    }
}
