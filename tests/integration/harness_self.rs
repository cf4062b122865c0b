//! The harness itself: what the other tests stand on must hold.

use harness::redis::{Options, Persistence, Redis};

#[tokio::test]
async fn a_redis_without_persistence_starts_empty_and_answers() {
    let redis =
        Redis::start_with(Options { persistence: Persistence::None, ..Options::default() }).await.unwrap();
    assert_eq!(redis.keys().await.unwrap(), Vec::<String>::new());
    let policy: Vec<String> = redis.query(&["CONFIG", "GET", "maxmemory-policy"]).await.unwrap();
    assert_eq!(policy, ["maxmemory-policy", "noeviction"]);
}
