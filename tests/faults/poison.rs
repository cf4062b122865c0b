//! Bytes in the lists that are no deliveries, keys of the wrong type: kept, named, and the tickets go on.

use harness::desk::{Desk, Planned, WORK, expect, independent, spec};
use harness::fleet::Fleet;
use harness::scale::scale;
use harness::script::slow;
use harness::wait;
use serde_json::json;
use shared::codec;
use shared::message::{Delivery, Kind};
use shared::store::{Claim, Written};
use shared::ticket::{FailClass, ReviewPolicy, Status};

const KEY: &str = "muster:{s0}:";

#[tokio::test]
async fn q35_bytes_that_do_not_decode_are_kept_and_their_neighbours_run() {
    let desk = Desk::start().await.unwrap();
    let plan = desk.plan(&independent(4)).await.unwrap();
    let ticket = desk.ticket(plan.id("t0000")).await.unwrap();
    let delivery = Delivery {
        kind: Kind::Work,
        ticket: ticket.task_id.clone(),
        epoch: ticket.epoch,
        traceparent: String::new(),
        enqueued_at_ms: 1,
    };
    let good = codec::encode(&delivery).unwrap();
    let mut future = good.clone();
    future[0] = b'9';
    let mut endless = good.clone();
    endless[49..57].copy_from_slice(&(4_u64 << 30).to_le_bytes());
    let truncated = good[..good.len() - 9].to_vec();
    let mut trailing = good.clone();
    trailing.extend([0; 64]);
    let random = vec![0xff; 200];
    let list = format!("{KEY}g:{}:q:{WORK}:1", plan.goal);
    let mut connection = desk.redis.connection().await.unwrap();
    // The real delivery of t0000 goes, so that one of the broken ones stands for it.
    let real = redis::cmd("LPOP").arg(&list).query_async::<Vec<u8>>(&mut connection).await.unwrap();
    assert_eq!(codec::decode(&real).unwrap().ticket, ticket.task_id);
    for raw in [&random, &future, &endless, &truncated, &trailing, &vec![], &vec![b'1'; 9_000]] {
        redis::cmd("LPUSH").arg(&list).arg(raw).query_async::<i64>(&mut connection).await.unwrap();
    }
    let mut claims: Vec<Claim> = vec![];
    let all = wait::until("all four are claimed", scale().patience(), async || {
        claims.extend(desk.work(16).await?);
        Ok((claims.len() >= 4).then_some(()))
    });
    all.await.unwrap();
    let without: Vec<_> =
        claims.iter().filter(|c| c.delivery.is_none()).map(|c| c.ticket.key.as_str()).collect();
    assert_eq!(without, ["t0000"], "claimed from its hash although its delivery does not decode");
    for claim in &claims {
        expect(desk.complete(&claim.held).await.unwrap(), Written::Ok).unwrap();
    }
    let letters = desk.store.dead_letters(100).await.unwrap();
    assert!(letters.len() >= 5, "{letters:?}");
    assert!(letters.iter().all(|l| !l.reason.is_empty() && l.lane == WORK), "{letters:?}");
    use base64::Engine;
    let kept: Vec<Vec<u8>> =
        letters.iter().map(|l| base64::engine::general_purpose::STANDARD.decode(&l.raw).unwrap()).collect();
    assert!(kept.contains(&random) && kept.contains(&future), "unchanged");
    desk.drain().await.unwrap();
    desk.oracle().await.unwrap();
}

/// A goal with one ticket of every kind that a script can act on.
struct Scene {
    desk: Desk,
    plan: Planned,
    work: Claim,
    judged: Claim,
    review: Claim,
}

