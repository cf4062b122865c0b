//! MCP servers of one attempt: started when it begins, gone with it, so that nothing of one goal reaches another.
//!
//! A server that dies is started anew with the next call, a few times; the model is told. Whether a call of a dead server was
//! done is not known: one that changes the world is in doubt then, as with any other tool.

mod http;
mod protocol;
mod stdio;

use super::{ToolError, arguments};
use crate::tools::catalogue::Catalogue;
use jsonschema::Validator;
use protocol::Fault;
use serde_json::{Value, json};
use shared::egress::Guard;
use shared::prompt;
use shared::sandbox::{Job, Sandbox};
use shared::tool::mcp::McpServer;
use shared::tool::{Effect, ToolDecl};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tokio::sync::Mutex;

/// A server's own start, its first words and its list of tools.
const START: Duration = Duration::from_secs(60);
/// Times that a server which died is started again in one attempt.
const RESTARTS_MAX: u32 = 3;
/// Tools of one server, and pages of its list.
const TOOLS_MAX: usize = 100;
const PAGES_MAX: usize = 20;
/// Processes of a program.
const PROCESSES_MAX: u64 = 64;

/// The servers of the configuration, ready to be started; made once.
pub(super) struct Declared {
    server: McpServer,
    /// `None`: a program.
    address: Option<http::Address>,
}

impl Declared {
    /// # Errors
    /// An address or a token that cannot be used.
    pub(super) fn new(server: &McpServer, guard: &Guard) -> anyhow::Result<Self> {
        let address = if server.url.is_empty() { None } else { Some(http::Address::new(server, guard)?) };
        Ok(Self { server: server.clone(), address })
    }

    pub(super) fn bundle(&self) -> &str {
        &self.server.bundle
    }
}

/// A line to a server.
enum Line {
    Program(Box<stdio::Program>),
    Session(http::State),
}

struct Running {
    line: Option<Line>,
    /// Requests so far, over all lines.
    id: u64,
    restarts: u32,
}

/// A tool as a server has it.
struct Tool {
    decl: ToolDecl,
    validator: Validator,
    /// Its name there, and which server.
    own: String,
    server: usize,
}

/// The servers of one attempt.
#[derive(Default)]
pub(super) struct Servers {
    running: Vec<Mutex<Running>>,
    /// Places in the catalogue.
    declared: Vec<usize>,
    tools: BTreeMap<String, Tool>,
}

impl Servers {
    /// Starts those whose bundle is among these and asks them for their tools.
    ///
    /// # Errors
    /// In words, a server that does not start or lacks a tool that is gated by name.
    pub(super) async fn start(
        catalogue: &Catalogue,
        bundles: &[String],
        sandbox: Option<&Sandbox>,
        folder: &Path,
    ) -> Result<Self, String> {
        let mut servers = Self::default();
        for (place, declared) in catalogue.mcp().iter().enumerate() {
            if !bundles.iter().any(|b| b == declared.bundle()) {
                continue;
            }
            let name = &declared.server.name;
            let mut running = Running { line: None, id: 0, restarts: 0 };
            let listing = async {
                running.up(declared, sandbox, folder).await?;
                running.list(declared).await
            };
            let listed = match tokio::time::timeout(START, listing).await {
                Ok(Ok(listed)) => listed,
                Ok(Err(fault)) => return Err(format!("MCP server `{name}`: {fault}")),
                Err(_) => return Err(format!("MCP server `{name}` does not start in time")),
            };
            servers.running.push(Mutex::new(running));
            servers.declared.push(place);
            servers.offer(catalogue, declared, &listed)?;
        }
        Ok(servers)
    }

    fn offer(&mut self, catalogue: &Catalogue, declared: &Declared, listed: &[Value]) -> Result<(), String> {
        let server = &declared.server;
        let names: Vec<&str> = listed.iter().filter_map(|tool| tool["name"].as_str()).collect();
        if let [first, ..] = server.unknown(&names)[..] {
            return Err(format!(
                "MCP server `{}` has no tool `{first}`, which its configuration names",
                server.name
            ));
        }
        for tool in listed {
            let Some(decl) = server.offer(tool, catalogue.confirm()) else { continue };
            let own = tool["name"].as_str().unwrap_or_default().to_owned();
            let is_taken = catalogue.find(&decl.name).is_some() || self.tools.contains_key(&decl.name);
            let validator = match shared::ticket::graph::params::schema(&decl.schema) {
                Ok(validator) if !is_taken => validator,
                Ok(_) => {
                    tracing::warn!(tool = decl.name, "an MCP tool is left out, its name is taken");
                    continue;
                }
                Err(problem) => {
                    tracing::warn!(
                        tool = decl.name,
                        problem,
                        "an MCP tool is left out, its schema cannot be used"
                    );
                    continue;
                }
            };
            let server = self.running.len() - 1;
            self.tools.insert(decl.name.clone(), Tool { decl, validator, own, server });
        }
        Ok(())
    }

    pub(super) fn decls(&self) -> impl Iterator<Item = &ToolDecl> {
        self.tools.values().map(|tool| &tool.decl)
    }

    pub(super) fn find(&self, name: &str) -> Option<&ToolDecl> {
        self.tools.get(name).map(|tool| &tool.decl)
    }

    /// The arguments as the tool takes them, or what is wrong with them; `None`: no such tool.
    pub(super) fn check(&self, name: &str, args: &Value) -> Option<Result<Value, String>> {
        self.tools.get(name).map(|tool| arguments::check_by(&tool.decl, &tool.validator, args))
    }

