//! What is printed at the end, and whether it was good.

use crate::Options;
use crate::load::Ended;
use crate::memory::Memory;
use crate::storm::BY_ITSELF;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Everything that is known when the soak is over.
pub(crate) struct Report {
    pub(crate) options: Options,
    pub(crate) took: Duration,
    pub(crate) goals: Vec<Ended>,
    pub(crate) kills: BTreeMap<&'static str, usize>,
    /// From each kill of the master to the new one.
    pub(crate) flips: Vec<Duration>,
    pub(crate) memory: Memory,
    pub(crate) findings: Vec<String>,
    /// What the audit put back while it ran.
    pub(crate) repairs: usize,
}

impl Report {
    fn states(&self) -> BTreeMap<&str, usize> {
        let mut states = BTreeMap::new();
        for goal in &self.goals {
            *states.entry(goal.state.as_str()).or_default() += 1;
        }
        states
    }

    /// Programs that were killed, without those that ended by themselves.
    fn killed(&self) -> usize {
        self.kills.iter().filter(|(name, _)| **name != BY_ITSELF).map(|(_, n)| n).sum()
    }

    /// What makes the run itself worthless or suspicious, whatever became of the goals.
    fn doubts(&self) -> Vec<String> {
        let (killed, flips) = (self.killed(), self.flips.len());
        let mut doubts = vec![];
        for (what, n, every) in
            [("kills", killed, self.options.kill_every), ("failovers", flips, self.options.flip_every)]
        {
            let least = self.options.half_of(every);
            if n < least {
                doubts.push(format!("only {n} {what}: the options ask for {least} at least"));
            }
        }
        if self.repairs > killed + flips {
            doubts.push(format!(
                "{} repairs are more than the {killed} kills and {flips} failovers",
                self.repairs
            ));
        }
        doubts
    }

    /// Every goal done, nothing found, nothing growing, and the storm was one.
    pub(crate) fn is_good(&self) -> bool {
        let done = self.goals.iter().filter(|g| g.state == "done").count();
        let calm = self.findings.is_empty() && self.memory.growing().is_empty();
        done == self.options.goals && calm && self.doubts().is_empty()
    }

    /// The same for programs.
    pub(crate) fn to_json(&self) -> Value {
        let memory: BTreeMap<&str, Value> = self
            .memory
            .rows()
            .into_iter()
            .map(|(name, [start, middle, end, last])| {
                (name, json!({"start_bytes": start, "middle_bytes": middle, "end_bytes": end, "last_bytes": last}))
            })
            .collect();
        json!({
            "good": self.is_good(), "took_s": self.took.as_secs(), "seed": self.options.seed, "goals": self.states(),
            "attempts": self.goals.iter().map(|g| g.attempts).sum::<u64>(),
            "losses": self.goals.iter().map(|g| g.losses).sum::<u64>(),
            "resubmits": self.goals.iter().map(|g| g.submits.saturating_sub(1)).sum::<usize>(),
            "kills": self.kills, "failovers": self.flips.len(), "repairs": self.repairs, "memory": memory,
            "growing": self.memory.growing(), "doubts": self.doubts(), "findings": self.findings,
        })
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let minutes = self.took.as_secs_f64() / 60.0;
        writeln!(f, "soak: {minutes:.1} minutes, seed {}", self.options.seed)?;
        let longest = self.goals.iter().map(|g| g.took).max().unwrap_or_default();
        let sum = |of: fn(&Ended) -> u64| self.goals.iter().map(of).sum::<u64>();
        writeln!(
            f,
            "goals      {:?} of {}, the longest took {} s; {} attempts, {} lost leases, {} submits repeated",
            self.states(),
            self.options.goals,
            longest.as_secs(),
            sum(|g| g.attempts),
            sum(|g| g.losses),
            sum(|g| g.submits.saturating_sub(1) as u64),
        )?;
        writeln!(f, "kills      {} ({:?})", self.killed(), self.kills)?;
        let slowest = self.flips.iter().max().copied().unwrap_or_default();
        writeln!(f, "failovers  {}, the slowest took {:.1} s", self.flips.len(), slowest.as_secs_f64())?;
        writeln!(f, "repairs    {} by the audit while it ran", self.repairs)?;
        writeln!(f, "memory     {:>10} {:>10} {:>10} {:>10}  (MiB)", "start", "middle", "end", "after")?;
        for (name, row) in self.memory.rows() {
            write!(f, "  {name:<9}")?;
            for bytes in row {
                #[expect(clippy::cast_precision_loss, reason = "shown to a tenth of a MiB")]
                let mib = bytes as f64 / 1_048_576.0;
                write!(f, "{mib:>10.1} ")?;
            }
            writeln!(f)?;
        }
        for name in self.memory.growing() {
            writeln!(f, "  {name} grows")?;
        }
        for doubt in self.doubts() {
            writeln!(f, "  {doubt}")?;
        }
        writeln!(f, "findings   {}", self.findings.len())?;
        for finding in &self.findings {
            writeln!(f, "  {finding}")?;
        }
        write!(f, "{}", if self.is_good() { "good" } else { "NOT GOOD" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two minutes with a kill every ten seconds and a failover every thirty; one goal, done.
    fn report(kills: usize, flips: usize, repairs: usize) -> Report {
        Report {
            options: Options {
                time: Duration::from_secs(120),
                goals: 1,
                kill_every: Duration::from_secs(10),
                flip_every: Duration::from_secs(30),
                seed: 1,
                json: None,
            },
            took: Duration::from_secs(130),
            goals: vec![Ended { state: "done".into(), ..Ended::default() }],
            kills: BTreeMap::from([("worker", kills), (BY_ITSELF, 100)]),
            flips: vec![Duration::from_secs(3); flips],
            memory: Memory::default(),
            findings: vec![],
            repairs,
        }
    }

    #[test]
    fn a_run_is_good_only_if_the_storm_was_one() {
        assert!(report(6, 2, 8).is_good(), "{}", report(6, 2, 8));
        for (kills, flips, repairs, word) in
            [(5, 2, 0, "only 5 kills"), (6, 1, 0, "only 1 failovers"), (6, 2, 9, "9 repairs")]
        {
            let report = report(kills, flips, repairs);
            assert!(!report.is_good() && report.to_string().contains(word), "{report}");
            assert_eq!(report.to_json()["repairs"], repairs);
        }
    }
}