async fn scene(desk: Desk) -> Scene {
    desk.sweep().await.unwrap();
    let mut specs = independent(3);
    specs.push(spec("judged", &[], ReviewPolicy::Code));
    specs.push(spec("review", &[], ReviewPolicy::Code));
    specs.push(spec("after", &["t0000", "judged", "review"], ReviewPolicy::None));
    let plan = desk.plan(&specs).await.unwrap();
    let claims = desk.work(5).await.unwrap();
    let by_key = |key: &str| claims.iter().find(|c| c.ticket.key == key).unwrap().clone();
    expect(desk.complete(&by_key("review").held).await.unwrap(), Written::Ok).unwrap();
    expect(desk.store.release(&by_key("t0001").held).await.unwrap(), Written::Ok).unwrap();
    let review = desk.one_review().await.unwrap();
    Scene { work: by_key("t0000"), judged: by_key("judged"), review, desk, plan }
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Claim,
    CompleteNone,
    CompleteJudged,
    Pass,
    Reject,
    Fail,
    Release,
    Sweep,
    Note,
    Cancel,
}

const CALLS: [Call; 10] = [
    Call::Claim,
    Call::CompleteNone,
    Call::CompleteJudged,
    Call::Pass,
    Call::Reject,
    Call::Fail,
    Call::Release,
    Call::Sweep,
    Call::Note,
    Call::Cancel,
];

impl Call {
    /// Its answer does not matter here; what it leaves behind does.
    async fn make(self, scene: &Scene) {
        let desk = &scene.desk;
        let _ = match self {
            Self::Claim => desk.work(1).await.map(|_| ()),
            Self::CompleteNone => desk.complete(&scene.work.held).await.map(|_| ()),
            Self::CompleteJudged => desk.complete(&scene.judged.held).await.map(|_| ()),
            Self::Pass => desk.decide(&scene.review.held, true).await.map(|_| ()),
            Self::Reject => desk.decide(&scene.review.held, false).await.map(|_| ()),
            Self::Fail => desk.fail(&scene.work.held, FailClass::Fault, 50).await.map(|_| ()),
            Self::Release => desk.store.release(&scene.work.held).await.map(|_| ()).map_err(Into::into),
            Self::Sweep => {
                let lease = format!("{KEY}lease");
                let lapsed = desk.redis.query::<i64>(&["ZADD", &lease, "1", &scene.work.held.id]).await;
                let _ = lapsed;
                desk.sweep().await.map(|_| ())
            }
            Self::Note => {
                desk.store.note(&scene.plan.goal, "tester", "hear").await.map(|_| ()).map_err(Into::into)
            }
            Self::Cancel => desk
                .store
                .cancel_ticket(scene.plan.id("t0002"), "tester", 10)
                .await
                .map(|_| ())
                .map_err(Into::into),
        };
    }
}

#[tokio::test]
async fn q48_a_script_that_breaks_in_the_middle_loses_no_ticket() {
    let mut lost = vec![];
    let mut tried = 0;
    let mut desk = Desk::start().await.unwrap();
    for call in CALLS {
        // Which keys there are, after the call as well: those that it makes can be in its way, too.
        let first = scene(desk).await;
        let mut keys = first.desk.redis.keys().await.unwrap();
        call.make(&first).await;
        keys.extend(first.desk.redis.keys().await.unwrap());
        keys.sort();
        keys.dedup();
        let kinds: Vec<String> = {
            let mut kinds: Vec<String> =
                keys.iter().map(|k| kind_of(k, &first)).filter(|k| !k.is_empty()).collect();
            kinds.sort();
            kinds.dedup();
            kinds
        };
        desk = first.desk;
        for kind in kinds {
            desk.redis.query::<String>(&["FLUSHALL"]).await.unwrap();
            let now = scene(desk).await;
            let key = name_of(&kind, &now);
            let there = now.desk.redis.query::<i64>(&["EXISTS", &key]).await.unwrap() == 1;
            if there {
                now.desk.redis.query::<String>(&["RENAME", &key, "aside"]).await.unwrap();
            }
            now.desk.redis.query::<String>(&["SET", &key, "wrong type"]).await.unwrap();
            call.make(&now).await;
            now.desk.redis.query::<i64>(&["DEL", &key]).await.unwrap();
            if there {
                now.desk.redis.query::<String>(&["RENAME", "aside", &key]).await.unwrap();
            }
            if let Err(what) = recovers(&now).await {
                lost.push(format!("{call:?} with {kind} of the wrong type: {what:#}"));
            }
            tried += 1;
            desk = now.desk;
        }
        desk.redis.query::<String>(&["FLUSHALL"]).await.unwrap();
    }
    assert!(tried > 100, "only {tried} tried");
    assert!(lost.is_empty(), "{} of {tried}:\n  {}", lost.len(), lost.join("\n  "));
}

