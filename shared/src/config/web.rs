//! Table `[tools.web]`: pages that are opened, and the search engine that is asked.

use serde::{Deserialize, Serialize};

/// Most results that a search may give.
const RESULTS_MAX: u32 = 50;
/// Longest time for a page or a search, in milliseconds.
const TIMEOUT_MS_MAX: u64 = 600_000;

/// `open_link` and `web_search`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Web {
    /// Agents with the bundle `web` may open pages of the public internet.
    pub open_link: bool,
    /// A page is read this far.
    pub page_bytes_max: usize,
    /// A page or a search takes this long at most, redirects included.
    pub timeout_ms: u64,
    pub redirects_max: u32,
    pub search: Search,
    /// Base URL of the search engine; empty: Tavily's own.
    pub search_url: String,
    /// Environment variable of the worker that holds the key; empty: none.
    pub search_key_env: String,
    pub search_results_max: u32,
}

/// Whose protocol the search engine speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Search {
    /// There is no `web_search`.
    #[default]
    None,
    Tavily,
    Searxng,
}

impl Default for Web {
    fn default() -> Self {
        Self {
            open_link: true,
            page_bytes_max: 2 * 1024 * 1024,
            timeout_ms: 30_000,
            redirects_max: 5,
            search: Search::None,
            search_url: String::new(),
            search_key_env: String::new(),
            search_results_max: 8,
        }
    }
}

impl Web {
    /// What is wrong with it, naming the key.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let say = |text: &str| Some(format!("web.{text}"));
        if self.page_bytes_max == 0 || self.timeout_ms == 0 || self.timeout_ms > TIMEOUT_MS_MAX {
            return say("page_bytes_max and timeout_ms must be above 0, timeout_ms at most 600000");
        }
        if self.search_results_max == 0 || self.search_results_max > RESULTS_MAX {
            return say("search_results_max must be 1 to 50");
        }
        let is_url = self.search_url.starts_with("http://") || self.search_url.starts_with("https://");
        match self.search {
            Search::Searxng if !is_url => say("search_url must name the SearXNG server, http:// or https://"),
            Search::Tavily if !self.search_url.is_empty() && !is_url => {
                say("search_url must begin with http:// or https://")
            }
            Search::Tavily if self.search_key_env.is_empty() => {
                say("search_key_env must name the environment variable with Tavily's key")
            }
            Search::None | Search::Tavily | Search::Searxng => None,
        }
    }
}