    /// Calls a tool. The second part: it says itself that it failed. Not cancellation safe: a server that is cut off in
    /// the middle is started anew.
    pub(super) async fn call(
        &self,
        catalogue: &Catalogue,
        name: &str,
        args: &Value,
        sandbox: Option<&Sandbox>,
        folder: &Path,
    ) -> Result<(String, bool), ToolError> {
        let Some(tool) = self.tools.get(name) else {
            return Err(ToolError::Tell(format!("there is no tool `{name}` here")));
        };
        let declared = &catalogue.mcp()[self.declared[tool.server]];
        let mut running = self.running[tool.server].lock().await;
        let timeout = Duration::from_millis(declared.server.timeout_ms);
        let was_down = running.line.is_none();
        if was_down && let Err(fault) = running.again(declared, sandbox, folder).await {
            return Err(ToolError::NotDone(format!(
                "{name} cannot be called: its server does not start again: {fault}"
            )));
        }
        let params = json!({"name": tool.own, "arguments": args});
        let asked = tokio::time::timeout(timeout, running.request(declared, "tools/call", params)).await;
        let asked = asked.unwrap_or(Err(Fault::Late));
        let fault = match asked {
            Ok(result) => {
                let (text, failed) = protocol::said(&result);
                let again =
                    if was_down { "[its server was started anew: what it remembered is gone]\n" } else { "" };
                return Ok((
                    format!("{again}{}", prompt::fence(&text, &format!("answer of {name}"))),
                    failed,
                ));
            }
            Err(fault) => fault,
        };
        if fault.is_end() {
            running.line = None;
        }
        let ended = if fault.is_end() { ". Its server is started anew with the next call" } else { "" };
        let text = format!(
            "{name} failed: {}{ended}",
            prompt::fence(&fault.to_string(), &format!("answer of {name}"))
        );
        Err(match tool.decl.effect {
            Effect::World if fault.nothing_done() => ToolError::NotDone(text),
            Effect::World => ToolError::Unknown(text),
            Effect::Reads | Effect::Attempt => ToolError::Tell(text),
        })
    }
}

impl Running {
    /// Starts it and greets it.
    async fn up(
        &mut self,
        declared: &Declared,
        sandbox: Option<&Sandbox>,
        folder: &Path,
    ) -> Result<(), Fault> {
        let server = &declared.server;
        self.line = Some(match (&declared.address, sandbox) {
            (Some(_), _) => Line::Session(http::State::default()),
            // I7: no sandbox, no program.
            (None, None) => return Err(Fault::NotSent("there is no sandbox here to run it in".into())),
            (None, Some(sandbox)) => {
                let job = Job {
                    argv: server.command.clone(),
                    folder: folder.into(),
                    read_only: server.folders.iter().map(Into::into).collect(),
                    env: server.env.iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
                    stdin: vec![],
                    timeout_ms: server.timeout_ms,
                    memory_bytes_max: server.memory_bytes_max,
                    processes_max: PROCESSES_MAX,
                    output_bytes_max: server.result_bytes_max,
                };
                Line::Program(Box::new(stdio::Program::start(sandbox, job, server.result_bytes_max).await?))
            }
        });
        self.request(declared, "initialize", protocol::hello()).await?;
        let initialized = protocol::initialized();
        match (&mut self.line, &declared.address) {
            (Some(Line::Program(program)), _) => program.tell(&initialized).await,
            (Some(Line::Session(state)), Some(address)) => {
                http::Session::new(address, state).tell(&initialized).await
            }
            (Some(Line::Session(_)), None) | (None, _) => Err(Fault::NotSent("it is not there".into())),
        }
    }

    async fn again(
        &mut self,
        declared: &Declared,
        sandbox: Option<&Sandbox>,
        folder: &Path,
    ) -> Result<(), Fault> {
        if self.restarts >= RESTARTS_MAX {
            return Err(Fault::NotSent(format!("it died {} times in this attempt", RESTARTS_MAX + 1)));
        }
        self.restarts += 1;
        tracing::warn!(
            server = declared.server.name,
            restarts = self.restarts,
            "an MCP server is started anew"
        );
        let up =
            tokio::time::timeout(START, self.up(declared, sandbox, folder)).await.unwrap_or(Err(Fault::Late));
        up.inspect_err(|_| self.line = None)
    }

    async fn request(&mut self, declared: &Declared, method: &str, params: Value) -> Result<Value, Fault> {
        self.id += 1;
        let message = protocol::request(self.id, method, params);
        match (&mut self.line, &declared.address) {
            (Some(Line::Program(program)), _) => program.request(self.id, &message).await,
            (Some(Line::Session(state)), Some(address)) => {
                http::Session::new(address, state).request(self.id, &message).await
            }
            (Some(Line::Session(_)), None) | (None, _) => Err(Fault::NotSent("it is not there".into())),
        }
    }

    /// All its tools, as it lists them.
    async fn list(&mut self, declared: &Declared) -> Result<Vec<Value>, Fault> {
        let (mut tools, mut cursor) = (vec![], Value::Null);
        for _ in 0..PAGES_MAX {
            let params = if cursor.is_null() { json!({}) } else { json!({"cursor": cursor}) };
            let mut page = self.request(declared, "tools/list", params).await?;
            tools.extend(page["tools"].as_array_mut().map(std::mem::take).unwrap_or_default());
            cursor = page["nextCursor"].take();
            if cursor.is_null() || tools.len() > TOOLS_MAX {
                break;
            }
        }
        if tools.len() > TOOLS_MAX {
            tracing::warn!(
                server = declared.server.name,
                tools = tools.len(),
                "an MCP server has too many tools, the last are left out"
            );
            tools.truncate(TOOLS_MAX);
        }
        Ok(tools)
    }
}

#[cfg(test)]
mod tests;
