//! Submits that a replica confirms: what was confirmed outlives the master, what was not is said, and the server itself can
//! be told to take nothing that no replica follows.

use super::failover::Pair;
use harness::fleet::Fleet;
use harness::scale::scale;
use harness::wait;
use serde_json::json;
use shared::goal::NewGoal;
use shared::store::{Confirmation, Confirming, Submitted};
use shared::ticket::new_id;
use std::time::Duration;

const ONE: Confirming = Confirming { replicas: 1, timeout: Duration::from_millis(400) };
/// For what will be confirmed: however busy the machine is.
const PATIENT: Confirming = Confirming { replicas: 1, timeout: Duration::from_secs(3) };

fn goal(text: &str) -> NewGoal {
    NewGoal { id: new_id(), text: text.into(), ..NewGoal::default() }
}

#[tokio::test]
async fn q06_what_was_confirmed_is_never_lost_and_what_was_not_is_said() {
    let mut pair = Pair::start().await;
    let goals: Vec<NewGoal> = (0..scale().pick(20, 500)).map(|n| goal(&format!("goal {n}"))).collect();
    let (before, after) = goals.split_at(goals.len() / 2);
    let mut confirmed = vec![];
    for goal in before {
        let answer = pair.store.submit_goal_confirmed(goal, 100_000, PATIENT).await.unwrap();
        assert_eq!(answer, (Submitted::New, Confirmation::Confirmed));
        confirmed.push(goal);
    }
    // From here on nothing reaches the replica, although its connection looks alive.
    pair.replication.half_open();
    for goal in after {
        let answer = pair.store.submit_goal_confirmed(goal, 100_000, ONE).await.unwrap();
        assert_eq!(answer, (Submitted::New, Confirmation::Missing { have: 0, want: 1 }), "taken, and said");
    }
    // Asking again does not make it so: a connection that wrote nothing must not be told the wrong thing.
    let again = pair.store.submit_goal_confirmed(&after[0], 100_000, ONE).await.unwrap();
    assert_eq!(again, (Submitted::Duplicate, Confirmation::Missing { have: 0, want: 1 }));
    let again = pair.store.confirm_goal(&before[0].id, ONE).await;
    assert_eq!(again, Confirmation::Missing { have: 0, want: 1 }, "nobody can say it at the moment");
    pair.fail_over().await;
    for goal in confirmed {
        assert!(
            pair.store.goal(&goal.id).await.unwrap().is_some(),
            "{} was confirmed and is lost",
            goal.text
        );
    }
    let mut lost = 0;
    for goal in after {
        lost += usize::from(pair.store.goal(&goal.id).await.unwrap().is_none());
        let repeat = pair.store.submit_goal_confirmed(goal, 100_000, ONE).await.unwrap();
        assert_eq!(repeat.1, Confirmation::Missing { have: 0, want: 1 }, "the new master has no replica yet");
    }
    assert_eq!(lost, after.len(), "the cut was real");
    assert_eq!(pair.store.goals(None, 0, 10_000).await.unwrap().len(), goals.len(), "each is there once");
    harness::oracle::check(&pair.store).await.unwrap();
}

#[tokio::test]
async fn q06_a_goal_that_only_the_old_master_has_is_not_confirmed_by_the_new_one() {
    let mut pair = Pair::start().await;
    pair.replication.half_open();
    let lost = goal("on the old master only");
    assert_eq!(pair.store.submit_goal(&lost, 100_000).await.unwrap(), Submitted::New);
    pair.fail_over().await;
    // The new master has a replica of its own that would confirm anything.
    let third = harness::redis::Redis::start().await.unwrap();
    third.query::<String>(&["REPLICAOF", "127.0.0.1", &pair.replica.port().to_string()]).await.unwrap();
    let other = goal("after the failover");
    let follows = wait::until("the third follows", scale().patience(), async || {
        let answer = pair.store.submit_goal_confirmed(&other, 100_000, ONE).await?;
        Ok((answer.1 == Confirmation::Confirmed).then_some(()))
    });
    follows.await.unwrap();
    assert_eq!(pair.store.confirm_goal(&lost.id, ONE).await, Confirmation::Missing { have: 0, want: 1 });
}

