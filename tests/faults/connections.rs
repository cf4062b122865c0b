//! What a client cannot know: replies that are cut off, pops that time out, connections that are shared.

use harness::desk::{Desk, WORK, claim_through, expect, independent};
use harness::proxy::Proxy;
use harness::scale::scale;
use harness::wait;
use shared::config::Redis as RedisConfig;
use shared::message::Kind;
use shared::store::{ClaimReply, Renewal, Store, Written};
use shared::ticket::{Status, new_id};
use std::time::{Duration, Instant};

#[tokio::test]
async fn q02_a_claim_whose_reply_is_cut_is_repeated_or_swept_once() {
    let desk = Desk::start().await.unwrap();
    desk.sweep().await.unwrap();
    let proxy = Proxy::start(desk.redis.port()).await.unwrap();
    let store = desk.another_store(&proxy.redis_url()).await.unwrap();
    let plan = desk.plan(&independent(2)).await.unwrap();

    // Cut once: the client asks again with the same prefix and gets the ticket that it already holds.
    let prefix = new_id();
    proxy.cut_reply_of(prefix.as_bytes(), 1);
    let lease_ms = desk.lease.lease_ms;
    let ClaimReply::Got(got) = claim_through(&store, Kind::Work, "w", &prefix, lease_ms, 1).await.unwrap()
    else {
        panic!("nothing claimed");
    };
    assert_eq!((proxy.cuts(), got.len(), got[0].ticket.attempts), (1, 1, 1));
    expect(desk.complete(&got[0].held).await.unwrap(), Written::Ok).unwrap();

    // Cut every time: the client gives up, not knowing that it holds a ticket.
    let prefix = new_id();
    proxy.cut_reply_of(prefix.as_bytes(), usize::MAX);
    let error = claim_through(&store, Kind::Work, "w", &prefix, lease_ms, 1).await.unwrap_err();
    assert!(error.to_string().contains("not answering"), "{error:#}");
    let held = desk.ticket(plan.id("t0001")).await.unwrap();
    assert_eq!((held.status, held.attempts), (Status::Running, 1));
    assert_eq!(desk.redis.query::<i64>(&["ZCARD", "muster:{s0}:lease"]).await.unwrap(), 1);
    let mut requeued = 0;
    let lapsed = wait::until("its lease lapses", scale().patience(), async || {
        requeued += desk.sweep().await?.requeued;
        Ok((desk.status(plan.id("t0001")).await? == Status::Pending).then_some(()))
    });
    lapsed.await.unwrap();
    assert_eq!((requeued, desk.sweep().await.unwrap().requeued), (1, 0));
    desk.drain().await.unwrap();
    desk.oracle().await.unwrap();
}

#[tokio::test]
async fn q28_an_outcome_whose_reply_is_reset_is_accepted_once() {
    let desk = Desk::start().await.unwrap();
    let proxy = Proxy::start(desk.redis.port()).await.unwrap();
    let store = desk.another_store(&proxy.redis_url()).await.unwrap();
    let plan = desk.plan(&independent(2)).await.unwrap();
    // The script is cached from here on: what is cut is the answer of a completion, not NOSCRIPT.
    let other = desk.one().await.unwrap();
    expect(desk.complete(&other.held).await.unwrap(), Written::Ok).unwrap();
    let claim = desk.one().await.unwrap();
    proxy.cut_reply_of(claim.held.lease_id.as_bytes(), 3);
    let mut answers = vec![];
    let taken = wait::until("the outcome is known", scale().patience(), async || {
        match store.complete(&[harness::desk::completion(&claim.held)]).await {
            Ok(words) => {
                answers.extend(words);
                Ok(Some(()))
            }
            Err(error) if error.is_retryable() => Ok(None),
            Err(error) => Err(error.into()),
        }
    });
    taken.await.unwrap();
    assert_eq!(
        (proxy.cuts(), answers),
        (3, vec![Written::Dup]),
        "done at the first try, known at the fourth"
    );
    let events = harness::oracle::events(&desk.store, &plan.goal).await.unwrap();
    assert_eq!(harness::oracle::acceptances(&events).into_values().collect::<Vec<_>>(), [1, 1]);
    desk.oracle().await.unwrap();
}

