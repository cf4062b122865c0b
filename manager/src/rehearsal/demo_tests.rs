//! The shipped demo: its plan is sound, its words hold no number, and its code is right for any Cargo.lock.
//! Python really runs here, as it does in the sandbox.

use super::script::{Script, Turn};
use serde_json::{Map, Value};
use shared::config::Config;
use shared::planfile::PlanFile;
use shared::ticket::graph::{self, Known};
use shared::ticket::{Check, TicketSpec};
use shared::tool::builtin;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

const SCRIPT: &str = include_str!("../../../deploy/examples/demo.rehearsal.toml");
const GOAL: &str = include_str!("../../../deploy/examples/demo.goal.toml");
const LOCK: &str = include_str!("../../../Cargo.lock");

fn script() -> Script {
    Script::parse(SCRIPT).unwrap()
}

fn turns(rule: &str) -> Vec<Turn> {
    script().rules.into_iter().find(|r| r.name == rule).unwrap().turns
}

/// The plan as the manager reads it.
fn plan() -> Vec<TicketSpec> {
    let plan = turns("plan")[0].json.clone().unwrap();
    let tickets = plan["tickets"].as_array().unwrap();
    tickets
        .iter()
        .map(|ticket| {
            let mut fields: Map<String, Value> = ticket.as_object().unwrap().clone();
            for (said, called) in [("id", "key"), ("checks", "checklist")] {
                let value = fields.remove(said).unwrap();
                fields.insert(called.into(), value);
            }
            serde_json::from_value(Value::Object(fields)).unwrap()
        })
        .collect()
}

#[test]
fn c9_the_rehearsed_plan_passes_the_validator_and_has_one_integrating_end() {
    let specs = plan();
    let roles = ["data_analyst".to_owned(), "summarizer".to_owned()];
    let tools = builtin();
    let known = Known { roles: &roles, tools: &tools, existing: &BTreeSet::new() };
    let problems = graph::problems(&specs, &known, &Config::default().limits);
    assert!(problems.is_empty(), "{problems:?}");
    let graph = graph::Graph::of(&specs);
    assert_eq!(graph.sinks(), [3]);
    assert_eq!(graph.layers().unwrap(), [vec![0], vec![1, 2], vec![3]]);
}

#[test]
fn the_goal_is_one_that_the_script_knows() {
    let goal = PlanFile::parse("demo.goal.toml", GOAL, &Config::default().limits).unwrap();
    assert!(goal.tickets.is_empty());
    let script = script();
    assert!(
        script.rules[0].contains.iter().all(|words| goal.goal.text.contains(words)),
        "{}",
        goal.goal.text
    );
}

#[test]
fn no_number_is_scripted() {
    for rule in script().rules {
        for turn in rule.turns {
            let mut said = vec![turn.text.clone()];
            said.extend(turn.verdict.map(|v| v.reason));
            for call in turn.calls.into_iter().filter(|c| c.tool == "finish") {
                said.extend(call.args.values().map(Value::to_string));
            }
            for words in said {
                assert!(!words.chars().any(|c| c.is_ascii_digit()), "{}: {words}", rule.name);
            }
        }
    }
}

