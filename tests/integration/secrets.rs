//! Secrets reach no prompt, log, record, blob or key (I12).

use harness::fleet::Fleet;
use harness::model::{Asked, Model};
use harness::script::{company, ticket};
use serde_json::json;
use std::path::{Path, PathBuf};

const KEY: &str = "sk-planted-0badc0ffee-secret";

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

#[tokio::test]
async fn i12_the_models_key_and_the_apis_token_are_found_nowhere() {
    let model = Model::start(company(vec![ticket("only", &[])])).await.unwrap();
    let fleet = Fleet::plan()
        .model(&model.url())
        .env("MODEL__API_KEY", KEY)
        .env("TELEMETRY__LOG_FILTER", "debug,shared=trace,manager=trace,worker=trace")
        .start()
        .await
        .unwrap();
    let api = fleet.api();
    let goal = api.submit(&json!({"text": "keep a secret"})).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    // An error of the model's server that repeats the key is redacted as well.
    model.play(|_: &Asked| {
        Some(harness::model::Answer::error(401, &format!("Incorrect API key provided: {KEY}")))
    });
    let refused = api.submit(&json!({"text": "refused"})).await.unwrap();
    let now = api.reaches(&refused, &["needs_human"]).await.unwrap();
    assert!(!now.to_string().contains(KEY), "{now}");
    for secret in [KEY, harness::fleet::TOKEN] {
        assert_eq!(holding(fleet.folder(), secret.as_bytes()), Vec::<PathBuf>::new(), "logs, blobs, scratch");
        fleet.redis.query::<String>(&["SAVE"]).await.unwrap();
        assert_eq!(holding(fleet.redis.folder(), secret.as_bytes()), Vec::<PathBuf>::new(), "AOF and dump");
        assert!(!format!("{:?}", api.events(&goal).await.unwrap()).contains(secret));
        let prompts: Vec<_> =
            model.asked().into_iter().filter(|a| a.body.to_string().contains(secret)).collect();
        assert!(prompts.is_empty(), "{prompts:?}");
    }
    let metrics = api.text("/metrics").await.unwrap();
    assert!(metrics.contains("muster_") && !metrics.contains(KEY));
}
