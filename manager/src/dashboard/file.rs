//! One file: a preview that runs nothing, the source by lines (where evidence points), and the way to download it.

use super::Dashboard;
use super::desk::{Fault, path_of};
use super::page::{Place, page};
use super::preview::{self, Span};
use super::session::Session;
use super::wording::bytes;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderValue, Request, StatusCode, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use maud::{Markup, html};
use serde::Deserialize;
use shared::workspace::mime_of;

/// Bytes of a file that are shown; the rest is for the download.
const SHOWN_BYTES_MAX: usize = 512 * 1024;

#[derive(Deserialize)]
pub(super) struct View {
    /// `first-last`: these lines of the source are marked.
    #[serde(default)]
    lines: String,
    /// `source`: not drawn.
    #[serde(default)]
    view: String,
}

/// Where a file is: its bytes in the API, its download here, and the folder that its own links start from.
struct Whereabouts {
    api: String,
    raw: String,
    folder: preview::Base,
    back: (String, String),
}

/// A file of a goal's workspace.
pub(super) async fn of_goal(
    State(dashboard): State<Dashboard>,
    session: Session,
    Path((goal, path)): Path<(String, String)>,
    Query(view): Query<View>,
) -> Result<Markup, Fault> {
    let goal = path_of(&goal);
    let place = Whereabouts {
        api: format!("/v1/goals/{goal}/files/{}", path_of(&path)),
        raw: format!("/goals/{goal}/raw/{}", path_of(&path)),
        folder: preview::Base::new(&format!("/goals/{goal}/files"), &format!("/goals/{goal}/raw"), &path),
        back: (format!("/goals/{goal}"), "The goal".into()),
    };
    shown(&dashboard, &session, &path, &view, &place).await
}

/// A file as an attempt left it; one that it did not touch is the workspace's.
pub(super) async fn of_attempt(
    State(dashboard): State<Dashboard>,
    session: Session,
    Path((ticket, attempt, path)): Path<(String, String, String)>,
    Query(view): Query<View>,
) -> Result<Response, Fault> {
    let base = format!("{}/attempts/{}", path_of(&ticket), path_of(&attempt));
    let place = Whereabouts {
        api: format!("/v1/tickets/{base}/files/{}", path_of(&path)),
        raw: format!("/tickets/{base}/raw/{}", path_of(&path)),
        folder: preview::Base::new(&format!("/tickets/{base}/files"), &format!("/tickets/{base}/raw"), &path),
        back: (format!("/tickets/{base}"), "The attempt".into()),
    };
    match shown(&dashboard, &session, &path, &view, &place).await {
        Ok(page) => Ok(page.into_response()),
        Err(fault) if fault.status == StatusCode::NOT_FOUND => {
            let of: shared::ticket::Ticket =
                dashboard.desk.get(&session, &format!("/v1/tickets/{}", path_of(&ticket))).await?;
            let query = if view.lines.is_empty() {
                String::new()
            } else {
                format!("?lines={}", path_of(&view.lines))
            };
            Ok(Redirect::to(&format!("/goals/{}/files/{}{query}", of.goal, path_of(&path))).into_response())
        }
        Err(fault) => Err(fault),
    }
}

async fn shown(
    dashboard: &Dashboard,
    session: &Session,
    path: &str,
    view: &View,
    place: &Whereabouts,
) -> Result<Markup, Fault> {
    let (size, head) = dashboard.desk.beginning(session, &place.api, SHOWN_BYTES_MAX).await?;
    let marked = Span::parse(&view.lines);
    let kind = preview::Kind::of(path);
    let source = view.view == "source" || marked.is_some() || !kind.is_drawn();
    let main = html! {
        p { a href=(place.back.0) { (place.back.1) } }
        h1 { (path) }
        p.facts {
            span { (bytes(size)) }
            span { (mime_of(path)) }
            a href=(place.raw) download { "Download" }
            @if kind.is_drawn() {
                @if source { a href="?" { "Drawn" } } @else if kind.has_source() { a href="?view=source" { "Source" } }
            }
        }
        @if head.len() as u64 != size { p.help { "Only the beginning is shown; the download has everything." } }
        @if source { (preview::source(&head, marked)) } @else { (preview::drawn(kind, &head, &place.raw, path, &place.folder)) }
    };
    Ok(page(session, Place::Goals, path, &main))
}

pub(super) async fn raw_of_goal(
    State(dashboard): State<Dashboard>,
    session: Session,
    Path((goal, path)): Path<(String, String)>,
) -> Result<Response, Fault> {
    raw(&dashboard, &session, &format!("/v1/goals/{}/files/{}", path_of(&goal), path_of(&path)), &path).await
}

pub(super) async fn raw_of_attempt(
    State(dashboard): State<Dashboard>,
    session: Session,
    Path((ticket, attempt, path)): Path<(String, String, String)>,
) -> Result<Response, Fault> {
    let api =
        format!("/v1/tickets/{}/attempts/{}/files/{}", path_of(&ticket), path_of(&attempt), path_of(&path));
    raw(&dashboard, &session, &api, &path).await
}

/// The bytes, never as a page: an attachment, sandboxed as the API sends it. Pictures can still be drawn by a page of ours.
async fn raw(dashboard: &Dashboard, session: &Session, api: &str, path: &str) -> Result<Response, Fault> {
    let request = Request::get(api).body(Body::empty()).map_err(|_| Fault::not_found())?;
    let mut response = dashboard.desk.ask(session, request).await?;
    let name = path.rsplit('/').next().unwrap_or(path);
    let text = format!("attachment; filename*=UTF-8''{}", path_of(name));
    let value = HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("attachment"));
    response.headers_mut().insert(header::CONTENT_DISPOSITION, value);
    Ok(response)
}
