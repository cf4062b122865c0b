//! The tests' own OpenAI-compatible model server. It is not the rehearsal one: it plays what a test scripts and
//! checks every request it gets, so that a client which forgets a tool result or repeats one fails the test.

mod check;
mod wire;

pub use check::problems;

use anyhow::{Context, Result, bail};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A request as the script sees it.
#[derive(Clone, Debug)]
pub struct Asked {
    pub body: Value,
    /// How many requests came before this one.
    pub nth: usize,
}

impl Asked {
    /// Name of the JSON schema that the answer must follow; empty when the answer is free.
    #[must_use]
    pub fn schema(&self) -> &str {
        self.body["response_format"]["json_schema"]["name"].as_str().unwrap_or_default()
    }

    /// Names of the offered tools.
    #[must_use]
    pub fn tools(&self) -> Vec<&str> {
        let tools = self.body["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
        tools.iter().filter_map(|t| t["function"]["name"].as_str()).collect()
    }

    /// Whether any message holds the text.
    #[must_use]
    pub fn says(&self, text: &str) -> bool {
        self.messages().iter().any(|m| m["content"].as_str().is_some_and(|c| c.contains(text)))
    }

    #[must_use]
    pub fn messages(&self) -> &[Value] {
        self.body["messages"].as_array().map(Vec::as_slice).unwrap_or_default()
    }

    /// How many turns of the assistant are in the history: 0 at the first call of a conversation.
    #[must_use]
    pub fn turn(&self) -> usize {
        self.messages().iter().filter(|m| m["role"] == "assistant").count()
    }

    /// Text of the last tool result.
    #[must_use]
    pub fn last_result(&self) -> &str {
        self.messages()
            .iter()
            .rev()
            .find(|m| m["role"] == "tool")
            .and_then(|m| m["content"].as_str())
            .unwrap_or_default()
    }
}

/// What the server says.
#[derive(Clone, Debug)]
pub enum Answer {
    Text(String),
    /// Tool calls: name and arguments.
    Calls(Vec<(String, Value)>),
    /// A message as it stands, with its finish reason.
    Message {
        message: Value,
        finish: String,
    },
    /// Status, headers and body as they stand.
    Raw {
        status: u16,
        headers: Vec<(String, String)>,
        body: String,
    },
    /// The headers and a first chunk, then nothing for ever.
    Stall,
    /// The answer after a while.
    After(Duration, Box<Answer>),
    /// The answer as soon as the test says so.
    When(tokio::sync::watch::Receiver<bool>, Box<Answer>),
}

impl Answer {
    /// One tool call.
    #[must_use]
    pub fn call(name: &str, args: Value) -> Self {
        Self::Calls(vec![(name.into(), args)])
    }

    /// A structured answer.
    #[must_use]
    pub fn json(value: &Value) -> Self {
        Self::Text(value.to_string())
    }

    /// An error as OpenAI words it.
    #[must_use]
    pub fn error(status: u16, message: &str) -> Self {
        Self::Raw {
            status,
            headers: vec![("content-type".into(), "application/json".into())],
            body: json!({"error": {"message": message, "type": "server_error", "code": null}}).to_string(),
        }
    }

    /// Bytes that are no answer.
    #[must_use]
    pub fn garbage() -> Self {
        Self::Raw {
            status: 200,
            headers: vec![("content-type".into(), "application/json".into())],
            body: "<html>\u{fffd}\0 not a model {{{".into(),
        }
    }
}

/// How answers come to a client that asks for streams: nothing about an answer may depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// As asked, and in one piece, in turn.
    Mixed,
    Streamed,
    /// In one piece, although a stream was asked for.
    Whole,
}

impl Shape {
    fn streams(self, asked: &Asked) -> bool {
        let in_turn = match self {
            Self::Mixed => asked.nth.is_multiple_of(2),
            Self::Streamed => true,
            Self::Whole => false,
        };
        in_turn && asked.body["stream"] == true
    }
}

type Script = Arc<dyn Fn(&Asked) -> Option<Answer> + Send + Sync>;

struct Shared {
    shape: Shape,
    script: Mutex<Script>,
    asked: Mutex<Vec<Asked>>,
    problems: Mutex<Vec<String>>,
}

/// The server. [`Model::verify`] at the end of a test says whether all it was asked was sound.
pub struct Model {
    port: u16,
    shared: Arc<Shared>,
    task: Option<JoinHandle<()>>,
}

