//! From what a person typed to the body of a submit: goal text or plan file, input files, limits.
//! Everything that can be found wrong here is found before a byte is sent.

use super::client::Client;
use super::error::CliError;
use super::out::{size, text};
use super::types::{InputFile, SubmitGoal};
use shared::config::{Config, Limits};
use shared::goal::Intake;
use shared::planfile::PlanFile;
use shared::ticket::ReviewPolicy;
use shared::ticket::graph::{Known, Problem};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Folders that are never part of an input folder.
const NOT_INPUT: [&str; 6] = [".git", ".muster", "__pycache__", "node_modules", ".cache", "target"];
/// Problems of a plan that are shown at once.
const PROBLEMS_SHOWN: usize = 20;

/// What `run`, `submit` and `plan` are given.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Goal {
    /// The goal in words, a plan file (.toml or .json), or `-` for words on stdin.
    #[arg(value_name = "GOAL|PLAN")]
    pub(crate) goal: String,
    /// A file or folder to work on; it stands under `data/` in the workspace. May be given often.
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Vec<PathBuf>,
    /// Something that must hold for every ticket. May be given often.
    #[arg(long, value_name = "TEXT")]
    pub(crate) constraint: Vec<String>,
    /// How tickets are checked that do not say so themselves: none, code or judged.
    #[arg(long, value_parser = review)]
    pub(crate) review: Option<ReviewPolicy>,
    /// Tokens that the goal may cost.
    #[arg(long, value_name = "N")]
    pub(crate) budget_tokens: Option<u64>,
    /// Money that the goal may cost, such as 12.50.
    #[arg(long, value_name = "X", value_parser = super::limits::microusd)]
    pub(crate) budget_dollars: Option<u64>,
    /// Seconds that the goal may take.
    #[arg(long, value_name = "N")]
    pub(crate) deadline_s: Option<u64>,
    /// A quick request: sorted by the intents of the manager's configuration, not planned.
    #[arg(long)]
    pub(crate) route: bool,
    /// Ask a person (`muster approve GOAL`, `muster deny GOAL "…"`) before anything of the plan runs.
    #[arg(long)]
    pub(crate) approve_plan: bool,
    /// Tickets that may run at once.
    #[arg(long, value_name = "N")]
    pub(crate) in_flight_max: Option<u32>,
    /// Whose goal it is, for a token that may choose.
    #[arg(long)]
    pub(crate) tenant: Option<String>,
    /// Language of TODO.md: en or zh.
    #[arg(long)]
    pub(crate) language: Option<String>,
    /// Submitting twice with the same key gives the same goal. Made anew when not given.
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
}

fn review(word: &str) -> Result<ReviewPolicy, String> {
    [ReviewPolicy::None, ReviewPolicy::Code, ReviewPolicy::Judged]
        .into_iter()
        .find(|p| p.as_str() == word)
        .ok_or_else(|| "one of none, code, judged".into())
}

/// A goal that is read, checked and ready to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    body: SubmitGoal,
    /// Place in the workspace, file here, its size.
    files: Vec<(String, PathBuf, u64)>,
    /// Without a model nothing of it, or not all of it, can be done: why.
    pub(crate) asks_model: Option<String>,
}

/// Reads and checks.
///
/// # Errors
/// Usage, naming the field, the limit and the way out.
pub(crate) fn ready(goal: &Goal, config: &Config) -> Result<Ready, CliError> {
    let limits = &config.limits;
    let (plan, base) = match plan_path(&goal.goal)? {
        Some(path) => {
            let base = path.parent().unwrap_or(Path::new("")).to_path_buf();
            (read_plan(&path, limits)?, base)
        }
        None => {
            let mut plan = PlanFile { goal: Default::default(), tickets: vec![] };
            plan.goal.text = if goal.goal == "-" { stdin(limits)? } else { goal.goal.clone() };
            (plan, PathBuf::new())
        }
    };
    from_plan(plan, &base, goal, config)
}

