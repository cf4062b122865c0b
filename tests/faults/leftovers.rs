//! What dead processes, ended tickets and broken calls leave behind: it goes away, and takes nothing with it.

use harness::desk::{Desk, WORK, expect, independent, spec};
use harness::redis::{Options, Persistence, Redis};
use harness::scale::scale;
use shared::goal::NewGoal;
use shared::store::{Answered, Consumer, Finish, Finished, Submitted, Written};
use shared::ticket::{ReviewPolicy, Status, new_id};

const KEY: &str = "muster:{s0}:";

#[tokio::test]
async fn q30_leases_and_delays_that_ended_tickets_left_behind_are_removed_and_nothing_else() {
    let desk = Desk::start().await.unwrap();
    desk.sweep().await.unwrap();
    let plan = desk.plan(&independent(12)).await.unwrap();
    for claim in desk.work(10).await.unwrap() {
        expect(desk.complete(&claim.held).await.unwrap(), Written::Ok).unwrap();
    }
    let before: Vec<_> = desk.store.all_tickets(&plan.goal).await.unwrap();
    for ticket in before.iter().filter(|t| t.status == Status::Done) {
        for set in ["lease", "delay", "ask", "cancelling"] {
            desk.redis.query::<i64>(&["ZADD", &format!("{KEY}{set}"), "1", &ticket.task_id]).await.unwrap();
        }
    }
    let swept = desk.sweep().await.unwrap();
    assert_eq!((swept.requeued, swept.escalated, swept.promoted), (0, 0, 0));
    let after = desk.store.all_tickets(&plan.goal).await.unwrap();
    let states = |all: &[shared::ticket::Ticket]| all.iter().map(|t| (t.status, t.epoch)).collect::<Vec<_>>();
    assert_eq!(states(&before), states(&after), "the state is the truth, not what lies about");
    for set in ["lease", "delay", "ask", "cancelling"] {
        assert_eq!(desk.redis.query::<i64>(&["ZCARD", &format!("{KEY}{set}")]).await.unwrap(), 0, "{set}");
    }
    desk.oracle().await.unwrap();
}

#[tokio::test]
async fn q39_consumers_that_were_killed_leave_no_key_behind() {
    let desk = Desk::start().await.unwrap();
    desk.sweep().await.unwrap();
    let lane = |n: usize| if n.is_multiple_of(2) { "review".to_owned() } else { WORK.to_owned() };
    let consumer =
        |n: usize| Consumer { id: format!("dead-{n}"), lanes: vec![lane(n)], ..Consumer::default() };
    // The lanes stay, they are the fleet's.
    for n in 0..2 {
        desk.store.publish_consumer(&consumer(n), "").await.unwrap();
        desk.store.retire_consumer(&consumer(n).id, &consumer(n).lanes).await.unwrap();
    }
    let before = desk.redis.keys().await.unwrap();
    let count = 500;
    for n in 0..count {
        desk.store.publish_consumer(&consumer(n), "someone").await.unwrap();
    }
    let alive = Consumer { id: "alive".into(), lanes: vec![WORK.into()], ..Consumer::default() };
    desk.store.publish_consumer(&alive, "").await.unwrap();
    for n in 0..count {
        let ttl: i64 = desk.redis.query(&["TTL", &format!("{KEY}c:dead-{n}")]).await.unwrap();
        assert!((1..=90).contains(&ttl), "the entry of dead-{n} lives {ttl} s");
    }
    // Two minutes later: the entries have expired, their last beat is old.
    for n in 0..count {
        let id = format!("dead-{n}");
        desk.redis.query::<i64>(&["DEL", &format!("{KEY}c:{id}")]).await.unwrap();
        for set in ["consumers".to_owned(), format!("cons:{}", lane(n))] {
            desk.redis.query::<i64>(&["ZADD", &format!("{KEY}{set}"), "1", &id]).await.unwrap();
        }
    }
    for _ in 0..count / 100 {
        desk.sweep().await.unwrap();
    }
    assert_eq!(desk.store.consumers().await.unwrap().len(), 1, "who lives stays");
    desk.store.retire_consumer("alive", &alive.lanes).await.unwrap();
    assert_eq!(desk.redis.keys().await.unwrap(), before);
}

/// A goal as its idempotency key would name it.
fn named(id: &str) -> NewGoal {
    let deadline_at_ms = 4_000_000_000_000;
    NewGoal { id: id.into(), text: "once".into(), deadline_at_ms, ..NewGoal::default() }
}

