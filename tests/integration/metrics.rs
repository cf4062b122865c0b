//! What the programs export: measured from a real store, documented, and of a constant number of series (Q51).

use harness::desk::{Desk, WORK, expect, independent, spec};
use harness::fleet::{Api, Fleet, Role};
use harness::prometheus::deploy;
use harness::wait;
use shared::goal::NewGoal;
use shared::store::{Consumer, Reservation, Reserved, Written};
use shared::telemetry::metrics;
use shared::ticket::{Cause, ReviewPolicy};
use std::collections::{BTreeMap, BTreeSet};

/// Name → type and labels, as an exposition has them.
type Exported = BTreeMap<String, (String, BTreeSet<String>)>;

pub(crate) fn exported(text: &str) -> Exported {
    let label = regex::Regex::new(r#"(\w+)=""#).unwrap();
    let mut found = Exported::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            current = name.to_owned();
            found.insert(current.clone(), (kind.to_owned(), BTreeSet::new()));
        } else if !line.starts_with('#') {
            let labels = label.captures_iter(line).map(|c| c[1].to_owned()).filter(|l| l != "le");
            found.get_mut(&current).unwrap().1.extend(labels);
        }
    }
    found
}

/// The text of each program's `/metrics`, once a manager has measured the fleet.
pub(crate) async fn texts(fleet: &mut Fleet) -> Vec<(Role, String)> {
    let mut out = vec![];
    for role in [Role::Manager, Role::Worker, Role::Reviewer] {
        let api = Api::new(fleet.program(role, 0).port(), "");
        let text = wait::until("it is measured", harness::scale::scale().patience(), async || {
            let text = api.text("/metrics").await?;
            Ok((role != Role::Manager || text.contains("\nmuster_goals_live ")).then_some(text))
        });
        out.push((role, text.await.unwrap()));
    }
    out
}

#[tokio::test]
async fn every_exported_metric_is_documented_and_the_reverse() {
    let mut fleet = Fleet::plan().start().await.unwrap();
    let mut real: BTreeMap<String, (String, String, String)> = BTreeMap::new();
    for (role, text) in texts(&mut fleet).await {
        for (name, (kind, labels)) in exported(&text) {
            let labels = labels.into_iter().collect::<Vec<_>>().join(", ");
            let entry = real.entry(name).or_insert((kind, labels, String::new()));
            entry.2.push_str(match role {
                Role::Manager => "M",
                Role::Worker => "W",
                Role::Reviewer => "R",
            });
        }
    }
    let documented: BTreeMap<String, (String, String, String)> =
        std::fs::read_to_string(deploy().join("METRICS.md"))
            .unwrap()
            .lines()
            .filter(|line| line.starts_with("| `"))
            .map(|line| {
                let cell: Vec<&str> = line.split('|').map(str::trim).collect();
                assert!(!cell[5].is_empty(), "says nothing: {line}");
                (cell[1].trim_matches('`').to_owned(), (cell[2].into(), cell[3].into(), cell[4].into()))
            })
            .collect();
    let show = |all: &BTreeMap<String, (String, String, String)>| {
        all.iter().map(|(n, (k, l, p))| format!("{n} | {k} | {l} | {p}")).collect::<BTreeSet<_>>()
    };
    let (real, documented) = (show(&real), show(&documented));
    let missing: Vec<_> = real.difference(&documented).collect();
    let gone: Vec<_> = documented.difference(&real).collect();
    assert!(missing.is_empty() && gone.is_empty(), "not documented: {missing:#?}\nnot exported: {gone:#?}");
}

