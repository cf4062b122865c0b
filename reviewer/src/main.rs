//! `muster-reviewer`: claims finished work and checks it, by code first, then by a judge.

use shared::service::{Program, run};
use std::process::ExitCode;

mod actor;
mod canary;
mod checks;
mod deliverable;
#[cfg(test)]
mod fixture;
mod judge;
mod probe;
mod records;
mod review;
mod serve;

fn main() -> ExitCode {
    let program = Program {
        name: "muster-reviewer",
        about: "checks finished work, by code first, then by a model",
        drain_ms: |config| config.reviewer.drain_ms,
    };
    run(&program, serve::serve)
}
