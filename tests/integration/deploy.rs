//! The files of `deploy/`: they parse, name settings that exist, wait longer than a drain, and the sandbox starts under
//! what they confine it with. What a container engine or a cluster would make of them is not run here.

use harness::desk::{Desk, WORK, expect, independent};
use harness::prometheus::deploy;
use harness::python;
use serde_json::{Value, json};
use shared::config::Config;
use shared::service::DRAIN_SLACK_MS;
use shared::store::Written;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use yaml_rust2::{Yaml, YamlLoader};

/// Every file below `deploy/`, with its text.
fn files() -> Vec<(PathBuf, String)> {
    let (mut found, mut folders) = (vec![], vec![deploy()]);
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = std::fs::read_to_string(&path) {
                found.push((path, text));
            }
        }
    }
    found
}

fn read(path: &str) -> String {
    std::fs::read_to_string(deploy().join(path)).unwrap()
}

fn documents(path: &str) -> Vec<Yaml> {
    YamlLoader::load_from_str(&read(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// What a stop must be given: the longest drain and what the programs take beyond it.
fn stop_s() -> i64 {
    let config = Config::default();
    let drain = config.manager.drain_ms.max(config.worker.drain_ms).max(config.reviewer.drain_ms);
    i64::try_from((drain + DRAIN_SLACK_MS) / 1000).unwrap()
}

#[test]
fn every_file_parses_and_names_settings_that_exist() {
    let settings: Value = serde_json::to_value(Config::default()).unwrap();
    let variable = regex::Regex::new(r"\bMUSTER_([A-Z]+)__([A-Z_]+)\b").unwrap();
    let (mut parsed, mut named) = (0, BTreeSet::new());
    for (path, text) in files() {
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
        match extension {
            // A chart's templates are no YAML before they are rendered.
            "yml" | "yaml" if !path.components().any(|c| c.as_os_str() == "templates") => {
                let documents = YamlLoader::load_from_str(&text);
                assert!(documents.is_ok_and(|d| !d.is_empty()), "{} is no YAML", path.display());
                parsed += 1;
            }
            "json" => {
                let value: Result<Value, _> = serde_json::from_str(&text);
                value.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
                parsed += 1;
            }
            _ => {}
        }
        for found in variable.captures_iter(&text).filter(|f| &f[1] != "SECTION") {
            let (section, key) = (found[1].to_lowercase(), found[2].to_lowercase());
            let known = settings.get(&section).is_some_and(|s| s.get(&key).is_some());
            assert!(known, "{}: there is no setting {}", path.display(), &found[0]);
            named.insert(found[0].to_owned());
        }
    }
    assert!(parsed > 12 && named.len() > 8, "{parsed} files, {named:?}");
}

#[test]
fn every_way_to_run_it_waits_longer_than_a_drain() {
    for name in ["manager", "worker", "reviewer"] {
        let unit = read(&format!("systemd/muster-{name}.service"));
        let stop = unit.lines().find_map(|l| l.strip_prefix("TimeoutStopSec=")).unwrap();
        assert!(stop.parse::<i64>().unwrap() > stop_s(), "{name}: {stop}");
    }
    let compose = &documents("compose.yml")[0];
    let grace = compose["x-fleet"]["stop_grace_period"].as_str().unwrap().trim_end_matches('s');
    assert!(grace.parse::<i64>().unwrap() > stop_s(), "{grace}");
    let mut deployments = BTreeSet::new();
    for manifest in python::chart(&json!({})).unwrap() {
        if manifest["kind"] == "Deployment" {
            let pod = &manifest["spec"]["template"]["spec"];
            assert!(pod["terminationGracePeriodSeconds"].as_i64().unwrap() > stop_s());
            assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
            deployments.insert(manifest["metadata"]["name"].as_str().unwrap().to_owned());
        }
    }
    let scaled: BTreeSet<String> = scalers().into_iter().map(|(target, ..)| target).collect();
    assert_eq!(deployments.len(), 3);
    assert!(scaled.is_subset(&deployments), "{scaled:?} of {deployments:?}");
}

#[test]
fn images_are_not_roots() {
    let mut user = std::collections::BTreeMap::new();
    let mut stage = String::new();
    for line in read("Dockerfile").lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["FROM", from, "AS", name] => {
                stage = (*name).to_owned();
                let inherited = user.get(*from).cloned().unwrap_or_else(|| "0:0".to_owned());
                user.insert(stage.clone(), inherited);
            }
            ["USER", id] => drop(user.insert(stage.clone(), (*id).to_owned())),
            _ => {}
        }
    }
    for target in ["manager", "worker", "reviewer"] {
        assert_eq!(user[target], "10001:10001", "{target}");
    }
}

#[test]
fn systemd_takes_the_units() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["manager", "worker", "reviewer"] {
        let file = folder.path().join(format!("muster-{name}.service"));
        // It looks whether the program is there, and here it is not installed.
        let program = format!("/usr/bin/muster-{name}");
        let text = read(&format!("systemd/muster-{name}.service"));
        assert!(text.contains(&program));
        std::fs::write(&file, text.replace(&program, "/bin/true")).unwrap();
        let out = Command::new("systemd-analyze").arg("verify").arg(&file).output();
        let out = out.expect("apt-get install systemd, as tests/run.sh does");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success() && !said.contains(&format!("muster-{name}.service:")), "{said}");
    }
}

