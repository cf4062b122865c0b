//! A goal is recorded, and played again without a model: the same, or the first difference by name.

use harness::fleet::{Fleet, Ran, Rehearsal};
use harness::model::{Answer, Asked, Model};
use harness::script::{company, direct, ticket, writes};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/examples")
}

async fn replay(fleet: &Fleet, file: &Path) -> (Ran, Value) {
    let ran = fleet.muster(&["replay", "--json", file.to_str().unwrap()]).await.unwrap();
    let said = serde_json::from_str(&ran.stdout).unwrap_or(Value::Null);
    (ran, said)
}

/// The recording with one line changed in the request of the first call that fits.
fn changed(file: &Path, to: &Path, role: &str, key: &str, old: &str, new: &str) {
    let text = std::fs::read_to_string(file).unwrap();
    let mut done = false;
    let lines: Vec<String> = text
        .lines()
        .map(|line| {
            let mut value: Value = serde_json::from_str(line).unwrap();
            if done || value["kind"] != "call" || value["role"] != role || value["key"] != key {
                return line.to_owned();
            }
            done = true;
            let request = value["request"].to_string();
            assert!(request.contains(old), "{request}");
            value["request"] = serde_json::from_str(&request.replace(old, new)).unwrap();
            value.to_string()
        })
        .collect();
    assert!(done, "no call of the {role} of {key}");
    std::fs::write(to, lines.join("\n") + "\n").unwrap();
}

#[tokio::test]
async fn the_demo_is_recorded_and_replayed_to_equal_verdicts_and_deliverables() {
    let rehearsal = Rehearsal::start(&examples().join("demo.rehearsal.toml")).unwrap();
    let fleet = Fleet::plan().workers(2).model(rehearsal.url()).start().await.unwrap();
    // The goal as it is shipped, over the lock file beside it.
    let at = |name: &str| fleet.folder().join(name);
    let goal = std::fs::read_to_string(examples().join("demo.goal.toml")).unwrap();
    std::fs::write(at("demo.toml"), goal.replace("../../Cargo.lock", "Cargo.lock")).unwrap();
    std::fs::copy(examples().join("../../Cargo.lock"), at("Cargo.lock")).unwrap();
    let ran = fleet.muster(&["run", "demo.toml"]).await.unwrap();
    assert_eq!(ran.code, 0, "{ran:?}");
    let recorded = fleet.muster(&["record", "last", "--out", "demo.jsonl", "--json"]).await.unwrap();
    assert_eq!(recorded.code, 0, "{recorded:?}");
    let calls = recorded.json().unwrap()["calls"].as_u64().unwrap();
    assert!(calls >= 15, "{recorded:?}");
    // Nobody answers any more but the recording.
    drop(rehearsal);

    let (ran, said) = replay(&fleet, &at("demo.jsonl")).await;
    assert_eq!((ran.code, &said["same"], &said["difference"]), (0, &json!(true), &Value::Null), "{ran:?}");
    assert_eq!((said["calls"].as_u64(), &said["tickets"]), (Some(calls), &json!(4)), "{ran:?}");
    assert!(said["deliverables"].as_u64() >= Some(4), "{ran:?}");

    changed(
        &at("demo.jsonl"),
        &at("other.jsonl"),
        "worker",
        "packages",
        "You do exactly one ticket",
        "You do two tickets",
    );
    let (ran, said) = replay(&fleet, &at("other.jsonl")).await;
    let difference = said["difference"].as_str().unwrap_or_default();
    assert_eq!((ran.code, &said["same"]), (1, &json!(false)), "{ran:?}");
    assert!(difference.starts_with("call 1 of the worker of packages: message 1 (system), line "), "{ran:?}");
    let (then, now) = difference.split_once("\n  now:").unwrap();
    assert!(then.contains("You do two tickets") && now.contains("You do exactly one ticket"), "{difference}");
}

