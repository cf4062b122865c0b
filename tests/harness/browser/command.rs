//! Commands of the driver beyond the standard: its log, and the browser's own protocol.

use axum::http::Method;
use fantoccini::wd::WebDriverCompatibleCommand;
use serde_json::Value;

/// A POST below the session.
#[derive(Debug)]
pub(super) struct Raw {
    pub(super) path: &'static str,
    pub(super) body: Value,
}

impl WebDriverCompatibleCommand for Raw {
    fn endpoint(&self, base_url: &url::Url, session_id: Option<&str>) -> Result<url::Url, url::ParseError> {
        base_url.join(&format!("session/{}/{}", session_id.unwrap_or_default(), self.path))
    }

    fn method_and_body(&self, _: &url::Url) -> (Method, Option<String>) {
        (Method::POST, Some(self.body.to_string()))
    }
}
