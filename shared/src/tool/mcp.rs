//! A server of the Model Context Protocol, as the operator declares it in the configuration. Pure: the talk is the worker's.

use super::{Effect, ToolDecl};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Longest time that a call may be given, in milliseconds.
const TIMEOUT_MS_MAX: u64 = 600_000;
/// Characters of what a server says of a tool.
const DESCRIPTION_CHARS_MAX: usize = 1_000;
/// Bytes of a tool's schema.
const SCHEMA_BYTES_MAX: usize = 32 * 1024;
/// Longest name that model providers take.
const NAME_CHARS_MAX: usize = 64;
/// Stands for every tool of the server.
const ALL: &str = "*";

/// A declared server: a program in the sandbox, or an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpServer {
    /// Its tools are called `name_tool`.
    pub name: String,
    /// Tickets and roles name the bundle to get them.
    pub bundle: String,
    /// By it the planner chooses.
    #[serde(default)]
    pub description: String,
    /// Program and arguments; it runs in the sandbox, in the attempt's folder, without network.
    #[serde(default)]
    pub command: Vec<String>,
    /// Folders that the program may read, at the same place.
    #[serde(default)]
    pub folders: Vec<String>,
    /// All of its environment beside PATH, HOME and LANG.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Address space of each process of the program.
    #[serde(default = "two_gib")]
    pub memory_bytes_max: u64,
    /// Or: address of a server that speaks streamable HTTP.
    #[serde(default)]
    pub url: String,
    /// Environment variable of the worker that holds the bearer token for it; empty: none.
    #[serde(default)]
    pub token_env: String,
    /// The server's own names of the tools that are offered; empty: all.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Those that only read.
    #[serde(default)]
    pub reads: Vec<String>,
    /// Those whose every call a person confirms; `*`: all.
    #[serde(default)]
    pub confirm: Vec<String>,
    #[serde(default = "a_minute")]
    pub timeout_ms: u64,
    /// An answer that is longer is not read.
    #[serde(default = "a_mib")]
    pub result_bytes_max: usize,
}

fn two_gib() -> u64 {
    2 * 1024 * 1024 * 1024
}
fn a_minute() -> u64 {
    60_000
}
fn a_mib() -> usize {
    1024 * 1024
}

impl McpServer {
    /// A stand-in for all its tools, for those who plan: which they are is known once the server runs. Nobody can call it.
    #[must_use]
    pub fn decl(&self) -> ToolDecl {
        ToolDecl {
            name: self.name.clone(),
            bundle: self.bundle.clone(),
            description: self.description.clone(),
            schema: json!({"type": "object", "not": {}}).into(),
            effect: self.default_effect(),
            sandboxed: false,
            requires_confirmation: false,
        }
    }

    /// What is not declared is taken for the worse (I7): a program without network can change the attempt's folder
    /// alone, a server elsewhere the world.
    fn default_effect(&self) -> Effect {
        if self.command.is_empty() { Effect::World } else { Effect::Attempt }
    }

    /// A tool that the server lists, as a model sees it; `None`: it is not offered. `confirm`: names of `tools.confirm`.
    #[must_use]
    pub fn offer(&self, listed: &Value, confirm: &[String]) -> Option<ToolDecl> {
        let own = listed["name"].as_str()?;
        if !self.tools.is_empty() && !self.tools.iter().any(|t| t == own) {
            return None;
        }
        let schema = listed.get("inputSchema").cloned().unwrap_or_else(|| json!({"type": "object"}));
        if schema["type"] != "object" || schema.to_string().len() > SCHEMA_BYTES_MAX {
            return None;
        }
        let name = self.name_of(own);
        let said = listed["description"].as_str().or(listed["title"].as_str()).unwrap_or_default();
        let words: String = said.split_whitespace().collect::<Vec<_>>().join(" ");
        let effect = if self.reads.iter().any(|t| t == own) { Effect::Reads } else { self.default_effect() };
        let confirmed = self.confirm.iter().any(|t| t == own || t == ALL) || confirm.contains(&name);
        Some(ToolDecl {
            name,
            bundle: self.bundle.clone(),
            description: words.chars().take(DESCRIPTION_CHARS_MAX).collect(),
            schema: schema.into(),
            effect,
            sandboxed: false,
            requires_confirmation: confirmed,
        })
    }

