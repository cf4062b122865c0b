//! Secrets reach no prompt, log, record, blob or key (I12).

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use harness::fleet::{Api, Fleet, Role, TOKEN};
use harness::model::{Answer, Asked, Model};
use harness::scale::scale;
use harness::script::{key_of, output_of, plan, ticket, verdict};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;

const KEY: &str = "sk-planted-0badc0ffee-secret";
/// Of a tool's service.
const TOOL_TOKEN: &str = "tool-planted-5ca1ab1e-token";

/// Every file below the folder that holds the bytes.
fn holding(folder: &Path, secret: &[u8]) -> Vec<PathBuf> {
    let mut found = vec![];
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for path in entries.flatten().map(|e| e.path()) {
            if path.is_dir() {
                folders.push(path);
            } else if std::fs::read(&path).is_ok_and(|b| b.windows(secret.len()).any(|w| w == secret)) {
                found.push(path);
            }
        }
    }
    found
}

/// A service that demands its token and tells everybody what it was, and a trace collector.
struct Outside {
    port: u16,
    called: Arc<Mutex<Vec<String>>>,
    traces: Arc<Mutex<Vec<Bytes>>>,
}

impl Outside {
    async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let called = Arc::new(Mutex::new(vec![]));
        let traces = Arc::new(Mutex::new(vec![]));
        let (seen, kept) = (Arc::clone(&called), Arc::clone(&traces));
        let stock = move |headers: HeaderMap| {
            let said = headers.get("authorization").unwrap().to_str().unwrap().to_owned();
            seen.lock().unwrap().push(said.clone());
            async move { format!("7 in stock; you called with {said}") }
        };
        let collect = move |body: Bytes| {
            kept.lock().unwrap().push(body);
            async { StatusCode::OK }
        };
        let router = Router::new().route("/stock", get(stock)).route("/v1/traces", post(collect));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { port, called, traces }
    }

    fn tool(&self) -> String {
        format!(
            "[[tools.http]]\nname = \"stock\"\nbundle = \"shop\"\ndescription = \"what is in stock\"\neffect = \"reads\"\n\
             url = \"http://127.0.0.1:{}/stock\"\ntoken_env = \"MUSTER_SHOP_TOKEN\"\n",
            self.port
        )
    }
}

fn holds(bytes: &[u8], secret: &str) -> bool {
    bytes.windows(secret.len()).any(|w| w == secret.as_bytes())
}

/// Asks the service, writes what it said, tries to find secrets in the sandbox' environment too.
fn shopkeeper(asked: &Asked) -> Answer {
    let path = output_of(&key_of(asked));
    match asked.turn() {
        0 => Answer::Calls(vec![
            ("stock".into(), json!({})),
            (
                "code_interpreter".into(),
                json!({"code": "import os\nprint(dict(os.environ))\nprint(open('/proc/self/environ').read())"}),
            ),
        ]),
        1 => {
            let results = asked.messages().iter().filter(|m| m["role"] == "tool");
            let said: Vec<&str> = results.filter_map(|m| m["content"].as_str()).collect();
            Answer::call("write_file", json!({"path": path, "content": said.join("\n")}))
        }
        _ => Answer::call("finish", json!({"status": "done", "summary": "7 in stock", "outputs": [path]})),
    }
}

#[tokio::test]
async fn i12_secrets_that_a_run_used_are_found_nowhere() {
    let outside = Outside::start().await;
    let mut counted = ticket("only", &[]);
    counted["tools"] = json!(["shop", "files", "code"]);
    let model = Model::start(move |asked: &Asked| match asked.schema() {
        "plan" => Some(plan(&[counted.clone()])),
        "verdict" => Some(verdict(asked, true)),
        "" => Some(shopkeeper(asked)),
        _ => None,
    });
    let model = model.await.unwrap();
    let collector = format!("http://127.0.0.1:{}", outside.port);
    let mut fleet = Fleet::plan()
        .model(&model.url())
        .file(&outside.tool())
        .env("SHOP_TOKEN", TOOL_TOKEN)
        .env("MODEL__API_KEY", KEY)
        .env("TELEMETRY__OTLP_URL", &collector)
        .env("TELEMETRY__LOG_FILTER", "debug,shared=trace,manager=trace,worker=trace")
        .start()
        .await
        .unwrap();
    let api = fleet.api();
    let goal = api.submit(&json!({"text": "keep a secret"})).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    // The run used both, and its deliverable holds what the service said.
    assert_eq!(*outside.called.lock().unwrap(), [format!("Bearer {TOOL_TOKEN}")]);
    let file = api.file(&goal, &output_of("only")).await.unwrap();
    assert!(file.contains("7 in stock; you called with Bearer [redacted]"), "{file}");
    // An error of the model's server that repeats the key is redacted as well.
    model.play(|_: &Asked| Some(Answer::error(401, &format!("Incorrect API key provided: {KEY}"))));
    let refused = api.submit(&json!({"text": "refused"})).await.unwrap();
    let now = api.reaches(&refused, &["needs_human"]).await.unwrap();
    assert!(!now.to_string().contains(KEY), "{now}");

    let log = format!("{:?}", api.events(&goal).await.unwrap());
    let mut metrics = vec![];
    for role in [Role::Manager, Role::Worker, Role::Reviewer] {
        let port = fleet.program(role, 0).port();
        let text = Api::new(port, TOKEN).text("/metrics").await.unwrap();
        assert!(text.contains("muster_"), "{role:?}");
        metrics.push(text);
    }
    fleet.redis.query::<String>(&["SAVE"]).await.unwrap();
    // The last spans leave with the programs.
    for role in [Role::Worker, Role::Reviewer, Role::Manager] {
        fleet.program(role, 0).drain(scale().patience()).await.unwrap();
    }
    let traces = outside.traces.lock().unwrap().clone();
    assert!(traces.iter().any(|t| holds(t, "execute_tool") && holds(t, "stock")), "{} exports", traces.len());
    for secret in [KEY, TOOL_TOKEN, TOKEN] {
        assert_eq!(holding(fleet.folder(), secret.as_bytes()), Vec::<PathBuf>::new(), "logs, blobs, scratch");
        assert_eq!(holding(fleet.redis.folder(), secret.as_bytes()), Vec::<PathBuf>::new(), "AOF and dump");
        assert!(!log.contains(secret), "event log");
        let prompts: Vec<Value> =
            model.asked().into_iter().map(|a| a.body).filter(|b| b.to_string().contains(secret)).collect();
        assert!(prompts.is_empty(), "{prompts:?}");
        assert!(metrics.iter().all(|m| !m.contains(secret)), "metrics");
        assert!(traces.iter().all(|t| !holds(t, secret)), "traces");
    }
}
