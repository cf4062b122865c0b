//! What the manager's own tests stand on: a private redis-server, a folder of blobs, a scripted model.

use crate::step::{Manager, Pulse};
use axum::Router;
use axum::extract::State;
use axum::routing::post;
use serde_json::{Value, json};
use shared::blob::Blobs;
use shared::config::Config;
use shared::goal::{Goal, NewGoal};
use shared::message::Kind;
use shared::model::Model;
use shared::store::{Claim, ClaimReply, ClaimRequest, Failure, GoalClaim, Store};
use shared::ticket::{FailClass, ReviewPolicy, new_id};
use std::collections::VecDeque;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// A redis-server on a socket in its own folder; gone when dropped.
struct Redis {
    child: Child,
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A store, blobs and a configuration for one test.
pub(crate) struct Bench {
    _redis: Redis,
    _folder: tempfile::TempDir,
    pub(crate) store: Store,
    pub(crate) blobs: Blobs,
    pub(crate) config: Config,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("redis.sock");
        let child = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"])
            .arg("--unixsocket")
            .arg(&socket)
            .arg("--dir")
            .arg(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the tests need redis-server: apt-get install redis-server, or run tests/run.sh");
        let redis = Redis { child };
        let mut config = Config::default();
        config.redis.url = format!("unix://{}", socket.display());
        config.redis.allow_no_persistence = true;
        config.blobs.folder = folder.path().join("blobs");
        config.manager.admin_token = "boss".to_owned().into();
        let until = Instant::now() + Duration::from_secs(10);
        let store = loop {
            match Store::connect(&config.redis).await {
                Ok(store) => break store,
                Err(error) => assert!(Instant::now() < until, "redis-server does not answer: {error}"),
            }
            tokio::task::yield_now().await;
        };
        let blobs = Blobs::open(&config.blobs).unwrap();
        Self { _redis: redis, _folder: folder, store, blobs, config }
    }

    /// A manager of this fleet, with the model if there is one.
    pub(crate) fn manager(&self, model: Option<Model>) -> Manager {
        Manager {
            store: self.store.clone(),
            blobs: self.blobs.clone(),
            config: Arc::new(self.config.clone()),
            model,
            id: "manager-test".into(),
        }
    }

    /// Submits a goal; with a plan file, if one is given.
    pub(crate) async fn submit(&self, plan: Option<Value>, review: ReviewPolicy) -> String {
        self.submit_with(plan, review, |_| {}).await
    }

    /// The same with a change to the goal.
    pub(crate) async fn submit_with(
        &self,
        plan: Option<Value>,
        review: ReviewPolicy,
        change: impl FnOnce(&mut NewGoal),
    ) -> String {
        let id = new_id();
        let given_plan_ref = match plan {
            Some(plan) => self.blobs.put(&id, plan.to_string()).await.unwrap(),
            None => String::new(),
        };
        let mut goal = NewGoal {
            id: id.clone(),
            tenant: "default".into(),
            text: "Report on the words".into(),
            constraints: vec!["at most 300 words".into()],
            given_plan_ref,
            review,
            caps: self.config.caps,
            language: "en".into(),
            ..NewGoal::default()
        };
        change(&mut goal);
        self.store.submit_goal(&goal, 1_000).await.unwrap();
        id
    }

    /// Claims one ticket as a worker, if one is ready.
    pub(crate) async fn take(&self) -> Option<Claim> {
        let request = ClaimRequest {
            kind: Kind::Work,
            lanes: &["work.default".to_owned()],
            consumer: "worker-test",
            lease_prefix: &new_id(),
            lease_ms: 30_000,
            n: 1,
            actor: "",
        };
        match self.store.claim(&request).await.unwrap() {
            ClaimReply::Got(mut claims) => claims.pop(),
            ClaimReply::Empty | ClaimReply::Again { .. } | ClaimReply::Paused { .. } => None,
        }
    }

    /// A worker that fails once; false when nothing is ready.
    pub(crate) async fn fail_once(&self) -> bool {
        let Some(claim) = self.take().await else { return false };
        let failure =
            Failure { held: claim.held, class: FailClass::Fault, detail: "it broke".into(), delay_ms: 0 };
        self.store.fail(&failure).await.unwrap();
        true
    }

    pub(crate) async fn goal(&self, id: &str) -> Goal {
        self.store.goal(id).await.unwrap().unwrap()
    }
}

impl Manager {
    /// Takes whatever goal has news, if one has.
    pub(crate) async fn claim(&self) -> Option<GoalClaim> {
        self.store.manage_claim(&self.id, &new_id(), 30_000).await.unwrap()
    }

    /// Steps until no goal has news, at most 20 times; how many steps there were.
    pub(crate) async fn settle(&self) -> usize {
        for n in 0..20 {
            let Some(claim) = self.claim().await else { return n };
            self.step(claim, CancellationToken::new(), Pulse::new()).await;
        }
        20
    }
}

#[derive(Default)]
struct Script {
    replies: Mutex<VecDeque<String>>,
    /// Bodies as they came in.
    asked: Mutex<Vec<Value>>,
}

/// An OpenAI-compatible server that gives its replies one by one, and fails when asked for more.
#[derive(Clone)]
pub(crate) struct FakeModel {
    script: Arc<Script>,
    pub(crate) model: Model,
}

impl FakeModel {
    pub(crate) async fn new(replies: impl IntoIterator<Item = String>) -> Self {
        let script =
            Arc::new(Script { replies: Mutex::new(replies.into_iter().collect()), ..Script::default() });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let app = Router::new().route("/v1/chat/completions", post(reply)).with_state(Arc::clone(&script));
        tokio::spawn(async move { axum::serve(listener, app).await });
        let config = shared::config::Model {
            url,
            standard: "fake".into(),
            probe: false,
            ..shared::config::Model::default()
        };
        Self { script, model: Model::new(&config).unwrap() }
    }

    pub(crate) fn asked(&self) -> usize {
        self.script.asked.lock().unwrap().len()
    }

    /// The words of the request's messages, joined.
    pub(crate) fn words(&self, request: usize) -> String {
        let asked = self.script.asked.lock().unwrap();
        let messages = asked[request]["messages"].as_array().unwrap();
        messages.iter().filter_map(|m| m["content"].as_str()).collect::<Vec<_>>().join("\n")
    }
}

async fn reply(
    State(script): State<Arc<Script>>,
    axum::Json(body): axum::Json<Value>,
) -> axum::response::Response {
    use axum::response::IntoResponse as _;
    script.asked.lock().unwrap().push(body);
    let Some(text) = script.replies.lock().unwrap().pop_front() else {
        return (axum::http::StatusCode::BAD_REQUEST, "asked for more than the script holds").into_response();
    };
    axum::Json(json!({
        "id": "x", "object": "chat.completion", "model": "fake",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
    }))
    .into_response()
}
