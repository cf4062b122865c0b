//! A small service outside the fleet that does things which cannot be taken back: it writes down every call, and may be
//! told to do them without answering.

use anyhow::Result;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A call that was done.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    pub path: String,
    pub body: Value,
    pub idempotency_key: String,
}

struct Inner {
    done: Mutex<Vec<Done>>,
    /// Status of the answers; 0: none is given.
    status: watch::Sender<u16>,
}

/// The service; it ends when it is dropped.
pub struct Service {
    port: u16,
    inner: Arc<Inner>,
    task: JoinHandle<()>,
}

impl Service {
    /// Answers 200 to everything.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let inner = Arc::new(Inner { done: Mutex::default(), status: watch::Sender::new(200) });
        let router = Router::new().fallback(call).with_state(Arc::clone(&inner));
        let task = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { port, inner, task })
    }

    /// Every call so far, oldest first.
    #[must_use]
    pub fn done(&self) -> Vec<Done> {
        self.inner.done.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on calls are done and not answered.
    pub fn silent(&self) {
        self.inner.status.send_replace(0);
    }

    /// From now on calls are answered with this status.
    pub fn answers(&self, status: u16) {
        self.inner.status.send_replace(status);
    }

    /// The configuration of its two tools, bundle `orders`: `refund`, which a person confirms, and `pay`.
    #[must_use]
    pub fn tools(&self) -> String {
        let tool = |name: &str, confirm: bool| {
            format!(
                "[[tools.http]]\nname = \"{name}\"\nbundle = \"orders\"\ndescription = \"{name} an order\"\n\
                 method = \"POST\"\nurl = \"http://127.0.0.1:{}/{name}/{{order}}\"\nrequires_confirmation = {confirm}\n\
                 [tools.http.schema]\ntype = \"object\"\nrequired = [\"order\", \"amount\"]\n\
                 additionalProperties = false\n[tools.http.schema.properties]\norder = {{ type = \"string\" }}\n\
                 amount = {{ type = \"number\" }}\n",
                self.port
            )
        };
        tool("refund", true) + &tool("pay", false)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn call(
    State(inner): State<Arc<Inner>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, String) {
    let key = headers.get("idempotency-key").and_then(|k| k.to_str().ok()).unwrap_or_default();
    let nth = {
        let mut done = inner.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.push(Done {
            path: uri.path().to_owned(),
            body: serde_json::from_slice(&body).unwrap_or_default(),
            idempotency_key: key.into(),
        });
        done.len()
    };
    let mut status = inner.status.subscribe();
    let status = match status.wait_for(|status| *status != 0).await {
        Ok(status) => *status,
        Err(_) => 503,
    };
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, json!({"receipt": format!("R-{nth}")}).to_string())
}
