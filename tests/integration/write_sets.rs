//! Who writes which file: what another ticket declares is not written over, by an agent, a direct call or a person.

use harness::fleet::Fleet;
use harness::model::{Answer, Asked, Model};
use harness::script::{direct, key_of, output_of, quick, writes};
use serde_json::{Value, json};
use shared::ticket::Status;

const THEIRS: &str = "data/first.txt";

fn agent(asked: &Asked) -> Option<Answer> {
    let own = output_of(&key_of(asked));
    let call = |name: &str, args: Value| (name.to_owned(), args);
    Some(match (asked.schema(), asked.turn()) {
        ("escalation", _) => Answer::json(&json!({"action": "hand_over", "reason": "a person decides"})),
        // By a file tool, by code, and by deleting it.
        (_, 0) => Answer::Calls(vec![
            call("write_file", json!({"path": THEIRS, "content": "mine"})),
            call("code_interpreter", json!({"code": format!("open('{THEIRS}', 'w').write('mine')")})),
            call("code_interpreter", json!({"code": format!("import os\nos.remove('{THEIRS}')")})),
            call("read_file", json!({"path": THEIRS})),
            call("write_file", json!({"path": own, "content": "of my own"})),
            call("write_file", json!({"path": "data/notes.txt", "content": "beside it"})),
        ]),
        _ => Answer::call("finish", json!({"status": "done", "summary": "tried", "outputs": [own]})),
    })
}

#[tokio::test]
async fn i5_what_another_ticket_declares_is_not_written_over_by_anybody() {
    let model = Model::start(agent).await.unwrap();
    let fleet = Fleet::plan().model(&model.url()).start().await.unwrap();
    let api = fleet.api();
    let writer = json!({"id": "agent", "needs": ["first"], "description": "write", "expected_output": output_of("agent"),
        "role": "general_assistant", "tools": ["files", "code"], "outputs": [output_of("agent")], "review": "none"});
    let code = format!("{}{}", writes("data/rude.txt"), writes(THEIRS).replace("made", "rude"));
    let tickets = json!([quick("first", &[]), writer, direct("rude", &["first"], "data/rude.txt", &code)]);
    let goal = api.submit_plan("three files", &tickets).await.unwrap();

    // The agent hears it each time, and nothing of it stays.
    api.event(&goal, "the direct call ended", |e| e.event == "handed_over" && e.key == "rude").await.unwrap();
    let done = |e: &shared::store::LogEvent| e.key == "agent" && e.to == "done";
    api.event(&goal, "the agent is done", done).await.unwrap();
    let asked = model.asked();
    let last = asked.iter().rfind(|a| a.schema().is_empty()).unwrap();
    let heard: Vec<&str> = last
        .messages()
        .iter()
        .filter(|m| m["role"] == "tool")
        .filter_map(|m| m["content"].as_str())
        .collect();
    let whose = format!("`{THEIRS}` is an output of ticket `first`");
    assert!(heard[0].contains(&whose) && heard[0].contains("nothing was written"), "{heard:?}");
    assert!(heard[1].contains("[undone: ") && heard[1].contains(&whose), "{heard:?}");
    assert!(heard[2].contains("[undone: ") && heard[3].contains("made"), "{heard:?}");
    assert_eq!(api.file(&goal, THEIRS).await.unwrap(), "made\n");
    assert_eq!(
        api.file(&goal, "data/notes.txt").await.unwrap(),
        "beside it",
        "what nobody declares may be written"
    );

    // A direct call cannot hear anything: a person reads which field it is, and the way out.
    let rude = api.ticket(&goal, "rude").await.unwrap();
    assert_eq!((rude.status, rude.attempts), (Status::NeedsHuman, 1), "{rude:?}");
    for part in [whose.as_str(), "outputs: ", "among this ticket's `outputs`", "among its `needs`"] {
        assert!(rude.failure.contains(part), "{part}: {}", rude.failure);
    }

    // Nor does a person deliver what the ticket does not declare.
    let blob = api.upload(b"by hand\n").await.unwrap();
    let path = format!("/v1/tickets/{}/deliver", rude.task_id);
    for wrong in [THEIRS, "data/else.txt"] {
        let files =
            json!({"files": [{"path": "data/rude.txt", "blob": blob}, {"path": wrong, "blob": blob}]});
        let refused = api.refused(&path, &files).await.unwrap();
        assert_eq!(
            (refused.status, &refused.body["error"]["field"]),
            (400, &json!("files[1].path")),
            "{refused:?}"
        );
    }
    let ran = fleet.muster(&["deliver", &format!("{goal}/rude"), &format!("{THEIRS}=x")]).await.unwrap();
    assert_eq!(ran.code, 64, "{ran:?}");
    assert!(ran.stderr.contains("data/rude.txt"), "{ran:?}");
    api.post(&path, &json!({"files": [{"path": "data/rude.txt", "blob": blob}]})).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    assert_eq!(api.file(&goal, "data/rude.txt").await.unwrap(), "by hand\n");
    assert_eq!(api.file(&goal, THEIRS).await.unwrap(), "made\n");
    model.verify().unwrap();
    fleet.no_panics().unwrap();
    fleet.oracle().await.unwrap();
}

#[tokio::test]
async fn two_tickets_that_write_one_file_wait_for_each_other_or_are_refused() {
    let fleet = Fleet::plan().start().await.unwrap();
    let api = fleet.api();
    let shared = |id: &str, needs: &[&str]| {
        direct(id, needs, "data/one.txt", &writes("data/one.txt").replace("made", id))
    };
    let plan = |tickets: Value| json!({"plan": {"goal": {"text": "one file"}, "tickets": tickets}});
    let refused = api.refused("/v1/goals", &plan(json!([shared("a", &[]), shared("b", &[])]))).await.unwrap();
    assert!(refused.to_string().contains("add \\\"a\\\" to its needs"), "{refused}");
    // One after the other is no writing over: the second begins with what the first delivered.
    let goal = api.submit(&plan(json!([shared("a", &[]), shared("b", &["a"])]))).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    assert_eq!(api.file(&goal, "data/one.txt").await.unwrap(), "b\n");
    fleet.oracle().await.unwrap();
}
