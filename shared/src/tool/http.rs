//! An HTTP call as a tool, as the operator declares it in the configuration. Pure: the call itself is the worker's.

use super::{Effect, ToolDecl, builtin, find, web};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;

/// Longest time that one may be given, in milliseconds.
const TIMEOUT_MS_MAX: u64 = 600_000;

/// The request's method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    #[default]
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

/// A declared tool. Arguments named in the URL as `{name}` go there, percent-encoded; the others into the query of a
/// GET or DELETE, into the JSON body of the rest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpTool {
    pub name: String,
    /// Tickets and roles name the bundle to get it.
    pub bundle: String,
    /// What the model reads of it.
    pub description: String,
    #[serde(default)]
    pub method: Method,
    pub url: String,
    /// JSON Schema of the arguments, an object.
    #[serde(default = "no_arguments")]
    pub schema: Value,
    /// `world` unless it is said to read only: what is not declared is taken for the worse (I7).
    #[serde(default = "world")]
    pub effect: Effect,
    #[serde(default)]
    pub requires_confirmation: bool,
    /// Environment variable of the worker that holds a bearer token; empty: none. The token reaches no prompt (I12).
    #[serde(default)]
    pub token_env: String,
    #[serde(default = "half_a_minute")]
    pub timeout_ms: u64,
}

fn no_arguments() -> Value {
    json!({"type": "object", "additionalProperties": false})
}
fn world() -> Effect {
    Effect::World
}
fn half_a_minute() -> u64 {
    30_000
}

impl HttpTool {
    /// As a model sees it.
    #[must_use]
    pub fn decl(&self) -> ToolDecl {
        ToolDecl {
            name: self.name.clone(),
            bundle: self.bundle.clone(),
            description: self.description.clone(),
            schema: Arc::new(self.schema.clone()),
            effect: self.effect,
            sandboxed: false,
            requires_confirmation: self.requires_confirmation,
        }
    }

    /// What is wrong with it, naming the field.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let is_word =
            |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let say = |text: &str| Some(format!("tool `{}`: {text}", self.name));
        if !is_word(&self.name) || !is_word(&self.bundle) {
            return say("name and bundle are made of letters, digits and _");
        }
        if find(&builtin(), &self.name).or(find(&web(true, true), &self.name)).is_some() {
            return say("there is a built-in tool of that name");
        }
        if self.bundle == "fleet" {
            return say("the bundle `fleet` is in every prompt; name another");
        }
        if !self.url.starts_with("http://") && !self.url.starts_with("https://") {
            return say("url must begin with http:// or https://");
        }
        if self.effect == Effect::Attempt {
            return say("effect is `reads` or `world`; nothing that it does stays in the attempt");
        }
        if self.timeout_ms == 0 || self.timeout_ms > TIMEOUT_MS_MAX {
            return say("timeout_ms must be above 0 and at most 600000");
        }
        if self.schema["type"] != "object" {
            return say("schema must be that of an object");
        }
        let required = self.schema["required"].as_array().cloned().unwrap_or_default();
        let missing = self.placeholders().into_iter().find(|name| !required.iter().any(|r| r == *name));
        missing.and_then(|name| say(&format!("the url names {{{name}}}, which schema.required does not")))
    }

    /// The names between braces in the URL.
    #[must_use]
    pub fn placeholders(&self) -> Vec<&str> {
        let parts = self.url.split('{').skip(1);
        parts.filter_map(|part| part.split_once('}').map(|(name, _)| name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(more: &str) -> HttpTool {
        let text = format!(
            "name = 'refund'\nbundle = 'orders'\ndescription = 'd'\nmethod = 'POST'\nurl = 'http://h/o/{{order}}'\n{more}"
        );
        toml::from_str(&text).unwrap()
    }

    #[test]
    fn i7_what_is_not_declared_is_taken_for_the_worse() {
        let good = tool("[schema]\ntype = 'object'\nrequired = ['order']");
        assert_eq!(good.problem(), None);
        assert_eq!(good.decl().effect, Effect::World);
        assert_eq!(good.placeholders(), ["order"]);
        assert!(tool("").problem().unwrap().contains("{order}"));
        assert!(tool("effect = 'attempt'").problem().unwrap().contains("effect"));
        let taken = HttpTool { name: "finish".into(), ..good };
        assert!(taken.problem().unwrap().contains("built-in"));
    }
}
