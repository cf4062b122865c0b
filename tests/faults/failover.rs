//! A replica takes over that did not get everything: what was lost runs again, and its old owners stay fenced.

use harness::desk::{Desk, claim_through, completion, independent};
use harness::proxy::Proxy;
use harness::redis::Redis;
use harness::scale::scale;
use harness::wait;
use shared::message::Kind;
use shared::store::{Claim, ClaimReply, Store, Written};
use shared::ticket::new_id;
use std::collections::BTreeSet;

/// A master, its replica, a line between them that can be cut, and a stable address in front.
pub(super) struct Pair {
    pub(super) desk: Desk,
    pub(super) replica: Redis,
    pub(super) replication: Proxy,
    pub(super) front: Proxy,
    pub(super) store: Store,
}

impl Pair {
    pub(super) async fn start() -> Self {
        let desk = Desk::start().await.unwrap();
        let replica = Redis::start().await.unwrap();
        let replication = Proxy::start(desk.redis.port()).await.unwrap();
        let front = Proxy::start(desk.redis.port()).await.unwrap();
        replica.query::<String>(&["REPLICAOF", "127.0.0.1", &replication.port().to_string()]).await.unwrap();
        let linked = wait::until("the replica follows", scale().patience(), async || {
            let info: String = replica.query(&["INFO", "replication"]).await?;
            Ok(info.contains("master_link_status:up").then_some(()))
        });
        linked.await.unwrap();
        let store = desk.another_store(&front.redis_url()).await.unwrap();
        Self { desk, replica, replication, front, store }
    }

    /// Everything written so far is on the replica, nothing after this will be.
    pub(super) async fn cut_replication(&self) {
        let offset = async |redis: &Redis, field: &str| -> anyhow::Result<i64> {
            let info: String = redis.query(&["INFO", "replication"]).await?;
            let line = info.lines().find_map(|l| l.strip_prefix(field)).unwrap_or("-1");
            Ok(line.trim().parse()?)
        };
        let same = wait::until("the replica has caught up", scale().patience(), async || {
            let master = offset(&self.desk.redis, "master_repl_offset:").await?;
            Ok((offset(&self.replica, "slave_repl_offset:").await? >= master).then_some(()))
        });
        same.await.unwrap();
        self.replication.half_open();
    }

    /// The master dies, the replica takes over behind the same address.
    pub(super) async fn fail_over(&mut self) {
        self.desk.redis.kill();
        self.replica.query::<String>(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
        self.front.retarget(self.replica.port());
        self.front.reset_all();
    }

    async fn claim(&self, n: usize) -> Vec<Claim> {
        let mut all = vec![];
        while all.len() < n {
            let want = (n - all.len()).min(16);
            let lease = self.desk.lease.lease_ms;
            match claim_through(&self.store, Kind::Work, "w", &new_id(), lease, want).await.unwrap() {
                ClaimReply::Got(claims) => all.extend(claims),
                ClaimReply::Again { .. } => {}
                other => panic!("{other:?} after {}", all.len()),
            }
        }
        all
    }

    async fn complete(&self, claims: &[Claim]) -> Vec<Written> {
        let mut words = vec![];
        for batch in claims.chunks(16) {
            let batch: Vec<_> = batch.iter().map(|c| completion(&c.held)).collect();
            words.extend(self.store.complete(&batch).await.unwrap());
        }
        words
    }
}

#[tokio::test]
async fn q06_work_that_the_promoted_replica_did_not_get_runs_again_and_only_that() {
    let mut pair = Pair::start().await;
    pair.desk.sweep().await.unwrap();
    let plan = pair.desk.plan(&independent(60)).await.unwrap();
    let claims = pair.claim(60).await;
    let (kept, lost) = claims.split_at(25);
    assert_eq!(pair.complete(kept).await, vec![Written::Ok; 25]);
    pair.cut_replication().await;
    assert_eq!(pair.complete(lost).await, vec![Written::Ok; 35]);
    pair.fail_over().await;

    // Every owner says it once more (its reply may have been lost): what is known there is DUP, the rest is new.
    // Half of the forgotten ones do not come back: their workers are gone.
    let (repeat, gone) = lost.split_at(20);
    assert_eq!(pair.complete(kept).await, vec![Written::Dup; 25]);
    assert_eq!(pair.complete(repeat).await, vec![Written::Ok; 20]);
    let swept = wait::until("the leases of those that are gone lapse", scale().patience(), async || {
        pair.store.sweep(&pair.desk.lease).await?;
        let goal = pair.store.goal(&plan.goal).await?.unwrap();
        Ok((goal.counts.get("pending") == Some(&15)).then_some(()))
    });
    swept.await.unwrap();
    let again = pair.claim(15).await;
    let ids = |claims: &[Claim]| claims.iter().map(|c| c.held.id.clone()).collect::<BTreeSet<_>>();
    assert_eq!(ids(&again), ids(gone), "exactly what was not replicated runs again");
    assert_eq!(pair.complete(gone).await, vec![Written::Fenced; 15], "the old owners come too late");
    assert_eq!(pair.complete(&again).await, vec![Written::Ok; 15]);
    let events = harness::oracle::events(&pair.store, &plan.goal).await.unwrap();
    let times = harness::oracle::acceptances(&events);
    assert_eq!((times.len(), times.values().all(|n| *n == 1)), (60, true), "each accepted once");
    harness::oracle::check(&pair.store).await.unwrap();
}

#[tokio::test]
async fn q16_the_same_epoch_under_another_lease_is_refused_after_a_failover() {
    let mut pair = Pair::start().await;
    pair.desk.plan(&independent(1)).await.unwrap();
    pair.cut_replication().await;
    let old = pair.claim(1).await.remove(0);
    pair.fail_over().await;
    let new = pair.claim(1).await.remove(0);
    assert_eq!(
        (&old.held.id, old.held.epoch),
        (&new.held.id, new.held.epoch),
        "both masters gave out one epoch"
    );
    assert_eq!(pair.complete(std::slice::from_ref(&old)).await, [Written::Fenced]);
    assert_eq!(pair.complete(std::slice::from_ref(&new)).await, [Written::Ok]);
    harness::oracle::check(&pair.store).await.unwrap();
}

#[tokio::test]
async fn q45_a_demoted_master_is_left_for_the_new_one() {
    let mut pair = Pair::start().await;
    pair.desk.plan(&independent(2)).await.unwrap();
    pair.cut_replication().await;
    // The old master stays alive behind the address for a while, read-only; then the address moves.
    let port = pair.replica.port().to_string();
    pair.replica.query::<String>(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
    pair.desk.redis.query::<String>(&["REPLICAOF", "127.0.0.1", &port]).await.unwrap();
    let refused = claim_through(&pair.store, Kind::Work, "w", &new_id(), 1_000, 1).await.unwrap_err();
    assert!(refused.to_string().contains("not answering"), "a passing state, to be repeated: {refused:#}");
    pair.front.retarget(pair.replica.port());
    let back = std::time::Instant::now();
    let got = wait::until("the new master is found", scale().patience(), async || {
        match claim_through(&pair.store, Kind::Work, "w", &new_id(), 1_000, 2).await {
            Ok(ClaimReply::Got(claims)) => Ok(Some(claims)),
            Ok(_) => Ok(None),
            Err(error) => Err(error),
        }
    });
    assert_eq!(got.await.unwrap().len(), 2);
    assert!(back.elapsed() < std::time::Duration::from_secs(5), "{:?}", back.elapsed());
    pair.desk.redis.kill();
}