/// How many connections wait in a blocking pop.
async fn blocked(desk: &Desk) -> anyhow::Result<Vec<String>> {
    let list: String = desk.redis.query(&["CLIENT", "LIST"]).await?;
    Ok(list.lines().filter(|l| l.contains("cmd=blpop")).map(str::to_owned).collect())
}

async fn waiting(desk: &Desk) -> String {
    wait::until("a waiter blocks", scale().patience(), async || Ok(blocked(desk).await?.pop())).await.unwrap()
}

#[tokio::test]
async fn q03_a_short_response_timeout_swallows_no_wake() {
    let desk = Desk::start().await.unwrap();
    let config = RedisConfig { response_timeout_ms: 500, ..desk.redis.config() };
    let store = Store::connect(&config).await.unwrap();
    let mut waiter = store.waiter();
    let lanes = [WORK.to_owned()];
    // Longer than the response timeout of commands: the pop must outlive it.
    let wait_long = async {
        let start = Instant::now();
        waiter.wait(&lanes, 2_000).await;
        start.elapsed()
    };
    let submit = async {
        waiting(&desk).await;
        wait::moment(Duration::from_millis(800)).await;
        desk.plan(&independent(1)).await.unwrap();
        Instant::now()
    };
    let (waited, submitted) = tokio::join!(wait_long, submit);
    assert!(waited >= Duration::from_millis(800), "it gave up after {waited:?}");
    let got = claim_through(&store, Kind::Work, "w", &new_id(), 5_000, 1).await.unwrap();
    assert!(matches!(got, ClaimReply::Got(ref claims) if claims.len() == 1), "{got:?}");
    assert!(submitted.elapsed() < Duration::from_millis(2_500));
}

#[tokio::test]
async fn q04_renewals_do_not_queue_behind_a_blocking_pop() {
    let desk = Desk::start().await.unwrap();
    let store = desk.another_store(&desk.redis.url()).await.unwrap();
    desk.plan(&independent(1)).await.unwrap();
    let ClaimReply::Got(claims) = claim_through(&store, Kind::Work, "w", &new_id(), 5_000, 1).await.unwrap()
    else {
        panic!("nothing claimed");
    };
    let mut waiter = store.waiter();
    // An empty lane: the wait takes all of its two seconds.
    let lanes = ["work.empty".to_owned()];
    let renewing = async {
        let blocked_one = waiting(&desk).await;
        let mut fastest = Duration::MAX;
        for _ in 0..20 {
            let start = Instant::now();
            let answer =
                store.renew("w", &[], 5_000, 60_000, 60_000, &[(claims[0].held.clone(), 0)]).await.unwrap();
            fastest = fastest.min(start.elapsed());
            assert!(matches!(answer[..], [Renewal::Ok { .. }]), "{answer:?}");
        }
        assert_eq!(blocked(&desk).await.unwrap().len(), 1, "the pop waited all the while: {blocked_one}");
        fastest
    };
    let ((), fastest) = tokio::join!(waiter.wait(&lanes, 2_000), renewing);
    assert!(fastest < Duration::from_millis(50), "a renewal took {fastest:?}");
}

#[tokio::test]
async fn a_redis_that_vanishes_without_a_word_is_noticed_and_found_again() {
    let desk = Desk::start().await.unwrap();
    let proxy = Proxy::start(desk.redis.port()).await.unwrap();
    let config = RedisConfig { response_timeout_ms: 300, ..desk.redis.config_at(&proxy.redis_url()) };
    let store = Store::connect(&config).await.unwrap();
    proxy.half_open();
    let error = store.now_ms().await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    proxy.pass();
    store.now_ms().await.expect("a new connection is made");
    proxy.reset_all();
    store.now_ms().await.expect("and after a reset");
    proxy.refuse();
    assert!(store.now_ms().await.unwrap_err().is_retryable());
    proxy.pass();
    store.now_ms().await.expect("and after a refusal");
}
