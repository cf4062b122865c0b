//! Where tickets stand in the drawing. Sugiyama's method, from a library; kept by the shape of the plan.

use rust_sugiyama::configure::{Config, CrossingMinimization, RankingType};
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A ticket's box.
pub(super) const WIDTH: f64 = 190.0;
pub(super) const HEIGHT: f64 = 44.0;
/// Between boxes of one column, and between columns.
const GAP: f64 = 16.0;
const COLUMN_GAP: f64 = 56.0;
/// Tickets without needs that nobody needs stand in rows of so many.
const ROW: usize = 5;
/// Largest drawing: tickets, and the columns that all needs cross together.
const TICKETS_MAX: usize = 2_000;
const CROSSED_MAX: u64 = 20_000;
/// How long a page waits for a drawing that is not there yet.
const WAIT: Duration = Duration::from_secs(5);
const KEPT: usize = 32;

/// Left upper corners, by ticket.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Layout {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) places: Vec<(f64, f64)>,
}

type Kept = Arc<Mutex<VecDeque<(u64, Option<Arc<Layout>>)>>>;

/// Layouts that were made, newest last. Cheap to clone.
#[derive(Clone, Default)]
pub(in super::super) struct Layouts {
    kept: Kept,
}

impl Layouts {
    /// The layout of this shape. `None`: it is too large, or not ready in time; then it is there at a later look.
    pub(super) async fn of(&self, tickets: usize, edges: &[(u32, u32)]) -> Option<Arc<Layout>> {
        let mut hasher = DefaultHasher::new();
        (tickets, edges).hash(&mut hasher);
        let shape = hasher.finish();
        {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, layout)) = kept.iter().find(|(of, _)| *of == shape) {
                return layout.clone();
            }
            if kept.len() == KEPT {
                kept.pop_front();
            }
            // Until it is made, and should making it fail: none. Nobody makes it a second time.
            kept.push_back((shape, None));
        }
        let (edges, kept) = (edges.to_vec(), Arc::clone(&self.kept));
        let making = tokio::task::spawn_blocking(move || {
            let made = Arc::new(lay_out(tickets, &edges)?);
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(place) = kept.iter_mut().find(|(of, _)| *of == shape) {
                place.1 = Some(Arc::clone(&made));
            }
            Some(made)
        });
        tokio::time::timeout(WAIT, making).await.ok()?.ok()?
    }
}

fn lay_out(tickets: usize, edges: &[(u32, u32)]) -> Option<Layout> {
    let ranks = ranks(tickets, edges)?;
    let crossed: u64 = edges.iter().map(|&(a, b)| u64::from(ranks[b as usize] - ranks[a as usize])).sum();
    if tickets > TICKETS_MAX || crossed > CROSSED_MAX {
        return None;
    }
    let mut linked = vec![false; tickets];
    for &(from, to) in edges {
        linked[from as usize] = true;
        linked[to as usize] = true;
    }
    // The library draws from top to bottom: width and height change places, columns are its rows.
    let box_ = (HEIGHT, WIDTH + COLUMN_GAP - GAP);
    let vertices: Vec<(u32, (f64, f64))> =
        (0u32..).zip(&linked).filter(|(_, linked)| **linked).map(|(i, _)| (i, box_)).collect();
    let config = Config {
        minimum_length: 1,
        vertex_spacing: GAP,
        dummy_vertices: true,
        dummy_size: 0.4,
        // Others take seconds for a thousand tickets.
        ranking_type: RankingType::Up,
        c_minimization: CrossingMinimization::Barycenter,
        transpose: tickets <= 200,
    };
    let parts = rust_sugiyama::from_vertices_and_edges(&vertices, edges, &config);
    let mut layout = Layout { places: vec![(0.0, 0.0); tickets], ..Layout::default() };
    for (part, _, _) in parts {
        let left = part.iter().map(|(_, (_, y))| *y).fold(f64::INFINITY, f64::min);
        let top = part.iter().map(|(_, (x, _))| *x).fold(f64::INFINITY, f64::min);
        let above = layout.height;
        for (i, (x, y)) in part {
            layout.put(i, (y - left, above + x - top));
        }
        layout.height += GAP;
    }
    let above = layout.height;
    for (n, (i, _)) in linked.iter().enumerate().filter(|(_, linked)| !**linked).enumerate() {
        let (row, column) = ((n / ROW) as f64, (n % ROW) as f64);
        layout.put(i, (column * (WIDTH + GAP), above + row * (HEIGHT + GAP)));
    }
    Some(layout)
}

impl Layout {
    fn put(&mut self, i: usize, (x, y): (f64, f64)) {
        if let Some(place) = self.places.get_mut(i) {
            *place = (x, y);
            self.width = self.width.max(x + WIDTH);
            self.height = self.height.max(y + HEIGHT);
        }
    }
}

/// How many tickets stand before each on its longest way; `None` when they need each other in a circle.
pub(super) fn ranks(tickets: usize, edges: &[(u32, u32)]) -> Option<Vec<u32>> {
    let mut ranks = vec![0; tickets];
    let mut open = vec![0u32; tickets];
    let mut after: Vec<Vec<usize>> = vec![vec![]; tickets];
    for &(from, to) in edges {
        after.get_mut(from as usize)?.push(to as usize);
        *open.get_mut(to as usize)? += 1;
    }
    let mut free: Vec<usize> = (0..tickets).filter(|i| open[*i] == 0).collect();
    let mut seen = 0;
    while let Some(i) = free.pop() {
        seen += 1;
        for &next in &after[i] {
            ranks[next] = ranks[next].max(ranks[i] + 1);
            open[next] -= 1;
            if open[next] == 0 {
                free.push(next);
            }
        }
    }
    (seen == tickets).then_some(ranks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_need_stands_left_and_nothing_stands_on_another() {
        let edges = [(0, 2), (1, 2), (2, 3), (0, 3), (4, 5)];
        let layout = lay_out(8, &edges).unwrap();
        for (from, to) in edges {
            assert!(layout.places[from as usize].0 + WIDTH < layout.places[to as usize].0, "{layout:?}");
        }
        for (i, a) in layout.places.iter().enumerate() {
            for b in &layout.places[i + 1..] {
                assert!((a.0 - b.0).abs() >= WIDTH || (a.1 - b.1).abs() >= HEIGHT, "{layout:?}");
            }
        }
    }

    #[test]
    fn what_cannot_be_drawn_is_not_tried() {
        assert_eq!(lay_out(2, &[(0, 1), (1, 0)]), None);
        assert_eq!(lay_out(TICKETS_MAX + 1, &[]), None);
        let tangled: Vec<(u32, u32)> =
            (0..400u32).flat_map(|i| (i.saturating_sub(60)..i).map(move |n| (n, i))).collect();
        assert_eq!(lay_out(400, &tangled), None);
    }
}
