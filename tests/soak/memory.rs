//! Memory over time: of each kind of program and of Redis.

use std::collections::BTreeMap;

/// What may be more at the end than in the middle without being growth.
const SLACK_BYTES: u64 = 16 * 1024 * 1024;

/// Samples by name, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    samples: BTreeMap<&'static str, Vec<u64>>,
}

impl Memory {
    /// Resident memory of a process; one that is gone is left out.
    pub(crate) fn program(&mut self, name: &'static str, pid: u32) {
        let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { return };
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
        let kib = line.and_then(|l| l.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
        if let Some(kib) = kib {
            self.samples.entry(name).or_default().push(kib * 1024);
        }
    }

    /// `used_memory` of the master.
    pub(crate) fn redis(&mut self, bytes: u64) {
        self.samples.entry("redis").or_default().push(bytes);
    }

    /// By name: medians of the first, the middle and the last fifth of the samples, and the very last one.
    pub(crate) fn rows(&self) -> Vec<(&'static str, [u64; 4])> {
        let row = |all: &Vec<u64>| {
            let fifth = (all.len() / 5).max(1);
            let median = |from: usize| {
                let mut part: Vec<u64> = all.iter().skip(from).take(fifth).copied().collect();
                part.sort_unstable();
                part.get(part.len() / 2).copied().unwrap_or(0)
            };
            let middle = all.len().saturating_sub(fifth) / 2;
            let last = all.len().saturating_sub(fifth);
            [median(0), median(middle), median(last), all.last().copied().unwrap_or(0)]
        };
        self.samples.iter().map(|(name, all)| (*name, row(all))).collect()
    }

    /// Names whose memory still grows in the second half.
    pub(crate) fn growing(&self) -> Vec<&'static str> {
        let grows = |[_, middle, end, _]: &[u64; 4]| *end > middle + middle / 4 + SLACK_BYTES;
        self.rows().into_iter().filter(|(_, row)| grows(row)).map(|(name, _)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_seen_and_noise_is_not() {
        let mut memory = Memory::default();
        for n in 0..100 {
            memory.redis(10_000_000 + (n % 7) * 1_000_000);
            memory.samples.entry("worker").or_default().push(50_000_000 + n * 2_000_000);
        }
        assert_eq!(memory.growing(), ["worker"]);
    }
}
