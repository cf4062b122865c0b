use super::*;
use crate::testing::Bench;
use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use tower::ServiceExt as _;

struct Client {
    bench: Bench,
    router: Router,
}

impl Client {
    async fn new(change: impl FnOnce(&mut Config)) -> Self {
        let mut bench = Bench::new().await;
        change(&mut bench.config);
        let config = Arc::new(bench.config.clone());
        let api = Api::new(bench.store.clone(), bench.blobs.clone(), config, None, CancellationToken::new());
        let router = router(api, probe::Readiness::new(Duration::from_secs(10)));
        Self { bench, router }
    }

    async fn send(&self, request: Request<Body>) -> (u16, Value) {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::String(text)))
    }

    async fn with(&self, token: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", "application/json")
            .body(Body::from(body))
            .unwrap();
        self.send(request).await
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.with("boss", "GET", path, &Value::Null).await
    }

    async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.with("boss", "POST", path, &body).await
    }

    async fn token(&self, scopes: &[&str], tenant: &str) -> String {
        let (status, made) =
            self.post("/v1/tokens", json!({"name": "t", "scopes": scopes, "tenant": tenant})).await;
        assert_eq!(status, 201, "{made}");
        made["token"].as_str().unwrap().to_owned()
    }
}

fn code(answer: &(u16, Value)) -> (u16, &str, &str) {
    (
        answer.0,
        answer.1["error"]["code"].as_str().unwrap_or(""),
        answer.1["error"]["field"].as_str().unwrap_or(""),
    )
}

#[tokio::test]
async fn without_a_valid_token_nothing_is_told_but_health() {
    let client = Client::new(|_| {}).await;
    let bare = Request::builder().uri("/v1/goals").body(Body::empty()).unwrap();
    assert_eq!(code(&client.send(bare).await), (401, "unauthorized", ""));
    for wrong in ["bos", "bossy", "BOSS", "", &"x".repeat(10_000)] {
        assert_eq!(client.with(wrong, "GET", "/v1/goals", &Value::Null).await.0, 401);
    }
    let basic = Request::builder()
        .uri("/v1/stats")
        .header("authorization", "Basic boss")
        .body(Body::empty())
        .unwrap();
    assert_eq!(client.send(basic).await.0, 401);
    // The token is asked for before the body is looked at.
    assert_eq!(client.with("no", "POST", "/v1/goals", &json!({"nonsense": 1})).await.0, 401);
    for open in ["/healthz", "/metrics"] {
        assert_eq!(client.send(Request::get(open).body(Body::empty()).unwrap()).await.0, 200);
    }
    assert_eq!(client.get("/v1/goals").await, (200, json!({"goals": []})));
    assert_eq!(code(&client.get("/v2/nothing").await), (404, "not_found", ""));
    assert_eq!(code(&client.post("/v1/stats", Value::Null).await), (405, "method_not_allowed", ""));
    assert_eq!(code(&client.get("/v1/goals?limit=many").await), (400, "bad_request", ""));
    assert_eq!(code(&client.get("/v1/goals?colour=red").await), (400, "bad_request", ""));
    assert_eq!(code(&client.get("/v1/goals?state=odd").await), (400, "bad_request", "state"));
    assert_eq!(code(&client.get("/v1/goals/%ff").await), (400, "bad_request", ""));
}

#[tokio::test]
async fn without_an_admin_token_in_the_configuration_an_empty_one_opens_nothing() {
    let client = Client::new(|c| c.manager.admin_token = String::new().into()).await;
    assert_eq!(client.with("", "GET", "/v1/goals", &Value::Null).await.0, 401);
    assert_eq!(client.get("/v1/goals").await.0, 401);
}

