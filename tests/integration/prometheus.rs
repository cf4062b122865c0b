//! A real Prometheus over the shipped configuration: it scrapes all three programs, its rules and dashboards use what
//! is there, and alerts fire when their fault is caused.

use crate::metrics::texts;
use harness::fleet::{Fleet, Role};
use harness::model::Model;
use harness::prometheus::{Prometheus, deploy, promtool};
use harness::scale::scale;
use harness::script::{company, ticket};
use harness::wait;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The shipped configuration beside its rules, with the ports of this fleet and no patience.
fn patched(fleet: &mut Fleet, folder: &Path) -> PathBuf {
    let read = |name: &str| std::fs::read_to_string(deploy().join("prometheus").join(name)).unwrap();
    let mut config = read("prometheus.yml").replace("15s", "1s");
    for (shipped, role) in [(7700, Role::Manager), (7701, Role::Worker), (7702, Role::Reviewer)] {
        let (from, to) = (format!("targets: [\"127.0.0.1:{shipped}\"]"), fleet.program(role, 0).port());
        assert!(config.contains(&from), "{from}");
        config = config.replace(&from, &format!("targets: [\"127.0.0.1:{to}\"]"));
    }
    let rules: Vec<String> = read("rules.yml")
        .lines()
        .filter(|line| !line.trim_start().starts_with("for: "))
        .map(str::to_owned)
        .collect();
    std::fs::write(folder.join("rules.yml"), rules.join("\n")).unwrap();
    let path = folder.join("prometheus.yml");
    std::fs::write(&path, config).unwrap();
    path
}

/// Waits until all three are scraped and the fleet is measured.
async fn scraped(prometheus: &Prometheus) {
    wait::until("all three are scraped", scale().patience(), async || {
        let up = prometheus.query("count(up{job=~\"muster-.+\"} == 1) == 3").await?;
        let measured = prometheus.query("muster_goals_live").await?;
        Ok((up.len() == 1 && measured.len() == 1).then_some(()))
    })
    .await
    .unwrap();
}

/// The rules of the file's one group.
fn alerts_of(rules: &str) -> Vec<yaml_rust2::Yaml> {
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

#[tokio::test]
async fn alerts_fire_when_their_fault_is_caused() {
    let folder = tempfile::tempdir().unwrap();
    let model = Model::start(company(vec![ticket("a", &[])])).await.unwrap();
    let mut fleet = Fleet::plan().model(&model.url()).start().await.unwrap();
    let (api, store) = (fleet.api(), fleet.store().await.unwrap());
    let config = patched(&mut fleet, folder.path());
    let prometheus = Prometheus::start(&config, folder.path()).await.unwrap();
    scraped(&prometheus).await;
    wait::until("nothing fires", scale().patience(), async || {
        Ok(prometheus.firing().await?.is_empty().then_some(()))
    })
    .await
    .unwrap();

    fleet.redis.query::<String>(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await.unwrap();
    fleet.redis.query::<String>(&["CONFIG", "SET", "appendonly", "no"]).await.unwrap();
    store.dead_letter("work.default", b"junk", "a test").await.unwrap();
    api.submit(&json!({"text": "too poor for a plan", "budget_tokens": 10})).await.unwrap();
    let mut elsewhere = harness::script::quick("far", &[]);
    elsewhere["pool"] = "gpu".into();
    elsewhere["integrates"] = true.into();
    api.submit_plan("a pool that nobody serves", &json!([elsewhere])).await.unwrap();
    fleet.program(Role::Reviewer, 0).kill();
    let fires = async |wanted: &[&str]| {
        wait::until(&format!("{wanted:?} fire"), scale().patience(), async || {
            let firing = prometheus.firing().await?;
            let missing: Vec<_> = wanted.iter().filter(|name| !firing.contains(**name)).collect();
            anyhow::ensure!(missing.is_empty(), "{missing:?} do not, {firing:?} do");
            Ok(Some(()))
        })
        .await
        .unwrap();
    };
    fires(&[
        "MusterRedisMayEvict",
        "MusterRedisNoPersistence",
        "MusterDeadLetters",
        "MusterBudgetSpent",
        "MusterDecisionsWait",
        "MusterUnservedLane",
        "MusterDown",
    ])
    .await;
    fleet.program(Role::Manager, 0).kill();
    fires(&["MusterUnmeasured"]).await;
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
