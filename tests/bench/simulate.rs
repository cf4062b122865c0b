//! A model of one Redis that many agents share: what deploy/SCALING.md computes with.
//!
//! An agent thinks (its model calls and tools: everything that costs Redis nothing) and then has its ticket written: a
//! closed network with one server that does one script after the other. Thinking times are spread evenly around their mean;
//! the costs of Redis are those that were measured. Discrete events, no formula, so that a batch or a sweep can be added to
//! it where they turn out to matter.

use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What is simulated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fleet {
    pub(crate) agents: usize,
    /// Model calls of one ticket.
    pub(crate) calls: u64,
    /// How long one takes, on average.
    pub(crate) call_ms: u64,
    /// Redis' time for a ticket's life: submit, claim, complete, and for its review.
    pub(crate) life_us: u64,
    /// Redis' time for one model call: reserve, settle, record.
    pub(crate) call_us: u64,
    /// Redis' time for one renewal of one ticket, every ten seconds.
    pub(crate) renew_us: u64,
}

const RENEW_US: u64 = 10_000_000;

/// A cheap generator of even numbers, the same in every run.
struct Even(u64);

impl Even {
    /// Between half of the mean and one and a half of it.
    fn around(&mut self, mean: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        if mean == 0 { 0 } else { mean / 2 + self.0 % mean.max(1) }
    }
}

/// Tickets a second, how busy Redis is, how long a script waits for its turn.
pub(crate) fn run(fleet: Fleet, tickets: usize) -> Value {
    let mut even = Even(0x9e37_79b9_7f4a_7c15);
    // (when the agent's next request comes, calls that are left before its ticket is done)
    let mut requests: BinaryHeap<Reverse<(u64, u64)>> = BinaryHeap::new();
    let think = |even: &mut Even| even.around(fleet.call_ms * 1_000);
    for _ in 0..fleet.agents {
        requests.push(Reverse((think(&mut even), fleet.calls)));
    }
    let (mut free_at, mut busy, mut done, mut waits) = (0_u64, 0_u64, 0_usize, vec![]);
    // The first tickets only fill the pipes.
    let warm = tickets / 5;
    let mut began = 0;
    while done < tickets + warm {
        let Some(Reverse((at, left))) = requests.pop() else { break };
        // Every agent's ticket is renewed while it runs: that much of Redis is spent on it beside the requests.
        let thought = fleet.call_ms * 1_000;
        let renewals = fleet.renew_us * thought / RENEW_US;
        let cost = renewals + if left > 0 { fleet.call_us } else { fleet.life_us };
        let start = at.max(free_at);
        free_at = start + cost;
        if done >= warm {
            busy += cost;
            waits.push(start - at);
        }
        let left = if left > 0 {
            left - 1
        } else {
            done += 1;
            if done == warm {
                began = free_at;
                busy = 0;
            }
            fleet.calls
        };
        // Between the last call and the write of the ticket nothing is waited for.
        let next = if left == 0 && fleet.calls > 0 { free_at } else { free_at + think(&mut even) };
        requests.push(Reverse((next, left)));
    }
    waits.sort_unstable();
    let seconds = (free_at - began) as f64 / 1e6;
    let at = |q: f64| waits.get((waits.len() as f64 * q) as usize).copied().unwrap_or(0) as f64 / 1e3;
    json!({"scenario": "simulate", "agents": fleet.agents, "calls": fleet.calls, "call_ms": fleet.call_ms,
        "life_us": fleet.life_us, "call_us": fleet.call_us, "renew_us": fleet.renew_us, "tickets_per_s": tickets as f64 / seconds,
        "redis_busy": busy as f64 / 1e6 / seconds, "wait_p50_ms": at(0.5), "wait_p99_ms": at(0.99)})
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Fleet =
        Fleet { agents: 10, calls: 4, call_ms: 1_000, life_us: 200, call_us: 50, renew_us: 10 };

    #[test]
    fn few_agents_are_as_fast_as_their_calls_and_many_as_redis() {
        let few = run(IDLE, 2_000);
        let rate = few["tickets_per_s"].as_f64().unwrap();
        assert!((rate - 2.5).abs() < 0.1, "ten agents, four seconds a ticket: {few}");
        let many = run(Fleet { agents: 100_000, ..IDLE }, 100_000);
        let rate = many["tickets_per_s"].as_f64().unwrap();
        // 200 + 4 * 50 us a ticket, and five renewals of a second each.
        assert!((rate - 1e6 / 405.0).abs() < 25.0, "{many}");
        assert!(many["redis_busy"].as_f64().unwrap() > 0.99, "{many}");
    }

    #[test]
    fn without_calls_it_is_a_queue_that_never_pauses() {
        let drained = run(Fleet { agents: 64, calls: 0, call_ms: 0, ..IDLE }, 10_000);
        assert!((drained["tickets_per_s"].as_f64().unwrap() - 5_000.0).abs() < 10.0, "{drained}");
    }
}
