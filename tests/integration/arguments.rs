//! What the store hands to its scripts, byte for byte: a program of the version before must be understood by the scripts of
//! this one. The arguments of every script stand in a file; they may only be changed together with a way for the old ones.

use harness::desk::{Desk, REVIEW, WORK, completion, decision, spec};
use harness::turnstile::Turnstile;
use serde_json::json;
use shared::goal::NewGoal;
use shared::lesson::Lesson;
use shared::message::Kind;
use shared::standard::{Standard, State};
use shared::store::{
    ClaimRequest, Completion, Effect, Failure, Finish, Heard, Held, Hook, Lane, Measured, Permit,
    PersonDecision, ProbeKind, ProbeRecord, Reservation, Store, Tokens, Turn,
};
use shared::ticket::patch::{Edit, NewTicket, PatchOp};
use shared::ticket::{FailClass, ReviewPolicy};
use std::fmt::Write as _;
use std::path::PathBuf;

fn id(n: u32) -> String {
    format!("{n:032x}")
}

fn held(n: u32) -> Held {
    Held { id: id(n), epoch: 7, lease_id: format!("{}.1", id(99)) }
}

/// Every script once, with fixed arguments; the answers do not matter here.
async fn call_all(store: &Store) {
    let goal = NewGoal { id: id(1), tenant: "acme".into(), text: "a goal".into(), ..NewGoal::default() };
    let _ = store.submit_goal(&goal, 1_000).await;
    let lanes = [WORK.to_owned(), REVIEW.to_owned()];
    let prefix = id(98);
    let request = ClaimRequest {
        kind: Kind::Work,
        lanes: &lanes,
        consumer: "worker-host-1-00000000000000ff",
        lease_prefix: &prefix,
        lease_ms: 30_000,
        n: 4,
        actor: "model|prompt",
    };
    let _ = store.claim(&request).await;
    let _ = store.renew("worker-1", &lanes, 30_000, 600_000, 3_600_000, &[(held(2), 15)]).await;
    let with_files = Completion { roots: Some((id(3), id(4))), overlay_ref: id(5), ..completion(&held(2)) };
    let _ = store.complete(&[completion(&held(2)), with_files]).await;
    let _ = store.decide(&[decision(&held(2), true), decision(&held(2), false)]).await;
    let failure = Failure { held: held(2), class: FailClass::Wait, detail: "slow".into(), delay_ms: 1_500 };
    let _ = store.fail(&failure).await;
    let _ = store.release(&held(2)).await;
    let permit = Permit {
        digest: id(6),
        tool: "pay".into(),
        args: json!({"to": []}),
        revision: 2,
        state: "asked".into(),
        note: String::new(),
        ..Permit::default()
    };
    let _ = store.park(&held(2), &permit, 60_000).await;
    let effect = Effect { v: 1, tool: "pay".into(), digest: id(6), epoch: 7, ..Effect::default() };
    let _ = store.append_step(&held(2), "1.0.0.0", "{}").await;
    let _ = store.effect_begin(&held(2), "key", &effect, true).await;
    let _ = store.effect_end(&held(2), "key", &effect).await;
    let _ = store.conflict(&held(2), "data/x.txt", true, &id(16)).await;
    let _ = store.progress(&held(2), "obstacle", "no network", Some("a fact")).await;
    let _ = store.manage_claim("manager-1", &id(97), 30_000).await;
    let _ = store.plan_store(&held(1), &id(7)).await;
    let ticket = NewTicket {
        id: id(8),
        parent_id: id(1),
        need_ids: vec![id(2)],
        spec: spec("key", &["need"], ReviewPolicy::Judged),
    };
    let _ = store.owned_by_others(&id(1), &id(2), &["outputs/a.md".into()]).await;
    let _ = store.submit_tickets(&held(1), std::slice::from_ref(&ticket)).await;
    let _ = store.seal(&held(1), 1).await;
    let edit = Edit { description: Some("other words".into()), ..Edit::default() };
    let ops = [
        PatchOp::Add { ticket: Box::new(ticket) },
        PatchOp::Rewrite { id: id(2), epoch: 7, edit: Box::new(edit) },
        PatchOp::Link { id: id(2), epoch: 7, need: id(8) },
        PatchOp::HandOver { id: id(9), epoch: 3, reason: "why".into(), expiry_ms: 1_000 },
    ];
    let _ = store.patch(&held(1), &id(10), 3, 2, &ops).await;
    let ops = [PatchOp::Relink { id: id(2), epoch: 7, needs: vec![id(8)], add: vec![], drop: vec![id(9)] }];
    let _ = store.replan(&held(1), &id(14), 3, &ops, "b answers all", 20).await;
    let finish = Finish::NeedsHuman { cause: "c".into(), detail: "d".into(), expiry_ms: 1_000 };
    let _ = store.manage_finish(&held(1), &id(11), 3, 2, &finish, 60_000).await;
    let answer = PersonDecision::Skip { reason: "not needed".into() };
    let _ = store.answer(&id(2), 7, &id(12), "tester", &answer).await;
    let denied = PersonDecision::DenyPlan { reason: "too long".into() };
    let _ = store.answer(&id(1), 0, &id(15), "tester", &denied).await;
    let _ = store.cancel_ticket(&id(2), "tester", 10_000).await;
    let _ = store.note(&id(1), "tester", "a note").await;
    let _ = store.dead_letter(WORK, b"raw", "why").await;
    let _ = store.requeue_dead_letters(1).await;
    let _ = store.audit_goal(&id(1)).await;
    let _ = store.forget_goal(&id(13)).await;
    let turn = Turn {
        endpoint: "host-model",
        name: "host model",
        call: "call-2",
        lane: Lane::Reviewer,
        expiry_ms: 60_000,
        in_flight_max: 4,
        failures_max: 5,
        requests_per_minute: 0,
        goal: &id(1),
        worst: Tokens { input: 3_000, output: 1_000 },
        tokens_per_minute: Tokens { input: 600_000, output: 60_000 },
    };
    let _ = store.quota_enter(&turn).await;
    let _ = store.quota_keep("host-model", "call-2", &id(1), 60_000).await;
    let heard = Heard::Quota { retry_after_ms: Some(1_500) };
    let used = Tokens { input: 2_500, output: 200 };
    let _ = store.quota_leave(&turn, "1000:3:4:3000:250", heard, used, 30_000).await;
    let _ = store.quota_lift("host-model").await;
    let tenants = json!({"in_flight_max": 4, "of": {"acme": {"budget_tokens": 100, "budget_period": "day"}}});
    let _ = store.publish_tenants(&serde_json::from_value(tenants).unwrap()).await;
    let _ = store.raise_tenant("acme", Some(1_000), None).await;
    let lesson = Lesson { v: 1, id: id(12), kind: "plan".into(), text: "a text".into(), ..Lesson::default() };
    let _ = store.learn("acme", std::slice::from_ref(&lesson), 500).await;
    let _ = store.edit_lesson("acme", &lesson).await;
    let _ = store.forget_lesson("acme", &id(12)).await;
    let _ = store.forget_lessons("acme").await;
    let standard =
        Standard { v: 1, id: id(13), kind: "k".into(), text: "a text".into(), ..Standard::default() };
    let _ = store.notice_standard("acme", &standard, &id(1), &shared::config::Standards::default()).await;
    let _ = store.tally_standards("acme", "k", true, &[(&standard.id, false)]).await;
    let _ = store.decide_standard("acme", &standard, State::Promoted, "ana", 10).await;
    let judge = "judge:00112233";
    let _ = store.probe_due(judge, 2, "test-model", "standard").await;
    let _ = store.reviewed(judge).await;
    let measured = Measured {
        actor: judge,
        kind: ProbeKind::Canary,
        right: false,
        window: 20,
        count_min: 4,
        floor_percent: 60,
        tokens: 900,
        microusd: 12,
    };
    let record = ProbeRecord { v: 1, name: "wrong-total".into(), ..ProbeRecord::default() };
    let _ = store.reviewer_measured(&measured, &record).await;
    let _ = store.probe_unread(judge, 900, 12, &record).await;
    let _ = store.order_probes(judge, 8).await;
    let _ = store.lift_reviewer(judge, "admin").await;
    let _ = store.tenant_book("acme").await;
    let _ = store.quotas().await;
    let _ = store.measure().await;
    let _ = store.hooks_listen(true).await;
    let _ = store.hooks_take(20, 15_000).await;
    let hook = Hook {
        v: 1,
        id: format!("{}:1-0", id(1)),
        goal: id(1),
        ticket: "key".into(),
        event: "handed_over".into(),
        state: "needs_human".into(),
        detail: "why".into(),
        at_ms: 7,
        tries: 1,
    };
    let _ = store.hook_again(&hook, 5_000).await;
    let _ = store.hook_done(&hook.id).await;
    let _ = store.sweep(&shared::config::Lease::default()).await;
}

