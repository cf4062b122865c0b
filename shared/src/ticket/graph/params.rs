//! What a check may be told: patterns, schemas, paths. Compiled here within limits, for the validator
//! that refuses a plan as for the reviewer that runs the checks.

use regex::{Regex, RegexBuilder};
use serde_json::Value;
use std::collections::BTreeSet;

/// Longest pattern.
pub const PATTERN_BYTES_MAX: usize = 1_000;
/// Largest compiled pattern; matching is linear in the text whatever the pattern.
const PATTERN_MEMORY_MAX: usize = 1024 * 1024;
/// Largest JSON schema, as text.
pub const SCHEMA_BYTES_MAX: usize = 64 * 1024;
/// Most `$ref` of a schema.
const REFERENCES_MAX: usize = 200;
/// Longest path.
pub const PATH_BYTES_MAX: usize = 512;

/// Compiles a pattern: multi-line (`^` and `$` are a line's), within the limits.
///
/// # Errors
/// What is wrong with it, in one line.
pub fn pattern(text: &str) -> Result<Regex, String> {
    if text.is_empty() {
        return Err("the pattern is empty".into());
    }
    if text.len() > PATTERN_BYTES_MAX {
        return Err(format!("the pattern has {} bytes, at most {PATTERN_BYTES_MAX} are allowed", text.len()));
    }
    RegexBuilder::new(text).multi_line(true).size_limit(PATTERN_MEMORY_MAX).build().map_err(|e| {
        let text = e.to_string();
        let last = text.lines().next_back().unwrap_or_default().trim();
        format!("the pattern is not a regular expression: {}", last.trim_start_matches("error: "))
    })
}

/// Compiles a JSON schema. Patterns in it run in linear time and nothing is fetched.
///
/// # Errors
/// What is wrong with it, in one line.
pub fn schema(schema: &Value) -> Result<jsonschema::Validator, String> {
    if !schema.is_object() {
        return Err("the schema is not an object".into());
    }
    let size = schema.to_string().len();
    if size > SCHEMA_BYTES_MAX {
        return Err(format!("the schema has {size} bytes, at most {SCHEMA_BYTES_MAX} are allowed"));
    }
    references_are_plain(schema, true)?;
    // A schema that refers to itself without going down into the value would never end.
    if let Some(reference) = endless_reference(schema)? {
        return Err(format!("the schema never ends: $ref {reference} leads back to itself"));
    }
    jsonschema::options()
        .with_pattern_options(jsonschema::PatternOptions::regex().size_limit(PATTERN_MEMORY_MAX))
        .build(schema)
        .map_err(|e| format!("the schema is not valid: {e}"))
}

