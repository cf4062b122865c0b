//! Work that lasts longer than its lease, and processes that are frozen while they hold it.

use harness::fleet::{Fleet, Role};
use harness::oracle::acceptances;
use harness::scale::scale;
use harness::script::{direct, slow, writes};
use harness::wait;
use serde_json::{Value, json};
use std::time::Duration;

#[tokio::test]
async fn q09_a_job_of_five_leases_is_run_once() {
    let fleet = Fleet::plan().workers(2).start().await.unwrap();
    let api = fleet.api();
    #[expect(clippy::cast_precision_loss, reason = "seconds")]
    let seconds = scale().lease().lease_ms as f64 * 5.0 / 1_000.0;
    let goal = api.submit_plan("long", &json!([slow("long", &[], seconds)])).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    let ticket = api.ticket(&goal, "long").await.unwrap();
    assert_eq!((ticket.attempts, ticket.counters.losses), (1, 0));
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn q09_jobs_that_burn_every_core_do_not_starve_the_renewals() {
    let fleet = Fleet::plan().workers(1).env("WORKER__SLOTS", "8").start().await.unwrap();
    let api = fleet.api();
    let seconds = f64::from(u32::try_from(scale().lease().lease_ms * 3).unwrap()) / 1_000.0;
    let burners: Vec<Value> = (0..8)
        .map(|n| {
            let output = format!("data/b{n}.txt");
            let code = format!(
                "import time\nend = time.monotonic() + {seconds}\nwhile time.monotonic() < end:\n    sum(range(1000))\n{}",
                writes(&output)
            );
            direct(&format!("b{n}"), &[], &output, &code)
        })
        .collect();
    let goal = api.submit_plan("burn", &json!(burners)).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    let tickets = api.tickets(&goal).await.unwrap();
    assert!(tickets.iter().all(|t| t.attempts == 1 && t.counters.losses == 0), "{tickets:?}");
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn c2_a_worker_that_was_frozen_past_its_lease_is_fenced() {
    let mut fleet = Fleet::plan().workers(2).env("WORKER__SLOTS", "1").start().await.unwrap();
    let api = fleet.api();
    let goal = api.submit_plan("frozen", &json!([slow("only", &[], 1.0)])).await.unwrap();
    let claimed = api.event(&goal, "it is claimed", |e| e.event == "claimed").await.unwrap();
    let pid: u32 = claimed.who.rsplit('-').nth(1).unwrap().parse().unwrap();
    let frozen = fleet.all(Role::Worker).position(|w| w.pid() == pid).expect("the owner is one of ours");
    fleet.program(Role::Worker, frozen).freeze();
    api.reaches(&goal, &["done"]).await.unwrap();
    fleet.program(Role::Worker, frozen).thaw();
    // It finds out and goes on serving.
    let log = wait::until("it notices", scale().patience(), async || {
        Ok(Some(fleet.program(Role::Worker, frozen).log())
            .filter(|l| l.contains("lost") || l.contains("fenced")))
    });
    log.await.unwrap();
    let ticket = api.ticket(&goal, "only").await.unwrap();
    assert_eq!((ticket.attempts, ticket.counters.losses), (2, 1));
    assert_eq!(acceptances(&api.events(&goal).await.unwrap()).get("only"), Some(&1));
    let again =
        api.submit_plan("both serve", &json!([slow("x", &[], 0.5), slow("y", &[], 0.5)])).await.unwrap();
    api.reaches(&again, &["done"]).await.unwrap();
    let owners: std::collections::BTreeSet<String> = api
        .events(&again)
        .await
        .unwrap()
        .into_iter()
        .filter(|e| e.event == "claimed")
        .map(|e| e.who)
        .collect();
    assert_eq!(owners.len(), 2, "the thawed one works again: {owners:?}");
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn c5_two_tickets_that_write_one_file_conflict_and_nothing_is_lost() {
    let fleet = Fleet::plan().workers(2).env("WORKER__SLOTS", "1").start().await.unwrap();
    let api = fleet.api();
    // Both start from the same workspace; whoever comes second must not overwrite the first one's file.
    let append = |id: &str, seconds: f64| {
        let code = format!(
            "import os, time\nos.makedirs('data', exist_ok=True)\nold = open('data/shared.txt').read() if os.path.exists('data/shared.txt') else ''\ntime.sleep({seconds})\nopen('data/shared.txt', 'w').write(old + '{id}\\n')\n"
        );
        direct(id, &[], "data/shared.txt", &code)
    };
    let goal =
        api.submit_plan("one file", &json!([append("first", 0.6), append("second", 1.2)])).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    let text = api.file(&goal, "data/shared.txt").await.unwrap();
    assert_eq!(text, "first\nsecond\n", "the second one ran again over the first one's file");
    let events = api.events(&goal).await.unwrap();
    let conflict = events.iter().find(|e| e.event.contains("conflict")).expect("it was told");
    assert!(conflict.detail.contains("data/shared.txt"), "{conflict:?}");
    let hashes = conflict.detail.split(|c: char| !c.is_ascii_hexdigit()).filter(|w| w.len() >= 12).count();
    assert!(hashes >= 2, "with both hashes: {}", conflict.detail);
    assert_eq!(api.ticket(&goal, "second").await.unwrap().counters.conflicts, 1);
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn c1_a_cancel_reaches_a_running_ticket_and_frees_its_worker() {
    let fleet = Fleet::plan().workers(1).env("WORKER__SLOTS", "1").start().await.unwrap();
    let api = fleet.api();
    let goal = api.submit_plan("cancelled", &json!([slow("long", &[], 60.0)])).await.unwrap();
    api.event(&goal, "it runs", |e| e.event == "claimed").await.unwrap();
    api.post(&format!("/v1/goals/{goal}/cancel"), &json!({})).await.unwrap();
    api.reaches(&goal, &["cancelled"]).await.unwrap();
    let over = wait::until("the ticket is cancelled", scale().patience(), async || {
        Ok((api.ticket(&goal, "long").await?.status.as_str() == "cancelled").then_some(()))
    });
    over.await.unwrap();
    let next = api.submit_plan("the slot is free", &json!([slow("next", &[], 0.1)])).await.unwrap();
    api.reaches_within(&next, &["done"], Duration::from_secs(20)).await.unwrap();
    fleet.oracle().await.unwrap();
}
