//! What a model may call: declarations and the catalogue of bundles. The tools themselves are the worker's.
//!
//! The manager validates the names of a plan against this; the worker offers what is declared here. Tools of the
//! configuration are in [`http`], servers of them in [`mcp`].

pub mod http;
pub mod mcp;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;

/// Whether a call may change the world outside the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Reads only; calls of one turn may run in parallel.
    Reads,
    /// Changes the attempt's own folder only.
    Attempt,
    /// Changes the world outside: journalled, once.
    World,
}

/// A tool as a model sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolDecl {
    pub name: String,
    pub bundle: String,
    pub description: String,
    /// JSON Schema of the arguments, an object; shared, since each waiting agent holds its declarations.
    pub schema: Arc<Value>,
    pub effect: Effect,
    /// Needs the sandbox.
    pub sandboxed: bool,
    pub requires_confirmation: bool,
}

fn decl(bundle: &str, name: &str, description: &str, schema: Value, effect: Effect) -> ToolDecl {
    ToolDecl {
        name: name.into(),
        bundle: bundle.into(),
        description: description.into(),
        schema: Arc::new(schema),
        effect,
        sandboxed: false,
        requires_confirmation: false,
    }
}

fn object(properties: Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// The built-in tools, sorted by name so that prompts are byte-stable.
#[must_use]
pub fn builtin() -> Vec<ToolDecl> {
    let path = json!({"type": "string", "minLength": 1, "maxLength": 512,
        "description": "path inside the workspace, such as outputs/report.md"});
    let mut tools = vec![
        ToolDecl {
            sandboxed: true,
            ..decl(
                "code",
                "code_interpreter",
                "Run Python 3 code in a sandbox without network. Variables stay between calls of one attempt. \
                 The current folder is the workspace: read inputs from it, write outputs into it. \
                 What is printed comes back.",
                object(json!({"code": {"type": "string", "minLength": 1, "maxLength": 100_000}}), &["code"]),
                Effect::Attempt,
            )
        },
        decl(
            "files",
            "read_file",
            "Read a text file of the workspace; long files come in parts. An image (png, jpg, gif, webp) is shown to you, if you can see images.",
            object(
                json!({"path": path, "offset_bytes": {"type": "integer", "minimum": 0},
                       "limit_bytes": {"type": "integer", "minimum": 1, "maximum": 65536}}),
                &["path"],
            ),
            Effect::Reads,
        ),
        decl(
            "files",
            "write_file",
            "Write a text file, replacing what was there. Write long documents in parts with append_file.",
            object(
                json!({"path": path, "content": {"type": "string", "maxLength": 262_144}}),
                &["path", "content"],
            ),
            Effect::Attempt,
        ),
        decl(
            "files",
            "append_file",
            "Append text to a file, which is made if it is not there.",
            object(
                json!({"path": path, "content": {"type": "string", "maxLength": 262_144}}),
                &["path", "content"],
            ),
            Effect::Attempt,
        ),
        decl(
            "files",
            "list_files",
            "List the files of the workspace with their sizes.",
            object(json!({"prefix": {"type": "string", "maxLength": 512}}), &[]),
            Effect::Reads,
        ),
        decl(
            "files",
            "search_files",
            "Search the text files of the workspace for a text or a regular expression; gives path, line number and line.",
            object(
                json!({"pattern": {"type": "string", "minLength": 1, "maxLength": 1000},
                       "regex": {"type": "boolean", "description": "the pattern is a regular expression; without it, plain text"},
                       "ignore_case": {"type": "boolean"},
                       "prefix": {"type": "string", "maxLength": 512, "description": "only paths that begin with this"}}),
                &["pattern"],
            ),
            Effect::Reads,
        ),
        decl(
            "fleet",
            "update_progress",
            "Tell the manager of a milestone, an obstacle or a fact. Work goes on afterwards.",
            object(
                json!({"status": {"type": "string", "enum": ["working", "milestone", "obstacle"]},
                       "message": {"type": "string", "minLength": 1, "maxLength": 2000},
                       "conclusion": {"type": "string", "maxLength": 1000,
                           "description": "one confirmed fact for everybody"}}),
                &["status", "message"],
            ),
            Effect::Attempt,
        ),
        decl(
            "fleet",
            "finish",
            "End the work with the final report.",
            object(
                json!({"status": {"type": "string", "enum": ["done", "partial", "failed"]},
                       "summary": {"type": "string", "minLength": 1, "maxLength": 4000},
                       "conclusions": {"type": "array", "maxItems": 20,
                           "items": {"type": "string", "maxLength": 1000}},
                       "outputs": {"type": "array", "maxItems": 100, "items": {"type": "string", "maxLength": 512}},
                       "plan_change": {"type": "string", "maxLength": 1000,
                           "description": "only if what you found makes other tickets of the plan needless or shows that \
                                           one is missing: which and why; the manager decides"}}),
                &["status", "summary"],
            ),
            Effect::Attempt,
        ),
    ];
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    tools
}

/// Names of the built-in bundles.
pub const BUNDLES: &[&str] = &["code", "files", "fleet", "web"];

/// The tools of the bundle `web`, as far as the fleet has them.
#[must_use]
pub fn web(open_link: bool, search: bool) -> Vec<ToolDecl> {
    let mut tools = vec![];
    if open_link {
        tools.push(decl(
            "web",
            "open_link",
            "Open a page of the public internet and read its text as Markdown. Give the whole address.",
            object(json!({"url": {"type": "string", "minLength": 8, "maxLength": 2000}}), &["url"]),
            Effect::Reads,
        ));
    }
    if search {
        tools.push(decl(
            "web",
            "web_search",
            "Search the web; gives titles, addresses and short extracts. Open what matters with open_link.",
            object(
                json!({"query": {"type": "string", "minLength": 1, "maxLength": 400},
                       "results": {"type": "integer", "minimum": 1, "maximum": 50}}),
                &["query"],
            ),
            Effect::Reads,
        ));
    }
    tools
}

/// Names one exact call: what a person confirms and what an effect is booked under. Keys of objects are sorted, so the
/// same arguments give the same digest whoever wrote them down.
#[must_use]
pub fn digest(tool: &str, args: &Value) -> String {
    key(&[tool, &canonical(args)])
}

/// Hash (64 hex digits) over parts, each with its length, so that parts cannot run into each other.
#[must_use]
pub fn key(parts: &[&str]) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part.as_bytes());
    }
    digest.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

