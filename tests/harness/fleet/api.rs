//! A client of the manager's HTTP API, and waiting on a goal through its events.

use crate::scale::scale;
use crate::wait;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use shared::store::LogEvent;
use shared::ticket::Ticket;
use std::time::Duration;

/// The API of one manager.
#[derive(Clone)]
pub struct Api {
    base: String,
    token: String,
    client: reqwest::Client,
}

/// A request that was answered with an error.
#[derive(Debug)]
pub struct Refused {
    pub status: u16,
    pub body: Value,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.status, self.body)
    }
}
impl std::error::Error for Refused {}

/// The states in which a goal stays by itself.
#[must_use]
pub fn is_terminal(state: &str) -> bool {
    matches!(state, "done" | "failed" | "cancelled")
}

impl Api {
    /// # Panics
    /// Never: the client has no settings that could be wrong.
    #[must_use]
    pub fn new(port: u16, token: &str) -> Self {
        let client = reqwest::Client::builder()
            .no_proxy()
            .timeout(Duration::from_secs(30))
            .build()
            .unwrap_or_default();
        Self { base: format!("http://127.0.0.1:{port}"), token: token.into(), client }
    }

    /// `http://127.0.0.1:port`.
    #[must_use]
    pub fn base(&self) -> &str {
        &self.base
    }

    /// The same with another token.
    #[must_use]
    pub fn with_token(&self, token: &str) -> Self {
        Self { token: token.into(), ..self.clone() }
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Result<Value> {
        let response = request.bearer_auth(&self.token).send().await?;
        let status = response.status().as_u16();
        let text = response.text().await?;
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        if status >= 400 {
            return Err(Refused { status, body }.into());
        }
        Ok(body)
    }

    /// # Errors
    /// [`Refused`], or no answer.
    pub async fn get(&self, path: &str) -> Result<Value> {
        self.send(self.client.get(format!("{}{path}", self.base))).await
    }

    /// # Errors
    /// [`Refused`], or no answer.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.send(self.client.post(format!("{}{path}", self.base)).json(body)).await
    }

    /// # Errors
    /// [`Refused`], or no answer.
    pub async fn delete(&self, path: &str) -> Result<Value> {
        self.send(self.client.delete(format!("{}{path}", self.base))).await
    }

    /// The refusal of a request that must be refused.
    ///
    /// # Errors
    /// When it is taken, or not answered.
    pub async fn refused(&self, path: &str, body: &Value) -> Result<Refused> {
        match self.post(path, body).await {
            Ok(answer) => bail!("taken: {answer}"),
            Err(error) => error.downcast::<Refused>(),
        }
    }

    /// Uploads bytes; the blob's name.
    ///
    /// # Errors
    /// [`Refused`], or no answer.
    pub async fn upload(&self, bytes: &[u8]) -> Result<String> {
        let request = self.client.put(format!("{}/v1/uploads", self.base)).body(bytes.to_vec());
        let answer = self.send(request).await?;
        Ok(answer["blob"].as_str().context("blob")?.to_owned())
    }

    /// Submits; the goal's id.
    ///
    /// # Errors
    /// [`Refused`], or no answer.
    pub async fn submit(&self, body: &Value) -> Result<String> {
        let answer = self.post("/v1/goals", body).await?;
        Ok(answer["goal"].as_str().with_context(|| format!("no goal in {answer}"))?.to_owned())
    }

    /// Submits a plan file (as JSON) whose goal text is `text`.
    ///
    /// # Errors
    /// [`Refused`], or no answer.
    pub async fn submit_plan(&self, text: &str, tickets: &Value) -> Result<String> {
        self.submit(&json!({"text": text, "plan": {"goal": {"text": text}, "tickets": tickets}})).await
    }

    /// # Errors
    /// [`Refused`], or no answer.
    pub async fn goal(&self, goal: &str) -> Result<Value> {
        self.get(&format!("/v1/goals/{goal}")).await
    }

    /// # Errors
    /// [`Refused`], no answer, or tickets that do not decode.
    pub async fn tickets(&self, goal: &str) -> Result<Vec<Ticket>> {
        let mut answer = self.get(&format!("/v1/goals/{goal}/tickets")).await?;
        Ok(serde_json::from_value(answer["tickets"].take())?)
    }

    /// The ticket with this key.
    ///
    /// # Errors
    /// As [`Api::tickets`], or when there is none.
    pub async fn ticket(&self, goal: &str, key: &str) -> Result<Ticket> {
        let all = self.tickets(goal).await?;
        all.into_iter().find(|t| t.key == key).with_context(|| format!("no ticket {key}"))
    }

