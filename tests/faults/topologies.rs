//! The same store on a Cluster, behind Sentinel, and as an ACL user that may do little.

use harness::desk::{claim_through, completion, decision, independent};
use harness::redis::Redis;
use harness::scale::scale;
use harness::topology::{Cluster, Sentinel};
use harness::wait;
use shared::config::Redis as RedisConfig;
use shared::goal::NewGoal;
use shared::message::Kind;
use shared::store::{ClaimReply, Finish, GoalClaim, Store, Submitted, Written};
use shared::ticket::patch::NewTicket;
use shared::ticket::{ReviewPolicy, TicketSpec, new_id};
use std::time::Duration;

/// A goal of these tickets, sealed.
async fn sealed(store: &Store, specs: &[TicketSpec]) -> GoalClaim {
    let goal = NewGoal { id: new_id(), text: "t".into(), ..NewGoal::default() };
    assert_eq!(store.submit_goal(&goal, 100_000).await.unwrap(), Submitted::New);
    let claim = store.manage_claim("m", &new_id(), 30_000).await.unwrap().unwrap();
    let page: Vec<NewTicket> = specs
        .iter()
        .map(|spec| NewTicket {
            id: new_id(),
            parent_id: goal.id.clone(),
            need_ids: vec![],
            spec: spec.clone(),
        })
        .collect();
    assert_eq!(store.submit_tickets(&claim.held, &page).await.unwrap(), Written::Ok);
    assert_eq!(store.seal(&claim.held, page.len()).await.unwrap(), Written::Ok);
    let finish = Finish::Continue { decided: true };
    store.manage_finish(&claim.held, &new_id(), 0, claim.read, &finish, 60_000).await.unwrap();
    claim
}

/// Everything that is there is done: work, then review.
async fn drain(store: &Store) -> usize {
    let mut done = 0;
    loop {
        let work = claim_through(store, Kind::Work, "w", &new_id(), 5_000, 8).await.unwrap();
        let reviews = claim_through(store, Kind::Review, "r", &new_id(), 5_000, 8).await.unwrap();
        let (ClaimReply::Empty, ClaimReply::Empty) = (&work, &reviews) else {
            if let ClaimReply::Got(claims) = work {
                for claim in claims {
                    assert_eq!(store.complete(&[completion(&claim.held)]).await.unwrap(), [Written::Ok]);
                }
            }
            if let ClaimReply::Got(claims) = reviews {
                for claim in claims {
                    assert_eq!(store.decide(&[decision(&claim.held, true)]).await.unwrap(), [Written::Ok]);
                    done += 1;
                }
            }
            continue;
        };
        return done;
    }
}

fn reviewed(n: usize) -> Vec<TicketSpec> {
    independent(n).into_iter().map(|spec| TicketSpec { review: ReviewPolicy::Code, ..spec }).collect()
}

#[tokio::test]
async fn q46_the_store_works_on_a_cluster() {
    let cluster = Cluster::start().await.unwrap();
    let config = RedisConfig { url: cluster.url(), ..RedisConfig::default() };
    let store = Store::connect(&config).await.unwrap();
    sealed(&store, &reviewed(20)).await;
    let lanes = ["work.default".to_owned()];
    store.waiter().wait(&lanes, 500).await;
    assert_eq!(drain(&store).await, 20);
    store.sweep(&scale().lease()).await.unwrap();
    harness::oracle::check(&store).await.unwrap();
    let mut owners = 0;
    for node in &cluster.nodes {
        owners += usize::from(!node.keys().await.unwrap().is_empty());
    }
    assert_eq!(owners, 1, "one shard is one slot");
}

#[tokio::test]
async fn q06_sentinel_promotes_the_replica_and_the_store_follows() {
    let mut set = Sentinel::start().await.unwrap();
    let config = RedisConfig { url: set.url(), ..RedisConfig::default() };
    let store = Store::connect(&config).await.unwrap();
    sealed(&store, &reviewed(6)).await;
    // Everything is on the replica before the master dies.
    set.caught_up().await.unwrap();
    set.master.kill();
    // A sentinel that saw its clock jump acts on nothing for 30 s (its tilt mode).
    let patience = scale().patience() + Duration::from_secs(60);
    let got = wait::until("the promoted replica is found", patience, async || {
        match claim_through(&store, Kind::Work, "w", &new_id(), 5_000, 2).await {
            Ok(ClaimReply::Got(claims)) => Ok(Some(claims)),
            Ok(_) => Ok(None),
            Err(error) => Err(error),
        }
    });
    let claims = got.await.unwrap();
    let role: String = set.replica.query(&["INFO", "replication"]).await.unwrap();
    assert!(role.contains("role:master"));
    for claim in claims {
        assert_eq!(store.complete(&[completion(&claim.held)]).await.unwrap(), [Written::Ok]);
    }
    assert_eq!(drain(&store).await, 6);
    harness::oracle::check(&store).await.unwrap();
}

#[tokio::test]
async fn an_acl_user_without_dangerous_commands_is_enough() {
    let redis = Redis::start().await.unwrap();
    let rules = [
        "ACL",
        "SETUSER",
        "fleet",
        "on",
        ">secret-word",
        "~muster:*",
        "&*",
        "+@all",
        "-@dangerous",
        "-@admin",
        "+info",
        "+config|get",
    ];
    redis.query::<String>(&rules).await.unwrap();
    redis.query::<String>(&["ACL", "SETUSER", "default", "off"]).await.unwrap();
    let url = format!("redis://fleet:secret-word@127.0.0.1:{}", redis.port());
    let store = Store::connect(&redis.config_at(&url)).await.unwrap();
    sealed(&store, &reviewed(3)).await;
    assert_eq!(drain(&store).await, 3);
    store.sweep(&scale().lease()).await.unwrap();
    store.gauges().await.unwrap();
    harness::oracle::check(&store).await.unwrap();
    // A wrong password is said as such, at once.
    let wrong = redis.config_at(&format!("redis://fleet:no@127.0.0.1:{}", redis.port()));
    let error = Store::connect(&wrong).await.err().unwrap();
    assert!(!error.is_retryable(), "{error}");
}