#[tokio::test]
async fn a_token_does_what_its_scopes_and_tenant_say_until_it_is_revoked() {
    let client = Client::new(|_| {}).await;
    let reader = client.token(&["read"], "").await;
    let submitter = client.token(&["submit", "read"], "acme").await;
    let other = client.token(&["read", "submit", "decide", "admin"], "other").await;
    let goal = json!({"text": "a goal"});
    assert_eq!(code(&client.with(&reader, "POST", "/v1/goals", &goal).await), (403, "forbidden", ""));
    assert_eq!(client.with(&reader, "GET", "/v1/tokens", &Value::Null).await.0, 403);

    let (status, made) = client.with(&submitter, "POST", "/v1/goals", &goal).await;
    assert_eq!(status, 201, "{made}");
    let path = format!("/v1/goals/{}", made["goal"].as_str().unwrap());
    let (status, shown) = client.with(&submitter, "GET", &path, &Value::Null).await;
    assert_eq!((status, shown["tenant"].as_str()), (200, Some("acme")));
    assert_eq!(
        client.with(&submitter, "POST", &format!("{path}/answer"), &json!({"text": "x"})).await.0,
        403
    );
    let foreign = json!({"text": "x", "tenant": "other"});
    assert_eq!(
        code(&client.with(&submitter, "POST", "/v1/goals", &foreign).await),
        (403, "forbidden", "tenant")
    );

    // Another tenant's admin sees nothing of it, lists nothing of it, and steers no fleet.
    for hidden in ["", "/tickets", "/events", "/files", "/files/TODO.md", "/audit"] {
        assert_eq!(
            client.with(&other, "GET", &format!("{path}{hidden}"), &Value::Null).await.0,
            404,
            "{hidden}"
        );
    }
    assert_eq!(client.with(&other, "POST", &format!("{path}/cancel"), &Value::Null).await.0, 404);
    assert_eq!(client.with(&other, "GET", "/v1/goals", &Value::Null).await.1["goals"], json!([]));
    assert_eq!(client.with(&other, "POST", "/v1/fleet/pause", &Value::Null).await.0, 403);
    let (_, own) = client.with(&other, "GET", "/v1/tokens", &Value::Null).await;
    assert_eq!(own["tokens"].as_array().map(Vec::len), Some(1));

    let (_, all) = client.get("/v1/tokens").await;
    assert!(!all.to_string().contains("mst_"), "the secret is not kept");
    for token in all["tokens"].as_array().unwrap() {
        let id = token["id"].as_str().unwrap();
        assert_eq!(client.with("boss", "DELETE", &format!("/v1/tokens/{id}"), &Value::Null).await.0, 200);
    }
    assert_eq!(client.with(&reader, "GET", "/v1/goals", &Value::Null).await.0, 401);
    assert_eq!(
        code(&client.post("/v1/tokens", json!({"scopes": ["root"]})).await),
        (400, "bad_request", "scopes")
    );
}

#[tokio::test]
async fn what_is_too_large_is_refused_by_the_name_of_the_limit() {
    let client = Client::new(|c| {
        c.manager.request_bytes_max = 2_000;
        c.limits.input_bytes_max = 1_000;
        c.limits.goal_text_bytes_max = 500;
    })
    .await;
    let (status, answer) = client.post("/v1/goals", json!({"text": "x".repeat(3_000)})).await;
    assert_eq!((status, answer["error"]["code"].as_str()), (413, Some("too_large")));
    assert!(
        answer["error"]["message"].as_str().unwrap().contains("manager.request_bytes_max = 2000"),
        "{answer}"
    );
    // Without a length the body is cut while it is read.
    let parts = futures::stream::iter((0..100).map(|_| Ok::<_, std::convert::Infallible>("x".repeat(100))));
    let streamed = Request::put("/v1/uploads")
        .header("authorization", "Bearer boss")
        .body(Body::from_stream(parts))
        .unwrap();
    let (status, answer) = client.send(streamed).await;
    assert_eq!(status, 413);
    assert!(
        answer["error"]["message"].as_str().unwrap().contains("limits.input_bytes_max = 1000"),
        "{answer}"
    );
    assert_eq!(
        code(&client.post("/v1/goals", json!({"text": "x".repeat(600)})).await),
        (400, "bad_request", "text")
    );
}

