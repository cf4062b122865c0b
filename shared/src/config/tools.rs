//! Section `[tools]`: which tools there are beside the built-in ones, and which calls a person confirms.

use super::{Search, Web};
use crate::tool::http::HttpTool;
use crate::tool::mcp::McpServer;
use crate::tool::{self, ToolDecl};
use serde::{Deserialize, Serialize};

/// Tools of the operator.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tools {
    /// Somebody reads the inbox; false: what needs a confirmation is refused at once.
    pub approvals: bool,
    /// Tools whose every call needs a person's confirmation.
    pub confirm: Vec<String>,
    pub http: Vec<HttpTool>,
    pub mcp: Vec<McpServer>,
    pub web: Web,
}

impl Default for Tools {
    fn default() -> Self {
        Self { approvals: true, confirm: vec![], http: vec![], mcp: vec![], web: Web::default() }
    }
}

impl Tools {
    /// All tools, sorted by name so that prompts are byte-stable.
    #[must_use]
    pub fn catalogue(&self) -> Vec<ToolDecl> {
        let mut tools = tool::builtin();
        tools.extend(tool::web(self.web.open_link, self.web.search != Search::None));
        tools.extend(self.http.iter().map(HttpTool::decl));
        for tool in &mut tools {
            // The loop's own calls change nothing, and a person cannot stand in for them.
            tool.requires_confirmation |= tool.bundle != "fleet" && self.confirm.contains(&tool.name);
        }
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        tools
    }

    /// The catalogue and a stand-in for each MCP server, for those who plan: its tools are known once it runs.
    #[must_use]
    pub fn planned(&self) -> Vec<ToolDecl> {
        let mut tools = self.catalogue();
        tools.extend(self.mcp.iter().map(McpServer::decl));
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        tools
    }

    /// What is wrong with it.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let mut names: Vec<&str> = self.http.iter().map(|t| t.name.as_str()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|w| w[0] == w[1]) {
            return Some(format!("has two tools named `{}`", twice[0]));
        }
        if let Some(problem) = self.http.iter().find_map(HttpTool::problem) {
            return Some(problem);
        }
        if let Some(problem) = self.mcp.iter().find_map(McpServer::problem) {
            return Some(format!("is given, but {problem}"));
        }
        let all = self.catalogue();
        let is_taken = |name: &str| {
            self.mcp.iter().filter(|s| s.name == name).count() > 1 || tool::find(&all, name).is_some()
        };
        if let Some(server) = self.mcp.iter().find(|server| is_taken(&server.name)) {
            return Some(format!("is given, but the name of the MCP server `{}` is taken", server.name));
        }
        if let Some(problem) = self.web.problem() {
            return Some(format!("is given, but {problem}"));
        }
        // I7: a name that confirms nothing would leave a gate open that somebody believes to be shut.
        // Which tools a server has is known once it runs.
        let of_server = |name: &str| self.mcp.iter().any(|s| name.starts_with(&format!("{}_", s.name)));
        let unknown =
            self.confirm.iter().find(|name| tool::find(&all, name).is_none() && !of_server(name))?;
        Some(format!("is given, but tools.confirm names `{unknown}`, which is no tool"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn the_example_is_one_and_a_gate_that_confirms_nothing_is_refused() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/examples/tools.toml");
        let mut tools = Config::load(Some(std::path::Path::new(file))).unwrap().tools;
        let asks =
            |tools: &Tools, name: &str| tool::find(&tools.catalogue(), name).unwrap().requires_confirmation;
        assert!(asks(&tools, "refund") && !asks(&tools, "order_status"));
        tools.confirm = vec!["order_status".into(), "finish".into()];
        assert_eq!(tools.problem(), None);
        assert!(asks(&tools, "order_status") && !asks(&tools, "finish"));
        tools.confirm = vec!["refunds".into()];
        assert!(tools.problem().unwrap().contains("`refunds`"));
        tools.http.push(tools.http[0].clone());
        assert!(tools.problem().unwrap().contains("two tools"));
    }
}
