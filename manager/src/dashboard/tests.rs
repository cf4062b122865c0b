use super::*;
use crate::api::{Api, router};
use crate::testing::Bench;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use serde_json::{Value, json};
use shared::telemetry::probe;
use std::sync::Arc;
use std::time::Duration;
use tower::ServiceExt as _;

/// A browser without eyes: keeps its cookie, follows nothing.
struct Visitor {
    bench: Bench,
    all: Router,
    cookie: String,
}

struct Seen {
    status: StatusCode,
    headers: axum::http::HeaderMap,
    text: String,
}

impl Seen {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |v| v.to_str().unwrap())
    }

    fn proof(&self) -> String {
        let rest = self.text.split_once("name=\"proof\" value=\"").expect("a form with a proof").1;
        rest.split('"').next().unwrap().to_owned()
    }
}

impl Visitor {
    async fn new() -> Self {
        let bench = Bench::new().await;
        let config = Arc::new(bench.config.clone());
        let stop = CancellationToken::new();
        let api = Api::new(bench.store.clone(), bench.blobs.clone(), config, None, stop.clone());
        let all = before(router(api, probe::Readiness::new(Duration::from_secs(10))), stop);
        Self { bench, all, cookie: String::new() }
    }

    async fn inside() -> Self {
        let mut visitor = Self::new().await;
        let seen = visitor.post("/login", &[("token", "boss"), ("next", "/submit")]).await;
        assert_eq!((seen.status, seen.header("location")), (StatusCode::SEE_OTHER, "/submit"));
        visitor.cookie = seen.header("set-cookie").split(';').next().unwrap().to_owned();
        visitor
    }

    async fn send(&self, request: Request<Body>) -> Seen {
        let response = self.all.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        Seen {
            status: parts.status,
            headers: parts.headers,
            text: String::from_utf8_lossy(&bytes).into_owned(),
        }
    }

    async fn get(&self, path: &str) -> Seen {
        self.send(Request::get(path).header("cookie", &self.cookie).body(Body::empty()).unwrap()).await
    }

    async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Seen {
        let pairs: Vec<String> = fields.iter().map(|(n, v)| format!("{n}={}", desk::query_of(v))).collect();
        let request = Request::post(path)
            .header("cookie", &self.cookie)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(Body::from(pairs.join("&")))
            .unwrap();
        self.send(request).await
    }

    /// A multipart form; a value with a name of its own is a file.
    async fn post_parts(&self, path: &str, fields: &[(&str, Option<&str>, &str)]) -> Seen {
        let mut body = String::new();
        for (name, file, text) in fields {
            let file = file.map(|f| format!("; filename=\"{f}\"")).unwrap_or_default();
            body +=
                &format!("--edge\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n{text}\r\n");
        }
        body += "--edge--\r\n";
        let request = Request::post(path)
            .header("cookie", &self.cookie)
            .header("content-type", "multipart/form-data; boundary=edge")
            .body(Body::from(body))
            .unwrap();
        self.send(request).await
    }

    /// As a program would, with a token.
    async fn api(&self, method: &str, path: &str, body: Value) -> Value {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", "Bearer boss")
            .body(Body::from(if body.is_null() { String::new() } else { body.to_string() }))
            .unwrap();
        serde_json::from_str(&self.send(request).await.text).unwrap()
    }