impl Model {
    /// Answers by the closure; `None` means that the script holds no more, which fails the test.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start(script: impl Fn(&Asked) -> Option<Answer> + Send + Sync + 'static) -> Result<Self> {
        Self::shaped(Shape::Mixed, script).await
    }

    /// The same, with all answers in one shape.
    ///
    /// # Errors
    /// As [`Model::start`].
    pub async fn shaped(
        shape: Shape,
        script: impl Fn(&Asked) -> Option<Answer> + Send + Sync + 'static,
    ) -> Result<Self> {
        let shared = Arc::new(Shared {
            shape,
            script: Mutex::new(Arc::new(script)),
            asked: Mutex::new(vec![]),
            problems: Mutex::new(vec![]),
        });
        let mut model = Self { port: crate::process::free_port()?, shared, task: None };
        model.up().await?;
        Ok(model)
    }

    /// Answers in this order, whoever asks.
    ///
    /// # Errors
    /// As [`Model::start`].
    pub async fn in_order(answers: Vec<Answer>) -> Result<Self> {
        Self::start(move |asked| answers.get(asked.nth).cloned()).await
    }

    /// Base URL for `model.url`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// Where it listens, for a proxy in front of it.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on answers by this closure.
    pub fn play(&self, script: impl Fn(&Asked) -> Option<Answer> + Send + Sync + 'static) {
        if let Ok(mut current) = self.shared.script.lock() {
            *current = Arc::new(script);
        }
    }

    /// Connections are refused from now on.
    pub fn down(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }

    /// Listens (again), on the same port.
    ///
    /// # Errors
    /// When the port is taken.
    pub async fn up(&mut self) -> Result<()> {
        self.down();
        let listener = crate::wait::until("the model's port is free", Duration::from_secs(5), async || {
            Ok(Some(TcpListener::bind(("127.0.0.1", self.port)).await?))
        })
        .await?;
        let router = Router::new()
            .route("/v1/chat/completions", post(chat))
            .route("/v1/models", get(models))
            .with_state(Arc::clone(&self.shared));
        self.task = Some(tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        }));
        Ok(())
    }

    /// Every request so far, oldest first.
    #[must_use]
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().map(|a| a.clone()).unwrap_or_default()
    }

    /// Whether every request was sound and none went beyond the script.
    ///
    /// # Errors
    /// All problems, one a line.
    pub fn verify(&self) -> Result<()> {
        let problems = self.shared.problems.lock().map(|p| p.clone()).unwrap_or_default();
        if !problems.is_empty() {
            bail!("the model server was asked wrongly:\n  {}", problems.join("\n  "));
        }
        Ok(())
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.down();
    }
}

async fn models() -> axum::Json<Value> {
    axum::Json(json!({"object": "list", "data": [{"id": "test-model", "object": "model"}]}))
}

async fn chat(State(shared): State<Arc<Shared>>, body: Bytes) -> Response {
    match answer(&shared, &body) {
        Ok((asked, answer)) => wire::respond(&asked, answer, shared.shape.streams(&asked)).await,
        Err(error) => {
            note(&shared, format!("{error:#}"));
            let none = Asked { body: Value::Null, nth: 0 };
            wire::respond(&none, Answer::error(500, &format!("{error:#}")), false).await
        }
    }
}

fn answer(shared: &Shared, body: &[u8]) -> Result<(Asked, Answer)> {
    let body: Value = serde_json::from_slice(body).context("the request is not JSON")?;
    let asked = {
        let mut all = shared.asked.lock().map_err(|_| anyhow::anyhow!("a script panicked"))?;
        let asked = Asked { nth: all.len(), body };
        all.push(asked.clone());
        asked
    };
    for problem in problems(&asked.body) {
        note(shared, format!("request {}: {problem}", asked.nth));
    }
    let script = shared.script.lock().map_err(|_| anyhow::anyhow!("a script panicked"))?.clone();
    let answer = script(&asked).with_context(|| {
        let last = asked.messages().last().map(ToString::to_string).unwrap_or_default();
        let tail: String = last.chars().take(600).collect();
        format!(
            "request {} is more than the script holds: schema {:?}, last message {tail}",
            asked.nth,
            asked.schema()
        )
    })?;
    Ok((asked, answer))
}

fn note(shared: &Shared, problem: String) {
    if let Ok(mut problems) = shared.problems.lock() {
        problems.push(problem);
    }
}