#[tokio::test]
async fn q32_a_submit_that_breaks_off_anywhere_can_be_made_again_and_makes_one_goal() {
    let desk = Desk::start().await.unwrap();
    let id = new_id();
    let submit = async || desk.store.submit_goal(&named(&id), 100_000).await;
    assert_eq!(submit().await.unwrap(), Submitted::New);
    let mut touched = desk.redis.keys().await.unwrap();
    touched.push(format!("{KEY}lanes"));
    assert!(touched.len() >= 7, "{touched:?}");
    for key in &touched {
        desk.redis.query::<String>(&["FLUSHALL"]).await.unwrap();
        desk.redis.query::<String>(&["SET", key, "of the wrong type"]).await.unwrap();
        let first = submit().await;
        // What the submit itself has put in its place stays.
        if desk.redis.query::<String>(&["TYPE", key]).await.unwrap() == "string" {
            desk.redis.query::<i64>(&["DEL", key]).await.unwrap();
        }
        let there = desk.store.goal(&id).await.unwrap().is_some();
        assert!(first.is_err() || there || key.ends_with(&id), "{key}: {first:?} and no goal");
        let again = submit().await.unwrap();
        assert_eq!(
            again == Submitted::Duplicate,
            there,
            "{key}: the key names a goal that is there, or none"
        );
        let claim = desk.manage().await.unwrap().unwrap_or_else(|| panic!("{key}: no manager is called"));
        assert_eq!((claim.held.id.as_str(), claim.read), (id.as_str(), 1), "{key}");
        assert_eq!(desk.store.audit().await.unwrap(), [], "{key}");
        assert_eq!(desk.store.goals(None, 0, 10).await.unwrap().len(), 1, "{key}");
    }
    // Cancelled, the key still names it; forgotten, it names nothing.
    assert_eq!(desk.store.cancel_goal(&id, "tester").await.unwrap(), Answered::Ok);
    assert_eq!(submit().await.unwrap(), Submitted::Duplicate);
    desk.sweep().await.unwrap();
    desk.store.forget_goal(&id).await.unwrap();
    assert_eq!(submit().await.unwrap(), Submitted::New);
    desk.oracle().await.unwrap();
}

/// Submits, does and ends `goals` goals of 100 tickets each; 2 KiB of description a ticket.
async fn finished(desk: &Desk, goals: usize) -> Vec<String> {
    let mut ids = vec![];
    for _ in 0..goals {
        let mut specs = independent(100);
        for spec in &mut specs {
            spec.description = "x".repeat(2_048);
        }
        let plan = desk.plan(&specs).await.unwrap();
        while desk.store.goal(&plan.goal).await.unwrap().unwrap().counts.get("done") != Some(&100) {
            for claim in desk.work(16).await.unwrap() {
                expect(desk.complete(&claim.held).await.unwrap(), Written::Ok).unwrap();
            }
        }
        desk.store.note(&plan.goal, "tester", "a note").await.unwrap();
        let step = desk.manage().await.unwrap().expect("all closed calls the manager");
        let version = step.goal.plan_version;
        let id = new_id();
        let ended =
            desk.store.manage_finish(&step.held, &id, version, step.read, &Finish::Done, 60_000).await;
        assert_eq!(ended.unwrap(), Finished::Ok);
        ids.push(plan.goal);
    }
    ids
}

async fn used_memory(redis: &Redis) -> u64 {
    redis.query::<String>(&["MEMORY", "PURGE"]).await.unwrap();
    let info: String = redis.query(&["INFO", "memory"]).await.unwrap();
    info.lines().find_map(|l| l.strip_prefix("used_memory:")).unwrap().trim().parse().unwrap()
}

#[tokio::test]
async fn q38_after_retention_memory_and_keys_are_where_they_were() {
    let options = Options { persistence: Persistence::None, ..Options::default() };
    let desk = Desk::start_with(options).await.unwrap();
    desk.sweep().await.unwrap();
    let forget = async |ids: Vec<String>| {
        for id in ids {
            while desk.sweep().await.unwrap().more {}
            desk.store.forget_goal(&id).await.unwrap();
        }
    };
    // Once before the count begins: scripts, lanes, and what the server sets aside.
    forget(finished(&desk, 1).await).await;
    let (keys, memory) = (desk.redis.keys().await.unwrap(), used_memory(&desk.redis).await);
    let goals = scale().pick(20, 1_000);
    let ids = finished(&desk, goals).await;
    let full = used_memory(&desk.redis).await;
    assert!(full > memory * 3 / 2, "the load weighs something: {memory} then {full}");
    let stream: i64 = desk.redis.query(&["XLEN", &format!("{KEY}g:{}:ev", ids[0])]).await.unwrap();
    assert!(stream > 200, "{stream} events");
    forget(ids).await;
    assert_eq!(desk.redis.keys().await.unwrap(), keys);
    let after = used_memory(&desk.redis).await;
    assert!(after <= memory * 11 / 10, "{memory} bytes before, {after} after");
}

#[tokio::test]
async fn q38_what_a_goal_gathers_while_it_lives_is_bounded() {
    let desk = Desk::start().await.unwrap();
    let plan = desk.plan(&[spec("a", &[], ReviewPolicy::None)]).await.unwrap();
    let claim = desk.one().await.unwrap();
    for n in 0..600 {
        desk.store.note(&plan.goal, "tester", &format!("note {n}")).await.unwrap();
        let fact = format!("fact {n}");
        desk.store.progress(&claim.held, "working", "on it", Some(&fact)).await.unwrap();
    }
    for list in ["notes", "facts"] {
        let length: i64 = desk.redis.query(&["LLEN", &format!("{KEY}g:{}:{list}", plan.goal)]).await.unwrap();
        assert_eq!(length, 500, "{list}");
    }
    let goal = desk.store.goal(&plan.goal).await.unwrap().unwrap();
    assert_eq!(goal.notes.last().map(String::as_str), Some("note 599"), "the oldest go first");
}
