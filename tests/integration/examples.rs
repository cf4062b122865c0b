//! The examples of `deploy/examples`, each by its one command, and what their logs must show. Words are the rehearsal's, all else is real.

use harness::fleet::muster_binary;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A copy of the examples whose servers listen on a port of this test's own, and where the run stands.
struct Example {
    folder: tempfile::TempDir,
}

fn copy(from: &Path, to: &Path, port: u16) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to, port);
        } else {
            let text = std::fs::read_to_string(&from).unwrap();
            std::fs::write(to, text.replace("9471", &port.to_string()).replace("9472", &port.to_string()))
                .unwrap();
        }
    }
}

impl Example {
    /// Runs it to its end, which must be a good one.
    fn run(name: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("muster-example-").tempdir().unwrap();
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/examples");
        copy(&here, &folder.path().join("examples"), harness::process::free_port().unwrap());
        let ran = Command::new("bash")
            .arg(folder.path().join("examples/run.sh"))
            .arg(name)
            .env("MUSTER", muster_binary().unwrap())
            .env("MUSTER_HOME", folder.path().join("home"))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(
            ran.status.success(),
            "{name}: {:?}\n{}\n{}",
            ran.status,
            String::from_utf8_lossy(&ran.stdout),
            String::from_utf8_lossy(&ran.stderr)
        );
        Self { folder }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join("home").join(path)
    }

    fn text(&self, path: &str) -> String {
        std::fs::read_to_string(self.at(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
    }

    fn exported(&self, name: &str) -> Value {
        serde_json::from_str(&self.text(&format!("out/{name}.json"))).unwrap()
    }
}

/// Keys of the tickets that such an event is about, in order.
fn keys(goal: &Value, event: &str) -> Vec<String> {
    let events = goal["events"].as_array().unwrap().iter();
    events.filter(|e| e["event"] == event).map(|e| e["key"].as_str().unwrap().to_owned()).collect()
}

/// Where the first event of that kind about a ticket stands in the log.
fn place(goal: &Value, key: &str, event: &str) -> usize {
    let events = goal["events"].as_array().unwrap();
    events
        .iter()
        .position(|e| e["key"] == key && e["event"] == event)
        .unwrap_or_else(|| panic!("no {event} of {key}"))
}

#[test]
fn the_research_report_searches_in_parallel_and_ends_with_data_chart_and_text() {
    let example = Example::run("research-report");
    let goal = example.exported("goal");
    assert_eq!(goal["goal"]["state"], "done");
    let mut accepted = keys(&goal, "accepted");
    assert_eq!(accepted.split_off(3), ["figures", "report"]);
    accepted.sort();
    assert_eq!(accepted, ["costs", "problems", "tasks"]);
    // All three are ready before the first of them is done.
    let first = accepted.iter().map(|key| place(&goal, key, "accepted")).min().unwrap();
    assert!(accepted.iter().all(|key| place(&goal, key, "ready") < first));
    let report = example.text("out/outputs/report.md");
    assert!(
        report.contains("61 percent") && report.contains("(source: What offices hand to agents)"),
        "{report}"
    );
}

#[test]
fn the_activity_brief_redoes_one_ticket_and_inserts_one() {
    let example = Example::run("open-source-brief");
    let goal = example.exported("goal");
    assert_eq!(goal["goal"]["state"], "done");
    assert_eq!(keys(&goal, "rejected"), ["metrics-tidepool"]);
    assert_eq!(keys(&goal, "added"), ["metrics-quill-core"]);
    assert_eq!(keys(&goal, "replanned").len(), 1);
    assert!(place(&goal, "metrics-quill-core", "accepted") < place(&goal, "brief", "accepted"));
    assert!(example.text("out/outputs/brief.md").contains("| quill-core | 14 | 0 |"));
}

#[test]
fn the_book_is_written_in_parts_by_chapters_and_put_together() {
    let example = Example::run("book");
    let goal = example.exported("goal");
    assert_eq!(goal["goal"]["state"], "done");
    let accepted = keys(&goal, "accepted");
    assert_eq!((accepted.len(), accepted[0].as_str(), accepted[4].as_str()), (5, "outline", "book"));
    let book = example.text("out/outputs/book.md");
    assert!(
        book.starts_with("# The Sea Goes for a Walk") && book.contains("3. What people do with the tides")
    );
}

#[test]
fn i7_the_customer_service_merges_two_answers_asks_back_and_pays_once_after_a_yes() {
    let example = Example::run("customer-service");
    let both = example.exported("both");
    let tickets: Vec<&str> =
        both["tickets"].as_array().unwrap().iter().map(|t| t["key"].as_str().unwrap()).collect();
    assert_eq!((tickets, &both["goal"]["state"]), (vec!["order", "faq", "merge"], &Value::from("done")));
    let merges = both["events"].as_array().unwrap().iter();
    assert_eq!(
        merges.filter(|e| e["event"] == "model_call" && e["key"] == "merge").count(),
        1,
        "one merge call"
    );
    let unclear = example.exported("unclear");
    assert_eq!(
        (&unclear["goal"]["cause"], unclear["tickets"].as_array().unwrap().len()),
        (&Value::from("unclear"), 0)
    );
    let refund = example.exported("goal");
    assert_eq!(refund["goal"]["state"], "done");
    assert!(place(&refund, "complaint", "confirmation_asked") < place(&refund, "complaint", "approved"));
    assert_eq!(example.text("ledger.jsonl").lines().count(), 1, "paid once");
}