fn python(code: &str, folder: &Path) -> String {
    let done = Command::new("python3").args(["-c", code]).current_dir(folder).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// Runs the code of a rule; what its words would quote of it must be there.
fn play(rule: &str, folder: &Path) {
    let rule = script().rules.into_iter().find(|r| r.name == rule).unwrap();
    let code: Vec<_> =
        rule.turns.iter().flat_map(|t| &t.calls).filter(|c| c.tool == "code_interpreter").collect();
    assert_eq!(code.len(), 1);
    let printed = python(code[0].args["code"].as_str().unwrap(), folder);
    for (name, pattern) in &rule.patterns {
        assert!(pattern.is_match(&printed), "{}: nothing for {name} in {printed}", rule.name);
    }
}

/// The checks of the plan that a test can hold without the reviewer's sandbox.
fn unmet(ticket: &str, folder: &Path) -> Vec<String> {
    let spec = plan().into_iter().find(|s| s.key == ticket).unwrap();
    let text = |path: &str| std::fs::read_to_string(folder.join(path)).unwrap_or_default();
    let pattern = |text: &str| graph::params::pattern(text).unwrap();
    let holds = |check: &Check| match check {
        Check::FileExists { path } => folder.join(path).is_file(),
        Check::MinBytes { path, min } => text(path).len() as u64 >= *min,
        Check::Regex { path, pattern: p } => pattern(p).is_match(&text(path)),
        Check::NotRegex { path, pattern: p } => !pattern(p).is_match(&text(path)),
        Check::MinCount { path, pattern: p, min } => pattern(p).find_iter(&text(path)).count() as u64 >= *min,
        Check::CsvRows { path, min, columns } => {
            let text = text(path);
            let header: Vec<&str> = text.lines().next().unwrap_or_default().split(',').collect();
            columns.iter().all(|c| header.contains(&c.as_str())) && text.lines().count() as u64 > *min
        }
        Check::Command { command } => {
            Command::new("sh").args(["-c", command]).current_dir(folder).output().unwrap().status.success()
        }
        Check::JsonSchema { .. } => unreachable!("the demo has none"),
        Check::Judged { .. } => true,
    };
    spec.checklist.iter().filter(|c| !holds(c)).map(Check::describe).collect()
}

/// Name and version of each package with its dependents, counted by another way than the script's.
fn counted(lock: &str) -> BTreeMap<(String, String), usize> {
    let lock: toml::Value = toml::from_str(lock).unwrap();
    let packages = lock["package"].as_array().unwrap();
    let word = |p: &toml::Value, key: &str| p[key].as_str().unwrap().to_owned();
    let mut count: BTreeMap<_, usize> =
        packages.iter().map(|p| ((word(p, "name"), word(p, "version")), 0)).collect();
    for package in packages {
        for entry in package.get("dependencies").and_then(toml::Value::as_array).into_iter().flatten() {
            let mut words = entry.as_str().unwrap().split(' ');
            let name = words.next().unwrap();
            let version = words.next();
            let target =
                count.iter_mut().find(|((n, v), _)| n == name && version.is_none_or(|wanted| wanted == v));
            *target.unwrap().1 += 1;
        }
    }
    count
}

fn whole_demo(lock: &str) {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::create_dir(folder.join("data")).unwrap();
    std::fs::write(folder.join("data/Cargo.lock"), lock).unwrap();

    play("packages, first attempt", folder);
    let unmet_first = unmet("packages", folder);
    assert_eq!(unmet_first.len(), 1, "rejected for one real reason: {unmet_first:?}");
    assert!(unmet_first[0].contains("dependents"));
    play("packages, after the rejection", folder);
    for rule in ["duplicates", "chart", "report"] {
        play(rule, folder);
    }
    for spec in plan() {
        assert_eq!(unmet(&spec.key, folder), Vec::<String>::new(), "{}", spec.key);
    }
    // What the reviewer points at is there.
    for rule in script().rules {
        for verdict in rule.turns.into_iter().filter_map(|t| t.verdict) {
            let (path, lines) = verdict.evidence.rsplit_once(':').unwrap();
            let last: usize = lines.split_once('-').unwrap().1.parse().unwrap();
            let there = std::fs::read_to_string(folder.join(path)).unwrap().lines().count();
            assert!(there >= last, "{}: {there} lines", verdict.evidence);
        }
    }
    // The numbers.
    let counted = counted(lock);
    let table = std::fs::read_to_string(folder.join("data/packages.csv")).unwrap();
    let read: BTreeMap<_, usize> = table
        .lines()
        .skip(1)
        .map(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            ((fields[0].to_owned(), fields[1].to_owned()), fields[2].parse().unwrap())
        })
        .collect();
    assert_eq!(read, counted);
    let mut versions: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, _) in counted.keys() {
        *versions.entry(name).or_default() += 1;
    }
    let several = versions.values().filter(|n| **n > 1).count();
    let report = std::fs::read_to_string(folder.join("outputs/report.md")).unwrap();
    let most = counted.values().max().unwrap();
    for words in [
        format!("**{} packages** under {} different names", counted.len(), versions.len()),
        format!("**{several} names** stand there in several versions"),
        format!(": {most} packages name it."),
    ] {
        assert!(report.contains(&words), "{words}\n{report}");
    }
}

#[test]
fn the_demo_is_right_for_this_repository() {
    whole_demo(LOCK);
}

#[test]
fn the_demo_is_right_again_after_packages_are_added() {
    let more = "\n[[package]]\nname = \"serde\"\nversion = \"0.9.1-old+1\"\n\n[[package]]\nname = \"zz-own & co\"\nversion = \"1.0.0\"\n\
                dependencies = [\n \"serde 0.9.1-old+1\",\n \"redis\",\n]\n";
    // Names of several versions must be given with one.
    let lock = LOCK.replace("\n \"serde\",\n", &format!("\n \"serde {}\",\n", version_of("serde")));
    whole_demo(&format!("{lock}{more}"));
}

#[test]
fn the_demo_is_right_for_a_repository_of_one_package() {
    whole_demo("version = 4\n\n[[package]]\nname = \"alone\"\nversion = \"0.1.0\"\n");
}

fn version_of(name: &str) -> String {
    let lock: toml::Value = toml::from_str(LOCK).unwrap();
    let packages = lock["package"].as_array().unwrap();
    packages.iter().find(|p| p["name"].as_str() == Some(name)).unwrap()["version"]
        .as_str()
        .unwrap()
        .to_owned()
}