/// JSON text with the keys of every object in order, whatever the map's own order.
#[must_use]
pub fn canonical(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let mut pairs: Vec<(&String, &Value)> = map.iter().collect();
            pairs.sort_by_key(|(key, _)| *key);
            let pairs: Vec<String> = pairs
                .into_iter()
                .map(|(k, v)| format!("{}:{}", Value::from(k.as_str()), canonical(v)))
                .collect();
            format!("{{{}}}", pairs.join(","))
        }
        Value::Array(list) => format!("[{}]", list.iter().map(canonical).collect::<Vec<_>>().join(",")),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

/// The declaration of that name among `tools`.
#[must_use]
pub fn find<'a>(tools: &'a [ToolDecl], name: &str) -> Option<&'a ToolDecl> {
    tools.iter().find(|t| t.name == name)
}

/// The tools of these bundles; `fleet` is always among them.
#[must_use]
pub fn of_bundles(tools: &[ToolDecl], bundles: &[String]) -> Vec<ToolDecl> {
    tools.iter().filter(|t| t.bundle == "fleet" || bundles.contains(&t.bundle)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_digests_do_not_depend_on_the_order_of_keys() {
        let a: Value = serde_json::from_str(r#"{"b":[{"y":1,"x":"é"}],"a":10.0}"#).unwrap();
        let b: Value = serde_json::from_str(r#"{"a":10.0,"b":[{"x":"é","y":1}]}"#).unwrap();
        assert_eq!(canonical(&a), r#"{"a":10.0,"b":[{"x":"é","y":1}]}"#);
        assert_eq!(digest("pay", &a), digest("pay", &b));
        assert_ne!(digest("pay", &a), digest("pays", &a));
        assert_eq!(
            digest("pay", &json!({})),
            "b30a1b091cabe6aeaecd64d79bedff19ac4e9f08ad9f0bb7bf834928447707a2"
        );
    }
}
