//! Who writes what: two tickets may declare one path only when one waits for the other. Pure.
//!
//! Without a path of needs between them nobody could say whose version stays, and the checks of the one whose
//! file is written over would no longer hold (I5).

use super::{Graph, TicketSpec};
use std::collections::BTreeMap;

/// Two tickets, by their places among the tickets, that cannot both deliver what they declare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap<'a> {
    pub first: usize,
    pub second: usize,
    /// The path that `second` declares.
    pub path: &'a str,
    /// `first` declares it as a file and `second` something below it; whatever the needs, only one can be there.
    pub folder: Option<&'a str>,
}

/// Every overlap of declared outputs, at most `max`; none in a plan with a cycle, which is refused for that.
#[must_use]
pub fn overlaps(specs: &[TicketSpec], max: usize) -> Vec<Overlap<'_>> {
    let graph = Graph::of(specs);
    let Ok(order) = graph.order() else { return vec![] };
    let mut writers: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for &i in &order {
        for output in &specs[i].outputs {
            let of_path = writers.entry(output).or_default();
            if of_path.last() != Some(&i) {
                of_path.push(i);
            }
        }
    }
    let mut found = vec![];
    // Neighbours in the order are enough: if each waits for the one before it, all wait for each other.
    let mut pairs: BTreeMap<usize, Vec<(usize, &str)>> = BTreeMap::new();
    for (path, of_path) in &writers {
        for pair in of_path.windows(2) {
            pairs.entry(pair[1]).or_default().push((pair[0], path));
        }
        let folders = path.char_indices().filter(|(_, c)| *c == '/').map(|(at, _)| &path[..at]);
        for (folder, holders) in folders.filter_map(|f| Some((f, writers.get(f)?))) {
            found.push(Overlap { first: holders[0], second: of_path[0], path, folder: Some(folder) });
        }
    }
    for (second, firsts) in pairs {
        if found.len() >= max {
            break;
        }
        let mut reached = vec![false; specs.len()];
        graph.mark_needs(second, &mut reached);
        // Two tickets of one id are refused for that.
        let unrelated = firsts
            .into_iter()
            .filter(|(first, _)| !reached[*first] && specs[*first].key != specs[second].key);
        found.extend(unrelated.map(|(first, path)| Overlap { first, second, path, folder: None }));
    }
    found.truncate(max);
    found
}
