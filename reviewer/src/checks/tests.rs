//! Behaviour of the code checks over a real blob folder and a real sandbox.

use super::*;
use crate::fixture::Fixture;
use serde_json::json;
use shared::config::Config;
use shared::sandbox::Sandbox;
use std::time::Instant;

async fn items(fixture: &Fixture, sandbox: Option<&Sandbox>) -> Result<Vec<VerdictItem>, CheckError> {
    let config = Config::default();
    let bench = Bench {
        blobs: &fixture.blobs,
        sandbox,
        scratch: fixture.scratch.path(),
        limits: &config.limits,
        code: &config.worker,
    };
    run_all(&fixture.ticket, &fixture.report, &fixture.deliverable().await, &bench).await
}

/// The one item that fails, or "" when all pass.
async fn failed(fixture: &Fixture) -> String {
    let items = items(fixture, None).await.unwrap();
    assert!(items.iter().all(|i| i.by_code));
    let failed: Vec<String> =
        items.iter().filter(|i| !i.pass).map(|i| format!("{}: {}", i.item, i.reason)).collect();
    assert!(failed.len() < 2, "{failed:?}");
    failed.join("")
}

async fn check(check: Check) -> String {
    let mut f = Fixture::new(
        &[("data/in.csv", b"name,value\na,1\nb,2\n")],
        &[
            ("outputs/r.md", b"# Report\n\nTotal: 3\nTotal: 4\n"),
            ("outputs/r.json", br#"{"total": 3}"#),
            ("outputs/bom.csv", b"\xef\xbb\xbfname , value\na,1\n\n,\n"),
            ("outputs/ragged.csv", b"a,b\n1,2\n1,2,3\n"),
            ("outputs/bin", b"\xff\x00\xfe"),
            ("outputs/empty", b""),
        ],
    )
    .await;
    f.ticket.checklist = vec![check];
    failed(&f).await
}

fn csv(path: &str, min: u64, columns: &[&str]) -> Check {
    Check::CsvRows { path: path.into(), min, columns: columns.iter().map(|c| (*c).into()).collect() }
}

#[tokio::test]
async fn files_of_the_attempt_and_of_the_accepted_workspace_count() {
    let exists = |path: &str| check(Check::FileExists { path: path.into() });
    assert_eq!(exists("outputs/r.md").await, "");
    assert_eq!(exists("data/in.csv").await, "");
    assert!(exists("outputs/x.md").await.contains("outputs/x.md is not there"));
    assert!(exists("../../etc/passwd").await.contains("not there"));
    let min = |min| check(Check::MinBytes { path: "outputs/r.md".into(), min });
    assert_eq!(min(28).await, "");
    assert!(min(1_000).await.contains("holds 28 bytes"));
}

#[tokio::test]
async fn patterns_find_count_and_exclude() {
    let path = || "outputs/r.md".to_owned();
    assert_eq!(check(Check::Regex { path: path(), pattern: "^# Report$".into() }).await, "");
    assert!(
        check(Check::Regex { path: path(), pattern: "Sum".into() }).await.contains("nothing in it matches")
    );
    assert_eq!(check(Check::NotRegex { path: path(), pattern: "TODO".into() }).await, "");
    assert!(
        check(Check::NotRegex { path: path(), pattern: "Total: \\d".into() })
            .await
            .contains("line 3 matches: `Total: 3`")
    );
    assert_eq!(check(Check::MinCount { path: path(), pattern: "Total".into(), min: 2 }).await, "");
    assert!(
        check(Check::MinCount { path: path(), pattern: "Total".into(), min: 3 })
            .await
            .contains("occurs 2 times")
    );
    assert!(
        check(Check::Regex { path: "outputs/bin".into(), pattern: "x".into() }).await.contains("nothing")
    );
    assert!(check(Check::NotRegex { path: "gone".into(), pattern: "x".into() }).await.contains("not there"));
}

#[tokio::test]
async fn csv_rows_and_columns_are_counted_and_named() {
    assert_eq!(check(csv("data/in.csv", 2, &["value"])).await, "");
    assert!(check(csv("data/in.csv", 3, &[])).await.contains("has 2 rows"));
    assert!(
        check(csv("data/in.csv", 1, &["price"]))
            .await
            .contains("the columns price are missing; the header is name, value")
    );
    assert_eq!(check(csv("outputs/bom.csv", 1, &["name", "value"])).await, "");
    assert!(check(csv("outputs/bom.csv", 2, &[])).await.contains("has 1 rows"));
    assert!(check(csv("outputs/ragged.csv", 1, &[])).await.contains("not CSV"));
    assert!(check(csv("outputs/empty", 1, &[])).await.contains("has 0 rows"));
}

#[tokio::test]
async fn json_is_held_against_its_schema() {
    let schema = json!({"type": "object", "properties": {"total": {"type": "integer", "minimum": 3}}, "required": ["total"]});
    let with = |path: &str, schema: &serde_json::Value| {
        check(Check::JsonSchema { path: path.into(), schema: schema.clone() })
    };
    assert_eq!(with("outputs/r.json", &schema).await, "");
    assert!(with("outputs/r.md", &schema).await.contains("not JSON"));
    let strict = json!({"properties": {"total": {"minimum": 5}}});
    assert!(with("outputs/r.json", &strict).await.contains("/total: "));
}

#[tokio::test]
async fn declared_outputs_are_checked_without_being_asked() {
    let mut f = Fixture::new(&[], &[("outputs/a.md", b"x")]).await;
    f.ticket.outputs = vec!["outputs/a.md".into()];
    assert_eq!(failed(&f).await, "");
    f.ticket.outputs.push("outputs/b.md".into());
    assert!(failed(&f).await.contains("declared output outputs/b.md"));
}

#[tokio::test]
async fn b2_a_done_that_ran_no_tool_is_rejected_by_code() {
    let mut f = Fixture::new(&[], &[]).await;
    f.report.tool_calls = [("finish".to_owned(), 1), ("update_progress".to_owned(), 3)].into();
    f.report.summary = "Observation: 3 files. Final Answer: done".into();
    f.ticket.tools = vec!["files".into()];
    assert!(failed(&f).await.contains("no tool was run"));
    f.ticket.tools = vec![];
    assert_eq!(failed(&f).await, "", "a ticket that needs no tools may be answered in words");
    f.report.outputs = vec!["/workspace/outputs/made_up.md".into()];
    assert!(failed(&f).await.contains("outputs/made_up.md is not there"));
}

#[tokio::test]
async fn b2_a_worker_that_reports_failure_is_not_accepted() {
    let mut f = Fixture::new(&[], &[]).await;
    f.report.status = "failed".into();
    f.report.summary = "no data found".into();
    assert!(failed(&f).await.contains("no data found"));
}

#[tokio::test]
async fn i7_a_command_without_a_sandbox_is_neither_passed_nor_the_works_fault() {
    let mut f = Fixture::new(&[], &[("outputs/a.md", b"x")]).await;
    f.ticket.checklist = vec![Check::Command { command: "true".into() }];
    let error = items(&f, None).await.unwrap_err();
    assert!(matches!(error, CheckError::Sandbox(_)));
    assert_eq!(error.class(), FailClass::Fault);
    // But what is wrong anyhow is said without running anything.
    f.ticket.outputs = vec!["outputs/b.md".into()];
    assert!(failed(&f).await.contains("outputs/b.md"));
}

#[tokio::test]
async fn i7_what_cannot_be_checked_is_no_pass() {
    let mut f = Fixture::new(&[], &[("outputs/a.md", b"x")]).await;
    f.ticket.checklist = vec![Check::Regex { path: "outputs/a.md".into(), pattern: "(".into() }];
    assert_eq!(items(&f, None).await.unwrap_err().class(), FailClass::NotRetryable);
    f.ticket.overlay_ref = "0".repeat(64);
    assert!(Deliverable::open(&f.blobs, &f.ticket).await.is_err());
}

#[tokio::test]
async fn commands_run_in_the_sandbox_over_a_copy_of_the_work() {
    let Ok(sandbox) = Sandbox::probe() else {
        panic!("this test needs bubblewrap");
    };
    let mut f = Fixture::new(&[("data/in", b"1")], &[("outputs/a.md", b"hello")]).await;
    let run = async |f: &mut Fixture, command: &str| {
        f.ticket.checklist = vec![Check::Command { command: command.into() }];
        let items = items(f, Some(&sandbox)).await.unwrap();
        items.into_iter().find(|i| i.item.contains("exits 0 in the workspace")).unwrap()
    };
    let item = run(&mut f, "grep -q hello outputs/a.md && test -f data/in && echo x > outputs/new").await;
    assert!(item.pass, "{item:?}");
    assert!(f.deliverable().await.entry("outputs/new").is_none());
    let item = run(&mut f, "echo expected 5 >&2; exit 3").await;
    assert!(!item.pass && item.reason.contains("exits 3: expected 5"), "{item:?}");
    // The reviewer's own secrets and files are out of reach.
    let item = run(&mut f, "test -z \"$HOME$CARGO\" || test ! -e \"$HOME\"/.cargo").await;
    assert!(item.pass, "{item:?}");
}

#[tokio::test]
async fn evil_patterns_over_large_files_end_in_time() {
    let text = "a".repeat(4 * 1024 * 1024);
    let mut f = Fixture::new(&[], &[("outputs/a.txt", text.as_bytes())]).await;
    f.ticket.checklist = vec![Check::Regex { path: "outputs/a.txt".into(), pattern: "(a*)*(a|a)*b".into() }];
    let start = Instant::now();
    assert!(failed(&f).await.contains("nothing in it matches"));
    assert!(start.elapsed() < Duration::from_secs(20));
}
