//! Q22: whatever happens to the connection to Redis, work goes on within five seconds after it is back.

use harness::fleet::Fleet;
use harness::proxy::Proxy;
use harness::redis::Redis;
use harness::scale::scale;
use harness::wait;
use serde_json::json;
use std::time::{Duration, Instant};

/// Programs that speak to Redis through a proxy, with an idle worker.
struct Line {
    fleet: Fleet,
    proxy: Proxy,
    rounds: usize,
}

impl Line {
    async fn start() -> Self {
        let redis = Redis::start().await.unwrap();
        let proxy = Proxy::start(redis.port()).await.unwrap();
        let fleet = Fleet::plan().through(&proxy.redis_url()).start_on(redis).await.unwrap();
        Self { fleet, proxy, rounds: 0 }
    }

    /// A goal that is submitted now is claimed within five seconds and ends.
    async fn works(&mut self, after: &str) {
        let back = Instant::now();
        let api = self.fleet.api();
        self.rounds += 1;
        let path = format!("data/{}.txt", self.rounds);
        let ticket = json!([{"id": "t", "description": "note", "tool": "write_file", "outputs": [path],
            "args": {"path": path, "content": "noted\n"}, "review": "none"}]);
        let text = format!("after {after} {}", self.rounds);
        // The manager itself may still be without a connection: the key makes the repeat harmless.
        let body = json!({"text": text, "idempotency_key": text, "plan": {"goal": {"text": text}, "tickets": ticket}});
        let goal = wait::until("the submit is taken", Duration::from_secs(5), async || {
            api.submit(&body).await.map(Some)
        })
        .await
        .unwrap_or_else(|e| panic!("after {after}: {e:#}"));
        let claimed = wait::until("it is claimed", Duration::from_secs(5), async || {
            Ok(api.events(&goal).await?.into_iter().find(|e| e.event == "claimed"))
        });
        claimed.await.unwrap_or_else(|e| panic!("after {after}: {e:#}"));
        assert!(back.elapsed() < Duration::from_secs(5), "after {after}: {:?}", back.elapsed());
        api.reaches(&goal, &["done"]).await.unwrap();
    }
}

fn repeats() -> usize {
    scale().pick(2, 20)
}

#[tokio::test]
async fn q22_stopped_servers() {
    let mut line = Line::start().await;
    let outages = scale().pick(vec![500, 3_000], vec![500, 3_000, 12_000, 60_000]);
    for _ in 0..repeats() {
        for outage_ms in &outages {
            line.fleet.redis.stop().await.unwrap();
            wait::moment(Duration::from_millis(*outage_ms)).await;
            line.fleet.redis.restart().await.unwrap();
            line.works(&format!("{outage_ms} ms without a server")).await;
        }
    }
    line.fleet.no_panics().unwrap();
    line.fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn q22_killed_and_paused_clients() {
    let mut line = Line::start().await;
    for _ in 0..repeats() {
        line.fleet.redis.query::<i64>(&["CLIENT", "KILL", "TYPE", "normal"]).await.unwrap();
        line.works("CLIENT KILL").await;
        let pause = scale().pick("3000", "10000");
        line.fleet.redis.query::<String>(&["CLIENT", "PAUSE", pause, "ALL"]).await.unwrap();
        wait::moment(Duration::from_millis(pause.parse().unwrap())).await;
        line.works("CLIENT PAUSE").await;
    }
    line.fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn q22_a_server_that_sleeps() {
    let mut line = Line::start().await;
    for _ in 0..repeats() {
        line.fleet.redis.query::<String>(&["DEBUG", "SLEEP", scale().pick("3", "8")]).await.unwrap();
        line.works("DEBUG SLEEP").await;
        line.fleet.redis.freeze();
        wait::moment(Duration::from_secs(scale().pick(3, 12))).await;
        line.fleet.redis.thaw();
        line.works("SIGSTOP").await;
    }
    line.fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn q22_a_role_that_flips() {
    let mut line = Line::start().await;
    for _ in 0..repeats() {
        // Blocked clients are told UNBLOCKED, writers READONLY; then it is a master again.
        line.fleet.redis.query::<String>(&["REPLICAOF", "127.0.0.1", "1"]).await.unwrap();
        wait::moment(Duration::from_millis(1_500)).await;
        line.fleet.redis.query::<String>(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
        line.works("REPLICAOF").await;
    }
    line.fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn q22_a_line_that_drops_without_a_word() {
    let mut line = Line::start().await;
    for _ in 0..repeats() {
        line.proxy.half_open();
        wait::moment(Duration::from_secs(scale().pick(3, 12))).await;
        line.proxy.pass();
        line.works("a silent drop").await;
        line.proxy.reset_all();
        line.works("a reset").await;
        line.proxy.delay(Duration::from_millis(20));
        line.works("40 ms a round trip").await;
        line.proxy.pass();
    }
    line.fleet.oracle().await.unwrap();
}
