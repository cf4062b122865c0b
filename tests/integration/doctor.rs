//! `muster doctor` names what is wrong, each with the way out.

use harness::fleet::{Fleet, Ran, Role, muster_in, run_to_end};
use harness::model::{Answer, Model};
use harness::redis::{Options, Persistence, Redis};
use serde_json::Value;

/// What the doctor says about the thing that is wrong: the checks that are not ok.
fn complaints(ran: &Ran) -> Vec<Value> {
    let report = ran.json().unwrap_or_else(|e| panic!("{e:#}"));
    let checks = report["checks"].as_array().cloned().unwrap_or_default();
    checks.into_iter().filter(|c| c["state"] == "bad" || c["state"] == "warn").collect()
}

#[track_caller]
fn names(ran: &Ran, words: &[&str]) {
    let complaints = complaints(ran);
    let hit = complaints.iter().find(|c| {
        let text = c.to_string().to_lowercase();
        words.iter().all(|w| text.contains(&w.to_lowercase()))
    });
    let hit = hit.unwrap_or_else(|| panic!("nothing about {words:?} in {complaints:?}"));
    assert!(!hit["hint"].as_str().unwrap_or_default().is_empty(), "with the way out: {hit}");
}

#[tokio::test]
async fn a_healthy_fleet_has_no_complaints() {
    let model = Model::start(|_| None).await.unwrap();
    let fleet = Fleet::plan().model(&model.url()).start().await.unwrap();
    let ran = fleet.muster(&["doctor", "--json"]).await.unwrap();
    assert_eq!((ran.code, complaints(&ran)), (0, vec![]), "{ran:?}");
    let shown = fleet.muster(&["doctor"]).await.unwrap();
    assert!(shown.code == 0 && shown.stdout.contains("redis"), "{shown:?}");
}

#[tokio::test]
async fn without_a_fleet_the_model_of_the_environment_is_looked_at() {
    let model = Model::start(|asked| Some(Answer::Text(format!("{} PINEAPPLE", asked.nth)))).await.unwrap();
    let redis = Redis::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (redis_url, url) = (redis.url(), model.url());
    let env = [
        ("MUSTER_REDIS__URL", redis_url.as_str()),
        ("MUSTER_MODEL_URL", url.as_str()),
        ("MUSTER_MODEL_NAME", "test-model"),
    ];
    let ran = muster_in(folder.path(), &["doctor", "--model", "--json"], &env).await.unwrap();
    let report = ran.json().unwrap();
    let about: Vec<&Value> = report["checks"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|c| c["name"].as_str().is_some_and(|n| n.starts_with("model")))
        .collect();
    assert!(about.iter().any(|c| c["name"] == "model's ways" && c["state"] != "bad"), "{about:?}");
    assert!(!model.asked().is_empty(), "it was tried out");
    let gone = [env[0], ("MUSTER_MODEL_URL", "http://127.0.0.1:1/v1")];
    names(&muster_in(folder.path(), &["doctor", "--json"], &gone).await.unwrap(), &["127.0.0.1:1", "models"]);
}