#[tokio::test]
async fn c9_an_unsound_plan_is_refused_whole_and_nothing_is_kept() {
    let client = Client::new(|_| {}).await;
    let ticket = |id: &str, needs: &[&str]| json!({"id": id, "needs": needs, "description": "d", "tool": "code_interpreter", "args": {"code": "1"}, "outputs": [format!("data/{id}")]});
    let submit = |tickets: Value| json!({"text": "g", "plan": {"goal": {"text": "g"}, "tickets": tickets}});
    let cycle = client.post("/v1/goals", submit(json!([ticket("a", &["b"]), ticket("b", &["a"])]))).await;
    assert_eq!(code(&cycle), (400, "bad_request", "plan.tickets[a].needs"), "{}", cycle.1);
    let dangling = client.post("/v1/goals", submit(json!([ticket("a", &["t99"])]))).await;
    assert!(dangling.1["error"]["message"].as_str().unwrap().contains("t99"), "{}", dangling.1);
    let many: Vec<Value> = (0..10_000).map(|i| ticket(&format!("t{i}"), &[])).collect();
    let many = client.post("/v1/goals", submit(json!(many))).await;
    assert!(many.1["error"]["message"].as_str().unwrap().contains("at most 1000"), "{}", many.1);
    let unread = client
        .post("/v1/goals", json!({"text": "g", "plan": {"goal": {"text": "g"}, "tickets": [{"id": 7}]}}))
        .await;
    assert_eq!(code(&unread), (400, "bad_request", "plan"));
    assert_eq!(code(&client.post("/v1/goals", json!({"text": "  "})).await), (400, "bad_request", "text"));
    let outside = json!({"text": "g", "inputs": [{"path": "../x", "blob": "a".repeat(64)}]});
    assert_eq!(code(&client.post("/v1/goals", outside).await), (400, "bad_request", "inputs[0].path"));
    let missing = json!({"text": "g", "inputs": [{"path": "data/x", "blob": "a".repeat(64)}]});
    assert_eq!(code(&client.post("/v1/goals", missing).await), (400, "bad_request", "inputs[0].blob"));
    assert_eq!(client.get("/v1/goals").await.1, json!({"goals": []}));

    // The same as a dry run is an answer, not an error.
    let (status, dry) = client.post("/v1/plans", submit(json!([ticket("a", &["t99"])]))).await;
    assert_eq!(status, 200);
    assert!(dry["problems"][0].as_str().unwrap().contains("t99") && dry["plan"].is_null(), "{dry}");
    let (_, dry) = client.post("/v1/plans", submit(json!([ticket("a", &[]), ticket("b", &["a"])]))).await;
    assert_eq!(
        (&dry["estimate"]["tickets"], &dry["estimate"]["model_calls"]),
        (&json!(2), &json!(0)),
        "{dry}"
    );
    let unplanned = client.post("/v1/plans", json!({"text": "g"})).await;
    assert_eq!(code(&unplanned), (409, "conflict", ""), "{}", unplanned.1);
    assert_eq!(client.get("/v1/goals").await.1, json!({"goals": []}));
}

#[tokio::test]
async fn the_same_key_finds_the_same_goal() {
    let client = Client::new(|_| {}).await;
    let goal = |text: &str, tenant: &str| json!({"text": text, "idempotency_key": "k1", "tenant": tenant});
    let (status, first) = client.post("/v1/goals", goal("one", "acme")).await;
    assert_eq!((status, &first["duplicate"]), (201, &json!(false)));
    let (status, again) = client.post("/v1/goals", goal("one", "acme")).await;
    assert_eq!((status, &again["duplicate"], &again["goal"]), (200, &json!(true), &first["goal"]));
    assert_eq!(
        code(&client.post("/v1/goals", goal("two", "acme")).await),
        (409, "conflict", "idempotency_key")
    );
    let (status, other) = client.post("/v1/goals", goal("two", "other")).await;
    assert_eq!(status, 201);
    assert_ne!(other["goal"], first["goal"]);
}