/// Loads an OCI profile of allow-by-default with libseccomp, then becomes the program.
const UNDER_PROFILE: &str = r#"
import json, os, sys, seccomp
profile = json.load(open(sys.argv[1]))
assert profile["defaultAction"] == "SCMP_ACT_ALLOW"
loaded = seccomp.SyscallFilter(seccomp.ALLOW)
for group in profile["syscalls"]:
    assert group["action"] == "SCMP_ACT_ERRNO"
    for name in group["names"]:
        loaded.add_rule(seccomp.ERRNO(group["errnoRet"]), name)
loaded.load()
os.execvp(sys.argv[2], sys.argv[2:])
"#;

/// Python code below the profile: in a job's namespaces, or as the worker itself.
fn under_profile(boxed: bool, code: &str) -> (bool, String) {
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", UNDER_PROFILE]).arg(deploy().join("seccomp/bubblewrap.json"));
    if boxed {
        command.args(["bwrap", "--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net"]);
        command.args(["--unshare-uts", "--unshare-cgroup-try", "--uid", "1000", "--gid", "1000"]);
        command.args(["--hostname", "sandbox", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]);
        command.args(["--ro-bind", "/", "/", "--dev", "/dev", "--tmpfs", "/tmp", "--remount-ro", "/", "--"]);
    }
    let out = command.args(["/usr/bin/python3", "-c", code]).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    (out.status.success(), said)
}

#[test]
fn bubblewrap_starts_under_the_seccomp_profile_and_the_hosts_calls_are_refused() {
    let boxed = under_profile(true, "import os; print(os.uname().nodename, os.getuid(), os.getpid())");
    assert!(boxed.0 && boxed.1.starts_with("sandbox 1000 "), "apt-get install python3-seccomp? {boxed:?}");
    let call = "import ctypes; libc = ctypes.CDLL(None, use_errno=True); \
        answer = libc.keyctl(0, -3, 0) if hasattr(libc, 'keyctl') else libc.syscall(NUMBER, 0, -3, 0); \
        print(answer, ctypes.get_errno())";
    let number = if cfg!(target_arch = "x86_64") { "250" } else { "219" };
    let refused = under_profile(false, &call.replace("NUMBER", number));
    assert_eq!(refused, (true, "-1 1\n".to_owned()), "keyctl is refused with EPERM");
}

/// Target, key and tickets a replica of each scaler.
fn scalers() -> Vec<(String, String, u64)> {
    let manifests = python::chart(&json!({})).unwrap();
    let scaled = manifests.iter().filter(|m| m["kind"] == "ScaledObject").map(|object| {
        let trigger = &object["spec"]["triggers"][0];
        assert_eq!(trigger["type"], "redis");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let meta = &trigger["metadata"];
        let target = text(&object["spec"]["scaleTargetRef"]["name"]);
        (target, text(&meta["listName"]), text(&meta["listLength"]).parse().unwrap())
    });
    scaled.collect()
}

#[test]
fn the_chart_is_what_kubernetes_and_keda_take() {
    let said = python::deploy(&["validate"]).unwrap();
    assert!(said.trim().trim_end_matches(" manifests").parse::<u32>().unwrap() > 40, "{said}");
    // Without KEDA somebody is there all the same.
    for manifest in python::chart(&json!({"keda": false})).unwrap() {
        assert_ne!(manifest["kind"], "ScaledObject");
        if manifest["kind"] == "Deployment" {
            assert!(manifest["spec"]["replicas"].as_u64().unwrap() > 0, "{manifest}");
        }
    }
}

