//! Much at once: large payloads, many tickets, many delays. The cost of a call does not follow them.

use harness::desk::{Desk, independent};
use harness::fleet::{Fleet, Role};
use harness::redis::{Options, Persistence};
use harness::scale::{Scale, scale};
use serde_json::{Value, json};
use shared::store::Answered;

const KEY: &str = "muster:{s0}:";

/// Resident memory of a process, bytes.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() * 1024
}

#[tokio::test]
async fn q36_what_is_too_large_is_refused_by_name_and_what_is_not_is_taken() {
    let mut fleet = Fleet::plan().workers(0).reviewers(0).start().await.unwrap();
    let api = fleet.api();
    let ticket = |n: usize, bytes: usize| {
        json!({"id": format!("t{n}"), "description": "d", "tool": "write_file", "review": "none",
            "args": {"path": "data/x.txt", "content": "x".repeat(bytes)}, "outputs": ["data/x.txt"]})
    };
    let body =
        |tickets: &[Value]| json!({"text": "large", "plan": {"goal": {"text": "large"}, "tickets": tickets}});
    let goal = api.submit(&body(&[ticket(0, 255 * 1024)])).await.unwrap();
    assert_eq!(api.goal(&goal).await.unwrap()["text"], "large");
    let pid = fleet.program(Role::Manager, 0).pid();
    let store = fleet.store().await.unwrap();
    let goals = store.goals(None, 0, 10).await.unwrap().len();
    let mut before = 0;
    for round in 0..scale().pick(4, 40) {
        let one = api.refused("/v1/goals", &body(&[ticket(0, 1024 * 1024)])).await.unwrap();
        assert_eq!(
            (one.status, one.body["error"]["field"].as_str()),
            (400, Some("plan.tickets[t0].args")),
            "{one}"
        );
        let many: Vec<Value> = (0..20).map(|n| ticket(n, 255 * 1024)).collect();
        let plan = api.refused("/v1/goals", &body(&many)).await.unwrap();
        assert_eq!((plan.status, plan.body["error"]["field"].as_str()), (413, Some("plan")), "{plan}");
        let whole = api.refused("/v1/goals", &body(&[ticket(0, 64 * 1024 * 1024)])).await.unwrap();
        assert_eq!(whole.status, 413, "{whole}");
        // The first round warms the allocator up.
        if round == 1 {
            before = resident(pid);
        }
    }
    let after = resident(pid);
    assert!(after < before + 32 * 1024 * 1024, "{before} bytes, then {after}");
    assert_eq!(store.goals(None, 0, 10).await.unwrap().len(), goals, "nothing of them is kept");
    fleet.oracle().await.unwrap();
}

/// Commands that the server has executed, those of scripts counted one by one, and the scripts among them.
async fn executed(desk: &Desk) -> (u64, u64) {
    let info: String = desk.redis.query(&["INFO", "commandstats"]).await.unwrap();
    let (mut all, mut scripts) = (0, 0);
    for line in info.lines() {
        let Some((name, rest)) = line.split_once(":calls=") else { continue };
        let calls: u64 = rest.split(',').next().unwrap().parse().unwrap();
        all += calls;
        if name.ends_with("evalsha") || name.ends_with("_eval") {
            scripts += calls;
        }
    }
    (all, scripts)
}

/// Commands of each script call in what `work` does.
async fn per_script<T>(desk: &Desk, work: impl AsyncFnOnce() -> T) -> u64 {
    let before = executed(desk).await;
    work().await;
    let after = executed(desk).await;
    (after.0 - before.0) / (after.1 - before.1).max(1)
}

#[tokio::test]
async fn q42_listing_cancelling_and_cleaning_up_go_by_pages_however_much_there_is() {
    let (goals, tickets) = scale().pick((2, 3_000), (100, 10_000));
    let options = Options { persistence: Persistence::None, ..Options::default() };
    let desk = Desk::start_with(options).await.unwrap();
    desk.sweep().await.unwrap();
    let mut plans = vec![];
    for _ in 0..goals {
        plans.push(desk.plan(&independent(tickets)).await.unwrap());
    }
    desk.redis.query::<String>(&["CONFIG", "SET", "slowlog-log-slower-than", "5000"]).await.unwrap();
    desk.redis.query::<String>(&["SLOWLOG", "RESET"]).await.unwrap();
    let store = &desk.store;
    let goal = &plans[0].goal;
    let before = executed(&desk).await.0;
    assert_eq!(store.tickets(goal, tickets - 150, 100).await.unwrap().len(), 100);
    let listed = executed(&desk).await.0 - before;
    assert!(listed <= 110, "a page of 100 tickets takes {listed} commands");
    // A hundred tickets a call, and what each of them costs.
    let limit = 100 * 40;
    let audited = per_script(&desk, async || assert_eq!(store.audit_goal(goal).await.unwrap(), [])).await;
    assert!(audited <= limit, "audit: {audited} commands a call");
    let cancelled = per_script(&desk, async || {
        assert_eq!(store.cancel_goal(goal, "tester").await.unwrap(), Answered::Ok);
    })
    .await;
    assert!(cancelled <= 100, "cancel: {cancelled} commands, the tickets come later");
    let swept = per_script(&desk, async || while desk.sweep().await.unwrap().more {}).await;
    assert!(swept <= limit, "sweep: {swept} commands a call");
    let counts = store.goal(goal).await.unwrap().unwrap().counts;
    assert_eq!(counts.get("cancelled").copied(), Some(u64::try_from(tickets).unwrap()), "{counts:?}");
    let forgotten = per_script(&desk, async || store.forget_goal(goal).await.unwrap()).await;
    assert!(forgotten <= limit, "forget: {forgotten} commands a call");
    if scale() == Scale::Full {
        let slow: i64 = desk.redis.query(&["SLOWLOG", "LEN"]).await.unwrap();
        assert_eq!(
            slow,
            0,
            "{:?}",
            desk.redis.query::<redis::Value>(&["SLOWLOG", "GET", "5"]).await.unwrap()
        );
    }
    assert_eq!(desk.work(16).await.unwrap().len(), 16, "the others go on");
}

#[tokio::test]
async fn q43_delays_that_are_not_due_cost_the_sweeper_nothing() {
    let count = scale().pick(20_000, 2_000_000);
    let options = Options { persistence: Persistence::None, ..Options::default() };
    let desk = Desk::start_with(options).await.unwrap();
    desk.sweep().await.unwrap();
    let sweeps = 10;
    let cost = async || {
        let before = executed(&desk).await.0;
        for _ in 0..sweeps {
            desk.sweep().await.unwrap();
        }
        executed(&desk).await.0 - before
    };
    let without = cost().await;
    let mut connection = desk.redis.connection().await.unwrap();
    for page in 0..count / 10_000 {
        let mut add = redis::cmd("ZADD");
        add.arg(format!("{KEY}delay"));
        for n in 0..10_000 {
            add.arg(4_000_000_000_000_u64 + n).arg(format!("{:032x}", page * 10_000 + n));
        }
        add.query_async::<i64>(&mut connection).await.unwrap();
    }
    assert_eq!(cost().await, without, "with {count} delays");
    if scale() == Scale::Full {
        desk.redis.query::<String>(&["CONFIG", "RESETSTAT"]).await.unwrap();
        cost().await;
        let info: String = desk.redis.query(&["INFO", "commandstats"]).await.unwrap();
        let line = info.lines().find(|l| l.contains("zrangebyscore")).unwrap();
        let each: f64 =
            line.split("usec_per_call=").nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
        assert!(each < 10.0, "{each} µs to find that none of {count} is due");
    }
}
