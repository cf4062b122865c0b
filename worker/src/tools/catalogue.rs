//! Every tool of this worker: the built-in ones, and those of the configuration with what calls them.

use super::arguments;
use super::http::Caller;
use serde_json::Value;
use shared::config;
use shared::tool::{self, ToolDecl};
use std::collections::BTreeMap;

/// Made once, at the start.
pub(crate) struct Catalogue {
    decls: Vec<ToolDecl>,
    http: BTreeMap<String, (Caller, jsonschema::Validator)>,
}

impl Catalogue {
    /// # Errors
    /// A tool of the configuration that cannot be offered, by name.
    pub(crate) fn new(tools: &config::Tools) -> anyhow::Result<Self> {
        let mut http = BTreeMap::new();
        for tool in &tools.http {
            let validator = shared::ticket::graph::params::schema(&tool.schema)
                .map_err(|problem| anyhow::anyhow!("tool `{}`: {problem}", tool.name))?;
            http.insert(tool.name.clone(), (Caller::new(tool)?, validator));
        }
        Ok(Self { decls: tools.catalogue(), http })
    }

    /// The built-in tools alone.
    #[cfg(test)]
    pub(crate) fn builtin() -> Self {
        Self { decls: tool::builtin(), http: BTreeMap::new() }
    }

    pub(crate) fn decls(&self) -> &[ToolDecl] {
        &self.decls
    }

    pub(crate) fn find(&self, name: &str) -> Option<&ToolDecl> {
        tool::find(&self.decls, name)
    }

    pub(super) fn http(&self, name: &str) -> Option<&Caller> {
        self.http.get(name).map(|(caller, _)| caller)
    }

    /// The arguments as the tool takes them, or what is wrong with them in words for the model.
    pub(super) fn check(&self, name: &str, args: &Value) -> Result<Value, String> {
        match (self.http.get(name), self.find(name)) {
            (Some((_, validator)), Some(decl)) => arguments::check_by(decl, validator, args),
            (Some(_) | None, _) => arguments::check(name, args),
        }
    }
}
