//! What no compiler or lint holds: who may import whom, where certain strings may stand, how long a file may be.
//!
//! Each rule is a test of its own and names file and line. ARCHITECTURE.md says why.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failing test panics")]

use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Longest file, in lines, tests not counted.
const LINES_MAX: usize = 500;
const FOLDERS: [&str; 6] = ["deploy", "manager", "reviewer", "shared", "tests", "worker"];
const PROGRAMS: [&str; 3] = ["manager", "worker", "reviewer"];

/// Modules of `shared` and what each may import from it. An arrow that is not here fails.
const ARROWS: &[(&str, &[&str])] = &[
    // Pure: no runtime, no Redis, no HTTP.
    ("tool", &[]),
    ("ticket", &["tool"]),
    ("goal", &["ticket"]),
    ("lesson", &["ticket"]),
    ("standard", &["ticket", "lesson"]),
    ("message", &["ticket", "goal"]),
    ("role", &["ticket", "tool"]),
    ("prompt", &["ticket", "goal", "tool"]),
    ("planfile", &["ticket", "goal", "tool", "config"]),
    // What a program is told.
    ("config", &["ticket", "tool"]),
    ("egress", &["config"]),
    ("telemetry", &["config"]),
    ("service", &["config", "telemetry"]),
    // The way to Redis.
    ("codec", &["message"]),
    ("store", &["codec", "tool", "ticket", "goal", "lesson", "standard", "message", "config", "telemetry"]),
    // The way to models, files and code.
    ("model", &["blob", "config", "store", "telemetry", "ticket", "tool"]),
    ("blob", &["config"]),
    ("sandbox", &["config"]),
    ("workspace", &["store", "blob", "sandbox", "config", "ticket", "goal"]),
    // The engine of worker and reviewer.
    (
        "consumer",
        &[
            "store",
            "service",
            "blob",
            "workspace",
            "ticket",
            "goal",
            "message",
            "config",
            "telemetry",
            "tool",
        ],
    ),
];

/// Modules that do no I/O, and what they therefore never name.
const PURE: &[&str] =
    &["ticket", "tool", "goal", "lesson", "standard", "message", "prompt", "planfile", "codec"];
const IMPURE_WORDS: &[&str] = &["tokio::", "redis::", "reqwest::", "std::fs", "std::net", "std::process"];

/// Files of the tests that may sleep, and why.
const SLEEPERS: &[(&str, &str)] = &[
    ("tests/harness/wait.rs", "the one place where a probe is repeated, always with a deadline"),
    ("tests/harness/proxy.rs", "a slow network is what it plays"),
    ("tests/harness/model/wire.rs", "a slow model is what it plays"),
    ("worker/src/tools/tests.rs", "waits for a process of the sandbox, with a deadline"),
    ("shared/src/consumer/tests.rs", "a handler that is busy is what it plays"),
    ("shared/src/sandbox/tests.rs", "polls the process table, with a deadline; the harness is not there"),
];

/// Scripts that take work in and must be refused when memory is full (QUEUE finding 5); all others keep going.
const REFUSED_WHEN_FULL: &[&str] = &["submit_goal", "tickets"];

/// A file of the repository: path from its root, with `/`.
struct File {
    path: String,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ has a parent").to_path_buf()
}

