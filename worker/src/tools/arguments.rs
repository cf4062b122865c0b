//! Arguments of a call against the tool's schema, with errors that name the field. Models send them empty, as
//! null, as text within text: what is meant clearly is taken, everything else is told (A9).

use jsonschema::Validator;
use serde_json::{Map, Value};
use shared::tool::{self, ToolDecl};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Problems told at once.
const PROBLEMS_MAX: usize = 5;
/// Longest problem, in characters.
const PROBLEM_CHARS_MAX: usize = 300;
/// Deepest schema that is looked into for texts that should be lists or objects.
const DEPTH_MAX: usize = 8;

struct Checked {
    decl: ToolDecl,
    validator: Result<Validator, String>,
}

/// The built-in tools with their validators, made once.
fn known() -> &'static BTreeMap<String, Checked> {
    static KNOWN: OnceLock<BTreeMap<String, Checked>> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let checked = |decl: ToolDecl| {
            let validator = jsonschema::validator_for(&decl.schema).map_err(|e| e.to_string());
            (decl.name.clone(), Checked { decl, validator })
        };
        tool::builtin().into_iter().map(checked).collect()
    })
}

/// The arguments as the tool takes them, or what is wrong with them in words for the model.
///
/// # Errors
/// Names the tool and each field; short however long the arguments are.
pub(crate) fn check(name: &str, args: &Value) -> Result<Value, String> {
    let Some(Checked { decl, validator }) = known().get(name) else {
        let names: Vec<&str> = known().keys().map(String::as_str).collect();
        return Err(format!("there is no tool `{name}`; the tools are {}", names.join(", ")));
    };
    // Fails closed: a schema that cannot be checked lets nothing through (I7).
    let validator = validator.as_ref().map_err(|e| format!("`{name}` has a broken schema: {e}"))?;
    check_by(decl, validator, args)
}

/// As [`check`], against this declaration.
///
/// # Errors
/// As [`check`].
pub(crate) fn check_by(decl: &ToolDecl, validator: &Validator, args: &Value) -> Result<Value, String> {
    let name = &decl.name;
    let is_empty = args.is_null() || args.as_str().is_some_and(|text| text.trim().is_empty());
    let args = if is_empty { Value::Object(Map::new()) } else { decoded(args, &decl.schema, 0) };
    if !args.is_object() {
        let kind = kind(&args);
        return Err(format!(
            "arguments of `{name}` must be a JSON object with {}, not {kind}",
            fields(&decl.schema)
        ));
    }
    let problems: Vec<String> = validator
        .iter_errors(&args)
        .take(PROBLEMS_MAX)
        .map(|error| {
            let at = error.instance_path().to_string();
            let field = at.trim_start_matches('/').replace('/', ".");
            let problem: String = error.masked().to_string().chars().take(PROBLEM_CHARS_MAX).collect();
            if field.is_empty() { problem } else { format!("`{field}`: {problem}") }
        })
        .collect();
    if problems.is_empty() {
        return Ok(args);
    }
    Err(format!(
        "arguments of `{name}` are wrong: {}. It takes {}",
        problems.join("; "),
        fields(&decl.schema)
    ))
}

/// Texts decoded where the schema wants a list or an object, and only there.
fn decoded(value: &Value, schema: &Value, depth: usize) -> Value {
    let wants = |kind: &str| match schema.get("type") {
        Some(Value::String(word)) => word == kind,
        Some(Value::Array(words)) => words.iter().any(|w| w == kind) && !words.iter().any(|w| w == "string"),
        _ => false,
    };
    if depth > DEPTH_MAX {
        return value.clone();
    }
    match value {
        Value::String(text) if wants("object") || wants("array") => {
            match serde_json::from_str::<Value>(text) {
                Ok(inner)
                    if (inner.is_object() && wants("object")) || (inner.is_array() && wants("array")) =>
                {
                    decoded(&inner, schema, depth + 1)
                }
                Ok(_) | Err(_) => value.clone(),
            }
        }
        Value::Object(map) => {
            let inside =
                |key: &String| schema.get("properties").and_then(|p| p.get(key)).unwrap_or(&Value::Null);
            Value::Object(map.iter().map(|(k, v)| (k.clone(), decoded(v, inside(k), depth + 1))).collect())
        }
        Value::Array(list) => {
            let inside = schema.get("items").unwrap_or(&Value::Null);
            Value::Array(list.iter().map(|v| decoded(v, inside, depth + 1)).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// `path` (string), `limit_bytes` (integer, optional)…
fn fields(schema: &Value) -> String {
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let words: Vec<String> = properties
        .map(|(name, schema)| {
            let kind = schema.get("type").and_then(Value::as_str).unwrap_or("any");
            let optional = if required.contains(&name.as_str()) { "" } else { ", optional" };
            format!("`{name}` ({kind}{optional})")
        })
        .collect();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a9_empty_and_null_are_no_arguments_and_an_object_is_taken_as_it_is() {
        for empty in [json!(""), json!(null), json!("  "), json!({})] {
            assert_eq!(check("list_files", &empty), Ok(json!({})), "{empty}");
        }
        let args = json!({"path": "a", "limit_bytes": 5});
        assert_eq!(check("read_file", &args), Ok(args.clone()));
        assert_eq!(check("read_file", &json!(args.to_string())), Ok(args));
    }

    #[test]
    fn a9_lists_and_scalars_are_told() {
        for (args, kind) in [
            (json!([1, 2]), "a list"),
            (json!("abc"), "a text"),
            (json!(7), "a number"),
            (json!("[1]"), "a text"),
        ] {
            let told = check("read_file", &args).unwrap_err();
            assert!(told.contains(kind) && told.contains("`path` (string)"), "{told}");
        }
    }

    #[test]
    fn a9_text_within_text_is_decoded_only_where_a_list_or_object_is_wanted() {
        let args = json!({"status": "done", "summary": "[1]", "conclusions": "[\"a\"]"});
        let want = json!({"status": "done", "summary": "[1]", "conclusions": ["a"]});
        assert_eq!(check("finish", &args), Ok(want));
        let content = json!({"path": "a.json", "content": "{\"k\": [1]}"});
        assert_eq!(check("write_file", &content), Ok(content.clone()));
        assert!(check("finish", &json!({"status": "done", "summary": "s", "conclusions": "a"})).is_err());
    }

    #[test]
    fn problems_name_the_field_and_stay_short() {
        let told = check("read_file", &json!({"path": 5, "limit_bytes": 0, "more": 1})).unwrap_err();
        for part in ["`path`: ", "`limit_bytes`: ", "more", "read_file", "`offset_bytes` (integer, optional)"]
        {
            assert!(told.contains(part), "{part}: {told}");
        }
        let told = check("write_file", &json!({"content": "x"})).unwrap_err();
        assert!(told.contains("\"path\" is a required property"), "{told}");
        let told =
            check("finish", &json!({"status": "well", "summary": "s", "conclusions": [1]})).unwrap_err();
        assert!(told.contains("`conclusions.0`") && told.contains("`status`"), "{told}");
        let long = json!({"path": "a", "content": "x".repeat(300_000)});
        assert!(check("write_file", &long).unwrap_err().len() < 1_000);
        assert!(check("no_such", &json!({})).unwrap_err().contains("read_file"));
    }

    #[test]
    fn every_built_in_schema_is_sound() {
        for (name, checked) in known() {
            assert!(checked.validator.is_ok(), "{name}");
        }
    }
}