    /// How the model calls the server's tool of this name.
    #[must_use]
    pub fn name_of(&self, own: &str) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
        format!("{}_{own}", self.name).chars().map(plain).take(NAME_CHARS_MAX).collect()
    }

    /// Tools that are gated or picked out by name and that the server does not have. A gate that holds nothing would
    /// leave open what somebody believes to be shut (I7).
    #[must_use]
    pub fn unknown<'a>(&'a self, listed: &[&str]) -> Vec<&'a str> {
        let named = self.confirm.iter().chain(&self.tools).map(String::as_str);
        named.filter(|name| *name != ALL && !listed.contains(name)).collect()
    }

    /// What is wrong with it, naming the field.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let is_word =
            |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let say = |text: &str| Some(format!("MCP server `{}`: {text}", self.name));
        if !is_word(&self.name) || self.name.len() > 32 || !is_word(&self.bundle) {
            return say("name and bundle are made of letters, digits and _, the name of at most 32");
        }
        if ["fleet", "files", "code", "web"].contains(&self.bundle.as_str()) {
            return say("the bundle is a built-in one; name another");
        }
        if self.command.is_empty() == self.url.is_empty() {
            return say("give either command (a program in the sandbox) or url");
        }
        if !self.url.is_empty() && !self.url.starts_with("http://") && !self.url.starts_with("https://") {
            return say("url must begin with http:// or https://");
        }
        if self.command.is_empty() && !(self.folders.is_empty() && self.env.is_empty()) {
            return say("folders and env belong to a command");
        }
        if !self.command.is_empty() && !self.token_env.is_empty() {
            return say("token_env belongs to a url; a program in the sandbox gets no secrets");
        }
        if self
            .folders
            .iter()
            .any(|f| !f.starts_with('/') || f.split('/').filter(|p| !p.is_empty()).count() < 2)
        {
            return say("folders are absolute and at least two deep, such as /opt/mcp");
        }
        if self.timeout_ms == 0 || self.timeout_ms > TIMEOUT_MS_MAX || self.result_bytes_max == 0 {
            return say("timeout_ms must be above 0 and at most 600000, result_bytes_max above 0");
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(more: &str) -> McpServer {
        toml::from_str(&format!("name = 'crm'\nbundle = 'customers'\n{more}")).unwrap()
    }

    #[test]
    fn i7_what_a_tool_does_is_the_operators_word_and_the_worse_without_it() {
        let here = server("command = ['/usr/bin/x']\nreads = ['look']\nconfirm = ['wipe']");
        let there =
            server("url = 'https://h/mcp'\nreads = ['look']\nconfirm = ['*']\ntools = ['look', 'wipe']");
        assert_eq!((here.problem(), there.problem()), (None, None));
        let lists = |name: &str| {
            json!({"name": name, "description": "a\nb", "inputSchema": {"type": "object"},
            "annotations": {"readOnlyHint": true}})
        };
        let offer = |server: &McpServer, name: &str| server.offer(&lists(name), &["crm_add".into()]);
        let wipe = offer(&here, "wipe").unwrap();
        assert_eq!((wipe.name.as_str(), wipe.description.as_str()), ("crm_wipe", "a b"));
        assert_eq!((wipe.effect, wipe.requires_confirmation), (Effect::Attempt, true));
        assert!(offer(&here, "add").unwrap().requires_confirmation, "tools.confirm holds as well");
        assert_eq!(offer(&here, "look").unwrap().effect, Effect::Reads);
        let wipe = offer(&there, "wipe").unwrap();
        assert_eq!((wipe.effect, wipe.requires_confirmation), (Effect::World, true));
        assert_eq!(offer(&there, "add"), None);
        assert_eq!(here.unknown(&["look", "erase"]), ["wipe"]);
        assert_eq!(there.unknown(&["look", "wipe"]), Vec::<&str>::new());
        assert_eq!(here.name_of("a.b/ü"), "crm_a_b__");
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_field() {
        for (more, field) in [
            ("", "either command"),
            ("command = ['x']\nurl = 'http://h'", "either command"),
            ("url = 'h'", "url"),
            ("url = 'http://h'\nfolders = ['/opt/x']", "folders"),
            ("command = ['x']\nfolders = ['/']", "folders"),
            ("command = ['x']\ntoken_env = 'T'", "token_env"),
            ("command = ['x']\ntimeout_ms = 0", "timeout_ms"),
        ] {
            let problem = server(more).problem().unwrap();
            assert!(problem.contains(field), "{more}: {problem}");
        }
        assert!(McpServer { bundle: "files".into(), ..server("url = 'http://h'") }.problem().is_some());
    }
}