#[tokio::test]
async fn q06_min_replicas_to_write_refuses_what_no_replica_follows() {
    let mut pair = Pair::start().await;
    for (name, value) in [("min-replicas-to-write", "1"), ("min-replicas-max-lag", "2")] {
        pair.desk.redis.query::<String>(&["CONFIG", "SET", name, value]).await.unwrap();
    }
    let kept = goal("with a replica");
    let taken = wait::until("the replica counts", scale().patience(), async || {
        // A repeat is the same goal: it is asked until the link stands.
        let answer = pair.store.submit_goal_confirmed(&kept, 100_000, ONE).await?;
        Ok((answer.1 == Confirmation::Confirmed).then_some(()))
    });
    taken.await.unwrap();
    pair.replication.refuse();
    // As soon as the link is down, or two seconds behind, nothing is taken any more.
    let mut unsafe_ones = vec![];
    let refused = wait::until("submits are refused", scale().patience(), async || {
        let goal = goal("without a replica");
        match pair.store.submit_goal(&goal, 100_000).await {
            Ok(_) => {
                unsafe_ones.push(goal.id);
                Ok(None)
            }
            Err(error) => Ok(Some(error)),
        }
    });
    let error = refused.await.unwrap();
    assert!(error.is_retryable(), "a passing state: {error}");
    let more = goal("still without");
    assert!(pair.store.submit_goal(&more, 100_000).await.is_err());
    assert!(pair.store.goal(&more.id).await.unwrap().is_none(), "nothing is half-taken");
    pair.fail_over().await;
    assert!(pair.store.goal(&kept.id).await.unwrap().is_some());
    for id in unsafe_ones {
        // The window that the setting bounds: taken before the lag was noticed.
        assert!(pair.store.goal(&id).await.unwrap().is_none());
    }
}

#[tokio::test]
async fn the_api_and_the_command_line_say_what_is_not_confirmed() {
    let fleet = Fleet::plan().workers(0).reviewers(0).env("REDIS__CONFIRM_REPLICAS", "1");
    let fleet = fleet.env("REDIS__CONFIRM_TIMEOUT_MS", "200").start().await.unwrap();
    let body = json!({"text": "nobody confirms", "idempotency_key": "k"});
    let answer = fleet.api().post("/v1/goals", &body).await.unwrap();
    assert_eq!((answer["confirmed"].as_bool(), answer["duplicate"].as_bool()), (Some(false), Some(false)));
    let again = fleet.api().post("/v1/goals", &body).await.unwrap();
    assert_eq!((again["confirmed"].as_bool(), again["duplicate"].as_bool()), (Some(false), Some(true)));
    let submit = ["submit", "nobody confirms", "--idempotency-key", "k", "--json"];
    let ran = fleet.muster(&submit).await.unwrap();
    assert_eq!((ran.code, ran.json().unwrap()["confirmed"].as_bool()), (0, Some(false)), "{ran:?}");
    assert!(ran.stderr.contains("not confirmed") && ran.stderr.contains("--idempotency-key"), "{ran:?}");
    // A replica joins: the same key asks again.
    let replica = harness::redis::Redis::start().await.unwrap();
    replica.query::<String>(&["REPLICAOF", "127.0.0.1", &fleet.redis.port().to_string()]).await.unwrap();
    let confirmed = wait::until("it is confirmed", scale().patience(), async || {
        let answer = fleet.api().post("/v1/goals", &body).await?;
        Ok((answer["confirmed"].as_bool() == Some(true)).then_some(()))
    });
    confirmed.await.unwrap();
    let ran = fleet.muster(&submit).await.unwrap();
    assert!(!ran.stderr.contains("not confirmed"), "{ran:?}");
}
