//! Several workers on one goal's files at the same time: what both changed, what all of them note.

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::get;
use harness::fleet::Fleet;
use harness::model::{Answer, Asked, Model};
use harness::script::{key_of, output_of};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::Barrier;

const TABLE: &str = "data/prices.csv";

/// A tool `meet` whose calls are answered once so many have been made: those tickets are under way together.
async fn meeting(of: usize) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let meet = |State(all): State<Arc<Barrier>>, Path(who): Path<String>| async move {
        all.wait().await;
        format!("{who} met the others")
    };
    let router = Router::new().route("/meet/{who}", get(meet)).with_state(Arc::new(Barrier::new(of)));
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!(
        "[[tools.http]]\nname = \"meet\"\nbundle = \"desk\"\ndescription = \"meet the others\"\neffect = \"reads\"\n\
         url = \"http://127.0.0.1:{port}/meet/{{who}}\"\n[tools.http.schema]\ntype = \"object\"\nrequired = [\"who\"]\n\
         [tools.http.schema.properties]\nwho = {{ type = \"string\" }}\n"
    )
}

fn ticket(id: &str) -> Value {
    json!({"id": id, "description": format!("the part {id}"), "expected_output": output_of(id),
        "role": "general_assistant", "tools": ["desk", "files"], "outputs": [output_of(id)], "review": "none"})
}

fn write(path: &str, text: &str) -> (String, Value) {
    ("write_file".into(), json!({"path": path, "content": text}))
}

#[tokio::test]
async fn c5_two_workers_change_one_file_and_both_versions_are_kept() {
    let model = Model::start(|asked: &Asked| {
        let key = key_of(asked);
        let redo = asked.says("These files were changed by another ticket meanwhile");
        Some(match (asked.turn(), redo) {
            (0, false) => Answer::call("meet", json!({"who": key})),
            (1, false) => {
                let line = format!("item,price\npen,1\n{key},2\n");
                Answer::Calls(vec![write(TABLE, &line), write(&output_of(&key), &key)])
            }
            // The redo has both versions before it.
            (0, true) => Answer::Calls(vec![
                ("read_file".into(), json!({"path": TABLE})),
                ("read_file".into(), json!({"path": format!("temp/conflicts/{TABLE}")})),
            ]),
            (1, true) => {
                let results = asked.messages().iter().filter(|m| m["role"] == "tool");
                let both: Vec<&str> = results.filter_map(|m| m["content"].as_str()).collect();
                let other = if key == "a" { "b,2" } else { "a,2" };
                assert!(both[0].contains(other) && both[1].contains(&format!("{key},2")), "{both:?}");
                Answer::Calls(vec![
                    write(TABLE, "item,price\npen,1\na,2\nb,2\n"),
                    write(&output_of(&key), &key),
                ])
            }
            _ => Answer::call("finish", json!({"status": "done", "summary": "added", "outputs": [TABLE]})),
        })
    });
    let model = model.await.unwrap();
    let fleet = Fleet::plan().model(&model.url()).file(&meeting(2).await).workers(2);
    let fleet = fleet.env("WORKER__SLOTS", "1").start().await.unwrap();
    let api = fleet.api();
    let input = api.upload(b"item,price\npen,1\n").await.unwrap();
    let goal = json!({"inputs": [{"path": TABLE, "blob": input}],
        "plan": {"goal": {"text": "add prices"}, "tickets": [ticket("a"), ticket("b")]}});
    let goal = api.submit(&goal).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    let conflicts: Vec<_> =
        api.events(&goal).await.unwrap().into_iter().filter(|e| e.event == "conflict").collect();
    assert_eq!(conflicts.len(), 1, "one of the two came second: {conflicts:?}");
    assert!(conflicts[0].detail.contains(TABLE), "{conflicts:?}");
    assert_eq!(
        api.file(&goal, TABLE).await.unwrap(),
        "item,price\npen,1\na,2\nb,2\n",
        "nothing was overwritten"
    );
    let second = api.ticket(&goal, &conflicts[0].key).await.unwrap();
    assert_eq!((second.attempts, second.counters.conflicts, second.counters.faults), (2, 1, 0));
    model.verify().unwrap();
    fleet.no_panics().unwrap();
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn eight_note_their_progress_at_once_and_all_entries_stand_in_the_todo_list() {
    let model = Model::start(|asked: &Asked| {
        let key = key_of(asked);
        Some(match asked.turn() {
            0 => Answer::call("meet", json!({"who": key})),
            1 => Answer::Calls(vec![
                (
                    "update_progress".into(),
                    json!({"status": "working", "message": "half of it",
                    "conclusion": format!("fact of {key}")}),
                ),
                write(&output_of(&key), &key),
            ]),
            _ => Answer::call(
                "finish",
                json!({"status": "done", "summary": "noted", "outputs": [output_of(&key)]}),
            ),
        })
    });
    let model = model.await.unwrap();
    let fleet = Fleet::plan().model(&model.url()).file(&meeting(8).await).workers(2);
    let fleet = fleet.env("WORKER__SLOTS", "4").start().await.unwrap();
    let api = fleet.api();
    let keys: Vec<String> = (1..=8).map(|n| format!("part{n}")).collect();
    let tickets: Vec<Value> = keys.iter().map(|key| ticket(key)).collect();
    let goal = api.submit_plan("eight parts", &json!(tickets)).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    let todo = api.file(&goal, "TODO.md").await.unwrap();
    for key in &keys {
        assert_eq!(todo.matches(&format!("- fact of {key}\n")).count(), 1, "{key}:\n{todo}");
        assert!(todo.contains(&format!("- [x] {key}: ")), "{key}:\n{todo}");
        assert!(todo.contains(&format!("| {} ", output_of(key))), "{key}:\n{todo}");
    }
    let events = api.events(&goal).await.unwrap();
    assert_eq!(events.iter().filter(|e| e.event == "progress").count(), 8);
    model.verify().unwrap();
    fleet.oracle().await.unwrap();
}
