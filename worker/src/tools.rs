//! What an actor can do: the tools of one attempt. Declared in `shared::tool`, done here.
//!
//! Two kinds of trouble: what the model did wrong is told to it and the loop goes on; what is broken here fails
//! the attempt. `update_progress` and `finish` are the agent loop's own; it uses [`arguments`] for theirs.

pub(crate) mod arguments;
mod catalogue;
mod code;
mod files;
mod http;
mod mcp;
mod output;
mod search;
mod web;
pub(crate) mod write_set;

pub(crate) use catalogue::Catalogue;
use code::Interpreter;
use mcp::Servers;
use serde_json::Value;
use shared::config;
use shared::model::Image;
use shared::sandbox::Sandbox;
use shared::telemetry::metrics;
use shared::tool::{self, ToolDecl};
use shared::workspace::{Attempt, FileError, WorkspaceError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use write_set::WriteSet;

/// Reasons for files that are not taken, shown to the model.
const SKIPPED_SHOWN_MAX: usize = 10;

/// What a call gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ToolResult {
    /// What the model reads.
    pub text: String,
    /// Paths that are new or changed, sorted; they are part of the attempt.
    pub changed: Vec<String>,
    /// The code raised or was stopped: an observation for a model, the end of a direct call.
    pub failed: bool,
}

/// Why a call gave nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ToolError {
    /// The model hears it and goes on.
    #[error("{0}")]
    Tell(String),
    /// Sandbox, disk or store are broken: the attempt fails, another may do.
    #[error("{0}")]
    Broken(String),
    /// Told like the first; nothing happened outside, the same call may be made again.
    #[error("{0}")]
    NotDone(String),
    /// Sent, and what came of it is not known.
    #[error("{0}")]
    Unknown(String),
}

impl From<WorkspaceError> for ToolError {
    fn from(error: WorkspaceError) -> Self {
        if error.is_of_the_work() { Self::Tell(error.to_string()) } else { Self::Broken(error.to_string()) }
    }
}

impl From<FileError> for ToolError {
    fn from(error: FileError) -> Self {
        Self::Tell(error.to_string())
    }
}

/// The tools of one attempt. Dropped: its Python and its folder go.
pub(crate) struct ToolBox {
    /// Before the attempt: it is killed before the folder is removed.
    python: Option<Interpreter>,
    attempt: Attempt,
    sandbox: Option<Sandbox>,
    limits: config::Worker,
    catalogue: Arc<Catalogue>,
    servers: Servers,
    /// Names the effect of the next call to the service that has it; empty: none.
    effect_key: String,
    /// Something may have changed a file since the last [`ToolBox::sealed`].
    touched: bool,
    /// Runs of code so far: names cells and figures.
    cells: u32,
    /// Python ran before, and its variables were lost.
    lost: bool,
    /// Outputs that went to a file so far.
    spilled: u32,
    /// Bytes of an image that may be shown.
    image_bytes_max: u64,
    shown: Mutex<Shown>,
    /// `None`: every file may be written.
    write_set: Option<WriteSet>,
    /// What was undone because it is another ticket's, with that ticket's key.
    undone: Vec<(String, String)>,
}

/// Images of this conversation.
#[derive(Default)]
struct Shown {
    /// How many more may be shown.
    left: usize,
    /// To be shown after the calls of this turn.
    images: Vec<Image>,
}

impl ToolBox {
    /// The tools over this attempt; without a sandbox there are no code tools (I7).
    pub(crate) fn new(
        attempt: Attempt,
        sandbox: Option<Sandbox>,
        limits: &config::Worker,
        catalogue: Arc<Catalogue>,
    ) -> Self {
        Self {
            attempt,
            sandbox,
            limits: limits.clone(),
            catalogue,
            servers: Servers::default(),
            effect_key: String::new(),
            touched: false,
            python: None,
            cells: 0,
            lost: false,
            spilled: 0,
            image_bytes_max: 0,
            shown: Mutex::default(),
            write_set: None,
            undone: vec![],
        }
    }

    /// What other tickets declare is not written.
    pub(crate) fn keep_to(&mut self, write_set: WriteSet) {
        self.write_set = Some(write_set);
    }

