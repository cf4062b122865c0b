//! What the server keeps over a kill and over a clean stop: the ground under the other fault tests.

use harness::redis::{Options, Persistence, Redis};

#[tokio::test]
async fn a_clean_stop_keeps_everything_on_the_same_port() {
    let mut redis = Redis::start().await.unwrap();
    let port = redis.port();
    redis.query::<String>(&["SET", "kept", "1"]).await.unwrap();
    redis.stop().await.unwrap();
    redis.restart().await.unwrap();
    assert_eq!((redis.port(), redis.keys().await.unwrap()), (port, vec!["kept".to_owned()]));
}

#[tokio::test]
async fn a_kill_keeps_what_was_synced_before_the_reply() {
    let options = Options { persistence: Persistence::Always, ..Options::default() };
    let mut redis = Redis::start_with(options).await.unwrap();
    redis.query::<String>(&["SET", "kept", "1"]).await.unwrap();
    redis.kill();
    assert!(redis.keys().await.is_err(), "a killed server does not answer");
    redis.restart().await.unwrap();
    assert_eq!(redis.keys().await.unwrap(), ["kept"]);
}
