//! open_link and web_search: the public internet, through the guard. What comes back is somebody else's text, fenced.

mod markdown;
mod page;
mod search;

use super::ToolError;
use anyhow::{Context as _, anyhow};
use reqwest::{Client, Response, Url};
use shared::config::{self, Search};
use shared::egress::{Guard, Refused};
use shared::prompt;
use std::time::Duration;

/// Until a connection stands.
const CONNECT: Duration = Duration::from_secs(10);
/// What is shown of a page that is an error.
const ERROR_CHARS_MAX: usize = 500;

/// Both tools, ready; made once.
pub(super) struct Web {
    config: config::Web,
    guard: Guard,
    client: Client,
    engine: Option<search::Engine>,
}

impl Web {
    /// # Errors
    /// A key that is not set, or a client that cannot be made.
    pub(super) fn new(config: &config::Web, guard: &Guard) -> anyhow::Result<Self> {
        let client = guard.client().connect_timeout(CONNECT).build().context("an HTTP client")?;
        let engine = match config.search {
            Search::None => None,
            Search::Tavily | Search::Searxng => Some(search::Engine::new(config, guard)?),
        };
        Ok(Self { config: config.clone(), guard: guard.clone(), client, engine })
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(self.config.timeout_ms)
    }

    /// The text of a page. Cancellation safe; it only reads.
    pub(super) async fn open(&self, address: &str) -> Result<String, ToolError> {
        let read = tokio::time::timeout(self.timeout(), self.fetch(address));
        let (url, page) = read.await.map_err(|_| tell(format!("{address} did not answer in time")))??;
        let text = page.text(&url)?;
        let cut = if page.cut {
            format!("\n[the page is longer; {} bytes of it were read]", self.config.page_bytes_max)
        } else {
            String::new()
        };
        Ok(prompt::fence(&format!("{text}{cut}"), url.as_str()))
    }

    /// Follows redirects, each through the guard; where it ended, and what stood there.
    async fn fetch(&self, address: &str) -> Result<(Url, page::Page), ToolError> {
        let mut url = Url::parse(address.trim()).map_err(|e| {
            tell(format!("{address:?} is no address ({e}); give it whole, such as https://example.org/page"))
        })?;
        for _ in 0..=self.config.redirects_max {
            self.guard.check(&url).map_err(|e| tell(e.to_string()))?;
            let answer = self
                .client
                .get(url.clone())
                .header("Accept", "text/html, text/plain;q=0.9, */*;q=0.5")
                .send();
            let answer = answer.await.map_err(|e| unreachable(&url, &e))?;
            if let Some(next) = redirect(&url, &answer)? {
                url = next;
                continue;
            }
            let status = answer.status();
            let page = page::Page::read(answer, self.config.page_bytes_max)
                .await
                .map_err(|e| unreachable(&url, &e))?;
            if status.is_success() {
                return Ok((url, page));
            }
            let said = page.text(&url).unwrap_or_default();
            let said = prompt::fence(&prompt::clip(said.trim(), ERROR_CHARS_MAX), url.as_str());
            return Err(tell(format!("{url} answered {}:\n{said}", status.as_u16())));
        }
        Err(tell(format!("{address} leads from page to page, more than {} times", self.config.redirects_max)))
    }

    /// Results of the search engine.
    pub(super) async fn search(&self, query: &str, results: Option<u64>) -> Result<String, ToolError> {
        let Some(engine) = &self.engine else { return Err(tell("there is no search engine here".into())) };
        let most = self.config.search_results_max;
        let results = results.map_or(most, |n| u32::try_from(n).unwrap_or(most).clamp(1, most));
        let asked = tokio::time::timeout(self.timeout(), engine.ask(query, results)).await;
        asked.map_err(|_| tell("the search engine did not answer in time".into()))?
    }
}

fn tell(text: String) -> ToolError {
    ToolError::Tell(text)
}

/// Where it sends us on, if it does.
fn redirect(url: &Url, answer: &Response) -> Result<Option<Url>, ToolError> {
    if ![301, 302, 303, 307, 308].contains(&answer.status().as_u16()) {
        return Ok(None);
    }
    let to = answer.headers().get("location").and_then(|l| l.to_str().ok());
    let to = to.ok_or_else(|| tell(format!("{url} sends on without saying where")))?;
    let to = url.join(to).map_err(|_| tell(format!("{url} sends on to {to:?}, which is no address")))?;
    Ok(Some(to))
}

/// Why nothing came of it, in words for the model.
fn unreachable(url: &Url, error: &reqwest::Error) -> ToolError {
    if let Some(refused) = Refused::of(error) {
        return tell(refused.to_string());
    }
    tell(if error.is_timeout() {
        format!("{url} did not answer in time")
    } else if error.is_connect() {
        format!("{url} cannot be reached")
    } else {
        format!("{url} broke off its answer")
    })
}

/// A secret that the configuration names by its variable.
fn secret(name: &str) -> anyhow::Result<secrecy::SecretString> {
    match std::env::var(name) {
        Ok(value) if !value.is_empty() => Ok(value.into()),
        Ok(_) | Err(_) => Err(anyhow!(
            "tools.web.search_key_env: {name} is not set\n  hint: set it in the worker's environment"
        )),
    }
}

#[cfg(test)]
mod tests;
