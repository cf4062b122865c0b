//! The event log of a goal: one entry a transition (L6), a stream.

use super::{LogEvent, Result, Store, reply};
use redis::Value;
use std::collections::HashMap;

impl Store {
    /// Events after the stream id (`0` for all), at most `limit`, oldest first.
    ///
    /// # Errors
    /// [`super::StoreError`] when Redis does not answer or the id is malformed.
    pub async fn events(&self, goal: &str, after: &str, limit: usize) -> Result<Vec<LogEvent>> {
        let from = if after.is_empty() || after == "0" { "-".to_owned() } else { format!("({after}") };
        let key = self.keys.of_goal(goal, "ev");
        let entries = self.command("XRANGE", &[&key, &from, "+", "COUNT", &limit.to_string()]).await?;
        reply::array(entries)?.into_iter().map(entry).collect()
    }
}

fn entry(value: Value) -> Result<LogEvent> {
    let mut parts = reply::array(value)?.into_iter();
    let id = reply::text(parts.next().unwrap_or(Value::Nil))?;
    let flat = reply::texts(parts.next().unwrap_or(Value::Nil))?;
    let mut fields: HashMap<&str, &str> = HashMap::new();
    for pair in flat.chunks_exact(2) {
        fields.insert(&pair[0], &pair[1]);
    }
    let text = |f: &str| fields.get(f).copied().unwrap_or_default().to_owned();
    Ok(LogEvent {
        // The id begins with the time by the Redis clock.
        at_ms: id.split('-').next().and_then(|at| at.parse().ok()).unwrap_or(0),
        event: text("event"),
        ticket: text("ticket"),
        key: text("key"),
        from: text("from"),
        to: text("to"),
        epoch: text("epoch").parse().unwrap_or(0),
        who: text("who"),
        detail: text("detail"),
        id,
    })
}