    /// Puts back what the attempt wrote over other tickets' outputs.
    ///
    /// # Errors
    /// [`ToolError`]: it is not known whose a file is, or it cannot be put back.
    pub(crate) async fn undo_foreign(&mut self) -> Result<Vec<(String, String)>, ToolError> {
        let Some(write_set) = &mut self.write_set else { return Ok(vec![]) };
        let paths: Vec<String> = self.attempt.changes().map(|(path, _)| path.to_owned()).collect();
        let foreign = write_set.foreign(&paths).await?;
        if foreign.is_empty() {
            return Ok(foreign);
        }
        for (path, _) in &foreign {
            self.attempt.put_back(path).await?;
        }
        self.attempt.scan().await?;
        self.undone.extend(foreign.iter().cloned());
        Ok(foreign)
    }

    /// Everything that was undone so far.
    pub(crate) fn undone(&self) -> &[(String, String)] {
        &self.undone
    }

    /// Before a whole file is written: whether it is another ticket's.
    async fn may_write(&mut self, path: &str) -> Result<(), ToolError> {
        let Some(write_set) = &mut self.write_set else { return Ok(()) };
        match write_set.foreign(&[files::relative(path).to_owned()]).await?.first() {
            Some(foreign) => Err(ToolError::Tell(format!(
                "{}; nothing was written. Write another file; if the plan should give you this one, say so in your report",
                write_set::said(foreign)
            ))),
            None => Ok(()),
        }
    }

    /// Whether files may have changed since [`ToolBox::sealed`].
    pub(crate) fn is_touched(&self) -> bool {
        self.touched
    }

    /// The files as they stand are kept.
    pub(crate) fn sealed(&mut self) {
        self.touched = false;
    }

    /// Names the effect of the next call.
    pub(crate) fn effect_key(&mut self, key: &str) {
        self.effect_key = key.into();
    }

    /// Starts the MCP servers of these bundles; their tools are offered from now on.
    ///
    /// # Errors
    /// In words, what does not start.
    pub(crate) async fn connect(&mut self, bundles: &[String]) -> Result<(), String> {
        let (catalogue, folder) = (&self.catalogue, self.attempt.folder());
        self.servers = Servers::start(catalogue, bundles, self.sandbox.as_ref(), folder).await?;
        Ok(())
    }

    /// The arguments as the tool takes them, or what is wrong with them in words for the model.
    ///
    /// # Errors
    /// Names the tool and each field.
    pub(crate) fn check(&self, name: &str, args: &Value) -> Result<Value, String> {
        self.servers.check(name, args).unwrap_or_else(|| self.catalogue.check(name, args))
    }

    /// The declaration of that name.
    pub(crate) fn decl(&self, name: &str) -> Option<&ToolDecl> {
        self.catalogue.find(name).or_else(|| self.servers.find(name))
    }

    /// Images that are read are shown, so many and so large.
    pub(crate) fn show_images(&mut self, most: usize, bytes_max: u64) {
        self.image_bytes_max = bytes_max;
        self.shown().left = most;
    }

