//! What an actor can do: the tools of one attempt. Declared in `shared::tool`, done here.
//!
//! Two kinds of trouble: what the model did wrong is told to it and the loop goes on; what is broken here fails
//! the attempt. `update_progress` and `finish` are the agent loop's own; it uses [`arguments`] for theirs.

pub(crate) mod arguments;
mod catalogue;
mod code;
mod files;
mod http;
mod output;

pub(crate) use catalogue::Catalogue;
use code::Interpreter;
use serde_json::Value;
use shared::config;
use shared::model::Image;
use shared::sandbox::Sandbox;
use shared::tool::{self, ToolDecl};
use shared::workspace::{Attempt, FileError, WorkspaceError};
use std::sync::Arc;

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
    /// How many more images may be shown, and the bytes of one.
    images_left: usize,
    image_bytes_max: u64,
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
            effect_key: String::new(),
            touched: false,
            python: None,
            cells: 0,
            lost: false,
            spilled: 0,
            images_left: 0,
            image_bytes_max: 0,
            images: vec![],
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

    /// The arguments as the tool takes them, or what is wrong with them in words for the model.
    ///
    /// # Errors
    /// Names the tool and each field.
    pub(crate) fn check(&self, name: &str, args: &Value) -> Result<Value, String> {
        self.catalogue.check(name, args)
    }

    /// The declaration of that name.
    pub(crate) fn decl(&self, name: &str) -> Option<&ToolDecl> {
        self.catalogue.find(name)
    }

    /// Images that are read are shown, so many and so large.
    pub(crate) fn show_images(&mut self, most: usize, bytes_max: u64) {
        (self.images_left, self.image_bytes_max) = (most, bytes_max);
    }

    /// Those that were read since it was asked last.
    pub(crate) fn take_images(&mut self) -> Vec<Image> {
        std::mem::take(&mut self.images)
    }

    /// What the model hears of a file that is an image; `None`: it is none, or images are not shown at all.
    async fn image(&mut self, path: &str) -> Option<String> {
        let (path, found) = files::image(&self.attempt, path, self.image_bytes_max).await?;
        Some(match found {
            Err(bytes) => format!(
                "`{path}` is an image of {bytes} bytes, too large to be shown (at most {}); look at it with code",
                self.image_bytes_max
            ),
            Ok(image) if self.images_left == 0 => {
                image.placeholder("no more images are shown in this conversation")
            }
            Ok(image) => {
                self.images_left -= 1;
                let said = image.placeholder("it is shown below");
                self.images.push(image);
                said
            }
        })
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
        tools
    }

    /// Calls a tool. Arguments are checked against its schema first. Cancellation safe: a cut call of code
    /// loses Python's variables, as a timeout does.
    ///
    /// # Errors
    /// [`ToolError`].
    pub(crate) async fn call(&mut self, name: &str, args: &Value) -> Result<ToolResult, ToolError> {
        let args = self.catalogue.check(name, args).map_err(ToolError::Tell)?;
        let effect_key = std::mem::take(&mut self.effect_key);
        let text = |key: &str| args.get(key).and_then(Value::as_str).unwrap_or_default();
        let number = |key: &str| args.get(key).and_then(Value::as_u64);
        let reads = self.catalogue.find(name).is_some_and(|t| t.effect != tool::Effect::Attempt);
        // A call that fails or is cut may have written all the same.
        self.touched |= !reads;
        let mut failed = false;
        let said = match name {
            code::NAME => {
                let (said, code_failed) = self.run_code(text("code")).await?;
                failed = code_failed;
                said
            }
            "read_file" => {
                let most = self.limits.tool_output_bytes_max;
                let limit =
                    number("limit_bytes").map_or(most, |n| usize::try_from(n).unwrap_or(most).min(most));
                match self.image(text("path")).await {
                    Some(said) => said,
                    None => {
                        let offset = number("offset_bytes").unwrap_or(0);
                        files::read(&self.attempt, text("path"), offset, limit).await?
                    }
                }
            }
            "write_file" => files::write(&self.attempt, text("path"), text("content")).await?,
            "append_file" => files::append(&self.attempt, text("path"), text("content")).await?,
            "list_files" => files::list(&self.attempt, text("prefix")).await?,
            other => match (self.catalogue.http(other), args.as_object()) {
                (Some(caller), Some(args)) => caller.call(args, &effect_key).await?,
                (Some(_) | None, _) => {
                    return Err(ToolError::Tell(format!("there is no tool `{other}` here")));
                }
            },
        };
        let changed = if reads { Vec::new() } else { self.attempt.scan().await? };
        let said = output::fit(self, name, said).await;
        Ok(ToolResult { text: self.with_notes(said, &changed), changed, failed })
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