/// The same for a plan that is at hand already; `base` is the folder that its inputs are relative to.
pub(crate) fn from_plan(
    mut plan: PlanFile,
    base: &Path,
    goal: &Goal,
    config: &Config,
) -> Result<Ready, CliError> {
    let limits = &config.limits;
    plan.goal.constraints.extend(goal.constraint.iter().cloned());
    plan.goal.review = goal.review.or(plan.goal.review);
    plan.goal.budget_tokens = goal.budget_tokens.or(plan.goal.budget_tokens);
    plan.goal.budget_microusd = goal.budget_dollars.or(plan.goal.budget_microusd);
    plan.goal.deadline_s = goal.deadline_s.or(plan.goal.deadline_s);
    plan.goal.language = goal.language.clone().or(plan.goal.language);
    let default = config.manager.review;
    refuse(if plan.tickets.is_empty() {
        plan.goal.problems(limits)
    } else {
        problems(&plan, default, limits)
    })?;

    let mut inputs = plan.goal.inputs.iter().map(|name| beside(base, name)).collect::<Result<Vec<_>, _>>()?;
    inputs.extend(goal.input.iter().cloned());
    let files = gather(&inputs, limits)?;
    plan.goal.inputs.clear();

    let asks_model = if plan.tickets.is_empty() {
        Some("a goal in words is planned by a model".to_owned())
    } else {
        let keys = plan.asks_model(default);
        (!keys.is_empty())
            .then(|| format!("these tickets ask a model: {}", super::out::one_line(&keys.join(", "), 200)))
    };
    let body = SubmitGoal {
        text: plan.goal.text.clone(),
        constraints: plan.goal.constraints.clone(),
        inputs: vec![],
        intake: goal.route.then_some(Intake::Route),
        approve_plan: if goal.approve_plan { Some(true) } else { plan.goal.approve_plan },
        review: plan.goal.review,
        budget_tokens: plan.goal.budget_tokens,
        budget_microusd: plan.goal.budget_microusd,
        deadline_s: plan.goal.deadline_s,
        deadline_policy: None,
        in_flight_max: goal.in_flight_max,
        tenant: goal.tenant.clone(),
        idempotency_key: Some(
            goal.idempotency_key.clone().unwrap_or_else(|| uuid::Uuid::now_v7().simple().to_string()),
        ),
        language: plan.goal.language.clone(),
        plan: (!plan.tickets.is_empty()).then(|| plan.to_json()),
    };
    Ok(Ready { body, files, asks_model })
}

impl Ready {
    /// A goal that is known to be sound: it ran before.
    pub(crate) fn of(body: SubmitGoal, files: Vec<(String, PathBuf, u64)>) -> Self {
        Self { body, files, asks_model: None }
    }

    /// Uploads the inputs and gives the whole body.
    pub(crate) async fn send(mut self, client: &Client) -> Result<SubmitGoal, CliError> {
        for (path, file, size_bytes) in &self.files {
            let answer = client.upload(file, *size_bytes).await?;
            self.body.inputs.push(InputFile { path: path.clone(), blob: text(&answer, "blob").to_owned() });
        }
        Ok(self.body)
    }
}

/// Uploads the inputs and submits, with the same idempotency key however often it takes.
pub(crate) async fn submit(client: &Client, ready: Ready) -> Result<serde_json::Value, CliError> {
    let body = ready.send(client).await?;
    client.post_once("/v1/goals", &body).await
}

/// What a person should know about the answer to a submit, if anything.
pub(crate) fn warning(answer: &serde_json::Value) -> Option<&'static str> {
    let unconfirmed = answer.get("confirmed").and_then(serde_json::Value::as_bool) == Some(false);
    unconfirmed.then_some(
        "not confirmed: the goal runs, but no replica of Redis is known to have it, and a failover now would lose it\n  \
         hint: give --idempotency-key, and submit again with the same one to have it confirmed",
    )
}

