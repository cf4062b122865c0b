//! `muster-worker`: claims tickets of its pools and does them, with an agent or by one direct tool call.

mod agent;
mod effects;
mod factory;
mod serve;
mod tools;
mod work;

use shared::service::{Program, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    let program = Program {
        name: "muster-worker",
        about: "does tickets of a Muster fleet",
        drain_ms: |config| config.worker.drain_ms,
    };
    run(&program, serve::serve)
}
