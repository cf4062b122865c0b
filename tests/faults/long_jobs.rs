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
async fn c5_a_direct_call_that_conflicts_goes_to_a_person_and_accepted_work_stands() {
    let fleet = Fleet::plan().workers(2).env("WORKER__SLOTS", "1").start().await.unwrap();
    let api = fleet.api();
    // Both start from the same workspace. Both write beside their own output one that nobody declares.
    let append = |id: &str, seconds: f64| {
        let own = format!("data/{id}.txt");
        let code = format!(
            "import time\n{}\ntime.sleep({seconds})\nopen('data/shared.txt', 'w').write('by {id}\\n')\n",
            writes(&own)
        );
        direct(id, &[], &own, &code)
    };
    let tickets = json!([append("first", 0.6), append("second", 1.2)]);
    let goal = api.submit_plan("one file", &tickets).await.unwrap();
    let conflict = api.event(&goal, "it was told", |e| e.event == "conflict").await.unwrap();
    assert!(conflict.detail.contains("data/shared.txt"), "{conflict:?}");
    let hashes = conflict.detail.split(|c: char| !c.is_ascii_hexdigit()).filter(|w| w.len() >= 12).count();
    assert!(hashes >= 2, "with both hashes: {}", conflict.detail);
    api.event(&goal, "a person decides", |e| e.event == "handed_over").await.unwrap();
    let second = api.ticket(&goal, "second").await.unwrap();
    assert_eq!((second.attempts, second.cause.as_str()), (1, "conflicts"), "it was not run again");
    assert!(second.cause_detail.contains("data/shared.txt"), "{}", second.cause_detail);
    assert_eq!(api.file(&goal, "data/shared.txt").await.unwrap(), "by first\n");
    // A person who says so has it run again, knowing what it writes over.
    let retry = json!({"text": "it may", "request_id": "r1"});
    api.post(&format!("/v1/tickets/{}/retry", second.task_id), &retry).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    assert_eq!(api.file(&goal, "data/shared.txt").await.unwrap(), "by second\n");
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
