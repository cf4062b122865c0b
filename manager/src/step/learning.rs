//! Before a goal is done: what it taught is kept. Best effort: no goal waits for it, and a repeat changes nothing.

use super::{Step, Stop};
use crate::learn;
use shared::store::LogEvent;

/// Events of one page, and most that are read: the log itself is trimmed at about as many.
const PAGE: usize = 500;
const EVENTS_MAX: usize = 10_000;

impl Step<'_> {
    /// Keeps the goal's lessons and for what its work was sent back, if the fleet learns at all.
    pub(super) async fn learn(&self) {
        let config = &self.manager.config;
        if !config.memory.learn && !config.standards.propose {
            return;
        }
        match self.keep_lessons().await {
            Ok((new, proposed)) => tracing::info!(goal = self.goal.id, new, proposed, "lessons kept"),
            Err(stop) => tracing::warn!(goal = self.goal.id, reason = %stop, "no lessons kept"),
        }
    }

    /// How many lessons are new, and how many standards are proposed.
    async fn keep_lessons(&self) -> Result<(u64, u64), Stop> {
        let (store, memory) = (&self.manager.store, &self.manager.config.memory);
        let tickets = self.tickets().await?;
        // Only what was done more than once was sent back.
        let again = tickets.iter().any(|t| t.attempts > 1);
        let events = if again { self.events().await? } else { vec![] };
        let now_ms = self.patiently(|| store.now_ms()).await?;
        let proposed = if self.manager.config.standards.propose {
            self.notice(&tickets, &events, now_ms).await?
        } else {
            0
        };
        let reasons = learn::reasons(&events, learn::failed);
        let lessons = learn::lessons(&self.goal, &tickets, &reasons, memory.lesson_chars_max, now_ms);
        if lessons.is_empty() || !memory.learn {
            return Ok((0, proposed));
        }
        // A goal has more tickets than one call should carry.
        let mut new = 0;
        for page in lessons.chunks(100) {
            new += self.patiently(|| store.learn(&self.goal.tenant, page, memory.lessons_max)).await?;
        }
        Ok((new, proposed))
    }

    async fn events(&self) -> Result<Vec<LogEvent>, Stop> {
        let mut all: Vec<LogEvent> = vec![];
        while all.len() < EVENTS_MAX {
            let after = all.last().map_or_else(|| "0".to_owned(), |event| event.id.clone());
            let page = self.patiently(|| self.manager.store.events(&self.goal.id, &after, PAGE)).await?;
            let is_last = page.len() < PAGE;
            all.extend(page);
            if is_last {
                break;
            }
        }
        Ok(all)
    }
}
