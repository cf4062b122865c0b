//! Signed calls to an address outside, about what needs a person and what has ended; nothing waits for them.

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use harness::fleet::Fleet;
use harness::scale::scale;
use harness::script::quick;
use harness::service::Service;
use harness::wait;
use serde_json::{Value, json};
use std::process::Command;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// Delivery id, signature, body.
type Call = (String, String, String);

/// What came; the first call of each message is refused.
#[derive(Clone, Default)]
struct Receiver(Arc<Mutex<Vec<Call>>>);

impl Receiver {
    async fn start(&self) -> String {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let all = Arc::clone(&self.0);
        let take = move |headers: HeaderMap, body: Bytes| {
            let text = |name: &str| headers.get(name).unwrap().to_str().unwrap().to_owned();
            let one = (
                text("muster-delivery"),
                text("muster-signature"),
                String::from_utf8(body.to_vec()).unwrap(),
            );
            let mut all = all.lock().unwrap();
            let is_first = !all.iter().any(|(id, ..)| *id == one.0);
            all.push(one);
            let status = if is_first { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::NO_CONTENT };
            async move { status }
        };
        tokio::spawn(async move { axum::serve(listener, Router::new().route("/hook", post(take))).await });
        format!("http://127.0.0.1:{port}/hook")
    }

    fn bodies(&self) -> Vec<Value> {
        self.0.lock().unwrap().iter().map(|(.., body)| serde_json::from_str(body).unwrap()).collect()
    }
}

/// As a receiver checks it, with another program's HMAC.
fn signed(seconds: &str, body: &str) -> String {
    let code = "import hmac,sys; print(hmac.new(sys.argv[1].encode(), (sys.argv[2]+'.'+sys.argv[3]).encode(), 'sha256').hexdigest())";
    let ran = Command::new("python3").args(["-c", code, SECRET, seconds, body]).output().unwrap();
    String::from_utf8(ran.stdout).unwrap().trim().to_owned()
}

#[tokio::test]
async fn what_needs_a_person_and_what_has_ended_is_told_signed_and_again_until_it_is_heard() {
    let receiver = Receiver::default();
    let url = receiver.start().await;
    let service = Service::start().await.unwrap();
    let fleet = Fleet::plan()
        .file(&service.tools())
        .env("WEBHOOKS__URL", &url)
        .env("WEBHOOKS__SECRET", SECRET)
        .env("WEBHOOKS__RETRY_MS", "50")
        .start()
        .await
        .unwrap();
    let api = fleet.api();
    let refund = json!({"id": "refund", "description": "refund A1", "expected_output": "a receipt", "tool": "refund",
        "args": {"order": "A1", "amount": 3}, "review": "none"});
    let goal = api.submit_plan("settle A1", &json!([refund, quick("beside", &[])])).await.unwrap();
    api.event(&goal, "a person is asked", |e| e.event == "confirmation_asked").await.unwrap();
    let heard = async |state: &str| {
        let twice = wait::until("it is told twice", scale().patience(), async || {
            let of = |body: &Value| body["goal"] == json!(goal) && body["state"] == json!(state);
            Ok((receiver.bodies().iter().filter(|body| of(body)).count() == 2).then_some(()))
        });
        twice.await.unwrap();
    };
    heard("awaiting_approval").await;
    fleet.muster(&["approve", &format!("{goal}/refund")]).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    heard("done").await;

    let all = receiver.0.lock().unwrap().clone();
    assert_eq!(all.len(), 4, "two messages, each refused once: {all:?}");
    for (id, signature, body) in &all {
        let (seconds, hex) = signature.strip_prefix("t=").unwrap().split_once(",v1=").unwrap();
        assert_eq!(signed(seconds, body), hex, "{body}");
        let body: Value = serde_json::from_str(body).unwrap();
        assert_eq!(&body["id"], id);
    }
    let bodies = receiver.bodies();
    let asked = &bodies[0];
    assert_eq!(
        (&asked["ticket"], &asked["event"]),
        (&json!("refund"), &json!("confirmation_asked")),
        "{asked}"
    );
    assert!(bodies.iter().all(|body| !body.to_string().contains(SECRET)));
    // Nothing is left, and nothing of it is in the log's way: a receiver that never answers blocks nobody.
    let left: Vec<String> = fleet.redis.keys().await.unwrap();
    assert!(!left.iter().any(|key| key.ends_with(":hook") || key.ends_with(":hooks")), "{left:?}");
    fleet.no_panics().unwrap();
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn an_address_that_never_answers_blocks_nothing_and_is_given_up() {
    // Connections are taken and never answered.
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let fleet = Fleet::plan()
        .env("WEBHOOKS__URL", &url)
        .env("WEBHOOKS__SECRET", SECRET)
        .env("WEBHOOKS__RETRY_MS", "20")
        .env("WEBHOOKS__TIMEOUT_MS", "200")
        .env("WEBHOOKS__TRIES_MAX", "2")
        .start()
        .await
        .unwrap();
    let api = fleet.api();
    for n in 0..3 {
        let goal = api.submit_plan(&format!("goal {n}"), &json!([quick("a", &[])])).await.unwrap();
        api.reaches(&goal, &["done"]).await.unwrap();
    }
    let given_up = wait::until("all are given up", scale().patience(), async || {
        let metrics = api.text("/metrics").await?;
        Ok(metrics.contains("muster_webhooks_total{outcome=\"given_up\"} 3").then_some(()))
    });
    given_up.await.unwrap();
    let left: Vec<String> = fleet.redis.keys().await.unwrap();
    assert!(!left.iter().any(|key| key.ends_with(":hook") || key.ends_with(":hooks")), "{left:?}");
    fleet.oracle().await.unwrap();
}