#[tokio::test]
async fn uploads_become_the_goals_first_files_and_are_served_as_data() {
    let client = Client::new(|_| {}).await;
    let upload = Request::put("/v1/uploads")
        .header("authorization", "Bearer boss")
        .body(Body::from("<script>alert(1)</script>"))
        .unwrap();
    let (status, uploaded) = client.send(upload).await;
    assert_eq!((status, &uploaded["size_bytes"]), (201, &json!(25)));
    let (status, made) = client
        .post(
            "/v1/goals",
            json!({"text": "g", "inputs": [{"path": "data/page.html", "blob": uploaded["blob"]}]}),
        )
        .await;
    assert_eq!(status, 201, "{made}");
    let path = format!("/v1/goals/{}/files", made["goal"].as_str().unwrap());
    let (_, files) = client.get(&path).await;
    assert_eq!(
        (&files["files"][0]["path"], &files["files"][0]["creator"]),
        (&json!("data/page.html"), &json!("input"))
    );

    let request = Request::get(format!("{path}/data/page.html"))
        .header("authorization", "Bearer boss")
        .body(Body::empty())
        .unwrap();
    let response = client.router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(header("x-content-type-options"), "nosniff");
    assert!(header("content-security-policy").contains("sandbox"));
    let bytes = axum::body::to_bytes(response.into_body(), 1_000).await.unwrap();
    assert_eq!(bytes, "<script>alert(1)</script>");

    let (status, todo) = client.get(&format!("{path}/TODO.md")).await;
    assert_eq!(status, 200);
    assert!(todo.as_str().unwrap().contains("data/page.html"), "{todo}");
    assert_eq!(client.get(&format!("{path}/FILE_INDEX.json")).await.0, 200);
    for outside in ["..%2F..%2Fetc%2Fpasswd", "data/../../x", "data"] {
        assert_eq!(client.get(&format!("{path}/{outside}")).await.0, 404, "{outside}");
    }
}

