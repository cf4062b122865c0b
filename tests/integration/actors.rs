//! Who does a ticket: role files of other agent tools, read again when they change, personas of the planner, knowledge.

use harness::fleet::Fleet;
use harness::model::{Asked, Model};
use harness::script::{key_of, plan, ticket, verdict, work};
use serde_json::{Value, json};
use std::path::Path;

/// As it lies in somebody's folder of agents: colons in the description, another program's tools, models and fields.
const REVIEWER: &str = "---\nname: Code Reviewer\ndescription: Reviews code for faults. Use it proactively: after each change\n\
    tools: Read, Grep, Edit, Bash(git diff:*)\nmodel: sonnet\ncolor: cyan\n---\n\nYou are a reviewer of code.\n";
const PERSONA: &str = "You are a keeper of tide gauges.";

fn write(file: &Path, text: &str) {
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, text).unwrap();
}

fn system(asked: &Asked) -> String {
    asked.messages()[0]["content"].as_str().unwrap().to_owned()
}

fn first_of(model: &Model, key: &str) -> Asked {
    model.asked().into_iter().rfind(|a| key_of(a) == key && a.turn() == 0).unwrap()
}

#[tokio::test]
async fn a_role_file_of_another_agent_tool_works_as_it_stands_and_is_read_again_when_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    let (roles, knowledge) = (folder.path().join("agents"), folder.path().join("knowledge"));
    write(&roles.join("code-reviewer.md"), REVIEWER);
    write(&roles.join("README.md"), "# Our agents\n");
    let skill = "---\nname: gauges\ndescription: Reading tide gauges: which harbour, which datum\n---\nAdd 12 cm to every gauge of the harbour.\n";
    write(&knowledge.join("gauges/SKILL.md"), skill);
    write(&knowledge.join("gauges/datum.csv"), "harbour,cm\nold,12\n");
    write(
        &knowledge.join("poems/SKILL.md"),
        "---\nname: poems\ndescription: Metres of sonnets\n---\nFourteen lines.\n",
    );

    let model = Model::start(|asked: &Asked| match asked.schema() {
        "plan" => {
            let with = |id: &str, field: &str, value: Value| {
                let mut ticket = ticket(id, &[]);
                ticket[field] = value;
                ticket
            };
            let mut gauges = with("gauges", "description", json!("read the tide gauges of the harbour"));
            gauges["persona"] = json!(PERSONA);
            gauges["needs"] = json!(["review"]);
            Some(plan(&[with("review", "role", json!("code-reviewer")), gauges]))
        }
        "verdict" => Some(verdict(asked, true)),
        "" => Some(work(asked)),
        _ => None,
    });
    let model = model.await.unwrap();
    let fleet = Fleet::plan()
        .model(&model.url())
        .env("WORKER__ROLES_FOLDER", &roles.to_string_lossy())
        .env("WORKER__KNOWLEDGE_FOLDER", &knowledge.to_string_lossy())
        .start()
        .await
        .unwrap();
    let api = fleet.api();
    let goal = api.submit(&json!({"text": "review and measure"})).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();

    // The planner chooses by the description; the persona and the tools are the file's.
    let asked = model.asked();
    let planned = system(asked.iter().find(|a| a.schema() == "plan").unwrap());
    assert!(
        planned.contains("- code-reviewer: Reviews code for faults. Use it proactively: after each change"),
        "{planned}"
    );
    let reviewer = first_of(&model, "review");
    assert!(system(&reviewer).starts_with("You are a reviewer of code.\n"), "{}", system(&reviewer));
    for tool in ["code_interpreter", "read_file", "write_file", "finish", "update_progress"] {
        assert!(reviewer.tools().contains(&tool), "{tool}: {:?}", reviewer.tools());
    }
    assert!(!reviewer.tools().contains(&"open_link"), "{:?}", reviewer.tools());

    // A persona for one ticket, with the knowledge that fits it and no other.
    let gauges = first_of(&model, "gauges");
    let told = system(&gauges);
    assert!(told.starts_with(PERSONA) && told.contains("Add 12 cm to every gauge"), "{told}");
    assert!(told.contains("temp/knowledge/gauges/datum.csv") && !told.contains("Fourteen lines"), "{told}");
    assert!(!system(&reviewer).contains("Add 12 cm"), "of another ticket");
    assert!(
        !api.files(&goal).await.unwrap().iter().any(|f| f.contains("knowledge")),
        "it is never published"
    );

    // What each was told is kept: its hash in the report, its parts as a blob of the goal.
    let done = api.ticket(&goal, "gauges").await.unwrap();
    let (hash, parts) = (&done.result["prompt_hash"], done.result["prompt_ref"].as_str().unwrap());
    let kept =
        walk(&fleet.folder().join("blobs")).into_iter().find(|f| f.to_string_lossy().contains(&parts[4..]));
    let kept: Value = serde_json::from_slice(&std::fs::read(kept.unwrap()).unwrap()).unwrap();
    assert_eq!((&kept["hash"], &kept["persona"]), (hash, &json!(PERSONA)));
    assert_eq!(kept["system"], json!(told));
    let shown = fleet.muster(&["show", &format!("{goal}/gauges")]).await.unwrap();
    assert!(shown.stdout.contains(hash.as_str().unwrap()), "{shown:?}");

    // Changed under a running fleet.
    write(&roles.join("code-reviewer.md"), &REVIEWER.replace("a reviewer of code", "a strict reviewer"));
    let again = api.submit(&json!({"text": "review and measure again"})).await.unwrap();
    api.reaches(&again, &["done"]).await.unwrap();
    assert!(system(&first_of(&model, "review")).starts_with("You are a strict reviewer.\n"));
    model.verify().unwrap();
    fleet.no_panics().unwrap();
    fleet.oracle().await.unwrap();
}

/// Every file below the folder.
fn walk(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = vec![];
    for path in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
        if path.is_dir() { found.extend(walk(&path)) } else { found.push(path) }
    }
    found
}
