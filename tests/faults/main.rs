//! The fleet under faults: killed, frozen, cut off, out of memory. After each the oracle finds nothing.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::wildcard_enum_match_arm,
    reason = "a failing test panics"
)]

mod clocks;
mod confirm;
mod connections;
mod data_loss;
mod drains;
mod failover;
mod full_disk;
mod kill_points;
mod kills;
mod leftovers;
mod long_jobs;
mod outage;
mod poison;
mod reconnects;
mod redis_itself;
mod resharding;
mod restarts;
mod sizes;
mod topologies;