#[tokio::test]
async fn a_stream_of_events_ends_with_the_goal() {
    let client = Client::new(|_| {}).await;
    let (_, made) = client.post("/v1/goals", json!({"text": "g"})).await;
    let goal = made["goal"].as_str().unwrap().to_owned();
    let request = Request::get(format!("/v1/goals/{goal}/events"))
        .header("authorization", "Bearer boss")
        .header("accept", "text/event-stream")
        .body(Body::empty())
        .unwrap();
    let response = client.router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let reading = tokio::spawn(axum::body::to_bytes(response.into_body(), usize::MAX));
    assert_eq!(client.post(&format!("/v1/goals/{goal}/note"), json!({"text": "shorter"})).await.0, 200);
    assert_eq!(
        client.post(&format!("/v1/goals/{goal}/cancel"), Value::Null).await.1,
        json!({"outcome": "ok"})
    );
    assert_eq!(
        client.post(&format!("/v1/goals/{goal}/cancel"), Value::Null).await.1,
        json!({"outcome": "unchanged"})
    );
    let text = String::from_utf8(reading.await.unwrap().unwrap().to_vec()).unwrap();
    assert!(
        text.contains("event: log") && text.contains("goal_submitted") && text.contains("shorter"),
        "{text}"
    );
    assert!(text.trim_end().ends_with(r#"data: {"state":"cancelled"}"#), "{text}");

    let (_, page) = client.get(&format!("/v1/goals/{goal}/events?after=0&limit=1")).await;
    assert_eq!((page["events"].as_array().map(Vec::len), &page["end"]), (Some(1), &json!(false)));
    let (_, rest) =
        client.get(&format!("/v1/goals/{goal}/events?after={}", page["last"].as_str().unwrap())).await;
    assert_eq!(rest["end"], json!(true));
    assert_eq!(
        code(&client.get(&format!("/v1/goals/{goal}/events?after=$")).await),
        (400, "bad_request", "after")
    );
    assert_eq!(
        code(&client.post(&format!("/v1/goals/{goal}/note"), json!({"text": "x"})).await),
        (409, "conflict", "")
    );
}

#[tokio::test]
async fn reads_never_show_the_proof_of_a_lease() {
    let client = Client::new(|_| {}).await;
    let (_, made) = client.post("/v1/goals", json!({"text": "g"})).await;
    let goal = made["goal"].as_str().unwrap();
    let claim = client.bench.manager(None).claim().await.unwrap();
    let (_, shown) = client.get(&format!("/v1/goals/{goal}")).await;
    let (_, list) = client.get("/v1/goals").await;
    assert!(
        !shown.to_string().contains(&claim.held.lease_id) && !list.to_string().contains(&claim.held.lease_id)
    );
}

#[tokio::test]
async fn a_person_delivers_the_files_of_a_ticket() {
    use shared::store::{Finish, Finished};
    let client = Client::new(|c| c.caps.faults = 1).await;
    let plan = json!({"goal": {"text": "g"}, "tickets": [{"id": "a", "description": "d", "tool": "code_interpreter",
        "args": {"code": "1"}, "outputs": ["data/a.csv"]}]});
    let (_, made) = client.post("/v1/goals", json!({"text": "g", "plan": plan})).await;
    let goal = made["goal"].as_str().unwrap();
    let manager = client.bench.manager(None);
    manager.settle().await;
    let (_, list) = client.get(&format!("/v1/goals/{goal}/tickets")).await;
    let ticket = list["tickets"][0]["task_id"].as_str().unwrap();
    let path = format!("/v1/tickets/{ticket}");
    let upload = Request::put("/v1/uploads")
        .header("authorization", "Bearer boss")
        .body(Body::from("a,b\n1,2\n"))
        .unwrap();
    let (_, uploaded) = client.send(upload).await;
    let files = json!({"files": [{"path": "data/a.csv", "blob": uploaded["blob"]}], "request_id": "r1"});
    // Nobody asked yet.
    assert_eq!(
        code(&client.post(&format!("{path}/deliver"), files.clone()).await),
        (409, "conflict", "decision")
    );
    client.bench.fail_once().await;
    manager.settle().await;
    assert_eq!(client.get(&path).await.1["status"], "needs_human");
    assert_eq!(
        code(&client.post(&format!("{path}/deliver"), json!({})).await),
        (400, "bad_request", "files")
    );
    let foreign = json!({"decision": "deliver", "overlay_ref": "a".repeat(64)});
    assert_eq!(
        code(&client.post(&format!("{path}/answer"), foreign).await),
        (400, "bad_request", "overlay_ref")
    );
    assert_eq!(client.post(&format!("{path}/deliver"), files.clone()).await.1, json!({"outcome": "ok"}));
    assert_eq!(client.post(&format!("{path}/deliver"), files).await.1, json!({"outcome": "duplicate"}));
    let (_, shown) = client.get(&path).await;
    assert_eq!((&shown["status"], &shown["work_actor"]), (&json!("reviewing"), &json!("person:admin")));
    assert!(!shown["overlay_ref"].as_str().unwrap().is_empty());
    // Finishing a step is the manager's alone: no lease, no change.
    let held = shared::store::Held { id: goal.into(), epoch: 1, lease_id: "x".into() };
    let finished = client.bench.store.manage_finish(&held, "s", 1, 0, &Finish::Done, 1_000).await.unwrap();
    assert_eq!(finished, Finished::Fenced);
}