    /// Every event so far.
    ///
    /// # Errors
    /// [`Refused`], no answer, or events that do not decode.
    pub async fn events(&self, goal: &str) -> Result<Vec<LogEvent>> {
        let mut all: Vec<LogEvent> = vec![];
        loop {
            let after = all.last().map_or("0", |e| e.id.as_str());
            let mut page = self.get(&format!("/v1/goals/{goal}/events?after={after}")).await?;
            let events: Vec<LogEvent> = serde_json::from_value(page["events"].take())?;
            if events.is_empty() {
                return Ok(all);
            }
            all.extend(events);
        }
    }

    /// Text of a file of the workspace.
    ///
    /// # Errors
    /// [`Refused`], or no answer.
    pub async fn file(&self, goal: &str, path: &str) -> Result<String> {
        self.text(&format!("/v1/goals/{goal}/files/{path}")).await
    }

    /// An answer that is no JSON.
    ///
    /// # Errors
    /// [`Refused`], or no answer.
    pub async fn text(&self, path: &str) -> Result<String> {
        let response =
            self.client.get(format!("{}{path}", self.base)).bearer_auth(&self.token).send().await?;
        let status = response.status().as_u16();
        let text = response.text().await?;
        if status >= 400 {
            return Err(Refused { status, body: Value::String(text) }.into());
        }
        Ok(text)
    }

    /// The goal's events as a stream, read to its end.
    ///
    /// # Errors
    /// [`Refused`], no answer, or a stream that does not end.
    pub async fn stream(&self, goal: &str) -> Result<String> {
        let request = self.client.get(format!("{}/v1/goals/{goal}/events", self.base));
        let response = request.bearer_auth(&self.token).header("accept", "text/event-stream").send().await?;
        let status = response.status().as_u16();
        let text = tokio::time::timeout(scale().patience(), response.text())
            .await
            .context("the stream does not end")??;
        if status >= 400 {
            return Err(Refused { status, body: Value::String(text) }.into());
        }
        Ok(text)
    }

    /// Paths of the workspace.
    ///
    /// # Errors
    /// [`Refused`], or no answer.
    pub async fn files(&self, goal: &str) -> Result<Vec<String>> {
        let answer = self.get(&format!("/v1/goals/{goal}/files")).await?;
        let files = answer["files"].as_array().context("files")?;
        Ok(files.iter().filter_map(|f| f["path"].as_str().map(str::to_owned)).collect())
    }

    /// Waits until the goal is in one of the states; a manager that is away meanwhile does not matter.
    ///
    /// # Errors
    /// When it is not in time, or ends in another state: with its cause and its tickets.
    pub async fn reaches(&self, goal: &str, states: &[&str]) -> Result<Value> {
        self.reaches_within(goal, states, scale().patience() * 2).await
    }

    /// As [`Api::reaches`], with a deadline of its own.
    ///
    /// # Errors
    /// As [`Api::reaches`].
    pub async fn reaches_within(&self, goal: &str, states: &[&str], deadline: Duration) -> Result<Value> {
        let what = format!("goal {goal} is {states:?}");
        let reached = wait::until(&what, deadline, async || {
            let Ok(now) = self.goal(goal).await else { return Ok(None) };
            let state = now["state"].as_str().unwrap_or_default();
            if states.contains(&state) {
                return Ok(Some(Ok(now)));
            }
            if is_terminal(state) {
                return Ok(Some(Err(anyhow::anyhow!(
                    "{what}: it ended {state}: {} {}",
                    now["cause"],
                    now["cause_detail"]
                ))));
            }
            Ok(None)
        })
        .await;
        match reached {
            Ok(Ok(goal)) => Ok(goal),
            Ok(Err(error)) | Err(error) => {
                let tickets = self.tickets(goal).await.unwrap_or_default();
                let lines: Vec<String> = tickets
                    .iter()
                    .map(|t| {
                        format!(
                            "{} {} {} {}: {}",
                            t.key,
                            t.status.as_str(),
                            t.cause,
                            t.cause_detail,
                            t.review_comment
                        )
                    })
                    .collect();
                let now = self.goal(goal).await.unwrap_or_default();
                Err(error.context(format!(
                    "{} {} {}\n  {}",
                    now["state"],
                    now["cause"],
                    now["cause_detail"],
                    lines.join("\n  ")
                )))
            }
        }
    }

    /// Waits until an event of the goal fits; gives it back.
    ///
    /// # Errors
    /// When none comes in time; shows what came.
    pub async fn event(
        &self,
        goal: &str,
        what: &str,
        mut fits: impl FnMut(&LogEvent) -> bool,
    ) -> Result<LogEvent> {
        let mut seen = vec![];
        let found = wait::until(what, scale().patience(), async || {
            let Ok(events) = self.events(goal).await else { return Ok(None) };
            let found = events.iter().find(|e| fits(e)).cloned();
            seen = events;
            Ok(found)
        });
        found.await.with_context(|| {
            let words: Vec<_> = seen.iter().map(|e| format!("{} {} -> {}", e.key, e.event, e.to)).collect();
            format!("events so far: {words:?}")
        })
    }
}
