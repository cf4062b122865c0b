//! The API against its own document: a fuzzer from outside (schemathesis) asks whatever the document allows, and more.
//! No answer may be a fault of the server's or one that the document does not know.

use harness::fleet::{Fleet, TOKEN};
use harness::model::Model;
use harness::process;
use harness::script::{company, ticket};
use serde_json::json;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Requests to an operation, beside those that each of its fields is worth.
const EXAMPLES: &str = "5";

#[tokio::test]
async fn a_fuzzer_finds_no_fault_and_nothing_that_is_not_documented() {
    let model = Model::start(company(vec![ticket("a", &[])])).await.unwrap();
    let fleet = Fleet::plan().model(&model.url()).start().await.unwrap();
    let api = fleet.api();
    let goal = api.submit(&json!({"text": "something to look at"})).await.unwrap();
    api.reaches(&goal, &["done"]).await.unwrap();
    let id = api.ticket(&goal, "a").await.unwrap().task_id;
    // Nobody works any more: what is submitted from here on waits.
    let settings = format!(
        "[parameters]\n\"path.goal\" = \"{goal}\"\n\"path.ticket\" = \"{id}\"\n\"path.place\" = 1\n\"path.path\" = \"outputs/a.md\"\n"
    );
    std::fs::write(fleet.folder().join("schemathesis.toml"), settings).unwrap();
    let me = std::env::current_exe().unwrap();
    let program = me.ancestors().nth(3).unwrap().join("tools/fuzzer/bin/schemathesis");
    assert!(program.is_file(), "{} is not there: tests/run.sh installs it", program.display());
    let said = std::fs::File::create(fleet.folder().join("fuzzer.log")).unwrap();
    let mut fuzzer = process::spawn(
        Command::new(program)
            .args(["run", &format!("{}/v1/openapi.json", api.base()), "--no-color", "--continue-on-failure"])
            .args(["--header", &format!("Authorization: Bearer {TOKEN}"), "--phases", "examples,coverage,fuzzing"])
            .args(["--max-examples", EXAMPLES, "--generation-deterministic", "--workers", "1", "--max-time", "30"])
            .args(["--checks", "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"])
            // A model's absence is an answer (503), and so is a time-out; what is not documented is none.
            .args(["--request-timeout", "10", "--warnings", "off"])
            .current_dir(fleet.folder())
            .stdin(Stdio::null())
            .stdout(said.try_clone().unwrap())
            .stderr(said),
    )
    .unwrap();
    let ended = process::ended(&mut fuzzer, Duration::from_secs(90)).await;
    let said = std::fs::read_to_string(fleet.folder().join("fuzzer.log")).unwrap();
    assert!(ended.is_ok_and(|status| status.success()), "{said}");
    assert!(said.contains("Operations:"), "{said}");
    fleet.no_panics().unwrap();
    fleet.oracle().await.unwrap();
}
