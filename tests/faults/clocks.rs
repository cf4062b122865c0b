//! Clocks: hosts that are minutes apart, durations and points in time that must not be mixed up. Only Redis' clock counts.

use harness::desk::{Desk, expect, independent, spec};
use harness::fleet::{Fleet, Role};
use harness::preload;
use harness::scale::scale;
use harness::script::slow;
use harness::wait;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use shared::goal::NewGoal;
use shared::store::{Finish, Finished, Permit, Renewal, Written};
use shared::ticket::{FailClass, ReviewPolicy, Status, new_id};

const KEY: &str = "muster:{s0}:";

#[tokio::test]
async fn q11_hosts_whose_clocks_are_ten_minutes_off_requeue_nothing_that_lives() {
    // The first sweeps by the right clock; the two others live ten minutes in the future and in the past.
    let mut fleet = Fleet::plan().workers(0).reviewers(0).start().await.unwrap();
    let library = preload::build("clock/shift.c", fleet.folder()).unwrap();
    let library = library.to_string_lossy();
    // Beats come as late as the configuration allows.
    let renew = (scale().lease().lease_ms / 2).to_string();
    for (role, shift) in [(Role::Worker, "600"), (Role::Reviewer, "-600"), (Role::Worker, "-600")] {
        let settings =
            [("LD_PRELOAD", &*library), ("CLOCK_SHIFT_S", shift), ("MUSTER_LEASE__RENEW_MS", &renew)];
        fleet.add_program_with(role, &settings).unwrap();
    }
    fleet.ready().await.unwrap();
    let store = fleet.store().await.unwrap();
    let shifted = wait::until("all are published", scale().patience(), async || {
        let all = store.consumers().await?;
        Ok((all.len() == 4).then_some(all))
    });
    let now = store.now_ms().await.unwrap();
    let off = shifted.await.unwrap().iter().filter(|c| c.started_at_ms.abs_diff(now) > 500_000).count();
    assert_eq!(off, 3, "their clocks really are off");
    let api = fleet.api();
    #[expect(clippy::cast_precision_loss, reason = "seconds")]
    let seconds = scale().lease().lease_ms as f64 * 2.5 / 1_000.0;
    let goal =
        api.submit_plan("off", &json!([slow("a", &[], seconds), slow("b", &[], seconds)])).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    for ticket in api.tickets(&goal).await.unwrap() {
        assert_eq!((ticket.attempts, ticket.counters.losses), (1, 0), "{}", ticket.key);
    }
    fleet.oracle().await.unwrap();
}

/// The score of a member lies `after_ms` after the call that was made between the two moments.
async fn scored(desk: &Desk, set: &str, member: &str, after_ms: u64, from_ms: u64) {
    let to_ms = desk.store.now_ms().await.unwrap();
    let score: f64 = desk.redis.query(&["ZSCORE", &format!("{KEY}{set}"), member]).await.unwrap();
    let range = from_ms + after_ms..=to_ms + after_ms;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "milliseconds since 1970")]
    let score = score as u64;
    assert!(
        range.contains(&score),
        "{set} {member}: {score} is not in {range:?} ({after_ms} ms after the call)"
    );
}

#[tokio::test]
async fn q26_every_duration_is_counted_from_the_call_by_the_servers_clock() {
    let mut desk = Desk::start().await.unwrap();
    let mut random = StdRng::seed_from_u64(26);
    for _ in 0..scale().pick(20, 500) {
        // From a second to an hour, as likely small as large.
        let mut time = || (1_000.0 * 3_600_f64.powf(random.random::<f64>())) as u64;
        let (lease, longer, delay, expiry, person) = (time(), time(), time(), time(), time());
        let deadline = desk.store.now_ms().await.unwrap() + time();
        let from = desk.store.now_ms().await.unwrap();
        let goal =
            NewGoal { text: "time".into(), id: new_id(), deadline_at_ms: deadline, ..NewGoal::default() };
        assert_eq!(
            desk.store.submit_goal(&goal, usize::MAX / 2).await.unwrap(),
            shared::store::Submitted::New
        );
        let step = desk.store.manage_claim("m", &new_id(), lease).await.unwrap().unwrap();
        scored(&desk, "lease", &format!("g:{}", goal.id), lease, from).await;
        // A point in time stays one.
        let due: f64 = desk.redis.query(&["ZSCORE", &format!("{KEY}dl"), &goal.id]).await.unwrap();
        assert!((due - deadline as f64).abs() < 1.0);
        let plan = desk
            .seal(&step, &[spec("a", &[], ReviewPolicy::None), spec("b", &[], ReviewPolicy::None)])
            .await
            .unwrap();
        desk.lease.lease_ms = lease;
        let from = desk.store.now_ms().await.unwrap();
        let claims = desk.work(2).await.unwrap();
        for claim in &claims {
            scored(&desk, "lease", &claim.held.id, lease, from).await;
        }
        let from = desk.store.now_ms().await.unwrap();
        let held = [(claims[0].held.clone(), 0)];
        let renewed = desk.store.renew("w", &[], longer, 4_000_000, 4_000_000, &held).await.unwrap();
        assert!(
            matches!(renewed[..], [Renewal::Ok { expires_in_ms }] if expires_in_ms <= longer),
            "{renewed:?}"
        );
        scored(&desk, "lease", &claims[0].held.id, longer, from).await;
        let from = desk.store.now_ms().await.unwrap();
        expect(desk.fail(&claims[0].held, FailClass::Fault, delay).await.unwrap(), Written::Ok).unwrap();
        scored(&desk, "delay", &claims[0].held.id, delay, from).await;
        let permit = Permit {
            digest: "d".into(),
            tool: "t".into(),
            args: json!({}),
            revision: 0,
            state: "asked".into(),
            note: String::new(),
            ..Permit::default()
        };
        let from = desk.store.now_ms().await.unwrap();
        expect(desk.store.park(&claims[1].held, &permit, expiry).await.unwrap(), Written::Ok).unwrap();
        scored(&desk, "ask", &claims[1].held.id, expiry, from).await;
        let from = desk.store.now_ms().await.unwrap();
        let finish = Finish::NeedsHuman { cause: "c".into(), detail: String::new(), expiry_ms: person };
        let ended = desk.store.manage_finish(&step.held, &new_id(), 0, step.read, &finish, 1).await.unwrap();
        assert!(matches!(ended, Finished::Ok | Finished::Again));
        scored(&desk, "ask", &format!("g:{}", plan.goal), person, from).await;
        desk.redis.query::<String>(&["FLUSHALL"]).await.unwrap();
    }
}

