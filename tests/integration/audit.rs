//! The audit and its repair: what is out of its place is found and put back, what only moves meanwhile is let alone.

use harness::desk::{Desk, expect, independent, spec};
use harness::turnstile::{Blow, Point, Turnstile, When};
use harness::wait;
use shared::goal::NewGoal;
use shared::store::Written;
use shared::ticket::{FailClass, ReviewPolicy, new_id};

const KEY: &str = "muster:{s0}:";

#[tokio::test]
async fn i4_whatever_is_out_of_its_place_is_found_and_put_back() {
    // What is taken away, from a goal with one ticket ready, one running, one delayed, one blocked and one in review.
    let thefts: &[(&str, &[&str])] = &[
        ("the ready list", &["DEL", "{g}:q:work.default:1"]),
        ("the ring", &["DEL", "ring:work.default:1"]),
        ("the leases", &["DEL", "lease"]),
        ("one lease", &["ZREM", "lease", "{running}"]),
        ("the delays", &["DEL", "delay"]),
        ("the review list", &["DEL", "{g}:q:review:1"]),
        ("the review ring", &["DEL", "ring:review:1"]),
        ("the demand", &["DEL", "dem:work.default"]),
        ("an open need", &["DEL", "t:{blocked}:d"]),
    ];
    for (what, words) in thefts {
        let mut desk = Desk::start().await.unwrap();
        desk.lease.lease_ms = 300;
        desk.sweep().await.unwrap();
        let mut specs = independent(2);
        specs.push(spec("delayed", &[], ReviewPolicy::None));
        specs.push(spec("reviewed", &[], ReviewPolicy::Code));
        specs.push(spec("blocked", &["t0000", "t0001"], ReviewPolicy::None));
        let plan = desk.plan(&specs).await.unwrap();
        let mut running = String::new();
        for claim in desk.work(4).await.unwrap() {
            match claim.ticket.key.as_str() {
                "delayed" => {
                    expect(desk.fail(&claim.held, FailClass::Fault, 100).await.unwrap(), Written::Ok)
                }
                "reviewed" => expect(desk.complete(&claim.held).await.unwrap(), Written::Ok),
                "t0000" => expect(desk.store.release(&claim.held).await.unwrap(), Written::Ok),
                _ => {
                    running = claim.held.id;
                    Ok(())
                }
            }
            .unwrap();
        }
        desk.oracle().await.unwrap();
        let words: Vec<String> = words
            .iter()
            .enumerate()
            .map(|(n, word)| {
                let word = word
                    .replace("{g}", &format!("g:{}", plan.goal))
                    .replace("{running}", &running)
                    .replace("{blocked}", plan.id("blocked"));
                if n == 1 { format!("{KEY}{word}") } else { word }
            })
            .collect();
        desk.redis.query::<i64>(&words.iter().map(String::as_str).collect::<Vec<_>>()).await.unwrap();

        assert!(!desk.store.audit().await.unwrap().is_empty(), "the audit does not see that {what} is gone");
        desk.store.repair(&desk.lease).await.unwrap();
        assert_eq!(desk.store.audit().await.unwrap(), [], "after the repair of {what}");
        // Whoever lost its lease is swept; then everything runs to its end.
        harness::wait::until(what, harness::scale::scale().patience(), async || {
            desk.drain().await?;
            let goal = desk.store.goal(&plan.goal).await?.unwrap();
            Ok((goal.counts.get("done") == Some(&5)).then_some(()))
        })
        .await
        .unwrap();
        desk.oracle().await.unwrap();
    }
}

#[tokio::test]
async fn q17_a_running_ticket_without_a_lease_is_recovered_and_counted() {
    for whole_key in [false, true] {
        let desk = Desk::start().await.unwrap();
        desk.sweep().await.unwrap();
        desk.plan(&independent(10)).await.unwrap();
        let claims = desk.work(10).await.unwrap();
        assert_eq!(claims.len(), 10);
        if whole_key {
            desk.redis.query::<i64>(&["DEL", "muster:{s0}:lease"]).await.unwrap();
        } else {
            for claim in &claims {
                desk.redis.query::<i64>(&["ZREM", "muster:{s0}:lease", &claim.held.id]).await.unwrap();
            }
        }
        assert_eq!(desk.sweep().await.unwrap().requeued, 0, "the sweeper alone looks at leases");
        assert_eq!(desk.store.repair(&desk.lease).await.unwrap().len(), 10);
        assert_eq!(desk.sweep().await.unwrap().requeued, 10);
        let again = desk.work(16).await.unwrap();
        assert_eq!(again.iter().filter(|c| c.ticket.counters.losses == 1).count(), 10);
        desk.oracle().await.unwrap();
    }
}

/// A repair that counted before a plan's page arrived, and writes afterwards, must not write what it counted.
#[tokio::test]
async fn i4_a_plan_that_arrives_while_the_audit_counts_stays_counted() {
    let desk = Desk::start().await.unwrap();
    let gate = Turnstile::start(desk.redis.port()).await.unwrap();
    let auditor = desk.another_store(&gate.url()).await.unwrap();
    let claim =
        desk.submit(&NewGoal { id: new_id(), text: "test goal".into(), ..NewGoal::default() }).await.unwrap();
    expect(desk.store.plan_store(&claim.held, "plan").await.unwrap(), Written::Ok).unwrap();
    gate.arm(Some(Point { call: "goal_keys".into(), nth: 1, when: When::Before, blow: Blow::Hold }));
    let lease = desk.lease.clone();
    let repair = tokio::spawn(async move { auditor.repair(&lease).await });
    wait::until("the audit has counted", harness::scale::scale().patience(), async || {
        Ok(gate.fired().then_some(()))
    })
    .await
    .unwrap();
    desk.pages(&claim, &independent(3)).await.unwrap();
    gate.aim(std::process::id());
    assert_eq!(repair.await.unwrap().unwrap(), [], "what it counted is of another time");
    assert_eq!(desk.store.goal(&claim.held.id).await.unwrap().unwrap().open_mandatory, 3);
    expect(desk.store.seal(&claim.held, 3).await.unwrap(), Written::Ok).unwrap();
    desk.finish(&claim, claim.read).await.unwrap();
    desk.drain().await.unwrap();
    desk.oracle().await.unwrap();
}