    async fn goal(&self, text: &str) -> String {
        let made = self.api("POST", "/v1/goals", json!({"text": text})).await;
        made["goal"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn nobody_sees_a_page_without_a_token_and_the_token_is_out_of_reach_for_scripts() {
    let visitor = Visitor::new().await;
    for path in ["/goals", "/submit", "/goals/0123456789abcdef0123456789abcdef?x=1"] {
        let seen = visitor.get(path).await;
        let to = format!("/login?next={}", desk::query_of(path));
        assert_eq!((seen.status, seen.header("location")), (StatusCode::SEE_OTHER, to.as_str()));
    }
    let seen = visitor.post("/login", &[("token", "wrong")]).await;
    assert_eq!(seen.status, StatusCode::UNAUTHORIZED);
    assert!(seen.header("set-cookie").is_empty() && !seen.text.contains("wrong"), "{}", seen.text);

    let seen = visitor.post("/login", &[("token", "boss"), ("next", "//evil.example")]).await;
    assert_eq!(seen.header("location"), "/goals");
    let cookie = seen.header("set-cookie");
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    // The cookie opens pages, not the API: no other site's form can use it there.
    let visitor = Visitor::inside().await;
    assert_eq!(visitor.get("/v1/goals").await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(visitor.get("/goals").await.status, StatusCode::OK);

    // A token that was revoked meanwhile: the next page is the login.
    let mut visitor = visitor;
    visitor.cookie = "muster_token=mst_gone".into();
    let seen = visitor.get("/goals").await;
    assert_eq!((seen.status, seen.header("location")), (StatusCode::SEE_OTHER, "/login?again=1"));
}

#[tokio::test]
async fn every_page_has_a_strict_policy_and_no_inline_script_or_style() {
    let visitor = Visitor::inside().await;
    let goal = visitor.goal("<script>alert(1)</script> & <b>bold</b>").await;
    for path in
        ["/login", "/goals", "/goals?q=%3Cscript%3E", "/submit", &format!("/goals/{goal}"), "/goals/nothing"]
    {
        let seen = visitor.get(path).await;
        let policy = seen.header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"),
            "{path}: {policy}"
        );
        assert_eq!(seen.header("x-content-type-options"), "nosniff");
        assert!(
            !seen.text.contains("<script>") && !seen.text.contains("<b>") && !seen.text.contains(" style="),
            "{path}"
        );
        assert!(
            !seen.text.contains("http://") && !seen.text.contains("https://"),
            "{path}: something from elsewhere"
        );
    }
    let page = visitor.get("/goals").await.text;
    for asset in ["style.css", "live.js", "icon.svg"] {
        let url = assets::url(asset);
        assert!(page.contains(url), "{asset}");
        let seen = visitor.get(url).await;
        assert!(seen.status.is_success() && seen.header("cache-control").contains("immutable"), "{asset}");
    }
    assert_eq!(visitor.get("/assets/style.css").await.status, StatusCode::NOT_FOUND);
    // What is no page is the API's, in the API's shape.
    assert_eq!(visitor.get("/v2/nothing").await.header("content-type"), "application/json");
}

#[tokio::test]
async fn a_form_of_another_site_changes_nothing() {
    let visitor = Visitor::inside().await;
    let goal = visitor.goal("stay").await;
    let proof = visitor.get(&format!("/goals/{goal}")).await.proof();
    let path = format!("/goals/{goal}/cancel");
    for fields in [vec![], vec![("proof", "")], vec![("proof", "0123")]] {
        assert_eq!(visitor.post(&path, &fields).await.status, StatusCode::FORBIDDEN);
    }
    let body = format!("proof={proof}");
    let foreign = |name: &str, value: &str| {
        Request::post(&path)
            .header("cookie", &visitor.cookie)
            .header("content-type", "application/x-www-form-urlencoded")
            .header("host", "here.example")
            .header(name, value)
            .body(Body::from(body.clone()))
            .unwrap()
    };
    for (name, value) in [
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("origin", "https://evil.example"),
    ] {
        assert_eq!(visitor.send(foreign(name, value)).await.status, StatusCode::FORBIDDEN, "{name}: {value}");
    }
    let seen = visitor.post_parts("/submit", &[("text", None, "a"), ("proof", None, &proof)]).await;
    assert_eq!(seen.status, StatusCode::FORBIDDEN, "the proof comes first");
    assert_eq!(visitor.api("GET", "/v1/goals", Value::Null).await["goals"].as_array().map(Vec::len), Some(1));
    assert_eq!(visitor.api("GET", &format!("/v1/goals/{goal}"), Value::Null).await["state"], "planning");

    let seen = visitor.send(foreign("sec-fetch-site", "same-origin")).await;
    assert_eq!(seen.status, StatusCode::SEE_OTHER, "{}", seen.text);
    assert_eq!(visitor.api("GET", &format!("/v1/goals/{goal}"), Value::Null).await["state"], "cancelled");
}

#[tokio::test]
async fn a_goal_is_handed_in_with_its_files_once() {
    let visitor = Visitor::inside().await;
    let form = visitor.get("/submit").await;
    let key = form.text.split_once("name=\"key\" value=\"").unwrap().1.split('"').next().unwrap().to_owned();
    let proof = form.proof();
    let fields = [
        ("proof", None, proof.as_str()),
        ("key", None, &key),
        ("text", None, "Count the words"),
        ("constraints", None, "short\r\n\r\nplain"),
        ("files", Some("words.csv"), "a,b\n1,2\n"),
        ("plan", Some(""), ""),
        ("budget_tokens", None, "5000"),
    ];
    let seen = visitor.post_parts("/submit", &fields).await;
    assert_eq!(seen.status, StatusCode::SEE_OTHER, "{}", seen.text);
    let again = visitor.post_parts("/submit", &fields).await;
    assert_eq!(again.header("location"), seen.header("location"));

    let page = visitor.get(seen.header("location")).await;
    for word in
        ["Count the words", "data/words.csv", "2 constraints", "of 5,000 tokens", "There is no plan yet"]
    {
        assert!(page.text.contains(word), "{word}: {}", page.text);
    }
    let found = async |q: &str, state: &str| {
        visitor.get(&format!("/goals?q={q}&state={state}")).await.text.contains("Count the words")
    };
    assert!(found("words%20COUNT", "planning").await);
    assert!(!found("offers", "").await && !found("", "done").await);

    let wrong = visitor.post_parts("/submit", &[("proof", None, proof.as_str()), ("text", None, " ")]).await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
    assert!(wrong.text.contains("role=\"alert\""), "{}", wrong.text);
}

#[tokio::test]
async fn what_can_be_done_to_a_goal_is_done_by_the_api() {
    let visitor = Visitor::inside().await;
    let goal = visitor.goal("steer me").await;
    let page = format!("/goals/{goal}");
    let proof = visitor.get(&page).await.proof();
    for (act, shown) in
        [("pause", "paused"), ("note", "please be short"), ("resume", "note"), ("cancel", "cancelled")]
    {
        let seen =
            visitor.post(&format!("{page}/{act}"), &[("proof", &proof), ("text", "please be short")]).await;
        assert_eq!(
            (seen.status, seen.header("location")),
            (StatusCode::SEE_OTHER, page.as_str()),
            "{act}: {}",
            seen.text
        );
        assert!(visitor.get(&page).await.text.contains(shown), "{act}");
    }
    assert_eq!(
        visitor.post(&format!("{page}/explode"), &[("proof", &proof)]).await.status,
        StatusCode::NOT_FOUND
    );
    let over = visitor.post(&format!("{page}/note"), &[("proof", &proof), ("text", "too late")]).await;
    assert!(over.status == StatusCode::CONFLICT && over.text.contains("the goal is over"), "{}", over.text);
}

#[tokio::test]
async fn a_list_that_is_open_hears_of_a_new_goal() {
    use futures::StreamExt as _;
    let visitor = Visitor::inside().await;
    visitor.goal("the first").await;
    let request = Request::get("/goals/live").header("cookie", &visitor.cookie).body(Body::empty()).unwrap();
    let response = visitor.all.clone().oneshot(request).await.unwrap();
    let mut pieces = response.into_body().into_data_stream();
    let mut next = async || String::from_utf8(pieces.next().await.unwrap().unwrap().to_vec()).unwrap();
    let first = next().await;
    assert!(
        first.starts_with("event: part\n") && first.contains("the first") && !first.contains("the second"),
        "{first}"
    );
    visitor.goal("the second").await;
    let second = next().await;
    assert!(second.contains("the second"), "{second}");
    drop(visitor.bench);
}