fn golden() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/arguments/v1.txt")
}

/// One script a line, each argument in quotes, bytes that are no text escaped.
fn written(calls: &[(String, Vec<Vec<u8>>)]) -> String {
    // The place in a stream is another one each time.
    let moment = regex::Regex::new(r"\d{13}-\d+").unwrap();
    let mut text = String::new();
    for (name, args) in calls {
        let args: Vec<String> = args.iter().map(|a| format!("\"{}\"", a.escape_ascii())).collect();
        let _ = writeln!(text, "{name} {}", args.join(" "));
    }
    moment.replace_all(&text, "1-0").into_owned()
}

#[tokio::test]
async fn q21_the_arguments_of_every_script_are_those_of_the_file() {
    let desk = Desk::start().await.unwrap();
    let gate = Turnstile::start(desk.redis.port()).await.unwrap();
    let store = desk.another_store(&gate.url()).await.unwrap();
    gate.record();
    call_all(&store).await;
    let reservation = Reservation {
        call: "call-1",
        goal: &id(1),
        ticket: &id(2),
        tokens: 4_000,
        microusd: 120,
        expiry_ms: 60_000,
        person_expiry_ms: 90_000,
    };
    let _ = store.reserve(&reservation).await;
    let _ = store.settle("call-1", &id(1), &id(2), 3_000, 90, &json!({"model": "m"})).await;
    let mut calls = gate.recorded();
    // By hash first, then as a whole when the server does not have it: the same arguments, once.
    calls.dedup();
    let text = written(&calls);
    for (_, name) in shared::store::script_names() {
        // `goal_keys count` and `unserved` are the sweeper's own.
        assert!(calls.iter().any(|(n, _)| n == name), "{name} was not called");
    }
    let path = golden();
    if std::env::var_os("MUSTER_TEST_WRITE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &text).unwrap();
    }
    let want = std::fs::read_to_string(&path).unwrap_or_default();
    for (line, (got, want)) in text.lines().zip(want.lines()).enumerate() {
        assert_eq!(
            got,
            want,
            "line {} of {}: programs of the version before send the second; if the script still \
            understands it, write the file anew with MUSTER_TEST_WRITE_GOLDEN=1",
            line + 1,
            path.display()
        );
    }
    assert_eq!(text.lines().count(), want.lines().count());
}

