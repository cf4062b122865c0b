//! The shape of a plan: order, layers, critical path, sinks, the integrating ticket. Pure.
//!
//! Whether the tickets of a plan are sound in themselves is in [`problem`]; what a check may be told, in [`params`];
//! whether two of them write one file, in [`outputs`].

use super::TicketSpec;
use std::collections::{BTreeSet, HashMap};

pub mod outputs;
pub mod params;
pub mod problem;
pub mod words;

pub use problem::{Known, PROBLEMS_MAX, Problem, problems};

/// Tickets as nodes, needs as edges. Needs that name nobody are left out, of two equal keys the first counts.
pub struct Graph<'a> {
    specs: &'a [TicketSpec],
    needs: Vec<Vec<usize>>,
    dependents: Vec<Vec<usize>>,
}

/// Tickets that wait for each other: each needs the next, the last needs the first.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tickets wait for each other: {}", self.path())]
pub struct Cycle {
    pub keys: Vec<String>,
}

impl Cycle {
    /// `a needs b needs a`, shortened in the middle when it is long.
    #[must_use]
    pub fn path(&self) -> String {
        const SHOWN: usize = 8;
        let mut keys: Vec<&str> = self.keys.iter().map(String::as_str).collect();
        if keys.len() > SHOWN {
            keys.truncate(SHOWN);
            keys.push("…");
        }
        keys.extend(self.keys.first().map(String::as_str));
        keys.join(" needs ")
    }
}

impl<'a> Graph<'a> {
    /// Links the tickets by their keys; takes time in proportion to tickets and needs.
    #[must_use]
    pub fn of(specs: &'a [TicketSpec]) -> Self {
        let mut at: HashMap<&str, usize> = HashMap::with_capacity(specs.len());
        for (i, spec) in specs.iter().enumerate() {
            at.entry(&spec.key).or_insert(i);
        }
        let mut needs = vec![vec![]; specs.len()];
        let mut dependents = vec![vec![]; specs.len()];
        for (i, spec) in specs.iter().enumerate() {
            let own: BTreeSet<usize> =
                spec.needs.iter().filter_map(|n| at.get(n.as_str()).copied()).collect();
            for &need in &own {
                dependents[need].push(i);
            }
            needs[i] = own.into_iter().collect();
        }
        Self { specs, needs, dependents }
    }

    /// Groups that could run one after the other, everything within a group at once.
    ///
    /// # Errors
    /// [`Cycle`] names tickets that wait for each other.
    pub fn layers(&self) -> Result<Vec<Vec<usize>>, Cycle> {
        let mut open: Vec<usize> = self.needs.iter().map(Vec::len).collect();
        let mut layer: Vec<usize> = (0..open.len()).filter(|&i| open[i] == 0).collect();
        let mut layers = vec![];
        let mut seen = 0;
        while !layer.is_empty() {
            seen += layer.len();
            let mut next = vec![];
            for &done in &layer {
                for &waits in &self.dependents[done] {
                    open[waits] -= 1;
                    if open[waits] == 0 {
                        next.push(waits);
                    }
                }
            }
            next.sort_unstable();
            layers.push(std::mem::replace(&mut layer, next));
        }
        if seen == open.len() { Ok(layers) } else { Err(self.cycle(&open)) }
    }

    /// Every ticket after all it needs.
    ///
    /// # Errors
    /// [`Cycle`] names tickets that wait for each other.
    pub fn order(&self) -> Result<Vec<usize>, Cycle> {
        Ok(self.layers()?.concat())
    }

    /// Walks along open needs until a ticket comes round again; every ticket left open has an open need.
    fn cycle(&self, open: &[usize]) -> Cycle {
        let mut at = open.iter().position(|&n| n > 0).unwrap_or_default();
        let mut step_of: HashMap<usize, usize> = HashMap::new();
        let mut walk = vec![];
        while !step_of.contains_key(&at) {
            step_of.insert(at, walk.len());
            walk.push(at);
            at = self.needs[at].iter().copied().find(|&n| open[n] > 0).unwrap_or(at);
        }
        let from = step_of.get(&at).copied().unwrap_or_default();
        Cycle { keys: walk[from..].iter().map(|&i| self.specs[i].key.clone()).collect() }
    }