#[tokio::test]
async fn each_thing_that_is_wrong_is_named() {
    let model = Model::start(|_| None).await.unwrap();
    let mut fleet = Fleet::plan().model(&model.url()).start().await.unwrap();
    let doctor = async |fleet: &Fleet, env: &[(&str, &str)]| {
        fleet.muster_with(&["doctor", "--json"], env).await.unwrap()
    };

    let unreachable = doctor(&fleet, &[("MUSTER_REDIS__URL", "redis://127.0.0.1:1")]).await;
    assert_eq!(unreachable.code, 1);
    names(&unreachable, &["redis", "127.0.0.1:1"]);

    fleet.redis.query::<String>(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await.unwrap();
    names(&doctor(&fleet, &[]).await, &["noeviction"]);
    fleet.redis.query::<String>(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await.unwrap();

    fleet.redis.query::<String>(&["CONFIG", "SET", "appendonly", "no"]).await.unwrap();
    names(&doctor(&fleet, &[("MUSTER_REDIS__ALLOW_NO_PERSISTENCE", "false")]).await, &["appendonly"]);
    fleet.redis.query::<String>(&["CONFIG", "SET", "appendonly", "yes"]).await.unwrap();

    names(&doctor(&fleet, &[("MUSTER_MODEL__URL", "http://127.0.0.1:1/v1")]).await, &["model"]);
    let elsewhere = fleet.folder().join("elsewhere").to_string_lossy().into_owned();
    std::fs::create_dir_all(&elsewhere).unwrap();
    names(&doctor(&fleet, &[("MUSTER_BLOBS__FOLDER", &elsewhere)]).await, &["blob"]);
    let empty = fleet.folder().join("no-programs").to_string_lossy().into_owned();
    std::fs::create_dir_all(&empty).unwrap();
    names(&doctor(&fleet, &[("PATH", &empty)]).await, &["bwrap"]);

    // A lane that nobody serves.
    let api = fleet.api();
    let ticket = serde_json::json!([{"id": "t", "description": "note", "tool": "write_file", "pool": "gpu", "outputs": ["data/t.txt"],
        "args": {"path": "data/t.txt", "content": "x"}, "review": "none"}]);
    api.submit_plan("nobody serves it", &ticket).await.unwrap();
    harness::wait::until("the ticket is ready", harness::scale::scale().patience(), async || {
        let stats = api.get("/v1/stats").await?;
        Ok((stats["gauges"]["demand"]["work.gpu"] == 1).then_some(()))
    })
    .await
    .unwrap();
    names(&doctor(&fleet, &[]).await, &["work.gpu"]);

    fleet.program(Role::Manager, 0).kill();
    let ran = doctor(&fleet, &[]).await;
    names(&ran, &["manager"]);
}

#[tokio::test]
async fn programs_refuse_to_start_on_a_redis_that_would_lose_tickets() {
    let evicting =
        Options { settings: vec![("maxmemory-policy", "allkeys-lru".into())], ..Options::default() };
    let forgetful = Options { persistence: Persistence::None, ..Options::default() };
    for (options, word) in [(evicting, "noeviction"), (forgetful, "appendonly")] {
        let redis = Redis::start_with(options).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        for role in [Role::Manager, Role::Worker, Role::Reviewer] {
            let url = redis.url();
            let ran = run_to_end(
                role,
                &[],
                &[("MUSTER_REDIS__URL", &url), ("MUSTER_MANAGER__LISTEN", "127.0.0.1:0")],
                folder.path(),
            )
            .await
            .unwrap();
            assert!(ran.code != 0 && ran.stderr.contains(word), "{role:?}: {ran:?}");
        }
    }
}

#[tokio::test]
async fn a_wrong_configuration_ends_with_64_before_anything_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let cases: &[(&str, &str, &str)] = &[
        ("MUSTER_LEASE__LEASE_MS", "soon", "lease_ms"),
        ("MUSTER_LEASE__LEESE_MS", "1000", "leese_ms"),
        ("MUSTER_LEASE__RENEW_MS", "29000", "lease.renew_ms"),
        ("MUSTER_REDIS__URL", "http://example.org", "redis.url"),
        ("MUSTER_WORKER__POOLS", "a pool", "worker.pools"),
        ("MUSTER_MODEL__URL", "ftp://x", "model.url"),
    ];
    for (name, value, word) in cases {
        for role in [Role::Manager, Role::Worker, Role::Reviewer] {
            let ran = run_to_end(role, &[], &[(name, value)], folder.path()).await.unwrap();
            assert_eq!(ran.code, 64, "{role:?} with {name}={value}: {ran:?}");
            assert!(ran.stderr.contains(word), "{name}={value}: {}", ran.stderr);
        }
    }
    let printed = run_to_end(
        Role::Worker,
        &["--print-config"],
        &[("MUSTER_MODEL__API_KEY", "sk-hidden")],
        folder.path(),
    )
    .await
    .unwrap();
    assert!(
        printed.code == 0 && printed.stdout.contains("lease_ms") && !printed.stdout.contains("sk-hidden"),
        "{printed:?}"
    );
}
