//! A model server with a request limit: a token bucket, and 429 beyond it. It counts what it answers and refuses.

use crate::process::free_port;
use anyhow::Result;
use axum::Router;
use axum::extract::State;
use axum::http::{Response, StatusCode};
use axum::routing::post;
use serde_json::json;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The limit.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    pub per_s: f64,
    pub burst: f64,
    /// `Retry-After` of a refusal.
    pub hint: Option<&'static str>,
}

struct Shared {
    bucket: Bucket,
    level: Mutex<(f64, Instant)>,
    answered: AtomicU64,
    refused: AtomicU64,
}

/// The server; it ends when it is dropped.
pub struct Limited {
    port: u16,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Limited {
    /// Listens with a full bucket.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start(bucket: Bucket) -> Result<Self> {
        let port = free_port()?;
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let shared = Arc::new(Shared {
            bucket,
            level: Mutex::new((bucket.burst, Instant::now())),
            answered: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        });
        let router = Router::new().route("/v1/chat/completions", post(chat)).with_state(Arc::clone(&shared));
        let task = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { port, shared, task })
    }

    /// Base URL for `model.url`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// Requests answered and refused so far.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.shared.answered.load(Ordering::SeqCst), self.shared.refused.load(Ordering::SeqCst))
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn take(&self) -> bool {
        let mut level = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let filled = level.0 + (now - level.1).as_secs_f64() * self.bucket.per_s;
        *level = (filled.min(self.bucket.burst), now);
        if level.0 < 1.0 {
            return false;
        }
        level.0 -= 1.0;
        true
    }
}

async fn chat(State(shared): State<Arc<Shared>>) -> Response<String> {
    let mut response = Response::new(if shared.take() {
        shared.answered.fetch_add(1, Ordering::SeqCst);
        json!({"id": "x", "object": "chat.completion", "model": "m",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11}})
        .to_string()
    } else {
        shared.refused.fetch_add(1, Ordering::SeqCst);
        json!({"error": {"message": "Rate limit reached", "type": "requests", "code": "rate_limit_exceeded"}})
            .to_string()
    });
    let refused = response.body().contains("rate_limit_exceeded");
    let headers = response.headers_mut();
    headers.insert("content-type", axum::http::HeaderValue::from_static("application/json"));
    if refused {
        if let Some(hint) = shared.bucket.hint {
            headers.insert("retry-after", axum::http::HeaderValue::from_static(hint));
        }
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    }
    response
}