#[tokio::test]
async fn a_manager_sees_lanes_tickets_decisions_and_the_server() {
    let desk = Desk::start().await.unwrap();
    let plan = desk
        .plan(&[
            spec("a", &[], ReviewPolicy::None),
            spec("b", &[], ReviewPolicy::None),
            spec("c", &["a"], ReviewPolicy::None),
        ])
        .await
        .unwrap();
    let held = desk.one().await.unwrap().held;
    desk.serves(&[WORK]).await.unwrap();
    desk.store.dead_letter(WORK, b"junk", "a test").await.unwrap();
    let seen = wait::until("the ready one has an age", harness::scale::scale().patience(), async || {
        let seen = desk.store.measure().await?;
        Ok((seen.lanes[WORK].oldest_ready_ms > 0).then_some(seen))
    })
    .await
    .unwrap();
    let lane = seen.lanes[WORK];
    assert_eq!((lane.ready, lane.leased, lane.demand, lane.consumers), (1, 1, 2, 1), "{seen:?}");
    assert!(lane.oldest_ready_ms < 3_600_000, "{lane:?}");
    let of = |state: &str| seen.tickets[state];
    assert_eq!((of("running"), of("pending"), of("blocked")), (1, 1, 1), "{seen:?}");
    assert_eq!((seen.goals_live, seen.dead_letters, seen.decisions_open), (1, 1, 0));
    assert!(seen.append_only && !seen.may_evict && !seen.persistence_failing && seen.memory_bytes > 0);

    expect(desk.complete(&held).await.unwrap(), Written::Ok).unwrap();
    assert_eq!(desk.store.measure().await.unwrap().lanes[WORK].leased, 0);

    // A goal that waits for its manager, and one that waits for money.
    let goal = NewGoal { id: shared::ticket::new_id(), text: "more".into(), ..NewGoal::default() };
    desk.store.submit_goal(&goal, 1_000).await.unwrap();
    assert_eq!(desk.store.measure().await.unwrap().lanes["manage"].ready, 1);
    let poor = NewGoal { text: "poor".into(), budget_tokens: 10, ..NewGoal::default() };
    while desk.manage().await.unwrap().is_some() {}
    assert_eq!(desk.store.measure().await.unwrap().lanes["manage"].leased, 1);
    let poor = desk.plan_of(poor, &independent(1)).await.unwrap().goal;
    let call = |call, goal, tokens| Reservation {
        call,
        goal,
        ticket: "",
        tokens,
        microusd: 0,
        expiry_ms: 60_000,
        person_expiry_ms: 60_000,
    };
    let refused = desk.store.reserve(&call("x", &poor, 11)).await.unwrap();
    assert_eq!(refused, Reserved::Refused { left: 10, of: shared::store::Payer::Goal });
    assert_eq!(desk.store.reserve(&call("y", &plan.goal, 11)).await.unwrap(), Reserved::Ok);
    let seen = desk.store.measure().await.unwrap();
    assert_eq!((seen.decisions_open, seen.decisions["budget"], seen.reserved_calls), (1, 1, 1));
}

#[test]
fn every_cause_of_a_ticket_has_a_word() {
    let mut seen = metrics::Seen::default();
    seen.asked(Cause::ALL.iter().map(|cause| (cause.as_str().to_owned(), 1)).collect());
    assert_eq!(seen.decisions["other"], 0, "{:?}", seen.decisions);
    assert_eq!(seen.decisions.values().sum::<u64>(), Cause::ALL.len() as u64);
}

#[tokio::test]
async fn q51_as_many_series_with_ten_thousand_tickets_as_with_a_thousand() {
    let desk = Desk::start().await.unwrap();
    for n in 0..50 {
        let id = format!("worker-host{n}-{n}");
        let worker = Consumer { id, role: "worker".into(), lanes: vec![WORK.into()], ..Consumer::default() };
        desk.store.publish_consumer(&worker, "").await.unwrap();
    }
    let work = async |goals: usize, pools: std::ops::Range<usize>| {
        for n in 0..goals {
            let mut specs = independent(90);
            for (spec, pool) in specs.iter_mut().zip(pools.clone().cycle()).take(9 + n % 2) {
                spec.pool = format!("unknown-{pool}");
            }
            let tenant = format!("tenant{n}");
            let goal = NewGoal { text: format!("goal {n}"), tenant, ..NewGoal::default() };
            desk.plan_of(goal, &specs).await.unwrap();
            desk.work(5).await.unwrap();
        }
        metrics::seen(Some(desk.store.measure().await.unwrap()));
        let text = metrics::text();
        let names = text.lines().filter(|l| l.starts_with("muster_")).map(|l| l.rsplit_once(' ').unwrap().0);
        names.map(str::to_owned).collect::<BTreeSet<_>>()
    };
    metrics::begin(metrics::Role::Manager);
    let first = work(11, 0..40).await;
    let last = work(100, 0..900).await;
    let total: u64 = desk.store.measure().await.unwrap().tickets.values().sum();
    assert_eq!(total, 111 * 90, "all of them are there");
    assert_eq!(first.len(), last.len(), "{:?}", first.symmetric_difference(&last).collect::<Vec<_>>());
}