/// Whether the argument means a file. A word that ends like one and is none is an error, not a goal.
fn plan_path(goal: &str) -> Result<Option<PathBuf>, CliError> {
    let looks = [".toml", ".json"].iter().any(|end| goal.to_ascii_lowercase().ends_with(end));
    if !looks || goal.contains('\n') {
        return Ok(None);
    }
    let path = PathBuf::from(goal);
    if path.is_file() {
        return Ok(Some(path));
    }
    if goal.contains(' ') {
        return Ok(None);
    }
    Err(CliError::usage(
        format!("there is no plan file {goal}"),
        "check the path; examples are in deploy/examples. A goal in words needs more than a file's name",
    ))
}

pub(crate) fn read_plan(path: &Path, limits: &Limits) -> Result<PlanFile, CliError> {
    let wrong = |problem: String, hint: &str| CliError::usage(format!("{}: {problem}", path.display()), hint);
    let bytes = std::fs::metadata(path).map_err(|e| wrong(e.to_string(), "check its rights"))?.len();
    if bytes > limits.plan_bytes_max as u64 {
        return Err(wrong(
            format!("{bytes} bytes, at most {} are allowed", limits.plan_bytes_max),
            "put large data into input files, or raise limits.plan_bytes_max",
        ));
    }
    let raw = std::fs::read(path).map_err(|e| wrong(e.to_string(), "check its rights"))?;
    let text =
        String::from_utf8(raw).map_err(|e| wrong(format!("no UTF-8 text: {e}"), "save it as UTF-8"))?;
    PlanFile::parse(&path.display().to_string(), &text, limits).map_err(|e| {
        let message = e.to_string();
        match message.split_once("\n  hint: ") {
            Some((what, hint)) => CliError::usage(what, hint),
            None => CliError::usage(message, "see \"How to write a plan file\" in README.md"),
        }
    })
}

fn stdin(limits: &Limits) -> Result<String, CliError> {
    use std::io::Read;
    let mut text = String::new();
    // One byte more than allowed, so that too much is seen and not cut.
    std::io::stdin()
        .lock()
        .take(limits.goal_text_bytes_max as u64 + 1)
        .read_to_string(&mut text)
        .map_err(|e| CliError::usage(format!("stdin: {e}"), "the goal must be UTF-8 text"))?;
    Ok(text)
}

/// Problems that can be told without a manager. Which roles and tools there are is the manager's to say,
/// so what the plan names is taken as known, and the built-in tools' arguments are checked.
fn problems(plan: &PlanFile, default: ReviewPolicy, limits: &Limits) -> Vec<Problem> {
    let roles: Vec<String> = plan.tickets.iter().map(|t| t.role.clone()).filter(|r| !r.is_empty()).collect();
    let tools = shared::tool::builtin();
    let existing = Default::default();
    plan.problems(default, &Known { roles: &roles, tools: &tools, existing: &existing }, limits)
}

fn refuse(problems: Vec<Problem>) -> Result<(), CliError> {
    match problems.as_slice() {
        [] => Ok(()),
        [one] => {
            let bare = Problem { hint: String::new(), ..one.clone() };
            Err(CliError::usage(bare.to_string(), one.hint.clone()))
        }
        many => {
            let mut list: Vec<String> =
                many.iter().take(PROBLEMS_SHOWN).map(|p| format!("  - {p}")).collect();
            if many.len() > PROBLEMS_SHOWN {
                list.push(format!("  … and {} more", many.len() - PROBLEMS_SHOWN));
            }
            Err(CliError::usage(
                format!("the plan has {} problems:\n{}", many.len(), list.join("\n")),
                "nothing was submitted; mend them and try again",
            ))
        }
    }
}