/// Only references that can be followed here: `#` and `#/…`, no names that move what they point at.
fn references_are_plain(value: &Value, root: bool) -> Result<(), String> {
    match value {
        Value::Object(map) => {
            for keyword in ["$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor"] {
                if map.get(keyword).is_some_and(Value::is_string) {
                    return Err(format!("the schema uses {keyword}; only $ref to #/… is allowed"));
                }
            }
            if !root && map.get("$id").is_some_and(Value::is_string) {
                return Err("the schema has a $id below its root".into());
            }
            if map
                .get("$schema")
                .and_then(Value::as_str)
                .is_some_and(|s| s.contains("draft-03") || s.contains("draft-04"))
            {
                return Err("the schema is of draft 4 or older; write draft 7 or 2020-12".into());
            }
            match map.get("$ref") {
                Some(Value::String(r)) if !(r == "#" || r.starts_with("#/")) || r.contains('%') => {
                    Err(format!("the schema refers to {r}; only references within it (#/…) are allowed"))
                }
                _ => map.values().try_for_each(|v| references_are_plain(v, false)),
            }
        }
        Value::Array(items) => items.iter().try_for_each(|v| references_are_plain(v, false)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

/// A `$ref` that comes back to where it started through `$ref` and the keywords that apply to the same value.
fn endless_reference(root: &Value) -> Result<Option<&str>, String> {
    let mut starts = vec![];
    collect_references(root, &mut starts);
    if starts.len() > REFERENCES_MAX {
        return Err(format!("the schema has {} $ref, at most {REFERENCES_MAX} are allowed", starts.len()));
    }
    Ok(starts.into_iter().find(|reference| {
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut walk = vec![*reference];
        while let Some(at) = walk.pop() {
            if !seen.insert(at) {
                continue;
            }
            let Some(target) = at.strip_prefix('#').and_then(|pointer| root.pointer(pointer)) else {
                continue;
            };
            let mut next = vec![];
            same_value_references(target, &mut next);
            if next.contains(reference) {
                return true;
            }
            walk.extend(next);
        }
        false
    }))
}

fn collect_references<'a>(value: &'a Value, into: &mut Vec<&'a str>) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(reference)) = map.get("$ref") {
                into.push(reference);
            }
            map.values().for_each(|v| collect_references(v, into));
        }
        Value::Array(items) => items.iter().for_each(|v| collect_references(v, into)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn same_value_references<'a>(schema: &'a Value, into: &mut Vec<&'a str>) {
    if let Some(Value::String(reference)) = schema.get("$ref") {
        into.push(reference);
    }
    for keyword in ["allOf", "anyOf", "oneOf", "not", "if", "then", "else"] {
        match schema.get(keyword) {
            Some(Value::Array(items)) => items.iter().for_each(|s| same_value_references(s, into)),
            Some(one) => same_value_references(one, into),
            None => {}
        }
    }
    for keyword in ["dependentSchemas", "dependencies"] {
        if let Some(Value::Object(schemas)) = schema.get(keyword) {
            schemas.values().for_each(|s| same_value_references(s, into));
        }
    }
}

/// Whether a path may stand in a plan: inside the workspace, plain, not too long.
///
/// Opening files safely is `workspace`'s part; this is the early word to whoever wrote the plan.
///
/// # Errors
/// What is wrong with it.
pub fn path(path: &str) -> Result<(), &'static str> {
    if path.is_empty() {
        return Err("the path is empty");
    }
    if path.len() > PATH_BYTES_MAX {
        return Err("the path is longer than 512 bytes");
    }
    if path.starts_with('/') || path.starts_with('~') {
        return Err("the path is absolute; it must stand inside the workspace");
    }
    if path.chars().any(|c| c.is_control() || c == '\\') {
        return Err("the path has a control character or a backslash");
    }
    if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err("the path leaves the workspace or has an empty part");
    }
    Ok(())
}

/// Whether a path may be delivered: as [`path`], and neither under `temp/` nor a drawn file.
///
/// # Errors
/// What is wrong with it.
pub fn output_path(output: &str) -> Result<(), &'static str> {
    path(output)?;
    if output.starts_with("temp/") {
        return Err("files under temp/ are never delivered");
    }
    if matches!(output, "TODO.md" | "FILE_INDEX.json") {
        return Err("TODO.md and FILE_INDEX.json are drawn by the fleet, nobody delivers them");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn patterns_are_bounded_and_errors_are_one_line() {
        assert!(pattern("^# Report$").unwrap().is_match("x\n# Report\ny"));
        assert!(pattern("(").unwrap_err().contains("unclosed group"));
        assert!(pattern(&"a".repeat(1_001)).unwrap_err().contains("1000"));
        assert!(pattern(r"(\w{200}){200}").unwrap_err().lines().count() == 1);
    }

    #[test]
    fn schemas_neither_fetch_nor_run_for_ever() {
        assert!(schema(&json!({"type": "object"})).unwrap().is_valid(&json!({})));
        assert!(schema(&json!({"type": 5})).is_err());
        assert!(schema(&json!(true)).is_err());
        assert!(schema(&json!({"$ref": "http://127.0.0.1:9/x.json"})).is_err());
        assert!(schema(&json!({"allOf": [{"$id": "x:y", "$ref": "#"}]})).is_err());
        assert!(schema(&json!({"$ref": "#"})).unwrap_err().contains("never ends"));
        let around = json!({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}}});
        assert!(schema(&around).unwrap_err().contains("never ends"));
        let tree = json!({"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}}}}});
        assert!(schema(&tree).unwrap().is_valid(&json!({"next": {"next": {}}})));
        assert!(schema(&json!({"type": "string", "pattern": "(a+)+$"})).unwrap().is_valid(&json!("aaaa")));
    }

    #[test]
    fn paths_that_leave_the_workspace_are_refused() {
        for bad in ["", "/etc/passwd", "../x", "a/../b", "a//b", "./a", "a/", "~/x", "a\0b", "a\nb", "a\\b"] {
            assert!(path(bad).is_err(), "{bad:?}");
        }
        assert!(path("outputs/report.md").is_ok());
        assert!(path("数据/表.csv").is_ok());
        assert!(output_path("temp/x").is_err() && output_path("TODO.md").is_err());
        assert!(output_path("outputs/x").is_ok());
    }
}