    /// The longest chain of needs, each ticket weighing what `weight` says (its run time, or 1 for a count).
    ///
    /// # Errors
    /// [`Cycle`] names tickets that wait for each other.
    pub fn critical_path(&self, weight: impl Fn(&TicketSpec) -> u64) -> Result<u64, Cycle> {
        let mut end = vec![0u64; self.specs.len()];
        for i in self.order()? {
            let start = self.needs[i].iter().map(|&n| end[n]).max().unwrap_or_default();
            end[i] = start.saturating_add(weight(&self.specs[i]));
        }
        Ok(end.into_iter().max().unwrap_or_default())
    }

    /// Tickets not in `closed` whose needs all are.
    #[must_use]
    pub fn ready(&self, closed: &BTreeSet<&str>) -> Vec<usize> {
        let is_closed = |i: usize| closed.contains(self.specs[i].key.as_str());
        (0..self.specs.len())
            .filter(|&i| !is_closed(i) && self.needs[i].iter().all(|&n| is_closed(n)))
            .collect()
    }

    /// Tickets that no other needs.
    #[must_use]
    pub fn sinks(&self) -> Vec<usize> {
        (0..self.specs.len()).filter(|&i| self.dependents[i].is_empty()).collect()
    }

    /// Marks everything that the tickets in `from` need, directly or through others, and themselves.
    fn mark_needs(&self, from: usize, reached: &mut [bool]) {
        let mut walk = vec![from];
        while let Some(i) = walk.pop() {
            if !std::mem::replace(&mut reached[i], true) {
                walk.extend(&self.needs[i]);
            }
        }
    }
}

/// The last ticket and what it does not wait for yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Integration {
    /// Where the integrating ticket stands among the tickets.
    pub at: usize,
    /// Keys that it must need as well, so that it waits for every mandatory ticket; fewest that do.
    pub missing: Vec<String>,
    /// Mandatory tickets that need the integrating one, which is therefore not the last.
    pub after: Vec<String>,
}

/// The integrating ticket of a plan and the links that it lacks to every mandatory sink. `None`: no ticket is
/// marked, or the plan has a cycle.
#[must_use]
pub fn integrating(specs: &[TicketSpec]) -> Option<Integration> {
    let at = specs.iter().position(|s| s.integrates)?;
    let graph = Graph::of(specs);
    let order = graph.order().ok()?;
    let mut reached = vec![false; specs.len()];
    graph.mark_needs(at, &mut reached);
    let mut behind = vec![false; specs.len()];
    behind[at] = true;
    for &i in &order {
        behind[i] = behind[i] || graph.needs[i].iter().any(|&n| behind[n]);
    }
    let (mut missing, mut after) = (vec![], vec![]);
    // From the end of the plan: what a chosen ticket waits for needs no link of its own.
    for &i in order.iter().rev() {
        let spec = &specs[i];
        if i == at || reached[i] || !spec.mandatory {
            continue;
        }
        if behind[i] {
            after.push(spec.key.clone());
        } else {
            missing.push(spec.key.clone());
            graph.mark_needs(i, &mut reached);
        }
    }
    missing.reverse();
    after.reverse();
    Some(Integration { at, missing, after })
}

/// Adds the links that [`integrating`] finds missing; how many were added.
pub fn link_integrating(specs: &mut [TicketSpec]) -> usize {
    let Some(found) = integrating(specs) else { return 0 };
    let added = found.missing.len();
    specs[found.at].needs.extend(found.missing);
    added
}

#[cfg(test)]
#[path = "graph/tests.rs"]
mod tests;
