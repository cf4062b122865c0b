//! Redis comes back with yesterday's data: whoever held something newer is fenced, and keys find or make the goals.

use harness::desk::{Desk, expect, independent};
use shared::goal::NewGoal;
use shared::store::{Claim, Submitted, Written};
use shared::ticket::new_id;
use std::path::Path;

/// All files below `from`, again below `to`.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[tokio::test]
async fn q54_an_old_dump_under_live_workers_accepts_nothing_twice_and_loses_no_goal() {
    let mut desk = Desk::start().await.unwrap();
    desk.sweep().await.unwrap();
    let goal = |text: &str| NewGoal { id: new_id(), text: text.into(), ..NewGoal::default() };
    let plan = desk.plan(&independent(8)).await.unwrap();
    let early = desk.work(3).await.unwrap();
    let data = desk.redis.folder().join("appendonlydir");
    let kept = tempfile::tempdir().unwrap();
    desk.redis.stop().await.unwrap();
    copy(&data, kept.path());
    desk.redis.restart().await.unwrap();

    // A minute of work that the dump does not know.
    expect(desk.complete(&early[0].held).await.unwrap(), Written::Ok).unwrap();
    let late: Vec<Claim> = desk.work(3).await.unwrap();
    expect(desk.complete(&late[0].held).await.unwrap(), Written::Ok).unwrap();
    let new = goal("after the dump");
    assert_eq!(desk.store.submit_goal(&new, 1_000).await.unwrap(), Submitted::New);
    let gone = desk.plan(&independent(1)).await.err();
    assert!(gone.is_some(), "the new goal is first in the manager's queue");
    let step = desk.store.manage_claim("m", &new_id(), 60_000).await.unwrap();

    desk.redis.kill();
    std::fs::remove_dir_all(&data).unwrap();
    copy(kept.path(), &data);
    desk.redis.restart().await.unwrap();
    assert!(desk.sweep().await.unwrap().requeued == 0, "an outage: nobody is swept at once");
    // Someone else takes what the dump says is ready, under the same epochs as those that were lost.
    let others = desk.work(5).await.unwrap();
    assert_eq!(others.len(), 5);
    let same_epoch =
        others.iter().any(|o| late.iter().any(|l| (&l.held.id, l.held.epoch) == (&o.held.id, o.held.epoch)));
    assert!(same_epoch, "the fence is the lease id here, the epochs are equal");
    for claim in &late {
        assert_eq!(desk.complete(&claim.held).await.unwrap(), Written::Fenced, "claimed after the dump");
    }
    for claim in &early {
        expect(desk.complete(&claim.held).await.unwrap(), Written::Ok).unwrap();
    }
    if let Some(step) = step {
        let stored = desk.store.plan_store(&step.held, "plan").await.unwrap();
        assert!(matches!(stored, Written::Gone | Written::Fenced), "its goal is not there: {stored:?}");
    }
    // Whoever submitted says it again.
    assert_eq!(desk.store.submit_goal(&new, 1_000).await.unwrap(), Submitted::New);
    assert_eq!(desk.store.submit_goal(&new, 1_000).await.unwrap(), Submitted::Duplicate);
    for claim in &others {
        expect(desk.complete(&claim.held).await.unwrap(), Written::Ok).unwrap();
    }
    let events = harness::oracle::events(&desk.store, &plan.goal).await.unwrap();
    let times = harness::oracle::acceptances(&events);
    assert_eq!((times.len(), times.values().all(|n| *n == 1)), (8, true), "{times:?}");
    desk.oracle().await.unwrap();
}