#[tokio::test]
async fn q31_a_dead_owners_tickets_come_back_after_the_lease_whatever_their_run_limits() {
    let desk = Desk::start().await.unwrap();
    desk.sweep().await.unwrap();
    let plan = desk.plan(&independent(2)).await.unwrap();
    let claims = desk.work(2).await.unwrap();
    for (claim, run_limit_ms) in claims.iter().zip([2_000, 3_600_000]) {
        let from = desk.store.now_ms().await.unwrap();
        let lease_ms = desk.lease.lease_ms;
        let held = [(claim.held.clone(), 0)];
        let renewed = desk.store.renew("w", &[], lease_ms, 3_600_000, run_limit_ms, &held).await.unwrap();
        assert!(matches!(renewed[..], [Renewal::Ok { .. }]), "{renewed:?}");
        let score: f64 = desk.redis.query(&["ZSCORE", &format!("{KEY}lease"), &claim.held.id]).await.unwrap();
        let to = desk.store.now_ms().await.unwrap();
        assert!(score <= (to + lease_ms) as f64 && score > from as f64, "bound by the lease: {score}");
    }
    // Its owner is dead from here on.
    let back = wait::until("both wait again", scale().patience(), async || {
        desk.sweep().await?;
        let all = desk.store.all_tickets(&plan.goal).await?;
        Ok(all.iter().all(|t| t.status == Status::Pending && t.counters.losses == 1).then_some(()))
    });
    back.await.unwrap();
    desk.oracle().await.unwrap();
}

#[tokio::test]
async fn q50_due_times_hold_and_no_metric_is_negative_on_hosts_an_hour_off() {
    // Who plans and who works, an hour ahead and an hour behind; who reviews and sweeps, the other way round.
    let plan = Fleet::plan().managers(0).workers(0).reviewers(0).lease(|lease| lease.retry_delay_ms = 700);
    let mut fleet = plan.start().await.unwrap();
    let library = preload::build("clock/shift.c", fleet.folder()).unwrap();
    let library = library.to_string_lossy();
    for (role, shift) in [(Role::Manager, "3600"), (Role::Worker, "-3600"), (Role::Reviewer, "3600")] {
        let settings = [("LD_PRELOAD", &*library), ("CLOCK_SHIFT_S", shift)];
        fleet.add_program_with(role, &settings).unwrap();
    }
    fleet.ready().await.unwrap();
    let api = fleet.api();
    let fails = harness::script::direct("fails", &[], "data/f.txt", "raise SystemExit(1)");
    let goal = api.submit_plan("an hour off", &json!([fails, slow("long", &[], 2.0)])).await.unwrap();
    let tried = |e: &shared::store::LogEvent| e.key == "fails" && e.event == "claimed";
    wait::until("it is tried three times", scale().patience(), async || {
        let events = api.events(&goal).await?;
        Ok((events.iter().filter(|e| tried(e)).count() >= 3).then_some(()))
    })
    .await
    .unwrap();
    let events = api.events(&goal).await.unwrap();
    // Each wait is as long as it was meant, doubled each time: neither nothing nor an hour.
    let mut failed_ms = None;
    let mut waits = vec![];
    for event in events.iter().filter(|e| e.key == "fails") {
        match event.event.as_str() {
            "claimed" => waits.extend(failed_ms.take().map(|at: u64| event.at_ms - at)),
            _ if event.from == "running" => failed_ms = Some(event.at_ms),
            _ => {}
        }
    }
    assert_eq!(waits.len(), 2, "{events:?}");
    assert!(waits[0] >= 700 && waits[1] >= 1_400 && waits.iter().all(|ms| *ms < 60_000), "{waits:?}");
    let long = api.event(&goal, "the other one ends", |e| e.key == "long" && e.to == "done").await;
    long.unwrap();
    let long = api.ticket(&goal, "long").await.unwrap();
    assert_eq!((long.attempts, long.counters.losses), (1, 0), "no lease lapsed");
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    for role in [Role::Manager, Role::Worker, Role::Reviewer] {
        let at = format!("http://127.0.0.1:{}/metrics", fleet.program(role, 0).port());
        let text = http.get(at).send().await.unwrap().text().await.unwrap();
        for line in text.lines().filter(|line| line.starts_with("muster_")) {
            let value: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
            let is_age = ["_wait_seconds_sum", "oldest_ready", "overdue", "sweep_age"]
                .iter()
                .any(|w| line.contains(w));
            assert!(value >= 0.0 && (!is_age || value < 600.0), "{role:?}: {line}");
        }
    }
    fleet.oracle().await.unwrap();
}
