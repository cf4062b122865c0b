//! web_search: Tavily's API, or a SearXNG server. The key goes into a header and nowhere else.

use super::{CONNECT, secret, tell};
use crate::tools::ToolError;
use anyhow::Context as _;
use reqwest::{Client, Url};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::json;
use shared::config::{self, Search};
use shared::egress::{Guard, Refused};
use shared::prompt;

const TAVILY: &str = "https://api.tavily.com";
/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// Characters kept of each extract.
const EXTRACT_CHARS_MAX: usize = 800;
const TITLE_CHARS_MAX: usize = 200;

/// The search engine of the configuration.
pub(super) struct Engine {
    kind: Search,
    url: Url,
    key: Option<SecretString>,
    guard: Guard,
    client: Client,
}

/// What both say; fields that an engine does not have are empty.
#[derive(Deserialize)]
struct Found {
    #[serde(default)]
    answer: Option<String>,
    #[serde(default)]
    results: Vec<Hit>,
}

#[derive(Deserialize)]
struct Hit {
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    url: Option<String>,
    #[serde(default)]
    content: Option<String>,
}

impl Engine {
    pub(super) fn new(config: &config::Web, guard: &Guard) -> anyhow::Result<Self> {
        let base = if config.search_url.is_empty() { TAVILY } else { &config.search_url };
        let url = format!("{}/search", base.trim_end_matches('/'));
        let url = Url::parse(&url).context("tools.web.search_url")?;
        let key = match config.search_key_env.as_str() {
            "" => None,
            name => Some(secret(name)?),
        };
        let guard = guard.clone().also(&url);
        let client = guard.client().connect_timeout(CONNECT).build().context("an HTTP client")?;
        Ok(Self { kind: config.search, url, key, guard, client })
    }

    pub(super) async fn ask(&self, query: &str, results: u32) -> Result<String, ToolError> {
        self.guard.check(&self.url).map_err(|e| tell(e.to_string()))?;
        let mut request = match self.kind {
            Search::Tavily => self.client.post(self.url.clone()).json(
                &json!({"query": query, "max_results": results, "search_depth": "basic", "include_answer": false}),
            ),
            Search::Searxng | Search::None => {
                self.client.get(self.url.clone()).query(&[("q", query), ("format", "json")])
            }
        };
        if let Some(key) = &self.key {
            request = request.bearer_auth(key.expose_secret());
        }
        let mut answer = request.send().await.map_err(|e| {
            tell(
                Refused::of(&e)
                    .map_or_else(|| "the search engine cannot be reached".into(), |r| r.to_string()),
            )
        })?;
        let status = answer.status();
        let mut bytes = vec![];
        while let Some(piece) =
            answer.chunk().await.map_err(|_| tell("the search engine broke off its answer".into()))?
        {
            if bytes.len() + piece.len() > ANSWER_BYTES_MAX {
                return Err(tell("the search engine's answer is too long".into()));
            }
            bytes.extend_from_slice(&piece);
        }
        if !status.is_success() {
            return Err(tell(match status.as_u16() {
                401 | 403 => {
                    "the search engine refuses this fleet (an operator has to look at its key)".into()
                }
                429 => "the search engine has had too many questions for now; go on without it or ask later"
                    .into(),
                other => format!("the search engine answered {other}"),
            }));
        }
        let found: Found = serde_json::from_slice(&bytes)
            .map_err(|_| tell("the search engine's answer is no JSON of results".into()))?;
        Ok(self.shown(query, found, results))
    }

    fn shown(&self, query: &str, found: Found, results: u32) -> String {
        let mut lines = vec![];
        if let Some(answer) = found.answer.filter(|a| !a.trim().is_empty()) {
            lines.push(prompt::clip(answer.trim(), EXTRACT_CHARS_MAX));
        }
        let hits = found.results.iter().filter(|hit| hit.url.is_some()).take(results as usize);
        for (n, hit) in hits.enumerate() {
            let plain =
                |text: &Option<String>, most| prompt::clip(text.as_deref().unwrap_or_default().trim(), most);
            lines.push(format!(
                "{}. {}\n   {}\n   {}",
                n + 1,
                plain(&hit.title, TITLE_CHARS_MAX),
                hit.url.as_deref().unwrap_or_default(),
                plain(&hit.content, EXTRACT_CHARS_MAX).replace('\n', " ")
            ));
        }
        if lines.is_empty() {
            return format!("nothing was found for {query:?}");
        }
        // I12: an engine that echoes the key does not show it to the model.
        let mut text = lines.join("\n");
        if let Some(key) = &self.key {
            text = text.replace(key.expose_secret(), "[redacted]");
        }
        prompt::fence(&text, "web search")
    }
}
