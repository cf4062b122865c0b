//! What `muster up --demo` runs: the shipped goal over a real Cargo.lock, or a goal of one's own.

use super::error::CliError;
use super::intake::{self, Ready};
use shared::config::Config;
use std::path::{Path, PathBuf};

const GOAL: &str = "demo.goal.toml";
const SCRIPT: &str = "demo.rehearsal.toml";
const INPUT: &str = "Cargo.lock";

/// A goal that is ready, and the script that can play it without a model.
pub(crate) struct Demo {
    pub(crate) ready: Ready,
    pub(crate) script: Option<PathBuf>,
}

fn goal(words: &str, input: &[PathBuf]) -> intake::Goal {
    intake::Goal {
        goal: words.to_owned(),
        input: input.to_vec(),
        constraint: vec![],
        review: None,
        budget_tokens: None,
        budget_dollars: None,
        deadline_s: None,
        route: false,
        approve_plan: false,
        in_flight_max: None,
        tenant: None,
        language: None,
        idempotency_key: None,
    }
}

/// A goal of one's own; no script can play it.
pub(crate) fn own(words: &str, input: &[PathBuf], config: &Config) -> Result<Demo, CliError> {
    Ok(Demo { ready: intake::ready(&goal(words, input), config)?, script: None })
}

/// The shipped goal, over the given Cargo.lock or the nearest one.
pub(crate) fn shipped(input: &[PathBuf], config: &Config) -> Result<Demo, CliError> {
    let plan = example(GOAL)?;
    let script = example(SCRIPT)?;
    let input = match input {
        [] => vec![nearest(INPUT)?],
        given => given.to_vec(),
    };
    let mut plan = intake::read_plan(&plan, &config.limits)?;
    // The file that stands beside the reader, not the one that stood beside the writer.
    plan.goal.inputs.clear();
    let ready = intake::from_plan(plan, Path::new(""), &goal("", &input), config)?;
    Ok(Demo { ready, script: Some(script) })
}

/// Folders above the current one and above the program's.
fn above() -> impl Iterator<Item = PathBuf> {
    let here = std::env::current_dir().unwrap_or_default();
    let program = std::env::current_exe().unwrap_or_default();
    let all = |path: PathBuf| path.ancestors().map(Path::to_path_buf).collect::<Vec<_>>();
    all(here).into_iter().chain(all(program))
}

fn example(name: &str) -> Result<PathBuf, CliError> {
    let found = above().map(|folder| folder.join("deploy/examples").join(name)).find(|path| path.is_file());
    found.ok_or_else(|| {
        CliError::usage(
            format!("deploy/examples/{name} is not to be found from here"),
            "run it in a clone of the repository",
        )
    })
}

fn nearest(name: &str) -> Result<PathBuf, CliError> {
    above().map(|folder| folder.join(name)).find(|path| path.is_file()).ok_or_else(|| {
        CliError::usage(
            format!("there is no {name} here or above"),
            "name one: muster up --demo --input path/to/Cargo.lock",
        )
    })
}