/// An input that a plan file names: only from the plan file's own folder, links followed. Whoever runs a plan of
/// somebody else's would otherwise send any file of their own along with it.
fn beside(base: &Path, name: &str) -> Result<PathBuf, CliError> {
    let base = if base.as_os_str().is_empty() { Path::new(".") } else { base };
    let wrong = |e: std::io::Error| {
        CliError::usage(
            format!("goal.inputs: {name}: {e}"),
            "check the path; it is relative to the plan file",
        )
    };
    let path = base.join(name);
    let (folder, real) = (base.canonicalize().map_err(wrong)?, path.canonicalize().map_err(wrong)?);
    if real.starts_with(&folder) {
        return Ok(path);
    }
    Err(CliError::usage(
        format!("goal.inputs: {name} is not below the plan file's folder {}", folder.display()),
        format!(
            "if you want it sent, take it out of the plan and say so yourself: --input {}",
            real.display()
        ),
    ))
}

/// Every file of the inputs with its place under `data/`.
fn gather(inputs: &[PathBuf], limits: &Limits) -> Result<Vec<(String, PathBuf, u64)>, CliError> {
    let mut found: BTreeMap<String, (PathBuf, u64)> = BTreeMap::new();
    for input in inputs {
        let name = input
            .canonicalize()
            .map_err(|e| CliError::usage(format!("input {}: {e}", input.display()), "check the path"))?
            .file_name()
            .map(|n| n.to_string_lossy().into_owned())
            .ok_or_else(|| {
                CliError::usage(format!("input {}: has no name", input.display()), "name a folder below it")
            })?;
        walk(input, &format!("data/{name}"), limits, &mut found)?;
    }
    let total: u64 = found.values().map(|(_, bytes)| bytes).sum();
    if total > limits.input_bytes_max {
        return Err(CliError::usage(
            format!("inputs: {} together, at most {} are allowed", size(total), size(limits.input_bytes_max)),
            "give less, or raise limits.input_bytes_max (bytes) for manager and command line",
        ));
    }
    Ok(found.into_iter().map(|(path, (file, bytes))| (path, file, bytes)).collect())
}

fn walk(
    file: &Path,
    place: &str,
    limits: &Limits,
    found: &mut BTreeMap<String, (PathBuf, u64)>,
) -> Result<(), CliError> {
    let wrong =
        |problem: String, hint: &str| CliError::usage(format!("input {}: {problem}", file.display()), hint);
    let meta = std::fs::metadata(file).map_err(|e| wrong(e.to_string(), "check the path and its rights"))?;
    if meta.is_dir() {
        let entries = std::fs::read_dir(file).map_err(|e| wrong(e.to_string(), "check its rights"))?;
        for entry in entries {
            let entry = entry.map_err(|e| wrong(e.to_string(), "check its rights"))?;
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
                return Err(wrong(format!("{} is no UTF-8 name", entry.file_name().display()), "rename it"));
            };
            // A link may lead anywhere, out of the folder or round in circles: left out.
            let is_link = entry.file_type().is_ok_and(|t| t.is_symlink());
            if !is_link && !NOT_INPUT.contains(&name.as_str()) {
                walk(&entry.path(), &format!("{place}/{name}"), limits, found)?;
            }
        }
        return Ok(());
    }
    if !meta.is_file() {
        return Err(wrong("is neither a file nor a folder".into(), "copy its content into a file"));
    }
    if meta.len() > limits.input_bytes_max {
        let problem = format!("{}, at most {} are allowed", size(meta.len()), size(limits.input_bytes_max));
        return Err(wrong(
            problem,
            "give less, or raise limits.input_bytes_max (bytes) for manager and command line",
        ));
    }
    if found.len() >= limits.input_files_max {
        return Err(wrong(
            format!("more than {} input files", limits.input_files_max),
            "give fewer, or raise limits.input_files_max",
        ));
    }
    if let Some((other, _)) = found.insert(place.to_owned(), (file.to_owned(), meta.len()))
        && other != file
    {
        return Err(wrong(format!("{} would stand at {place} too", other.display()), "rename one of them"));
    }
    Ok(())
}

#[cfg(test)]
#[path = "intake/tests.rs"]
mod tests;
