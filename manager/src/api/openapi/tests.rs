use super::*;
use crate::api::{Api, router};
use crate::testing::Bench;
use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use shared::telemetry::probe;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

#[test]
fn every_route_is_described_and_nothing_else() {
    let source = include_str!("../../api.rs");
    let route = regex::Regex::new(r#"\.route\("(/v1/[^"]+)", ([^\n]+)\)"#).unwrap();
    let method = regex::Regex::new(r"\b(get|post|put|delete)\(").unwrap();
    let served: BTreeSet<(String, String)> = route
        .captures_iter(source)
        .flat_map(|c| {
            let path = c[1].replace("{*path}", "{path}");
            method.captures_iter(&c[2]).map(move |m| (m[1].to_owned(), path.clone())).collect::<Vec<_>>()
        })
        .filter(|(_, path)| path != "/v1/openapi.json")
        .collect();
    let described = OPERATIONS.iter().map(|o| (o.method.to_owned(), o.path.to_owned())).collect();
    assert_eq!(served, described);
}

#[test]
fn what_the_document_refers_to_is_in_it() {
    let document = document();
    let text = document.to_string();
    let refers = regex::Regex::new(r##""#/([^"]+)""##).unwrap();
    let all: BTreeSet<String> = refers.captures_iter(&text).map(|c| c[1].to_owned()).collect();
    assert!(all.len() > 40, "{all:?}");
    for pointer in all {
        assert!(document.pointer(&format!("/{pointer}")).is_some(), "{pointer}");
    }
    let ids: BTreeSet<String> = OPERATIONS.iter().map(id).collect();
    assert_eq!(ids.len(), OPERATIONS.len());
}

/// The API, with a token of each kind.
struct Gate {
    all: Router,
    /// Text that nobody but its tenant may read.
    goal: String,
    _bench: Bench,
}

impl Gate {
    async fn new() -> Self {
        let bench = Bench::new().await;
        let config = Arc::new(bench.config.clone());
        let stop = CancellationToken::new();
        let api = Api::new(bench.store.clone(), bench.blobs.clone(), config, None, stop);
        let all = router(api, probe::Readiness::new(Duration::from_secs(10)));
        let mut gate = Self { all, goal: String::new(), _bench: bench };
        let body = json!({"text": "the plan to buy Alaska", "tenant": "acme"});
        let (_, made) = gate.ask("post", "/v1/goals", "boss", &body).await;
        gate.goal = made["goal"].as_str().unwrap().to_owned();
        gate
    }

    async fn token(&self, scopes: &[&str], tenant: &str) -> String {
        let body = json!({"name": "t", "scopes": scopes, "tenant": tenant});
        self.ask("post", "/v1/tokens", "boss", &body).await.1["token"].as_str().unwrap().to_owned()
    }

    async fn ask(&self, method: &str, path: &str, token: &str, body: &Value) -> (StatusCode, Value) {
        let mut request = Request::builder().method(method.to_uppercase().as_str()).uri(path);
        if !token.is_empty() {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let response = self.all.clone().oneshot(request.body(Body::from(body)).unwrap()).await.unwrap();
        let status = response.status();
        let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (
            status,
            serde_json::from_slice(&bytes)
                .unwrap_or(Value::String(String::from_utf8_lossy(&bytes).into_owned())),
        )
    }

    fn path(&self, of: &Operation) -> String {
        let path = of.path.replace("{goal}", &self.goal).replace("{ticket}", &"0".repeat(32));
        path.replace("{place}", "1").replace("{order}", "cordon").replace(['{', '}'], "")
    }
}

#[tokio::test]
async fn i7_no_operation_is_open_to_nobody_the_wrong_or_who_lacks_the_scope() {
    let gate = Gate::new().await;
    let reader = gate.token(&["read"], "").await;
    let writer = gate.token(&["submit", "decide"], "").await;
    for of in OPERATIONS {
        let path = gate.path(of);
        for token in ["", "wrong", "mst_wrong", &reader[..reader.len() - 1]] {
            let (status, said) = gate.ask(of.method, &path, token, &Value::Null).await;
            assert_eq!(
                (status, &said["error"]["code"]),
                (StatusCode::UNAUTHORIZED, &json!("unauthorized")),
                "{path}"
            );
            assert!(token.is_empty() || !said.to_string().contains(token), "{path}: {said}");
        }
        let without = if of.needs == Scope::Read { &writer } else { &reader };
        let (status, said) = gate.ask(of.method, &path, without, &Value::Null).await;
        assert_eq!((status, &said["error"]["code"]), (StatusCode::FORBIDDEN, &json!("forbidden")), "{path}");
    }
    let (status, said) = gate.ask("get", "/v1/openapi.json", "", &Value::Null).await;
    assert_eq!((status, &said["openapi"]), (StatusCode::OK, &json!("3.1.0")));
}

#[tokio::test]
async fn i7_another_tenant_learns_nothing_from_any_operation() {
    let gate = Gate::new().await;
    let other = gate.token(&["read", "submit", "decide", "admin"], "other").await;
    for of in OPERATIONS {
        let path = gate.path(of);
        let (status, said) = gate.ask(of.method, &path, &other, &json!({})).await;
        if of.path.contains("{goal}") || of.path.contains("{ticket}") {
            // The same answer as for what is not there at all; a body that is wrong in itself is told first.
            assert!(
                [StatusCode::NOT_FOUND, StatusCode::BAD_REQUEST].contains(&status),
                "{path}: {status} {said}"
            );
        }
        let text = said.to_string();
        assert!(!text.contains("Alaska") && !text.contains("acme"), "{path}: {text}");
        assert!(
            status.as_u16() < 500 || status == StatusCode::SERVICE_UNAVAILABLE,
            "{path}: {status} {text}"
        );
    }
    let (_, goal) = gate.ask("get", &format!("/v1/goals/{}", gate.goal), "boss", &Value::Null).await;
    assert_eq!(goal["state"], "planning", "nothing was done to it");
}