    /// Those that were read since it was asked last.
    pub(crate) fn take_images(&mut self) -> Vec<Image> {
        let mut images = std::mem::take(&mut self.shown().images);
        // Calls of one turn may end in any order; a prompt is the same each time.
        images.sort_by(|a, b| a.path.cmp(&b.path));
        images
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the model hears of a file that is an image; `None`: it is none, or images are not shown at all.
    async fn image(&self, path: &str) -> Option<String> {
        let (path, found) = files::image(&self.attempt, path, self.image_bytes_max).await?;
        let image = match found {
            Err(bytes) => {
                let max = self.image_bytes_max;
                return Some(format!(
                    "`{path}` is an image of {bytes} bytes, too large to be shown (at most {max}); look at it with code"
                ));
            }
            Ok(image) => image,
        };
        let mut shown = self.shown();
        if shown.left == 0 {
            return Some(image.placeholder("no more images are shown in this conversation"));
        }
        shown.left -= 1;
        let said = image.placeholder("it is shown below");
        shown.images.push(image);
        Some(said)
    }

    /// Variables of an earlier attempt of the same ticket are gone: the first run of code says so.
    pub(crate) fn resumed(&mut self) {
        self.lost = true;
    }

    /// The attempt that the tools work on.
    pub(crate) fn attempt(&self) -> &Attempt {
        &self.attempt
    }

    /// The attempt, for sealing it.
    pub(crate) fn attempt_mut(&mut self) -> &mut Attempt {
        &mut self.attempt
    }

    /// What the model is offered of these bundles, sorted by name.
    pub(crate) fn declarations(&self, bundles: &[String]) -> Vec<ToolDecl> {
        let python = self.sandbox.as_ref().and_then(Sandbox::python);
        let mut tools = tool::of_bundles(self.catalogue.decls(), bundles);
        tools.retain(|tool| !tool.sandboxed || python.is_some());
        if let (Some(python), Some(tool)) = (python, tools.iter_mut().find(|t| t.name == code::NAME)) {
            tool.description = format!("{} {}", tool.description, code::describe(python, &self.limits));
        }
        tools.extend(self.servers.decls().cloned());
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        tools
    }

    /// Calls a tool. Arguments are checked against its schema first. Cancellation safe: a cut call of code
    /// loses Python's variables, as a timeout does.
    ///
    /// # Errors
    /// [`ToolError`].
    pub(crate) async fn call(&mut self, name: &str, args: &Value) -> Result<ToolResult, ToolError> {
        let args = self.check(name, args).map_err(ToolError::Tell)?;
        let effect_key = std::mem::take(&mut self.effect_key);
        if self.only_reads(name) {
            let said = self.read(name, &args, &effect_key).await?;
            return Ok(self.said(name, said).await);
        }
        let text = |key: &str| args.get(key).and_then(Value::as_str).unwrap_or_default();
        if matches!(name, "write_file" | "append_file") {
            self.may_write(text("path")).await?;
        }
        // A call that fails or is cut may have written all the same.
        self.touched = true;
        let mut failed = false;
        let said = match name {
            code::NAME => {
                let (said, code_failed) = self.run_code(text("code")).await?;
                failed = code_failed;
                said
            }
            "write_file" => files::write(&self.attempt, text("path"), text("content")).await?,
            "append_file" => files::append(&self.attempt, text("path"), text("content")).await?,
            other => {
                let (said, tool_failed) = self.outside(other, &args, &effect_key).await?;
                failed = tool_failed;
                said
            }
        };
        let mut changed = self.attempt.scan().await?;
        let undone = self.undo_foreign().await?;
        changed.retain(|path| undone.iter().all(|(other, _)| other != path));
        let mut said = output::fit(self, name, said).await;
        for foreign in &undone {
            said.push_str(&format!(
                "\n[undone: {}. The accepted version stands there again; write another file]",
                write_set::said(foreign)
            ));
        }
        Ok(ToolResult { text: self.with_notes(said, &changed), changed, failed })
    }

    /// Whose tool it is, for the count of calls.
    pub(crate) fn kind(&self, name: &str) -> metrics::Tool {
        match (self.catalogue.http(name), name) {
            (Some(_), _) => metrics::Tool::Http,
            (None, other) if self.servers.find(other).is_some() => metrics::Tool::Mcp,
            (None, code::NAME) => metrics::Tool::Code,
            (None, "open_link" | "web_search") => metrics::Tool::Web,
            (None, _) => metrics::Tool::Files,
        }
    }

    /// Whether a call of it leaves everything as it is, so that calls may be made at the same time.
    pub(crate) fn only_reads(&self, name: &str) -> bool {
        self.decl(name).is_some_and(|t| t.effect == tool::Effect::Reads)
    }

    /// Calls a tool that only reads; nothing of this attempt changes, so several may go on at once. What it said, and whether
    /// it failed, goes through [`ToolBox::said`] before a model reads it. Cancellation safe.
    ///
    /// # Errors
    /// [`ToolError`].
    pub(crate) async fn look(&self, name: &str, args: &Value) -> Result<(String, bool), ToolError> {
        let args = self.check(name, args).map_err(ToolError::Tell)?;
        self.read(name, &args, "").await
    }

    async fn read(&self, name: &str, args: &Value, effect_key: &str) -> Result<(String, bool), ToolError> {
        let text = |key: &str| args.get(key).and_then(Value::as_str).unwrap_or_default();
        let number = |key: &str| args.get(key).and_then(Value::as_u64);
        let flag = |key: &str| args.get(key).and_then(Value::as_bool).unwrap_or(false);
        let said = match (name, self.catalogue.web()) {
            ("read_file", _) => {
                let most = self.limits.tool_output_bytes_max;
                let limit =
                    number("limit_bytes").map_or(most, |n| usize::try_from(n).unwrap_or(most).min(most));
                match self.image(text("path")).await {
                    Some(said) => Ok(said),
                    None => {
                        let offset = number("offset_bytes").unwrap_or(0);
                        files::read(&self.attempt, text("path"), offset, limit).await
                    }
                }
            }
            ("list_files", _) => files::list(&self.attempt, text("prefix")).await,
            ("search_files", _) => {
                let query = search::Query::new(text("pattern"), flag("regex"), flag("ignore_case"))?;
                search::search(&self.attempt, query, text("prefix")).await
            }
            ("open_link", Some(web)) => web.open(text("url")).await,
            ("web_search", Some(web)) => web.search(text("query"), number("results")).await,
            (other, _) => return self.outside(other, args, effect_key).await,
        };
        said.map(|said| (said, false))
    }

    /// A tool of the configuration; the second part: it says that it failed.
    async fn outside(&self, name: &str, args: &Value, effect_key: &str) -> Result<(String, bool), ToolError> {
        match (self.catalogue.http(name), args.as_object()) {
            (Some(caller), Some(args)) => caller.call(args, effect_key).await.map(|said| (said, false)),
            (Some(_) | None, _) => {
                let (sandbox, folder) = (self.sandbox.as_ref(), self.attempt.folder());
                self.servers.call(&self.catalogue, name, args, sandbox, folder).await
            }
        }
    }

    /// What a reading tool said, as the model gets it.
    pub(crate) async fn said(&mut self, name: &str, (said, failed): (String, bool)) -> ToolResult {
        let spilled = self.spilled;
        let said = output::fit(self, name, said).await;
        // The file below temp/ goes with the attempt to whoever goes on with it.
        self.touched |= self.spilled != spilled;
        ToolResult { text: self.with_notes(said, &[]), changed: vec![], failed }
    }

    /// Adds what the files of the attempt have to say: new ones, skipped ones, limits that are passed.
    fn with_notes(&self, mut said: String, changed: &[String]) -> String {
        if !changed.is_empty() {
            said.push_str(&format!("\n[new or changed files: {}]", changed.join(", ")));
        }
        let skipped = self.attempt.skipped();
        for one in skipped.iter().take(SKIPPED_SHOWN_MAX) {
            said.push_str(&format!("\n[not taken: {} is {}]", one.path, one.why));
        }
        if skipped.len() > SKIPPED_SHOWN_MAX {
            said.push_str(&format!("\n[not taken: {} more]", skipped.len() - SKIPPED_SHOWN_MAX));
        }
        if let Err(limit) = self.attempt.check_limits() {
            said.push_str(&format!(
                "\n[{limit}: delete what is not needed, or the work cannot be delivered]"
            ));
        }
        said
    }

    async fn run_code(&mut self, code: &str) -> Result<(String, bool), ToolError> {
        let Some((sandbox, python)) = self.sandbox.as_ref().and_then(|s| Some((s, s.python()?))) else {
            // I7: no sandbox, no tool.
            return Err(ToolError::Tell("there is no sandbox here, code cannot be run".into()));
        };
        self.cells += 1;
        let was_lost = std::mem::take(&mut self.lost);
        let mut running = match self.python.take() {
            Some(running) => running,
            None => Interpreter::start(sandbox, python, &self.attempt, &self.limits).await?,
        };
        let ran = running.run(sandbox, code, self.cells).await?;
        let mut said = ran.said;
        if was_lost {
            said =
                format!("[Python was started anew: variables of before are gone, files are there]\n{said}");
        }
        match ran.end {
            None => self.python = Some(running),
            Some(why) => said.push_str(&format!(
                "\n[{why}. Python starts anew with the next call: all variables are gone, files stay]"
            )),
        }
        Ok((said, ran.failed))
    }
}

#[cfg(test)]
mod tests;