/// Every text file that is ours, build output and dot-folders (but .ci, .cargo, .config) left out.
fn files() -> Vec<File> {
    let root = root();
    let mut found = vec![];
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder that was just listed") {
            let entry = entry.expect("an entry");
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type().expect("a type");
            if kind.is_dir() {
                let hidden = name.starts_with('.') && ![".ci", ".cargo", ".config"].contains(&name.as_str());
                if !hidden && name != "target" && name != "node_modules" && name != "proptest-regressions" {
                    folders.push(entry.path());
                }
            } else if kind.is_file()
                && !["Cargo.lock", ".git"].contains(&name.as_str())
                && let Ok(text) = std::fs::read_to_string(entry.path())
            {
                let path =
                    entry.path().strip_prefix(&root).expect("below the root").to_string_lossy().into_owned();
                found.push(File { path, text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.len() > 30, "only {} files found below {}", found.len(), root.display());
    found
}

fn rust_files() -> Vec<File> {
    files().into_iter().filter(|f| f.path.ends_with(".rs")).collect()
}

/// The lines with their numbers, `#[cfg(test)] mod … { }` at the outermost level left out.
fn without_tests(text: &str) -> Vec<(usize, &str)> {
    let mut kept = vec![];
    let mut lines = text.lines().enumerate().peekable();
    while let Some((n, line)) = lines.next() {
        let is_test_module = line.starts_with("#[cfg(test)]")
            && lines.peek().is_some_and(|(_, next)| next.starts_with("mod ") && next.ends_with('{'));
        if is_test_module {
            for (_, inner) in lines.by_ref() {
                if inner == "}" {
                    break;
                }
            }
        } else {
            kept.push((n + 1, line));
        }
    }
    kept
}

/// A `tests` module that stands in a file of its own.
fn is_unit_test(path: &str) -> bool {
    path.ends_with("/tests.rs")
}

/// The code alone: neither test modules nor comment lines.
fn code(text: &str) -> Vec<(usize, &str)> {
    without_tests(text).into_iter().filter(|(_, line)| !line.trim_start().starts_with("//")).collect()
}

/// Fails with all findings, one a line.
#[track_caller]
fn nothing(rule: &str, found: &[String]) {
    assert!(found.is_empty(), "{rule}:\n  {}\n", found.join("\n  "));
}

/// `shared/src/store/keys.rs` belongs to `store`.
fn module_of(path: &str) -> Option<&str> {
    let inside = path.strip_prefix("shared/src/")?;
    let name = inside.split_once('/').map_or(inside, |(folder, _)| folder);
    Some(name.strip_suffix(".rs").unwrap_or(name))
}

/// Names after `crate::`, also inside one level of braces.
fn imports(line: &str) -> Vec<String> {
    static PLAIN: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\bcrate::(\w+)").expect("a pattern"));
    static BRACES: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\bcrate::\{([^}]*)\}?").expect("a pattern"));
    let mut names: Vec<String> = PLAIN.captures_iter(line).map(|c| c[1].to_owned()).collect();
    for group in BRACES.captures_iter(line) {
        names.extend(
            group[1]
                .split(',')
                .filter_map(|part| part.trim().split("::").next().map(str::to_owned))
                .filter(|n| !n.is_empty()),
        );
    }
    names
}

#[test]
fn shared_imports_follow_the_arrows() {
    let arrows: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    let mut found = vec![];
    for file in rust_files() {
        let Some(module) = module_of(&file.path) else { continue };
        if module == "lib" {
            continue;
        }
        let Some(allowed) = arrows.get(module) else {
            found.push(format!("{}: module {module} is not in the table of tests/tidy.rs", file.path));
            continue;
        };
        for (n, line) in code(&file.text) {
            for name in imports(line) {
                if arrows.contains_key(name.as_str()) && name != module && !allowed.contains(&name.as_str()) {
                    found.push(format!("{}:{n}: {module} -> {name} is not an arrow", file.path));
                }
            }
        }
    }
    nothing("shared's modules import only along the arrows of ARCHITECTURE.md", &found);
}

#[test]
fn the_table_of_arrows_has_no_cycle() {
    // Removes modules whose imports are all gone; a rest is a cycle.
    let mut left: BTreeMap<&str, BTreeSet<&str>> =
        ARROWS.iter().map(|(module, to)| (*module, to.iter().copied().collect())).collect();
    loop {
        let free: Vec<&str> =
            left.iter().filter(|(_, to)| to.iter().all(|m| !left.contains_key(m))).map(|(m, _)| *m).collect();
        if free.is_empty() {
            break;
        }
        left.retain(|module, _| !free.contains(module));
    }
    assert!(left.is_empty(), "these import each other: {:?}", left.keys());
}

#[test]
fn pure_modules_do_no_io() {
    let mut found = vec![];
    for file in rust_files() {
        let Some(module) = module_of(&file.path) else { continue };
        if !PURE.contains(&module) {
            continue;
        }
        for (n, line) in code(&file.text) {
            for word in IMPURE_WORDS.iter().filter(|w| line.contains(**w)) {
                found.push(format!("{}:{n}: {word} in a pure module", file.path));
            }
        }
    }
    nothing("ticket, goal, message, codec, tool, prompt and planfile are pure", &found);
}

#[test]
fn no_program_depends_on_another() {
    let mut found = vec![];
    for package in PROGRAMS.iter().copied().chain(["shared", "tests"]) {
        let path = root().join(package).join("Cargo.toml");
        let text = std::fs::read_to_string(&path).expect("a manifest");
        if !text.contains("[lints]\nworkspace = true") {
            found.push(format!("{package}/Cargo.toml: without `[lints] workspace = true` no lint applies"));
        }
        for line in text.lines() {
            let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
            if PROGRAMS.contains(&name) || name == "muster-tests" || (package == "shared" && name == "shared")
            {
                found.push(format!("{package}/Cargo.toml: depends on {name}"));
            }
        }
    }
    nothing("the programs meet only in Redis", &found);
}

#[test]
fn only_the_store_speaks_to_redis() {
    // Not `config::redis::`, not a module of that name in a program.
    let client = Regex::new(r"(^|[^:\w])redis::").expect("a pattern");
    let key = Regex::new(r#"["`]muster:|\{s\d*\}:"#).expect("a pattern");
    let mut found = vec![];
    for file in rust_files() {
        let allowed = ["shared/src/store", "tests/"].iter().any(|p| file.path.starts_with(p));
        if allowed {
            continue;
        }
        for (n, line) in code(&file.text) {
            if client.is_match(line) || key.is_match(line) {
                found.push(format!("{}:{n}: {}", file.path, line.trim()));
            }
        }
    }
    nothing("the redis crate and key strings stand in shared/src/store only", &found);
}

#[test]
fn only_the_codec_names_bincode() {
    let word = Regex::new(r"\bbincode::").expect("a pattern");
    let mut found = vec![];
    for file in rust_files().iter().filter(|f| f.path != "shared/src/codec.rs" && f.path != "tests/tidy.rs") {
        for (n, line) in code(&file.text).iter().filter(|(_, line)| word.is_match(line)) {
            found.push(format!("{}:{n}: {}", file.path, line.trim()));
        }
    }
    nothing("bincode is fenced in shared/src/codec.rs", &found);
}

#[test]
fn files_are_short() {
    let mut found = vec![];
    for file in files().iter().filter(|f| f.path.ends_with(".rs") || f.path.ends_with(".lua")) {
        let is_test = file.path.starts_with("tests/integration/") || file.path.starts_with("tests/faults/");
        if is_test || is_unit_test(&file.path) {
            continue;
        }
        let lines = without_tests(&file.text).len();
        if lines > LINES_MAX {
            found.push(format!("{}: {lines} lines", file.path));
        }
    }
    nothing("at most 500 lines a file, tests not counted: one noun a file", &found);
}

#[test]
fn every_module_says_what_it_is() {
    let found: Vec<String> = rust_files()
        .iter()
        .filter(|f| !f.text.starts_with("//! ") && !is_unit_test(&f.path))
        .map(|f| format!("{}: does not open with `//! `", f.path))
        .collect();
    nothing("a module opens with what belongs in it", &found);
}

#[test]
fn no_file_is_called_nothing() {
    const NAMES: [&str; 9] = [
        "mod.rs",
        "utils.rs",
        "util.rs",
        "common.rs",
        "helpers.rs",
        "helper.rs",
        "misc.rs",
        "types_common.rs",
        "stuff.rs",
    ];
    let found: Vec<String> = files()
        .iter()
        .filter(|f| NAMES.contains(&f.path.rsplit('/').next().unwrap_or_default()))
        .map(|f| f.path.clone())
        .collect();
    nothing("a file is named after its noun, and `foo.rs` stands beside `foo/`", &found);
}

#[test]
fn the_top_level_is_six_folders() {
    let mut found = vec![];
    for entry in std::fs::read_dir(root()).expect("the root") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_folder = entry.file_type().expect("a type").is_dir();
        if is_folder && !name.starts_with('.') && name != "target" && !FOLDERS.contains(&name.as_str()) {
            found.push(name);
        }
    }
    nothing("manager, worker, reviewer, shared, deploy, tests and dot-folders", &found);
}

#[test]
fn tests_wait_for_events_not_for_time() {
    // Rust's, not the `time.sleep(` of Python code in a string.
    let sleep = Regex::new(r"(^|[^.\w])sleep(_until)?\(").expect("a pattern");
    let mut found = vec![];
    for file in rust_files() {
        // Benchmarks are no tests: time is what they are about.
        let is_test_file = file.path.starts_with("tests/") && !file.path.starts_with("tests/bench/");
        if SLEEPERS.iter().any(|(path, _)| *path == file.path) || file.path == "tests/tidy.rs" {
            continue;
        }
        let kept: BTreeSet<usize> = without_tests(&file.text).into_iter().map(|(n, _)| n).collect();
        for (n, line) in file.text.lines().enumerate().map(|(n, line)| (n + 1, line)) {
            let in_test = is_test_file || is_unit_test(&file.path) || !kept.contains(&n);
            if in_test && sleep.is_match(line) && !line.trim_start().starts_with("//") {
                found.push(format!("{}:{n}: {}", file.path, line.trim()));
            }
        }
    }
    nothing("no sleeps in tests: harness::wait has until() and, where time is the subject, moment()", &found);
}

#[test]
fn i2_a_status_is_written_in_one_place() {
    // The transition helper moves; a page of a plan and a patch's `add` make new tickets, which are blocked.
    let write = Regex::new(r"'status',").expect("a pattern");
    let new = Regex::new(r"'status', 'blocked', 'epoch', 1").expect("a pattern");
    let mut found = vec![];
    for file in files().iter().filter(|f| f.path.ends_with(".lua")) {
        for (n, line) in file.text.lines().enumerate() {
            let reads = line.contains("HGET") || line.contains("HMGET");
            let helper = file.path.ends_with("/prelude.lua")
                && line.contains("'status', to, 'epoch', string.format('%d', t.epoch)");
            if write.is_match(line) && !reads && !helper && !new.is_match(line) {
                found.push(format!("{}:{}: {}", file.path, n + 1, line.trim()));
            }
        }
    }
    nothing("a ticket's status changes in the prelude's `move` only (I2)", &found);
}

#[test]
fn q40_every_script_declares_its_flags() {
    let mut found = vec![];
    let mut scripts = 0;
    for file in
        files().iter().filter(|f| f.path.starts_with("shared/src/store/scripts/") && f.path.ends_with(".lua"))
    {
        let name = file.path.rsplit('/').next().unwrap_or_default().trim_end_matches(".lua");
        let first = file.text.lines().next().unwrap_or_default();
        // The parts that are put in front of every script carry no shebang of their own.
        if ["prelude", "consequences", "money"].contains(&name) {
            continue;
        }
        scripts += 1;
        let want = match name {
            // Answers also while the server takes no writes.
            "measure" => "#!lua flags=no-writes,allow-oom",
            _ if REFUSED_WHEN_FULL.contains(&name) => "#!lua",
            _ => "#!lua flags=allow-oom",
        };
        if first != want {
            found.push(format!("{}: opens with {first:?}, not {want:?}", file.path));
        }
        for word in ["call('KEYS'", "call('SCAN'", "math.random("] {
            if file.text.contains(word) {
                found.push(format!("{}: {word}", file.path));
            }
        }
    }
    assert!(scripts > 0, "no script found");
    nothing("scripts keep draining at the memory limit, submits are refused", &found);
}

#[test]
fn nothing_names_the_machine_it_was_made_on() {
    // Put together here, so that this file does not hold them itself.
    let words = [["/wo", "rk/"].concat(), ["artif", "actory"].concat()];
    let mut found = vec![];
    for file in files() {
        for (n, line) in file.text.lines().enumerate() {
            if words.iter().any(|w| line.contains(w.as_str())) {
                found.push(format!("{}:{}: {}", file.path, n + 1, line.trim()));
            }
        }
    }
    nothing("no path and no host of the machine it was made on", &found);
}
