//! Gates fail closed (I7): no sandbox, no token, files that are no files.

use harness::fleet::{Fleet, Refused, Role};
use harness::scale::scale;
use harness::script::{direct, quick};
use harness::wait;
use serde_json::json;

#[tokio::test]
async fn i7_d7_without_a_sandbox_no_code_runs_and_somebody_hears_of_it() {
    let mut fleet = Fleet::plan().workers(0).start().await.unwrap();
    let api = fleet.api();
    let empty = fleet.folder().join("no-programs");
    std::fs::create_dir_all(&empty).unwrap();
    let path = empty.to_string_lossy().into_owned();
    fleet.add_program_with(Role::Worker, &[("PATH", &path)]).unwrap();
    let witness = fleet.folder().join("ran");
    let code = format!("open('{}', 'w').write('x')\nopen('data/t.txt', 'w').write('x')", witness.display());
    let goal = api.submit_plan("no sandbox", &json!([direct("t", &[], "data/t.txt", &code)])).await.unwrap();
    let said = wait::until("somebody is told", scale().patience(), async || {
        let fleet_now = api.get("/v1/fleet").await?.to_string();
        let ticket = api.ticket(&goal, "t").await?;
        let inbox = api.get("/v1/inbox").await?.to_string();
        let told = inbox.contains(&goal)
            || fleet_now.contains("\"sandbox\":false")
            || ticket.cause_detail.contains("sandbox");
        Ok(told.then_some(()))
    });
    said.await.unwrap();
    let ticket = api.ticket(&goal, "t").await.unwrap();
    assert_ne!(ticket.status.as_str(), "done");
    assert!(!witness.exists(), "the code did not run");
    // A worker that has one does it.
    fleet.add(Role::Worker).unwrap();
    if ticket.status.as_str() == "needs_human" {
        let retry = json!({"decision": "retry", "note": "there is a sandbox now"});
        api.post(&format!("/v1/tickets/{}/answer", ticket.task_id), &retry).await.unwrap();
    }
    api.event(&goal, "it runs elsewhere", |e| e.event == "claimed").await.unwrap();
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn i12_every_route_but_health_and_metrics_wants_a_token() {
    let fleet = Fleet::plan().workers(0).reviewers(0).start().await.unwrap();
    let api = fleet.api();
    for open in ["/healthz", "/readyz", "/metrics"] {
        api.with_token("").text(open).await.unwrap();
    }
    for token in ["", "wrong"] {
        for closed in ["/v1/goals", "/v1/inbox", "/v1/fleet", "/v1/stats", "/v1/tokens", "/v1/dead-letters"] {
            let refused = api.with_token(token).get(closed).await.unwrap_err().downcast::<Refused>().unwrap();
            assert_eq!(refused.status, 401, "{closed}: {refused}");
        }
    }
    // A token of one scope cannot do what another allows.
    let made = api.post("/v1/tokens", &json!({"name": "reader", "scopes": ["read"]})).await.unwrap();
    let reader = api.with_token(made["token"].as_str().unwrap());
    reader.get("/v1/goals").await.unwrap();
    let refused = reader.refused("/v1/goals", &json!({"text": "x"})).await.unwrap();
    assert_eq!(refused.status, 403, "{refused}");
    let stored: Vec<String> = fleet.redis.keys().await.unwrap();
    for key in stored {
        let dump = fleet.redis.query::<Vec<u8>>(&["DUMP", &key]).await.unwrap();
        let secret = made["token"].as_str().unwrap().as_bytes();
        assert!(!dump.windows(secret.len()).any(|w| w == secret), "the token stands in {key}");
    }
}

#[tokio::test]
async fn links_and_pipes_that_the_sandbox_makes_are_not_published() {
    let fleet = Fleet::plan().start().await.unwrap();
    let api = fleet.api();
    let code = "import os\nos.makedirs('data', exist_ok=True)\nos.symlink('/etc/passwd', 'data/link.txt')\nos.mkfifo('data/pipe')\nos.symlink('/', 'data/root')\nopen('data/real.txt', 'w').write('real\\n')\n";
    let mut ticket = direct("t", &[], "data/real.txt", code);
    ticket["outputs"] = json!(["data/real.txt"]);
    let goal = api.submit_plan("planted links", &json!([ticket])).await.unwrap();
    api.event(&goal, "the attempt ends", |e| e.from == "running" && !e.ticket.is_empty()).await.unwrap();
    let ended = wait::until("it is done or a person is asked", scale().patience(), async || {
        let status = api.ticket(&goal, "t").await?.status;
        Ok(["done", "needs_human"].contains(&status.as_str()).then_some(()))
    });
    ended.await.unwrap();
    let files = api.files(&goal).await.unwrap();
    assert!(files.iter().all(|f| f == "data/real.txt"), "{files:?}");
    fleet.no_panics().unwrap();
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn events_are_streamed_to_their_end() {
    let fleet = Fleet::plan().start().await.unwrap();
    let api = fleet.api();
    let goal = api.submit_plan("streamed", &json!([quick("a", &[]), quick("b", &["a"])])).await.unwrap();
    let stream = api.stream(&goal).await.unwrap();
    let all = api.events(&goal).await.unwrap();
    for event in &all {
        assert!(stream.contains(&event.id), "{event:?} is not in the stream");
    }
    let last = stream.trim_end().rsplit("\n\n").next().unwrap_or_default();
    assert!(last.contains("event: end") && last.contains("done"), "{last}");
}