#[tokio::test]
async fn q21_the_scripts_understand_the_arguments_of_the_file() {
    let desk = Desk::start().await.unwrap();
    let gate = Turnstile::start(desk.redis.port()).await.unwrap();
    let store = desk.another_store(&gate.url()).await.unwrap();
    // Loads every script that the file names.
    call_all(&store).await;
    let hashes = shared::store::script_names();
    let mut connection = desk.redis.connection().await.unwrap();
    let text = std::fs::read_to_string(golden()).unwrap();
    let mut replayed = 0;
    for line in text.lines() {
        let (name, rest) = line.split_once(' ').unwrap();
        let hash = hashes.iter().find(|(_, n)| **n == name).map(|(h, _)| h.clone());
        let Some(hash) = hash else {
            panic!("the script {name} is gone: programs of the version before call it")
        };
        if ["reserve", "settle"].contains(&name) {
            continue;
        }
        let mut call = redis::cmd("EVALSHA");
        call.arg(hash).arg(1).arg("muster:{s0}:ctl");
        for arg in rest.split("\" \"") {
            call.arg(unescaped(arg.trim_matches('"')));
        }
        let answer = call.query_async::<redis::Value>(&mut connection).await;
        assert!(answer.is_ok(), "{name} does not understand {rest}: {answer:?}");
        replayed += 1;
    }
    assert!(replayed > 25, "{replayed}");
}

/// Back from `escape_ascii`.
fn unescaped(text: &str) -> Vec<u8> {
    let mut out = vec![];
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'x') => {
                let hex: String = bytes.by_ref().take(2).map(char::from).collect();
                out.push(u8::from_str_radix(&hex, 16).unwrap());
            }
            Some(b'n') => out.push(b'\n'),
            Some(b't') => out.push(b'\t'),
            Some(b'r') => out.push(b'\r'),
            Some(other) => out.push(other),
            None => {}
        }
    }
    out
}
