//! Every tool of this worker: the built-in ones, and those of the configuration with what calls them.

use super::arguments;
use super::http::Caller;
use super::mcp::Declared;
use super::web::Web;
use anyhow::{Context as _, anyhow};
use jsonschema::Validator;
use serde_json::Value;
#[cfg(test)]
use shared::config;
use shared::config::Config;
use shared::egress::Guard;
use shared::tool::{self, ToolDecl};
use std::collections::BTreeMap;

/// Made once, at the start.
pub(crate) struct Catalogue {
    decls: Vec<ToolDecl>,
    /// Of those that are not built in.
    validators: BTreeMap<String, Validator>,
    http: BTreeMap<String, Caller>,
    web: Option<Web>,
    mcp: Vec<Declared>,
    /// Names of tools whose every call a person confirms.
    confirm: Vec<String>,
}

impl Catalogue {
    /// # Errors
    /// A tool of the configuration that cannot be offered, by name.
    pub(crate) fn new(config: &Config) -> anyhow::Result<Self> {
        let guard = Guard::new(&config.egress).map_err(|problem| anyhow!("egress.allow {problem}"))?;
        let mut http = BTreeMap::new();
        for tool in &config.tools.http {
            http.insert(tool.name.clone(), Caller::new(tool, &guard)?);
        }
        let web = Some(Web::new(&config.tools.web, &guard).context("tools.web")?);
        let mcp =
            config.tools.mcp.iter().map(|server| Declared::new(server, &guard)).collect::<Result<_, _>>()?;
        let decls = config.tools.catalogue();
        let mut validators = BTreeMap::new();
        let built_in = tool::builtin();
        for decl in decls.iter().filter(|d| tool::find(&built_in, &d.name).is_none()) {
            let validator = shared::ticket::graph::params::schema(&decl.schema)
                .map_err(|problem| anyhow!("tool `{}`: {problem}", decl.name))?;
            validators.insert(decl.name.clone(), validator);
        }
        Ok(Self { decls, validators, http, web, mcp, confirm: config.tools.confirm.clone() })
    }

    /// The built-in tools alone.
    #[cfg(test)]
    pub(crate) fn builtin() -> Self {
        Self::new(&Config {
            tools: config::Tools {
                web: config::Web { open_link: false, ..Default::default() },
                ..Default::default()
            },
            ..Default::default()
        })
        .expect("the built-in tools are sound")
    }

    pub(crate) fn decls(&self) -> &[ToolDecl] {
        &self.decls
    }

    pub(crate) fn find(&self, name: &str) -> Option<&ToolDecl> {
        tool::find(&self.decls, name)
    }

    pub(super) fn http(&self, name: &str) -> Option<&Caller> {
        self.http.get(name)
    }

    pub(super) fn web(&self) -> Option<&Web> {
        self.web.as_ref()
    }

    pub(super) fn mcp(&self) -> &[Declared] {
        &self.mcp
    }

    pub(super) fn confirm(&self) -> &[String] {
        &self.confirm
    }

    /// The arguments as the tool takes them, or what is wrong with them in words for the model.
    pub(super) fn check(&self, name: &str, args: &Value) -> Result<Value, String> {
        match (self.validators.get(name), self.find(name)) {
            (Some(validator), Some(decl)) => arguments::check_by(decl, validator, args),
            (Some(_) | None, _) => arguments::check(name, args),
        }
    }
}
