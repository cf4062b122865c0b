//! What happens to the fleet meanwhile: kills, and a master that dies.

use crate::Options;
use crate::memory::Memory;
use anyhow::Result;
use harness::fleet::{Fleet, Role};
use harness::topology::Sentinel;
use harness::wait;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use shared::store::Store;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// How often it is looked whether all live.
const SUPERVISED: Duration = Duration::from_millis(500);
/// Name of those that were not killed, among the kills.
pub(crate) const BY_ITSELF: &str = "ended by itself";

const ROLES: [(Role, &str); 3] =
    [(Role::Manager, "manager"), (Role::Worker, "worker"), (Role::Reviewer, "reviewer")];

/// Kills a random program and starts it again, until it is calm; how often each kind was hit.
pub(crate) async fn kills(
    fleet: &mut Fleet,
    memory: &mut Memory,
    store: &Store,
    options: &Options,
    calm: &CancellationToken,
) -> Result<BTreeMap<&'static str, usize>> {
    let mut random = StdRng::seed_from_u64(options.seed ^ 0xdead);
    let mut kills = BTreeMap::new();
    let mut next = Instant::now() + options.kill_every;
    loop {
        tokio::select! {
            () = calm.cancelled() => return Ok(kills),
            () = wait::moment(SUPERVISED) => {}
        }
        supervise(fleet, &mut kills)?;
        if Instant::now() < next {
            continue;
        }
        next = Instant::now() + options.kill_every;
        // Before the blow: the young have not grown yet.
        sample(fleet, memory, store).await;
        let counts: Vec<usize> = ROLES.iter().map(|(role, _)| fleet.all(*role).count()).collect();
        let mut n = random.random_range(0..counts.iter().sum::<usize>().max(1));
        for ((role, name), count) in ROLES.iter().zip(counts) {
            if n < count {
                let program = fleet.program(*role, n);
                program.kill();
                program.start()?;
                *kills.entry(*name).or_default() += 1;
                break;
            }
            n -= count;
        }
    }
}

/// Starts again whoever has ended by itself: a program that starts while there is no master says so and ends.
pub(crate) fn supervise(fleet: &mut Fleet, ended: &mut BTreeMap<&'static str, usize>) -> Result<()> {
    for (role, _) in ROLES {
        for program in fleet.all(role) {
            if program.has_ended().is_some() {
                program.start()?;
                *ended.entry(BY_ITSELF).or_default() += 1;
            }
        }
    }
    Ok(())
}

/// Kills the master and waits for the promotion, until it is calm; the time from the kill to the new master of each.
pub(crate) async fn flips(
    servers: &mut Sentinel,
    options: &Options,
    calm: &CancellationToken,
) -> Result<Vec<Duration>> {
    let mut flips = vec![];
    loop {
        tokio::select! {
            () = calm.cancelled() => return Ok(flips),
            () = wait::moment(options.flip_every) => {}
        }
        let killed = Instant::now();
        servers.flip().await?;
        flips.push(killed.elapsed());
    }
}

/// Resident memory of every program, and what the master uses.
pub(crate) async fn sample(fleet: &mut Fleet, memory: &mut Memory, store: &Store) {
    for (role, name) in ROLES {
        for program in fleet.all(role) {
            memory.program(name, program.pid());
        }
    }
    // Between two masters there is nothing to read.
    if let Ok(gauges) = store.gauges().await {
        memory.redis(gauges.used_memory_bytes);
    }
}
