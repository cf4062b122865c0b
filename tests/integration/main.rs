//! The fleet as it should work: store, programs, command line. One file a subject; the oracle looks on.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::wildcard_enum_match_arm,
    reason = "a failing test panics"
)]

mod actors;
mod alerts;
mod api_fuzz;
mod arguments;
mod audit;
mod browser;
mod canaries;
mod caps;
mod claims;
mod deploy;
mod doctor;
mod edges;
mod effects;
mod examples;
mod fences;
mod gates;
mod governor;
mod harness_self;
mod intake;
mod ledger;
mod mcp_server;
mod memory;
mod metrics;
mod model_cases;
mod model_check;
mod models;
mod needs;
mod permits;
mod plan_files;
mod prometheus;
mod replanning;
mod replay;
mod resume;
mod reviewer;
mod rules;
mod scripts;
mod secrets;
mod standards;
mod state_machine;
mod tenants;
mod together;
mod tools;
mod traces;
mod webhooks;
mod whole_goal;
mod write_sets;
