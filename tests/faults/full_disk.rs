//! No space left: for the append-only file of Redis, for the blobs. Work stands still, is counted against nobody, and goes
//! on when there is space again.

use harness::fleet::{Fleet, Role};
use harness::oracle::acceptances;
use harness::preload;
use harness::redis::Options;
use harness::scale::scale;
use harness::wait;
use serde_json::{Value, json};
use std::path::Path;

/// What a program needs to see a full disk below `part` while `flag` is there.
fn settings(library: &Path, flag: &Path, part: &str) -> Vec<(&'static str, String)> {
    vec![
        ("LD_PRELOAD", library.to_string_lossy().into_owned()),
        ("DISK_FULL_FLAG", flag.to_string_lossy().into_owned()),
        ("DISK_FULL_PART", part.to_owned()),
    ]
}

fn notes(count: usize) -> Value {
    let note = |n: usize| {
        let path = format!("data/{n}.txt");
        let review = if n.is_multiple_of(2) { "none" } else { "code" };
        json!({"id": format!("t{n}"), "description": "note", "tool": "write_file", "outputs": [path],
            "args": {"path": path, "content": format!("note {n}\n")}, "review": review})
    };
    json!((0..count).map(note).collect::<Vec<_>>())
}

#[tokio::test]
async fn a_full_disk_under_redis_refuses_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let library = preload::build("disk/full.c", folder.path()).unwrap();
    let flag = folder.path().join("full");
    let options = Options { env: settings(&library, &flag, "appendonlydir"), ..Options::default() };
    let fleet = Fleet::plan().workers(2).redis(options).start().await.unwrap();
    let api = fleet.api();
    let mut goals = vec![api.submit_plan("before", &notes(30)).await.unwrap()];
    api.event(&goals[0], "work has begun", |e| e.event == "claimed").await.unwrap();
    std::fs::write(&flag, "").unwrap();
    // Whatever comes first: the server notices at its next write and refuses from then on.
    let refused = wait::until("writes are refused", scale().patience(), async || {
        match api.submit_plan("while it is full", &notes(1)).await {
            Ok(goal) => {
                goals.push(goal);
                Ok(None)
            }
            Err(error) => Ok(Some(error)),
        }
    });
    let error = refused.await.unwrap();
    assert!(error.to_string().starts_with("503"), "a passing state, said as such: {error:#}");
    std::fs::remove_file(&flag).unwrap();
    let taken = wait::until("it is taken again", scale().patience(), async || {
        api.submit_plan("after", &notes(2)).await.map(Some)
    });
    goals.push(taken.await.unwrap());
    for goal in &goals {
        api.reaches(goal, &["done"]).await.unwrap();
        let times = acceptances(&api.events(goal).await.unwrap());
        assert!(times.values().all(|n| *n == 1), "{times:?}");
        for ticket in api.tickets(goal).await.unwrap() {
            assert_eq!((ticket.counters.faults, ticket.counters.review_faults), (0, 0), "{ticket:?}");
        }
    }
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn a_full_disk_under_the_blobs_is_nobodys_fault_and_passes() {
    let mut fleet = Fleet::plan().managers(1).workers(0).reviewers(0).start().await.unwrap();
    let library = preload::build("disk/full.c", fleet.folder()).unwrap();
    let flag = fleet.folder().join("full");
    let settings = settings(&library, &flag, "/blobs/");
    let settings: Vec<(&str, &str)> = settings.iter().map(|(n, v)| (*n, v.as_str())).collect();
    for role in [Role::Worker, Role::Reviewer] {
        fleet.add_program_with(role, &settings).unwrap();
    }
    fleet.ready().await.unwrap();
    let api = fleet.api();
    std::fs::write(&flag, "").unwrap();
    let goal = api.submit_plan("no space", &notes(4)).await.unwrap();
    let waits = wait::until("the attempts meet the full disk", scale().patience(), async || {
        let tickets = api.tickets(&goal).await?;
        Ok(tickets.iter().any(|t| t.counters.waits > 0).then_some(()))
    });
    waits.await.unwrap();
    std::fs::remove_file(&flag).unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    for ticket in api.tickets(&goal).await.unwrap() {
        assert_eq!((ticket.counters.faults, ticket.counters.review_faults), (0, 0), "{ticket:?}");
    }
    assert_eq!(api.files(&goal).await.unwrap().len(), 4);
    assert_eq!(api.file(&goal, "data/3.txt").await.unwrap(), "note 3\n");
    fleet.oracle().await.unwrap();
}
