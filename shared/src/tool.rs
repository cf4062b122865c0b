//! What a model may call: declarations and the catalogue of bundles. The tools themselves are the worker's.
//!
//! The manager validates the names of a plan against this; the worker offers what is declared here.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

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
    /// JSON Schema of the arguments, an object.
    pub schema: Value,
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
        schema,
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
            "Read a text file of the workspace; long files come in parts.",
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
                       "outputs": {"type": "array", "maxItems": 100, "items": {"type": "string", "maxLength": 512}}}),
                &["status", "summary"],
            ),
            Effect::Attempt,
        ),
    ];
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    tools
}

/// Names of the built-in bundles.
pub const BUNDLES: &[&str] = &["code", "files", "fleet"];

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