/// The key without its goal's and tickets' ids; tickets are named by the part they play. Empty: not touched by scripts.
fn kind_of(key: &str, scene: &Scene) -> String {
    let mut kind = key.strip_prefix(KEY).unwrap_or_default().replace(&scene.plan.goal, "{goal}");
    for (name, id) in &scene.plan.ids {
        kind = kind.replace(id, &format!("{{{name}}}"));
    }
    kind
}

fn name_of(kind: &str, scene: &Scene) -> String {
    let mut key = kind.replace("{goal}", &scene.plan.goal);
    for (name, id) in &scene.plan.ids {
        key = key.replace(&format!("{{{name}}}"), id);
    }
    format!("{KEY}{key}")
}

/// Repair and sweeps bring everything to its end.
async fn recovers(scene: &Scene) -> anyhow::Result<()> {
    let desk = &scene.desk;
    let lease = format!("{KEY}lease");
    let ended = wait::until("every ticket ends", std::time::Duration::from_secs(3), async || {
        desk.store.repair(&desk.lease).await?;
        // Whoever still holds something is dead by now.
        for id in desk.redis.query::<Vec<String>>(&["ZRANGE", &lease, "0", "-1"]).await? {
            desk.redis.query::<i64>(&["ZADD", &lease, "1", &id]).await?;
        }
        desk.drain().await?;
        let tickets = desk.store.all_tickets(&scene.plan.goal).await?;
        let open: Vec<_> =
            tickets.iter().filter(|t| !t.status.is_terminal()).map(|t| (&t.key, t.status)).collect();
        if open.is_empty() { Ok(Some(())) } else { anyhow::bail!("{open:?}") }
    });
    ended.await?;
    desk.store.repair(&desk.lease).await?;
    let left = desk.store.audit_goal(&scene.plan.goal).await?;
    anyhow::ensure!(left.is_empty(), "{left:?}");
    Ok(())
}

#[tokio::test]
async fn a_ticket_whose_hash_is_broken_costs_no_neighbour_its_lease() {
    let fleet = Fleet::plan()
        .workers(1)
        .env("WORKER__SLOTS", "4")
        .lease(|lease| {
            lease.lease_ms = 2_000;
            lease.renew_ms = 500;
        })
        .start()
        .await
        .unwrap();
    let api = fleet.api();
    // Longer than a lease: without renewal they are lost.
    let tickets: Vec<_> = (0..4).map(|n| slow(&format!("t{n}"), &[], 5.0)).collect();
    let goal = api.submit_plan("one of four is broken", &json!(tickets)).await.unwrap();
    let all_run = async || {
        let tickets = api.tickets(&goal).await?;
        Ok((tickets.iter().filter(|t| t.status == Status::Running).count() == 4).then_some(tickets))
    };
    let running = wait::until("all four run", scale().patience(), all_run).await.unwrap();
    let broken = format!("{KEY}t:{}", running[0].task_id);
    let mut connection = fleet.redis.connection().await.unwrap();
    let () = redis::cmd("SET").arg(&broken).arg("not a hash").query_async(&mut connection).await.unwrap();

    let store = fleet.store().await.unwrap();
    for ticket in &running[1..] {
        let done = async || {
            let ticket = store.ticket(&ticket.task_id).await?.expect("it is there");
            Ok((ticket.status == Status::Done).then_some(ticket))
        };
        let ended = wait::until("a neighbour is done", scale().patience(), done).await.unwrap();
        assert_eq!((ended.attempts, ended.counters.losses), (1, 0), "{ended:?}");
    }
    fleet.no_panics().unwrap();
}
