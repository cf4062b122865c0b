//! Muster's manager: plans goals, decides escalations, serves the API.

mod api;
mod calls;
mod dashboard;
mod deliver;
mod escalation;
mod learn;
mod live;
mod mcp;
mod planner;
mod presence;
mod replan;
mod serve;
mod slots;
mod step;
#[cfg(test)]
mod testing;
mod webhooks;

use shared::service::{self, Program};
use std::process::ExitCode;

fn main() -> ExitCode {
    let program = Program {
        name: "muster-manager",
        about: "plans goals, decides escalations, serves the HTTP API",
        drain_ms: |config| config.manager.drain_ms,
    };
    service::run(&program, serve::serve)
}