#[tokio::test]
async fn an_image_that_an_agent_reads_is_shown_recorded_by_its_digest_and_replayed() {
    let company = company(vec![ticket("text", &[])]);
    let model = Model::start(move |asked: &Asked| {
        if !asked.schema().is_empty() || asked.turn() == 2 {
            return company(asked).map(|answer| if asked.schema().is_empty() { finish() } else { answer });
        }
        Some(match asked.turn() {
            0 => Answer::call("read_file", json!({"path": "data/dot.png"})),
            _ => Answer::call(
                "write_file",
                json!({"path": "outputs/text.md", "content": "# Text\n\nA dot.\n"}),
            ),
        })
    })
    .await
    .unwrap();
    let fleet = Fleet::plan().model(&model.url()).start().await.unwrap();
    let at = |name: &str| fleet.folder().join(name);
    std::fs::copy(examples().join("../../shared/src/model/probe/red.png"), at("dot.png")).unwrap();
    let mut judged = ticket("text", &[]);
    judged["review"] = "judged".into();
    let plan = json!({"goal": {"text": "What is on it?", "inputs": ["dot.png"]}, "tickets": [judged]});
    std::fs::write(at("plan.json"), plan.to_string()).unwrap();
    let ran = fleet.muster(&["run", "plan.json"]).await.unwrap();
    assert_eq!(ran.code, 0, "{ran:?}");
    model.verify().unwrap();
    let seen = |asked: &Asked| asked.body.to_string().contains("data:image/png;base64,");
    let shown: Vec<usize> =
        model.asked().iter().filter(|a| a.schema().is_empty() && seen(a)).map(Asked::turn).collect();
    assert_eq!(shown, [1, 2], "from the turn on that follows its reading");

    let recorded = fleet.muster(&["record", "last", "--out", "image.jsonl"]).await.unwrap();
    assert_eq!(recorded.code, 0, "{recorded:?}");
    let text = std::fs::read_to_string(at("image.jsonl")).unwrap();
    assert!(
        text.contains("data:image/png;sha256:") && !text.contains("data:image/png;base64,"),
        "digests only"
    );
    let (ran, said) = replay(&fleet, &at("image.jsonl")).await;
    assert_eq!((ran.code, &said["same"]), (0, &json!(true)), "{ran:?}");
}

fn finish() -> Answer {
    Answer::call(
        "finish",
        json!({"status": "done", "summary": "text is written", "outputs": ["outputs/text.md"]}),
    )
}

#[tokio::test]
async fn a_plan_file_and_a_verdict_are_replayed_and_a_changed_deliverable_is_named() {
    let model = Model::start(company(vec![ticket("text", &[])])).await.unwrap();
    let fleet = Fleet::plan().model(&model.url()).start().await.unwrap();
    let at = |name: &str| fleet.folder().join(name);
    let mut judged = ticket("text", &["made"]);
    judged["review"] = "judged".into();
    let plan = json!({"goal": {"text": "A number and a text"},
        "tickets": [direct("made", &[], "data/made.txt", &writes("data/made.txt")), judged]});
    std::fs::write(at("plan.json"), plan.to_string()).unwrap();
    let ran = fleet.muster(&["run", "plan.json"]).await.unwrap();
    assert_eq!(ran.code, 0, "{ran:?}");
    let recorded = fleet.muster(&["record", "last", "--out", "plan.jsonl"]).await.unwrap();
    assert_eq!(recorded.code, 0, "{recorded:?}");
    let (ran, said) = replay(&fleet, &at("plan.jsonl")).await;
    assert_eq!((ran.code, &said["same"]), (0, &json!(true)), "{ran:?}");

    let text = std::fs::read_to_string(at("plan.jsonl")).unwrap();
    let lines = text.lines().map(|line| {
        let mut value: Value = serde_json::from_str(line).unwrap();
        if value["kind"] == "file" && value["path"] == "data/made.txt" {
            value["sha256"] = "00".into();
        }
        value.to_string() + "\n"
    });
    std::fs::write(at("other.jsonl"), lines.collect::<String>()).unwrap();
    let (ran, said) = replay(&fleet, &at("other.jsonl")).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert_eq!(said["difference"], "the deliverable data/made.txt has another content now", "{ran:?}");

    std::fs::write(at("none.jsonl"), "[goal]\n").unwrap();
    assert_eq!(replay(&fleet, &at("none.jsonl")).await.0.code, 64);
    let refused = fleet.muster(&["record", "last", "--bytes-max", "2000"]).await.unwrap();
    assert!(refused.code == 1 && refused.stderr.contains("--bytes-max"), "{refused:?}");
}