#[test]
fn compose_and_dockerfile_are_what_their_tools_take() {
    let services = python::deploy(&["compose"]).unwrap();
    for service in ["manager", "redis", "reviewer", "worker"] {
        assert!(services.contains(service), "{services}");
    }
    let lint =
        |file: &std::path::Path| python::run(Command::new(python::tool("hadolint").unwrap()).arg(file));
    lint(&deploy().join("Dockerfile")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let bad = folder.path().join("Dockerfile");
    std::fs::write(&bad, "FROM debian:latest\nRUN cd /tmp && sudo apt-get install x\n").unwrap();
    assert!(lint(&bad).unwrap_err().to_string().contains("DL3007"));
}

/// What KEDA's Redis scaler asks: the size of whatever stands at the key, by its type.
const SIZE: &str = "local kind = redis.call('TYPE', KEYS[1]).ok \
    local by = { list = 'LLEN', set = 'SCARD', zset = 'ZCARD', hash = 'HLEN', none = 'LLEN' } \
    return redis.call(by[kind], KEYS[1])";

#[tokio::test]
async fn q53_a_busy_but_empty_lane_is_not_scaled_in() {
    let desk = Desk::start().await.unwrap();
    let (target, key, slots) = scalers().remove(0);
    assert_eq!(target, "muster-worker-default");
    assert_eq!(slots, Config::default().worker.slots as u64, "one replica's worth of tickets");
    // What the scaler asks for: 0 is the way to zero pods.
    let replicas = async || {
        let size: u64 = desk.redis.query(&["EVAL", SIZE, "1", &key]).await.unwrap();
        size.div_ceil(slots)
    };
    assert_eq!(replicas().await, 0, "nothing to do: no pod");
    let goal = desk.plan(&independent(9)).await.unwrap().goal;
    assert_eq!(replicas().await, 2, "from zero: work waits and nobody is there");
    let claims = desk.work(9).await.unwrap();
    let list = format!("muster:{{s0}}:g:{goal}:q:{WORK}:1");
    assert_eq!(desk.redis.query::<u64>(&["LLEN", &list]).await.unwrap(), 0, "the list is empty");
    assert_eq!(replicas().await, 2, "and yet nobody may go");
    let (last, others) = claims.split_last().unwrap();
    for claim in others {
        expect(desk.complete(&claim.held).await.unwrap(), Written::Ok).unwrap();
    }
    assert_eq!(replicas().await, 1, "one long ticket keeps its pod");
    expect(desk.complete(&last.held).await.unwrap(), Written::Ok).unwrap();
    assert_eq!(replicas().await, 0);
}

#[tokio::test]
async fn q53_work_to_review_brings_reviewers() {
    let desk = Desk::start().await.unwrap();
    let (target, key, _) = scalers().remove(1);
    assert_eq!(target, "muster-reviewer");
    let size = async || desk.redis.query::<u64>(&["EVAL", SIZE, "1", &key]).await.unwrap();
    desk.plan(&[harness::desk::spec("a", &[], shared::ticket::ReviewPolicy::Code)]).await.unwrap();
    let held = desk.one().await.unwrap().held;
    assert_eq!(size().await, 0);
    expect(desk.complete(&held).await.unwrap(), Written::Ok).unwrap();
    assert_eq!(size().await, 1);
    let review = desk.one_review().await.unwrap().held;
    assert_eq!(size().await, 1, "while it is reviewed");
    expect(desk.decide(&review, true).await.unwrap(), Written::Ok).unwrap();
    assert_eq!(size().await, 0);
}

#[tokio::test]
async fn the_documented_acl_user_may_do_all_that_a_fleet_does() {
    let desk = Desk::start().await.unwrap();
    let readme = read("README.md");
    let rule =
        readme.split("`user muster on >password ").nth(1).and_then(|rest| rest.split('`').next()).unwrap();
    let mut words = vec!["ACL", "SETUSER", "muster", "on", ">password"];
    words.extend(rule.split(' '));
    desk.redis.query::<String>(&words).await.unwrap();
    let url = format!("redis://muster:password@127.0.0.1:{}", desk.redis.port());
    let desk = Desk { store: desk.another_store(&url).await.unwrap(), ..desk };
    desk.plan(&[harness::desk::spec("a", &[], shared::ticket::ReviewPolicy::Code)]).await.unwrap();
    desk.serves(&[WORK]).await.unwrap();
    assert_eq!(desk.drain().await.unwrap(), 1);
    desk.store.measure().await.unwrap();
    assert!(desk.store.problems(false).await.unwrap().is_empty());
    desk.oracle().await.unwrap();
}

#[tokio::test]
async fn the_redis_of_compose_keeps_what_it_is_given() {
    let (folder, port) = (tempfile::tempdir().unwrap(), harness::process::free_port().unwrap().to_string());
    let command = documents("compose.yml")[0]["services"]["redis"]["command"].clone();
    let words = command.into_iter().map(|word| word.into_string().unwrap());
    let mut words = words.map(|w| if w.starts_with("${") { "long-and-random".to_owned() } else { w });
    let mut server = Command::new(words.next().unwrap());
    server.args(words).args(["--port", &port, "--bind", "127.0.0.1"]).current_dir(folder.path());
    let mut server = harness::process::spawn(server.stdout(std::process::Stdio::null())).unwrap();
    let mut config = Config::default().redis;
    (config.url, config.password) =
        (format!("redis://127.0.0.1:{port}"), "long-and-random".to_owned().into());
    let connected =
        harness::wait::until("a fleet takes it", std::time::Duration::from_secs(20), async || {
            Ok(Some(shared::store::Store::connect(&config).await?))
        });
    connected.await.unwrap();
    harness::process::kill_now(&mut server);
}
