//! One publisher a goal and process: whoever merges while another of the same process merges only loses the race.
//!
//! The root is compared and set in the store whatever happens here; this only keeps a process from racing itself.
//! A thousand independent tickets of one goal would otherwise merge again and again, until their tries are used up.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, Weak};
use tokio::sync::{Mutex, OwnedMutexGuard};

/// A turn for each goal that is being published to.
#[derive(Default)]
pub(super) struct Turns {
    of_goal: std::sync::Mutex<HashMap<String, Weak<Mutex<()>>>>,
}

impl Turns {
    /// Waits for the goal's turn; it ends when the guard is dropped. First come, first served. Cancellation safe.
    pub(super) async fn take(&self, goal: &str) -> OwnedMutexGuard<()> {
        let turn = {
            let mut of_goal = self.of_goal.lock().unwrap_or_else(PoisonError::into_inner);
            let known = of_goal.get(goal).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                // Goals that nobody publishes to any more are forgotten on the way.
                of_goal.retain(|_, turn| turn.strong_count() > 0);
                let turn = Arc::new(Mutex::new(()));
                of_goal.insert(goal.to_owned(), Arc::downgrade(&turn));
                turn
            })
        };
        turn.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[tokio::test]
    async fn one_at_a_time_for_a_goal_and_others_meanwhile() {
        let turns = Turns::default();
        let first = turns.take("a").await;
        assert!(turns.take("a").now_or_never().is_none());
        assert!(turns.take("b").now_or_never().is_some());
        drop(first);
        assert!(turns.take("a").now_or_never().is_some());
        let _c = turns.take("c").await;
        assert_eq!(turns.of_goal.lock().unwrap().len(), 1, "ended turns are forgotten");
    }
}
