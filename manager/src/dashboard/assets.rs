//! Style, script and icon: in the binary, under names that change with their content.

use super::desk::Fault;
use axum::extract::Path;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use sha2::{Digest as _, Sha256};
use std::sync::LazyLock;

struct Asset {
    name: &'static str,
    mime: &'static str,
    text: &'static str,
}

/// The style of the pages, and of a report.
pub(super) const STYLE: &str = include_str!("assets/style.css");

const ASSETS: [Asset; 3] = [
    Asset { name: "style.css", mime: "text/css; charset=utf-8", text: STYLE },
    Asset { name: "live.js", mime: "text/javascript; charset=utf-8", text: include_str!("assets/live.js") },
    Asset { name: "icon.svg", mime: "image/svg+xml", text: include_str!("assets/icon.svg") },
];

/// Made once: the content decides the name, so that a browser may keep it for ever.
static URLS: LazyLock<Vec<(&'static str, String)>> = LazyLock::new(|| {
    let url = |asset: &Asset| {
        let hash = crate::api::auth::hex(&Sha256::digest(asset.text.as_bytes())[..6]);
        (asset.name, format!("/assets/{hash}-{}", asset.name))
    };
    ASSETS.iter().map(url).collect()
});

/// Where the asset is; empty for a name that there is not.
pub(super) fn url(name: &str) -> &'static str {
    URLS.iter().find(|(of, _)| *of == name).map_or("", |(_, url)| url.as_str())
}

pub(super) async fn serve(Path(wanted): Path<String>) -> Result<Response, Fault> {
    let named = |asset: &&Asset| url(asset.name).strip_prefix("/assets/") == Some(wanted.as_str());
    let asset = ASSETS.iter().find(named).ok_or_else(Fault::not_found)?;
    let forever = HeaderValue::from_static("public, max-age=31536000, immutable");
    let headers =
        [(header::CONTENT_TYPE, HeaderValue::from_static(asset.mime)), (header::CACHE_CONTROL, forever)];
    Ok((headers, asset.text).into_response())
}
