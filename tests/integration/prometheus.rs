//! A real Prometheus over the shipped configuration: it scrapes all three programs, and its rules and dashboards use what
//! is there. The alerts, each with its fault: [`crate::alerts`].

use crate::metrics::texts;
use harness::fleet::{Fleet, Role};
use harness::prometheus::{Prometheus, deploy, promtool};
use harness::scale::scale;
use harness::wait;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Thresholds that take minutes or a hundred verdicts to reach, and what stands for them here. `rules.test.yml` has them as they are.
const IMPATIENT: &[(&str, &str)] = &[
    ("(muster_sweep_age_seconds) > 30", "(muster_sweep_age_seconds) > 5"),
    ("(muster_oldest_lease_overdue_seconds) > 60", "(muster_oldest_lease_overdue_seconds) > 5"),
    ("(muster_oldest_ready_seconds) > 600", "(muster_oldest_ready_seconds) > 5"),
    ("{answer=\"fenced\"}[10m])) > 10", "{answer=\"fenced\"}[10m])) > 0"),
    ("[1d])) > 50", "[1d])) > 5"),
    ("[6h])) > 20", "[6h])) > 2"),
];

/// The shipped configuration beside its rules, with the ports of this fleet and no patience.
pub(crate) fn patched(fleet: &mut Fleet, folder: &Path) -> PathBuf {
    let read = |name: &str| std::fs::read_to_string(deploy().join("prometheus").join(name)).unwrap();
    let mut config = read("prometheus.yml").replace("15s", "1s");
    for (shipped, role) in [(7700, Role::Manager), (7701, Role::Worker), (7702, Role::Reviewer)] {
        let (from, to) = (format!("targets: [\"127.0.0.1:{shipped}\"]"), fleet.program(role, 0).port());
        assert!(config.contains(&from), "{from}");
        config = config.replace(&from, &format!("targets: [\"127.0.0.1:{to}\"]"));
    }
    let rules = read("rules.yml");
    let rules: Vec<&str> = rules.lines().filter(|line| !line.trim_start().starts_with("for: ")).collect();
    let mut rules = rules.join("\n");
    for (shipped, here) in IMPATIENT {
        assert!(rules.contains(shipped), "{shipped}");
        rules = rules.replace(shipped, here);
    }
    std::fs::write(folder.join("rules.yml"), rules).unwrap();
    let path = folder.join("prometheus.yml");
    std::fs::write(&path, config).unwrap();
    path
}

/// Waits until all three are scraped and the fleet is measured.
pub(crate) async fn scraped(prometheus: &Prometheus) {
    wait::until("all three are scraped", scale().patience(), async || {
        let up = prometheus.query("count(up{job=~\"muster-.+\"} == 1) == 3").await?;
        let measured = prometheus.query("muster_goals_live").await?;
        Ok((up.len() == 1 && measured.len() == 1).then_some(()))
    })
    .await
    .unwrap();
}

/// The rules of the file's one group.
pub(crate) fn alerts_of(rules: &str) -> Vec<yaml_rust2::Yaml> {
    let file = yaml_rust2::YamlLoader::load_from_str(rules).unwrap();
    file[0]["groups"][0]["rules"].as_vec().unwrap().clone()
}

/// Every `expr` below a dashboard.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, inner) in fields {
                match inner.as_str() {
                    Some(text) if name == "expr" => found.push(text.to_owned()),
                    _ => expressions(inner, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| expressions(item, found)),
        _ => {}
    }
}

#[tokio::test]
async fn dashboards_and_rules_use_what_a_running_fleet_exports() {
    let folder = tempfile::tempdir().unwrap();
    let mut fleet = Fleet::plan().start().await.unwrap();
    let config = patched(&mut fleet, folder.path());
    promtool(&["check", "config", &config.to_string_lossy()], "").unwrap();
    for (role, text) in texts(&mut fleet).await {
        promtool(&["check", "metrics"], &text).unwrap_or_else(|e| panic!("{role:?}: {e:#}"));
    }
    let prometheus = Prometheus::start(&config, folder.path()).await.unwrap();
    scraped(&prometheus).await;

    let mut used: Vec<(String, String)> = vec![];
    let rules = std::fs::read_to_string(deploy().join("prometheus/rules.yml")).unwrap();
    for rule in alerts_of(&rules) {
        let (name, expr) = (rule["alert"].as_str().unwrap(), rule["expr"].as_str().unwrap());
        used.push((name.to_owned(), expr.to_owned()));
    }
    for name in ["fleet", "goals", "models", "reviewers"] {
        let text = std::fs::read_to_string(deploy().join(format!("grafana/{name}.json"))).unwrap();
        let board: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(board["uid"], format!("muster-{name}"));
        let mut found = vec![];
        expressions(&board, &mut found);
        assert!(found.len() >= 6, "{name} shows {} things", found.len());
        used.extend(found.into_iter().map(|expr| (format!("{name}.json"), expr)));
    }
    let metric = regex::Regex::new(r"\b(muster|process)_\w+").unwrap();
    let mut names = BTreeSet::new();
    for (place, expr) in &used {
        let expr = expr.replace("$__rate_interval", "1m").replace("$__range", "1h");
        prometheus.query(&expr).await.unwrap_or_else(|e| panic!("{place}: {e:#}"));
        names.extend(metric.find_iter(&expr).map(|m| (m.as_str().to_owned(), place.clone())));
    }
    assert!(names.len() > 30, "{names:?}");
    for (name, place) in names {
        let found = prometheus.query(&format!("count({{__name__=\"{name}\"}})")).await.unwrap();
        assert!(!found.is_empty(), "{place} uses {name}, which nobody exports");
    }
}

#[test]
fn promtool_accepts_the_rules_and_their_tests_and_each_alert_has_a_runbook_entry() {
    let at = |name: &str| deploy().join("prometheus").join(name).to_string_lossy().into_owned();
    promtool(&["check", "rules", &at("rules.yml")], "").unwrap();
    promtool(&["check", "config", &at("prometheus.yml")], "").unwrap();
    promtool(&["check", "config", &at("compose.yml")], "").unwrap();
    promtool(&["test", "rules", &at("rules.test.yml")], "").unwrap();
    let read = |path: &str| std::fs::read_to_string(deploy().join(path)).unwrap();
    let (rules, tests, book) =
        (read("prometheus/rules.yml"), read("prometheus/rules.test.yml"), read("RUNBOOK.md"));
    let mut alerts = BTreeSet::new();
    for rule in alerts_of(&rules) {
        let name = rule["alert"].as_str().unwrap();
        alerts.insert(name.to_owned());
        let anchor = format!("deploy/RUNBOOK.md#{}", name.to_lowercase());
        assert_eq!(rule["annotations"]["runbook"].as_str(), Some(anchor.as_str()));
        assert!(
            ["page", "ticket", "person"].contains(&rule["labels"]["severity"].as_str().unwrap()),
            "{name}"
        );
        for what in ["fires", "keeps quiet"] {
            assert!(tests.contains(&format!("- name: {name} {what}\n")), "{name} has no test that it {what}");
        }
    }
    let entries: BTreeSet<String> =
        book.lines().filter_map(|line| line.strip_prefix("## ")).map(str::to_owned).collect();
    assert_eq!(alerts, entries, "rules and runbook");
}
