//! The scripts as text: which keys they name. All of them carry the hash tag, and all of them are documented.

use regex::Regex;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// Name and text of every script and of the prelude, comments left out.
fn scripts() -> Vec<(String, String)> {
    let mut found = vec![];
    for entry in std::fs::read_dir(root().join("shared/src/store/scripts")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let code: Vec<&str> = text.lines().map(|l| l.split(" -- ").next().unwrap_or(l)).collect();
        let code: Vec<&str> = code.into_iter().filter(|l| !l.trim_start().starts_with("--")).collect();
        found.push((path.file_name().unwrap().to_string_lossy().into_owned(), code.join("\n")));
    }
    assert!(found.len() > 20, "{found:?}");
    found
}

/// Expressions that are keys of this shard: the declared one, and what is derived from it.
const DERIVED: &str = r"(KEYS\[1\]|P \.\. |hk\(|gk\()";

/// Whether a name is a key: made from the declared one, or from a name that is; a field of a table, where each that is made
/// with it is; a parameter, where it is at each call.
fn is_derived(name: &str, text: &str, derived: &Regex, above: &mut Vec<String>) -> bool {
    // Made from itself in the end: what else it is made from decides.
    if above.iter().any(|n| n == name) {
        return true;
    }
    above.push(name.into());
    let mut good = |value: &String| {
        let first = value.split(" .. ").next().unwrap_or_default();
        derived.is_match(value) || (first != name && is_derived(first, text, derived, above))
    };
    let values = match name.rsplit_once('.') {
        Some((_, field)) => {
            let made = Regex::new(&format!(r"[{{,] *{field} = ([^,}}\n]+)")).unwrap();
            made.captures_iter(text).map(|found| found[1].trim().to_owned()).collect()
        }
        None => {
            let mut values = locals(name, text);
            values.extend(handed(name, text));
            // Handed on under its own name.
            values.retain(|value| value != name);
            values
        }
    };
    let all = !values.is_empty() && values.iter().all(&mut good);
    above.pop();
    all
}

/// What a local name is made from, each time.
fn locals(name: &str, text: &str) -> Vec<String> {
    let made = Regex::new(r"\blocal ([\w, ]+) = ([^\n]+)").unwrap();
    let mut all = vec![];
    for found in made.captures_iter(text) {
        let names: Vec<&str> = found[1].split(", ").collect();
        let Some(at) = names.iter().position(|n| *n == name) else { continue };
        let values: Vec<String> = match names.len() {
            1 => vec![found[2].to_owned()],
            _ => found[2].split(", ").map(str::to_owned).collect(),
        };
        all.push(values.get(at).cloned().unwrap_or_default());
    }
    all
}

/// What is handed over for a parameter of that name, at each call.
fn handed(name: &str, text: &str) -> Vec<String> {
    let function = Regex::new(r"\blocal function (\w+)\(([^)]*)\)").unwrap();
    let mut all = vec![];
    for found in function.captures_iter(text) {
        let Some(at) = found[2].split(", ").position(|n| n == name) else { continue };
        let called = Regex::new(&format!(r"(function )?\b{}\(([^()]*)\)", &found[1])).unwrap();
        for call in called.captures_iter(text).filter(|c| c.get(1).is_none()) {
            all.push(call[2].split(", ").nth(at).unwrap_or_default().to_owned());
        }
    }
    all
}

#[test]
fn q47_every_key_is_derived_from_the_declared_one() {
    let call = Regex::new(
        r"\b(?:redis\.|r)call\((?:'[A-Z]+'|head and 'LPUSH' or 'RPUSH'|\w+ and '[A-Z]+' or '[A-Z]+'), *([^,)]+)",
    )
    .unwrap();
    let any_call = Regex::new(r"\b(?:redis\.p?|r)call\(").unwrap();
    let derived = Regex::new(&format!("^{DERIVED}")).unwrap();
    let mut wrong = vec![];
    let (mut seen, mut named) = (0, 0);
    let all = scripts();
    let shared: String = all
        .iter()
        .filter(|(n, _)| ["prelude.lua", "consequences.lua", "money.lua"].contains(&n.as_str()))
        .map(|(_, t)| t.as_str())
        .collect();
    for (name, text) in all {
        named += any_call.find_iter(&text).count();
        for found in call.captures_iter(&text) {
            seen += 1;
            let key = found[1].trim();
            if derived.is_match(key) {
                continue;
            }
            // A name: it was made from one of those in the same file, each time that it is made.
            // A table may come from what stands before every script.
            let whole = if key.contains('.') { format!("{shared}{text}") } else { text.clone() };
            if !is_derived(key, &whole, &derived, &mut vec![]) {
                wrong.push(format!("{name}: {}", found[0].trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "keys that are not derived from the declared one:\n  {}", wrong.join("\n  "));
    // TIME has no key; flush_places builds its commands as tables and hands them to `many`.
    assert_eq!(named - seen, 2, "a call that this lint does not read");
}

#[test]
fn q47_every_key_is_documented() {
    let document = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (_, keys) = document.split_once("## Keys").unwrap();
    let keys = keys.split("\n## ").next().unwrap();
    let documented: BTreeSet<&str> =
        keys.split('`').skip(1).step_by(2).map(|k| k.split(['<', ' ']).next().unwrap_or(k)).collect();
    let top = Regex::new(r"P \.\. '([a-z]+:?)([a-z]*)").unwrap();
    let below = Regex::new(r"[gh]k\([^)]*\)+ \.\. '(:[a-z]+:?)([a-z]*)").unwrap();
    let mut missing = BTreeSet::new();
    for (name, text) in scripts() {
        for pattern in [&top, &below] {
            for found in pattern.captures_iter(&text) {
                // `q:manage` is a whole name, `dem:work.` the beginning of many.
                let whole = format!("{}{}", &found[1], &found[2]);
                if !documented.contains(&found[1]) && !documented.contains(whole.as_str()) {
                    missing.insert(format!("{} ({name})", &found[1]));
                }
            }
        }
    }
    assert!(
        missing.is_empty(),
        "keys that ARCHITECTURE.md does not name: {missing:?}\nit names {documented:?}"
    );
}
