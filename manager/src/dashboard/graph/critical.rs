//! The critical path: the chain of needs that decides when the goal is over.

use super::layout::ranks;
use shared::ticket::Ticket;

/// Which tickets stand on it. While something is open: the chain with most open tickets. Afterwards: the chain that took
/// longest.
pub(super) fn path(tickets: &[Ticket], edges: &[(u32, u32)]) -> Vec<bool> {
    let mut on = vec![false; tickets.len()];
    let Some(ranks) = ranks(tickets.len(), edges) else { return on };
    let open = tickets.iter().any(|t| !t.status.is_terminal());
    let weight = |t: &Ticket| match (open, t.status.is_terminal()) {
        (true, terminal) => u64::from(!terminal),
        (false, _) if t.started_at_ms == 0 => 0,
        (false, _) => t.updated_at_ms.saturating_sub(t.started_at_ms),
    };
    let mut before: Vec<Vec<usize>> = vec![vec![]; tickets.len()];
    for &(from, to) in edges {
        before[to as usize].push(from as usize);
    }
    let mut order: Vec<usize> = (0..tickets.len()).collect();
    order.sort_by_key(|i| ranks[*i]);
    // Weight of the heaviest chain that ends here, and the ticket before this one on it.
    let mut chains: Vec<(u64, Option<usize>)> = vec![(0, None); tickets.len()];
    for i in order {
        let heaviest = before[i].iter().copied().max_by_key(|n| chains[*n].0);
        chains[i] = (weight(&tickets[i]) + heaviest.map_or(0, |n| chains[n].0), heaviest);
    }
    let mut last = (0..tickets.len()).max_by_key(|i| chains[*i].0).filter(|i| chains[*i].0 > 0);
    while let Some(i) = last {
        on[i] = true;
        last = chains[i].1;
    }
    on
}

#[cfg(test)]
mod tests {
    use super::super::tests::ticket;
    use super::*;
    use shared::ticket::Status;

    #[test]
    fn it_is_the_chain_with_most_to_do() {
        let tickets = [
            ticket("a", &[], Status::Done),
            ticket("b", &["a"], Status::Running),
            ticket("c", &["b"], Status::Blocked),
            ticket("d", &["a"], Status::Running),
        ];
        assert_eq!(path(&tickets, &[(0, 1), (1, 2), (0, 3)]), [true, true, true, false]);
    }

    #[test]
    fn afterwards_it_is_the_chain_that_took_longest() {
        let took = |id: &str, ms: u64| {
            let mut t = ticket(id, &[], Status::Done);
            (t.started_at_ms, t.updated_at_ms) = (100, 100 + ms);
            t
        };
        let tickets = [took("a", 5), took("b", 900), took("c", 10), took("d", 10)];
        assert_eq!(path(&tickets, &[(0, 2), (1, 3)]), [false, true, false, true]);
        assert_eq!(path(&[], &[]), Vec::<bool>::new());
    }
}
